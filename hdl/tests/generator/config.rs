//! What a configuration file may say, and what its refusals say.
use rnic_hdl::config::{Config, WIDTHS_BITS};
use rnic_messages::sizes::Sizes;

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
fn a_receive_buffer_has_a_power_of_two_within_its_range() {
    for (setting, least, greatest) in [("buffer_kib", 8, 128), ("packets", 16, 512)] {
        let with = |value: u32| match setting {
            "packets" => Config::parse(&format!("{GOOD}packets = {value}\n")),
            _ => Config::parse(&GOOD.replace("buffer_kib = 64", &format!("buffer_kib = {value}"))),
        };
        assert!(with(least).is_ok() && with(greatest).is_ok());
        for bad in [0, least / 2, greatest - 1, 2 * greatest] {
            let message = with(bad).expect_err("refused").to_string();
            let allowed = format!("powers of two from {least} to {greatest}");
            assert_eq!(message, format!("setting `receive.{setting}` is {bad}; allowed: {allowed}"));
        }
    }
    let config = Config::parse(GOOD).unwrap();
    assert_eq!((config.sizes().receive_bytes, config.receive.packets), (16, 512));
}

/// Tables have the most that can be built where nothing is said, and are refused with the range.
#[test]
fn tables_have_powers_of_two_within_their_range() {
    let with = |line: &str| Config::parse(&format!("{GOOD}[tables]\n{line}\n"));
    let most = Config::parse(GOOD).unwrap();
    let largest = Sizes { receive_bytes: 16, ..Sizes::LARGEST };
    assert_eq!(most.sizes(), largest);
    assert_eq!(with("queue_pairs = 1024\nregions = 1024").unwrap(), most);
    for (setting, least, greatest) in [
        ("queue_pairs", 16, 1024),
        ("completion_queues", 2, 1024),
        ("shared_receive_queues", 2, 64),
        ("event_queues", 4, 32),
        ("regions", 16, 1024),
        ("page_entries", 16, 16_384),
        ("address_handles", 2, 256),
        ("read_slots", 64, 8192),
    ] {
        for good in [least, greatest] {
            assert!(with(&format!("{setting} = {good}")).is_ok());
        }
        for bad in [0, least / 2, greatest - 1, 2 * greatest] {
            let message = with(&format!("{setting} = {bad}")).expect_err("refused").to_string();
            let allowed = format!("powers of two from {least} to {greatest}");
            assert_eq!(message, format!("setting `tables.{setting}` is {bad}; allowed: {allowed}"));
        }
    }
    assert!(with("queue_pair = 16").expect_err("refused").to_string().contains("queue_pair"));
    let sizes = with("queue_pairs = 16\nshared_receive_queues = 4").unwrap().sizes();
    assert_eq!(sizes, Sizes { queue_pairs: 4, shared_receive_queues: 2, ..largest });
}

/// The presets by size; `large` is that of the widest datapath.
#[test]
fn presets_have_names() {
    let read = |name: &str| Config::read(name.as_ref()).unwrap();
    assert_eq!(read("large"), Config::preset(512).unwrap());
    for (name, width_bits, queue_pairs) in [("tiny", 64, 16), ("small", 64, 32), ("medium", 256, 256)] {
        let config = read(name);
        assert_eq!((config.datapath.width_bits, config.tables.queue_pairs), (width_bits, queue_pairs));
    }
    let message = Config::read("huge".as_ref()).expect_err("no preset").to_string();
    assert!(message.ends_with("w64, w128, w256, w512, large, medium, small, tiny"), "{message}");
}

#[test]
fn unknown_missing_and_mistyped_settings_are_named() {
    assert!(refusal("width_bits", "width_bit").contains("width_bit"));
    assert!(refusal("core_clock_mhz = 250\n", "").contains("core_clock_mhz"));
    assert!(refusal("width_bits = 512", "width_bits = \"wide\"").contains("width_bits = \"wide\""));
}

/// The files of a card, its manifest among them, know one clock of the MAC.
#[test]
fn the_clock_of_the_mac_follows_from_the_line_unless_it_is_given() {
    let clock = |from: &str, to: &str| Config::parse(&GOOD.replace(from, to)).unwrap().network.mac_clock_hz;
    assert_eq!(clock("", ""), Some(322_265_625));
    assert_eq!(clock("= 100", "= 40"), Some(322_265_625));
    assert_eq!(clock("= 100", "= 39"), Some(76_171_875));
    assert_eq!(clock("= 250", "= 400"), Some(322_265_625));
    assert_eq!(clock("= 100", "= 100\nmac_clock_hz = 250_000_000"), Some(250_000_000));
    let narrow = GOOD.replace("= 512", "= 64");
    for (gbps, hertz) in [(10, 156_250_000), (16, 250_000_000)] {
        let config = Config::parse(&narrow.replace("= 100", &format!("= {gbps}"))).unwrap();
        assert_eq!(config.mac_clock_hz(), hertz);
    }
}

#[test]
fn a_mac_that_is_too_slow_for_the_line_or_too_fast_for_the_core_is_refused() {
    let with = |hertz: u64| format!("line_rate_gbps = 100\nmac_clock_hz = {hertz}");
    accepts("line_rate_gbps = 100", &with(195_312_500));
    let message = refusal("line_rate_gbps = 100", &with(195_312_499));
    assert_eq!(
        message,
        "setting `network.mac_clock_hz` is 195312499; allowed: at least 195312500 Hz, at which a datapath of 512 bits \
         carries 100 Gb/s"
    );
    assert!(refusal("line_rate_gbps = 100", &with(0)).contains("is 0"));
    let message = refusal("line_rate_gbps = 100", &with(1_100_000_000));
    let highest = "195312500 to 1000000000 Hz beside a core of 250 MHz";
    assert!(
        message.contains(highest) && message.contains("52 of them") && message.contains("67 must fit"),
        "{message}"
    );
    accepts("line_rate_gbps = 100", &with(1_000_000_000));
    assert!(refusal("line_rate_gbps = 100", &with(1_000_000_001)).contains(highest));
    assert!(refusal("line_rate_gbps = 100", &with(i64::MAX as u64)).contains(highest));
}

/// Whatever is accepted, the queue to the MAC holds what a frame needs; every core may have a MAC of its own clock.
#[test]
fn every_width_and_core_has_a_clock_of_the_mac() {
    for width in WIDTHS_BITS {
        for core_mhz in (50..=500).step_by(10) {
            let gbps = width * core_mhz / 1000;
            let text =
                GOOD.replace("= 512", &format!("= {width}")).replace("= 250", &format!("= {core_mhz}"));
            let text =
                |hertz: u64| text.replace("gbps = 100", &format!("gbps = {gbps}\nmac_clock_hz = {hertz}"));
            let core_hz = u64::from(core_mhz) * 1_000_000;
            let config = Config::parse(&text(core_hz)).unwrap();
            assert_eq!(config.head_start_beats(), 3);
            let accepted = (0..100).take_while(|percent| {
                Config::parse(&text(core_hz + core_hz * percent / 10))
                    .is_ok_and(|config| config.head_start_beats() < 128)
            });
            assert!(accepted.count() > 1, "{width} bits at {core_mhz} MHz");
        }
    }
}
