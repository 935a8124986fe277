//! What a configuration file may say, and what its refusals say.
use rnic_hdl::config::{Config, WIDTHS_BITS};

const GOOD: &str = "[datapath]\nwidth_bits = 512\ncore_clock_mhz = 250\n\
    [network]\nline_rate_gbps = 100\n[receive]\nbuffer_kib = 64\n";

/// The message for `GOOD` with one line replaced.
fn refusal(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "GOOD has the text that the test replaces");
    Config::parse(&GOOD.replace(from, to)).expect_err("the setting is refused").to_string()
}

fn accepts(from: &str, to: &str) {
    Config::parse(&GOOD.replace(from, to)).expect("the setting is allowed");
}

#[test]
fn a_good_file_is_accepted() {
    assert_eq!(Config::parse(GOOD).unwrap().core_period_ps(), 4000);
}

#[test]
fn each_width_has_its_preset() {
    for width_bits in WIDTHS_BITS {
        assert_eq!(Config::preset(width_bits).unwrap().datapath.width_bits, width_bits);
    }
    let message = Config::preset(96).expect_err("no preset").to_string();
    assert_eq!(message, "setting `datapath.width_bits` is 96; allowed: 64, 128, 256, 512");
}

#[test]
fn a_width_that_is_not_built_is_refused() {
    let message = refusal("width_bits = 512", "width_bits = 100");
    assert_eq!(message, "setting `datapath.width_bits` is 100; allowed: 64, 128, 256, 512");
}

#[test]
fn the_clock_has_a_lower_and_an_upper_bound() {
    accepts("core_clock_mhz = 250", "core_clock_mhz = 500");
    assert!(refusal("core_clock_mhz = 250", "core_clock_mhz = 501").contains("50 to 500 MHz"));
    assert!(
        refusal("core_clock_mhz = 250", "core_clock_mhz = 49").contains("`datapath.core_clock_mhz` is 49")
    );
}

#[test]
fn a_line_rate_that_the_datapath_cannot_carry_is_refused() {
    accepts("line_rate_gbps = 100", "line_rate_gbps = 128");
    let message = refusal("line_rate_gbps = 100", "line_rate_gbps = 129");
    assert!(message.contains("`network.line_rate_gbps` is 129; allowed: 1 to 128 Gb/s"), "{message}");
    assert!(refusal("line_rate_gbps = 100", "line_rate_gbps = 0").contains("is 0"));
}

#[test]
fn a_buffer_has_one_of_the_sizes_that_are_built() {
    accepts("buffer_kib = 64", "buffer_kib = 32");
    accepts("buffer_kib = 64", "buffer_kib = 128");
    for bad in ["16", "48", "256"] {
        let message = refusal("buffer_kib = 64", &format!("buffer_kib = {bad}"));
        assert_eq!(message, format!("setting `receive.buffer_kib` is {bad}; allowed: 32, 64, 128"));
    }
}

#[test]
fn unknown_missing_and_mistyped_settings_are_named() {
    assert!(refusal("width_bits", "width_bit").contains("width_bit"));
    assert!(refusal("core_clock_mhz = 250\n", "").contains("core_clock_mhz"));
    assert!(refusal("width_bits = 512", "width_bits = \"wide\"").contains("width_bits = \"wide\""));
}
