//! The command line of `rnic-sim`.
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// The binary with these arguments, with all variables set that make errors print a backtrace.
fn binary(arguments: &[&str]) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("sim/ is in the workspace");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rnic-sim"));
    command.args(arguments).current_dir(root).env("RUST_BACKTRACE", "1").env("RUST_LIB_BACKTRACE", "1");
    command
}

/// Runs the binary, which must fail, and returns its error output.
fn error_of(arguments: &[&str]) -> Result<String> {
    error_with_code(1, arguments)
}

/// Runs the binary, which must fail with this exit code, and returns its error output.
fn error_with_code(code: i32, arguments: &[&str]) -> Result<String> {
    let output = binary(arguments).stdin(Stdio::null()).output()?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(code), "{}: {text}", output.status);
    ensure!(text.starts_with("error: ") && !text.to_lowercase().contains("backtrace"), "{text}");
    Ok(text)
}

/// The demo prints its first line before it generates anything.
#[test]
fn a_closed_pipe_ends_the_demo_quietly() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().display().to_string();
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    // It knows its preset and its captures in another folder too.
    for arguments in [vec!["demo", "--out", &out], vec!["demo", "--out", &out, "--config", "w256"]] {
        let mut command = binary(&arguments);
        let output = command.current_dir(directory.path()).stdout(writer.try_clone()?).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(141) && error.is_empty(), "{}: {error}", output.status);
    }
    Ok(())
}

#[test]
fn an_error_names_the_file_and_has_no_backtrace() -> Result<()> {
    for command in ["demo", "bench", "differential"] {
        let text = error_of(&[command, "--config", "configs/no_such.toml"])?;
        ensure!(text.starts_with("error: configs/no_such.toml: cannot be read: "), "{text}");
        ensure!(text.contains("w64, w128, w256, w512"), "{text}");
        let text = error_of(&[command, "--config", "Cargo.toml"])?;
        ensure!(text.starts_with("error: Cargo.toml: "), "{text}");
    }
    Ok(())
}

/// Results in the place of what is read, or of each other, are refused before anything is generated.
#[test]
fn no_results_replace_what_is_read() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (config, svg, link) = (path("rnic.v"), path("one.svg"), path("summary.json"));
    std::fs::copy("../configs/w64.toml", &config)?;
    std::os::unix::fs::symlink(&config, &link)?;
    let (out, captures) = (path(""), "tests/vectors");
    for arguments in [
        &["demo", "--config", &config, "--out", &out][..],
        &["bench", "--config", &config, "--json", &link],
        &["bench", "--json", &svg],
        &["goodput", "--config", &config, "--json", &config],
    ] {
        let text = error_of(arguments)?;
        ensure!(text.contains(" are one file: name two"), "{text}");
    }
    let text = error_of(&["demo", "--captures", captures, "--out", &config])?;
    ensure!(text.contains("cannot make "), "{text}");
    ensure!(std::fs::read(&config)? == std::fs::read("../configs/w64.toml")? && !Path::new(&svg).exists());
    Ok(())
}

#[test]
fn numbers_that_no_run_can_use_are_refused_with_their_bounds() -> Result<()> {
    for (arguments, bounds) in [
        (&["demo", "--messages", "0"][..], "1..=1000000"),
        (&["demo", "--messages", "4294967295"], "1..=1000000"),
        (&["bench", "--post-ns", "18446744073709552"], "0..=1000000000"),
        (&["bench", "--poll-ns", "1000000001"], "0..=1000000000"),
        (&["bench", "--regions", "513"], "1..=512"),
        (&["demo", "--messages", "-1"], "1..=1000000"),
        (&["bench", "--post-ns", "18446744073709551616"], "0..=1000000000"),
        (&["bench", "--read-credits", "nan"], "1..=256"),
        (&["demo", "--seed", "18446744073709551616"], "0..=18446744073709551615"),
        (&["serve", "--socket", "card", "--delay-ns", "-1"], "0..=1000000000"),
        // It is divided by four.
        (&["differential", "--frames", "3"], "4..=18446744073709551615"),
    ] {
        let text = error_with_code(2, arguments)?;
        ensure!(text.contains(&format!("is not in {bounds}")), "{text}");
    }
    Ok(())
}

/// Results of nothing would take the place of others, and a folder for results would be left behind.
#[test]
fn a_bench_that_measures_nothing_leaves_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let json = directory.path().join("new/bench.json").display().to_string();
    let text = error_of(&["bench", "--only", "no such case", "--json", &json])?;
    ensure!(text.contains("no case has `no such case` in its name"), "{text}");
    for command in ["bench", "goodput"] {
        error_of(&[command, "--config", "none.toml", "--json", &json])?;
    }
    ensure!(std::fs::read_dir(directory.path())?.next().is_none());
    Ok(())
}

/// Before anything is generated or verilated, which would take minutes.
#[test]
fn the_demo_names_the_capture_that_it_cannot_read() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().display().to_string();
    let out = directory.path().join("out").display().to_string();
    let demo = |captures: &str| error_of(&["demo", "--captures", captures, "--out", &out]);
    let text = demo(&path)?;
    ensure!(text.contains(&format!("{path} holds no capture")), "{text}");
    let text = demo(&format!("{path}/missing"))?;
    ensure!(text.contains(&format!("cannot read the directory {path}/missing: ")), "{text}");
    std::fs::write(directory.path().join("bad.pcap"), "this is no capture")?;
    let text = demo(&path)?;
    ensure!(text.contains(&format!("{path}/bad.pcap: neither pcap nor pcapng")), "{text}");
    std::fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/rxe_rc_srq.pcap"),
        directory.path().join("bad.pcap"),
    )?;
    std::fs::write(directory.path().join("expected.json"), "{ \"frames\": 1 }")?;
    let text = demo(&path)?;
    ensure!(text.contains(&format!("{path}/expected.json: missing field")), "{text}");
    ensure!(!Path::new(&out).exists(), "nothing was written");
    Ok(())
}

#[test]
fn a_peer_says_what_is_wrong_with_its_arguments() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let memory = directory.path().join("memory");
    std::fs::write(&memory, [0; 100])?;
    let memory = memory.display().to_string();
    let peer = |code: i32, arguments: &[&str]| {
        let card = ["peer", "--card-qpn", "17", "--card-psn", "0xffffff"];
        error_with_code(code, &[&card, arguments].concat())
    };
    // Exit code 2 is that of a command line that cannot be read.
    for (arguments, expected) in [
        (&["--memory", &memory, "write:0:100"][..], "expected write:OFFSET:BYTES:ADDRESS:KEY"),
        (&["--memory", &memory, "--qpn", "0x1000000"], "0x1000000 does not fit into 24 bits"),
        (&["--memory", &memory, "--key", "one"], "\"one\" is no number"),
        (&["send:0:100"], "--memory <MEMORY>"),
    ] {
        let text = peer(2, arguments)?;
        ensure!(text.contains(expected), "{arguments:?}: {text}");
    }
    for (arguments, expected) in [
        (
            &["--memory", &memory, "send:1:100"][..],
            "100 bytes at offset 1 end beyond the memory of 100 bytes",
        ),
        (&["--memory", &memory, "--address", "0xffffffffffffffff"], "ends beyond the address space"),
        (&["--memory", &format!("{memory}/none")], "cannot read "),
        (&["--memory", &memory, "send:0:100"], "standard input is no Unix socket"),
    ] {
        let text = peer(1, arguments)?;
        ensure!(text.contains(expected), "{arguments:?}: {text}");
    }
    Ok(())
}
