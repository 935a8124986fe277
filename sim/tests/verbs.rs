//! Programs of the distribution run over two served cards: they are linked against its libibverbs and librdmacm, and find ours in their
//! place.
//! `scripts/setup.sh test` installs them; without them these tests fail.
use anyhow::{Context, Result, bail, ensure};
use rnic_sim::foreign::Process;
use rustix::process::Signal;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

#[path = "verbs/connections.rs"]
mod connections;

/// Bound of each wait, in wall-clock time. The first start verilates and compiles the card.
const PATIENCE: Duration = Duration::from_secs(300);
/// Messages that a program sends each way.
const MESSAGES: u32 = 50;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A library: that of the variable `RNIC_IBVERBS` or `RNIC_RDMACM`, or one that cargo builds.
fn library(name: &str) -> PathBuf {
    if let Some(library) = std::env::var_os(format!("RNIC_{}", name.to_uppercase())) {
        return root().join(library);
    }
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.ancestors().nth(2).expect("a test lies in `deps` of a profile").to_path_buf();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", &format!("rnic-{name}")]).current_dir(root());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("cargo runs").success(), "the library is built");
    profile.join(format!("lib{name}.so"))
}

/// The libraries, which are built once.
fn libraries() -> &'static [PathBuf; 2] {
    static LIBRARIES: OnceLock<[PathBuf; 2]> = OnceLock::new();
    LIBRARIES.get_or_init(|| ["ibverbs", "rdmacm"].map(library))
}

/// The script, with a simulator and libraries that are built already.
fn script() -> Command {
    let mut command = Command::new(root().join("scripts/with-rnic.sh"));
    let [verbs, manager] = libraries();
    command.env("RNIC_SIM", env!("CARGO_BIN_EXE_rnic-sim"));
    command.env("RNIC_IBVERBS", verbs).env("RNIC_RDMACM", manager);
    // A program that asks for a symbol that is not there does not even start.
    command.env("LD_BIND_NOW", "1").stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{out}\n{err}")
}

/// Runs a command, which succeeds, and returns what it says.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    Ok(text(&output))
}

/// Two served cards.
struct Cards {
    server: Process,
    folder: TempDir,
}

impl Cards {
    fn serve() -> Result<Cards> {
        let folder = tempfile::Builder::new().prefix("two cards").tempdir()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_rnic-sim"));
        command.arg("serve");
        for card in ["card0", "card1"] {
            command.arg("--socket").arg(folder.path().join(card));
        }
        let (mut server, _) = Process::start(command, PATIENCE)?;
        server.line("serving card 1 at ")?;
        Ok(Cards { server, folder })
    }

    /// A program on one of the cards.
    fn on(&self, host: &str, program: &[&str]) -> Command {
        let mut command = script();
        command.current_dir(self.folder.path());
        command.args(["--device", "vfu:card0,vfu:card1", "--host", host, "--"]).args(program);
        command
    }

    /// Runs a program as server on one card and as client on the other.
    fn ping_pong(&self, program: &str, options: &[&str]) -> Result<[String; 2]> {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let count = MESSAGES.to_string();
        let program = [program, "-g", "0", "-p", &port, "-n", &count];
        let program: Vec<&str> = program.iter().chain(options).copied().collect();
        let mut server = self.on("0", &program);
        let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let client: Vec<&str> = program.iter().chain(&["127.0.0.1"]).copied().collect();
        let client = self.connect(&client, &port);
        let server = server.wait_with_output()?;
        ensure!(server.status.success(), "{options:?}: the server: {}", text(&server));
        Ok([text(&server), client?])
    }

    /// Runs the client once the server listens.
    fn connect(&self, program: &[&str], port: &str) -> Result<String> {
        self.wait_for_listener(port)?;
        run(&mut self.on("1", program))
    }

    /// Waits until a program listens at a port.
    fn wait_for_listener(&self, port: &str) -> Result<()> {
        let listens = format!(":{:04X} ", port.parse::<u16>()?);
        let end = std::time::Instant::now() + Duration::from_secs(120);
        let is_listening = || -> Result<bool> {
            let files = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
            Ok(files
                .into_iter()
                .flatten()
                .flat_map(|text| text.lines().map(str::to_string).collect::<Vec<_>>())
                .any(|line| line.contains(&listens) && line.contains(" 0A ")))
        };
        while !is_listening()? {
            if std::time::Instant::now() > end {
                bail!("the server does not listen at port {port}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends the cards, of which the monitors have remarked nothing, and returns the frames that each has sent.
    fn end(mut self) -> Result<[u64; 2]> {
        self.server.signal(Signal::INT)?;
        let mut frames = [0; 2];
        for (card, frames) in frames.iter_mut().enumerate() {
            let said = self.server.line(&format!("wire {card}: "))?;
            *frames = said.split(' ').next().unwrap_or_default().parse()?;
        }
        for card in 0..2 {
            let said = self.server.line(&format!("card {card}: "))?;
            ensure!(said.contains(" 0 remarks; "), "{said}");
        }
        self.server.end()?;
        Ok(frames)
    }
}

#[test]
fn ibv_devinfo_shows_both_cards_of_a_pair() -> Result<()> {
    let said = run(script().args(["--", "ibv_devinfo", "-v"]))?;
    for (expected, count) in [
        ("hca_id:\trnic", 2),
        ("PORT_ACTIVE (4)", 2),
        ("link_layer:\t\tEthernet", 2),
        ("::ffff:10.", 2),
        ("RoCE v2", 4),
        ("max_srq:\t\t\t0", 0),
    ] {
        ensure!(said.matches(expected).count() == count, "{expected:?} is not there {count} times:\n{said}");
    }
    let devices = run(script().args(["--host", "1", "--", "ibv_devices"]))?;
    ensure!(devices.contains("rnic0") && !devices.contains("rnic1"), "{devices}");
    Ok(())
}

#[test]
fn the_script_ends_with_the_status_of_the_program() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("a folder").tempdir()?;
    let program = "test -n \"$RNIC_DEVICE\" && exit 7";
    let mut command = script();
    command.env("TMPDIR", folder.path()).args(["--", "sh", "-c", program]);
    ensure!(command.output()?.status.code() == Some(7));
    ensure!(std::fs::read_dir(folder.path())?.next().is_none(), "nothing is left behind");
    for arguments in [&["true"][..], &["--host", "2", "--", "true"], &["--host", "x", "--", "true"], &["--"]]
    {
        let refused = script().args(arguments).output()?;
        ensure!(refused.status.code() == Some(1), "{arguments:?}: {}", text(&refused));
    }
    Ok(())
}

#[test]
fn ibv_rc_pingpong_polls_and_waits_for_events() -> Result<()> {
    let cards = Cards::serve()?;
    let summary = format!("{MESSAGES} iters in ");
    for options in
        [&["-c", "-s", "4096"][..], &["-e", "-c", "-s", "4096"], &["-e", "-s", "20000", "-m", "1024"]]
    {
        for said in cards.ping_pong("ibv_rc_pingpong", options)? {
            ensure!(said.contains(&summary), "{options:?}:\n{said}");
            ensure!(!said.contains("invalid data"), "{options:?}:\n{said}");
        }
    }
    let frames = cards.end()?;
    let sent = u64::from(3 * MESSAGES);
    ensure!(frames.iter().all(|&frames| frames > sent), "messages went past the wire: {frames:?}");
    Ok(())
}

#[test]
fn ibv_srq_pingpong_polls_and_waits_for_events() -> Result<()> {
    let cards = Cards::serve()?;
    for options in [&["-q", "4"][..], &["-q", "4", "-e"]] {
        for said in cards.ping_pong("ibv_srq_pingpong", options)? {
            ensure!(said.contains(&format!("{MESSAGES} iters in ")), "{options:?}:\n{said}");
        }
    }
    let frames = cards.end()?;
    ensure!(frames.iter().all(|&frames| frames > u64::from(2 * MESSAGES)), "{frames:?}");
    Ok(())
}

/// Compiles a program of `tests/verbs` with the headers and the library of the distribution, and runs it over two cards. It ends
/// with the text that all is right.
fn runs_right(program: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let compiled = folder.path().join(program);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs").join(program).with_extension("c");
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&compiled);
    run(compiler.arg(source).arg("-libverbs"))?;
    let said = run(script().arg("--").arg(&compiled))?;
    ensure!(said.contains(&format!("all {} are right", program.replace('_', " "))), "{said}");
    Ok(())
}

#[test]
fn a_program_of_all_operations_gets_what_the_manual_says() -> Result<()> {
    runs_right("operations")
}

#[test]
fn a_program_of_shared_receives_gets_what_the_manual_says() -> Result<()> {
    runs_right("shared_receives")
}

#[test]
fn a_program_of_extended_operations_gets_what_the_manual_says() -> Result<()> {
    runs_right("extended_operations")
}

#[test]
fn what_the_cards_lack_is_refused_in_bounded_time() -> Result<()> {
    let cards = Cards::serve()?;
    for (program, expected) in [
        ("ibv_ud_pingpong -g 0", "reliable connected queue pairs only"),
        ("ibv_uc_pingpong -g 0", "reliable connected queue pairs only"),
        ("ibv_rc_pingpong -g 0 -o", ""),
    ] {
        let program: Vec<&str> = program.split(' ').collect();
        let output = cards.on("0", &program).output()?;
        ensure!(output.status.code() == Some(1), "{program:?}: {}", text(&output));
        ensure!(text(&output).contains(expected), "{program:?}: {}", text(&output));
    }
    for device in ["", "card0", "vfu:/nowhere/card"] {
        let mut command = script();
        command.env("RNIC_DEVICE", "").args(["--device", if device.is_empty() { "vfu:" } else { device }]);
        let output = command.args(["--", "ibv_devinfo"]).output()?;
        ensure!(
            !output.status.success() && text(&output).contains("libibverbs of rnic: "),
            "{}",
            text(&output)
        );
    }
    Ok(())
}
