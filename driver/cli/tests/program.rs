//! The program `rnic` beside served cards: what it prints, and its exit codes.
//!
//! `INSTA_UPDATE=always` writes the snapshots again.
use anyhow::{Context, Result, ensure};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_machine::host::HostOptions;
use rnic_machine::served::background::Background;
use rnic_machine::served::server::Server;
use rnic_machine::wire::loopback::Loopback;
use rnic_machine::world::{CardOptions, Port, World, model_options};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use verilator_sys::{Model, ModelOptions, Optimization};

/// A served card of 64 bits.
struct Served {
    name: String,
    server: Background,
    _folder: TempDir,
}

impl Served {
    /// Serves a card whose wire leads back to it, or to nothing.
    fn start(is_looped: bool) -> Result<Served> {
        let config = Config::preset(64)?;
        let verilog = generator::generate(&config)?.verilog;
        let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
        let model = Model::build(TOP, &verilog, &model_options(options))?;
        let mut world = World::new(1);
        let options = CardOptions { host: HostOptions::IDEAL, ..CardOptions::standard(64) };
        world.add_card(&model, options)?;
        if is_looped {
            let plug = world.add_station(Loopback::default());
            world.connect(Port::Card(0), Port::Station(plug), options.wire())?;
        }
        world.leave_reset()?;
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("card");
        let name = format!("vfu:{}", socket.display());
        let server = Server::new(world, &[socket], |remark| eprintln!("{remark}"))?.spawn()?;
        Ok(Served { name, server, _folder: folder })
    }

    fn end(self) -> Result<()> {
        let summary = self.server.end()?;
        ensure!(summary.cards[0].remarks == 0, "{:?}", summary.cards[0]);
        Ok(())
    }

    /// Runs the program, and returns its exit code and what it prints, with a name for the socket and without times.
    fn run(&self, arguments: &[&str]) -> Result<(i32, String)> {
        let (code, text) = run(arguments)?;
        Ok((code, without_times(&text.replace(&self.name, "vfu:CARD"))))
    }
}

/// Runs the program, and returns its exit code and what it prints on both outputs.
fn run(arguments: &[&str]) -> Result<(i32, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_rnic")).args(arguments).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code().context("a signal")?, String::from_utf8(text)?))
}

/// Replaces the times of this run, which are numbers with a fraction before ` s`, together with the blanks before them.
fn without_times(text: &str) -> String {
    let mut parts: Vec<String> = text.split(" s").map(str::to_string).collect();
    let last = parts.len() - 1;
    for part in &mut parts[..last] {
        let rest = part.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        if rest.len() < part.len() && part[rest.len()..].contains('.') {
            *part = format!("{}<time>", rest.trim_end_matches(' '));
        }
    }
    parts.join(" s")
}

#[test]
fn times_are_left_out() {
    assert_eq!(
        without_times("ok   12.34 s  a name, in 5.6 s\n1.0 so"),
        "ok<time> s  a name, in<time> s\n<time> so"
    );
    assert_eq!(without_times("5 s 5.0 t x s"), "5 s 5.0 t x s");
}

#[test]
fn a_card_is_shown_with_its_limits_and_counters() -> Result<()> {
    let served = Served::start(true)?;
    let (code, text) = served.run(&["info", &served.name])?;
    insta::assert_snapshot!("info", text);
    ensure!(code == 0);
    let (code, text) = served.run(&["info", "--json", &served.name])?;
    insta::assert_snapshot!("info_json", text);
    ensure!(code == 0);
    let (code, text) = served.run(&["counters", &served.name])?;
    insta::assert_snapshot!("counters", text);
    ensure!(code == 0);
    let watch = ["counters", &served.name, "--watch", "--interval", "0.01", "--times", "2"];
    let (code, text) = served.run(&watch)?;
    let expected = "<time> s: 0 counters have changed\n<time> s: 0 counters have changed\n";
    ensure!((code, &text[..]) == (0, expected), "{text}");
    served.end()
}

/// Under a path that is no text, too.
#[test]
fn a_card_that_is_busy_says_who_has_it_and_since_when() -> Result<()> {
    let served = Served::start(true)?;
    let socket = Path::new(served.name.trim_start_matches("vfu:"));
    let owner = UnixStream::connect(socket)?;
    let other = socket.with_file_name(OsStr::from_bytes(b"\xff"));
    symlink(socket, &other)?;
    let mut name = OsString::from("vfu:");
    name.push(&other);
    let output = Command::new(env!("CARGO_BIN_EXE_rnic")).arg("info").arg(name).output()?;
    let text = String::from_utf8(output.stderr)?;
    let who = format!("serves another client: process {} has the card for ", std::process::id());
    ensure!(output.status.code() == Some(1) && text.contains(&who), "{text}");
    ensure!(text.contains(" s and has said nothing for ") && text.contains("open the card again"), "{text}");
    drop(owner);
    served.end()
}

#[test]
fn checks_are_named_with_their_results() -> Result<()> {
    let served = Served::start(true)?;
    let (code, text) = served.run(&["selftest", &served.name, "--only", "e_"])?;
    insta::assert_snapshot!("selftest", text);
    ensure!(code == 0, "{code}");
    let (code, text) = served.run(&["selftest", &served.name, "--only", "atomics", "--json"])?;
    ensure!(
        code == 0 && text.contains("\"verdict\": \"passed\"") && text.contains("\"not_run\": 0"),
        "{text}"
    );
    let (code, text) = served.run(&["selftest", &served.name, "--only", "nothing"])?;
    ensure!(code == 1 && text.contains("no check has `nothing` in its name"), "{text}");
    served.end()
}

#[test]
fn a_card_without_a_wire_is_checked_as_far_as_that_goes() -> Result<()> {
    let served = Served::start(false)?;
    let (code, text) = served.run(&["selftest", &served.name, "--only", "re"])?;
    insta::assert_snapshot!("selftest_without_a_wire", text);
    ensure!(code == 3, "{code}");
    served.end()
}

#[test]
fn a_card_of_this_process_is_as_a_served_one() -> Result<()> {
    let served = Served::start(true)?;
    let (code, expected) = served.run(&["info", "--json", &served.name])?;
    ensure!(code == 0, "{expected}");
    served.end()?;
    let (code, text) = run(&["info", "--json", "sim:"])?;
    ensure!((code, text.replace("sim:", "vfu:CARD")) == (0, expected), "{text}");
    let (code, text) = run(&["selftest", "sim:", "--only", "re"])?;
    ensure!(code == 0 && text.contains(" 0 failed, 0 not run"), "{text}");
    Ok(())
}

#[test]
fn a_ping_shows_the_times_of_card_and_machine() -> Result<()> {
    for op in ["write", "read", "send"] {
        for events in [&[][..], &["--events"]] {
            let arguments =
                [&["ping", "--op", op, "--size", "5000", "--count", "5", "--json"][..], events].concat();
            let (code, text) = run(&arguments)?;
            ensure!(code == 0, "{arguments:?}: {text}");
            let report: serde_json::Value = serde_json::from_str(&text)?;
            let times = ["card_us", "wall_us"]
                .map(|clock| ["min", "median", "p99"].map(|at| report[clock][at].as_f64()));
            for [min, median, p99] in times {
                ensure!(min > Some(0.1) && median >= min && p99 >= median, "{arguments:?}: {text}");
            }
        }
    }
    let served = Served::start(true)?;
    let (code, text) = served.run(&["ping", &served.name, "--count", "3"])?;
    let begin = "vfu:CARD: write of 64 B, 3 times, polling\nround trip, us ";
    ensure!(code == 0 && text.starts_with(begin) && !text.contains("card's clock"), "{text}");
    served.end()
}

#[test]
fn what_cannot_be_opened_is_named_with_what_to_do() -> Result<()> {
    for (arguments, code, expected) in [
        (
            &["info", "sim:96"][..],
            1,
            "cannot open sim:96: `96` is no width of a simulated card; allowed are sim:64, sim:128",
        ),
        (&["selftest", "sim:", "sim:64"], 1, "the wire of a simulated card leads back to it; name no peer"),
        (&["ping", "sim:", "sim:64"], 1, "the wire of a simulated card leads back to it; name no peer"),
        (&["ping", "--size", "0"], 2, "0 is not in 1..=1048576"),
        (&["info", "card"], 1, "cannot open card: `card` is no name of a card"),
        (&["info", "pci:1"], 1, "error: cannot open pci:1: `1` is no address of a PCI function; write"),
        (&["info", "vfu:/nowhere/card"], 1, "the server at /nowhere/card cannot be reached"),
        (&["counters", "vfu:/nowhere/card"], 1, "start the server, and check the path"),
        (&["selftest", "vfu:/nowhere/card"], 1, "cannot open vfu:/nowhere/card"),
        (&["selftest", "vfu:/a", "vfu:/a"], 1, "vfu:/a cannot be its own peer"),
        (&["counters", "vfu:/a", "--interval", "0", "--watch"], 2, "allowed are 0.01 to 86400"),
        (&["counters", "vfu:/a", "--times", "3"], 2, "--watch"),
        (&[], 2, "Usage: rnic <COMMAND>"),
    ] {
        let (found, text) = run(arguments)?;
        ensure!(found == code && text.contains(expected), "{arguments:?}: {found}: {text}");
        let causes: Vec<&str> = text.trim_end().split(": ").collect();
        let is_said_once = causes.iter().enumerate().all(|(at, cause)| !causes[..at].contains(cause));
        ensure!(is_said_once, "{arguments:?} says something twice: {text}");
    }
    Ok(())
}

/// Makes the folder of a PCI function as sysfs has it.
fn function(
    sysfs: &Path,
    address: &str,
    identity: [&str; 5],
    driver: Option<&str>,
    group: Option<&str>,
) -> Result<()> {
    let folder = sysfs.join("bus/pci/devices").join(address);
    std::fs::create_dir_all(&folder)?;
    let names = ["vendor", "device", "subsystem_vendor", "subsystem_device", "revision"];
    for (name, value) in names.into_iter().zip(identity) {
        std::fs::write(folder.join(name), format!("{value}\n"))?;
    }
    for (name, target) in [("driver", driver), ("iommu_group", group)] {
        if let Some(target) = target {
            symlink(format!("../../somewhere/{target}"), folder.join(name))?;
        }
    }
    Ok(())
}

#[test]
fn cards_of_the_machine_are_listed_with_what_to_do() -> Result<()> {
    let sysfs = tempfile::tempdir()?;
    let path = sysfs.path().display().to_string();
    let (code, text) = run(&["list", "--sysfs", &path])?;
    let none = "No PCI function of this machine is an rnic card (1af4:10f0).";
    ensure!(code == 0 && text.starts_with(none), "{text}");
    let ours = ["0x1af4", "0x10f0", "0x1af4", "0x726e", "0x02"];
    let newer = ["0x1af4", "0x10f0", "0x1af4", "0x726e", "0x03"];
    for (address, identity, driver, group) in [
        ("0000:66:00.0", ours, None, Some("13")),
        ("0000:65:00.0", ours, Some("virtio-pci"), Some("12")),
        ("0000:67:00.0", ours, None, None),
        ("0000:68:00.0", newer, None, Some("14")),
        // Another experiment with the number of the device, and another card.
        ("0000:01:00.0", ["0x1af4", "0x10f0", "0x1af4", "0x1100", "0x01"], None, Some("1")),
        ("0000:02:00.0", ["0x15b3", "0x1017", "0x15b3", "0x0007", "0x00"], Some("mlx5_core"), Some("2")),
    ] {
        function(sysfs.path(), address, identity, driver, group)?;
    }
    let (code, text) = run(&["list", "--sysfs", &path])?;
    insta::assert_snapshot!("list", text);
    ensure!(code == 0);
    let (code, text) = run(&["list", "--json", "--sysfs", &path])?;
    let has = |part: &str| text.contains(part);
    ensure!(code == 0 && has("\"driver\": \"virtio-pci\"") && has("\"iommu_group\": null"), "{text}");
    Ok(())
}
