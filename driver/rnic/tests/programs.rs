//! The examples, as their readers run them, and the first of them where it is shown.

mod served;

use anyhow::{Context, Result, ensure};
use served::Served;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An example that cargo has built beside this test.
fn example(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let folder = this.ancestors().nth(2).context("tests are in target/<profile>/deps")?;
    let path = folder.join("examples").join(name);
    ensure!(path.exists(), "{} is not built: run cargo build -p rnic --examples", path.display());
    Ok(path)
}

/// Runs a program, and returns its standard output.
fn run(name: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(example(name)?).args(arguments).output()?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn the_first_program_writes_to_the_memory_of_a_peer() -> Result<()> {
    ensure!(run("first", &[])? == "the peer's memory says hello\n");
    Ok(())
}

#[test]
fn two_threads_write_to_each_other_without_copies() -> Result<()> {
    ensure!(run("threads", &[])? == "16 buffers of 4096 bytes each way\n");
    Ok(())
}

/// The first program without its header.
fn ten_lines() -> Result<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/first.rs"))?;
    let code = text.lines().filter(|line| !line.starts_with("//!"));
    Ok(code.collect::<Vec<_>>().join("\n").trim().to_string())
}

#[test]
fn the_first_program_is_shown_as_it_is_and_has_ten_lines() -> Result<()> {
    let code = ten_lines()?;
    let lines = code.lines().filter(|line| !line.is_empty() && *line != "}").count();
    ensure!(lines <= 10, "it has {lines} lines");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("../../README.md"))?;
    ensure!(
        readme.contains(&format!("```rust\n{code}\n```\n")),
        "README.md shows another program than examples/first.rs"
    );
    let page = std::fs::read_to_string(root.join("src/lib.rs"))?;
    let page: Vec<&str> =
        page.lines().filter_map(|line| Some(line.strip_prefix("//!")?.trim_start_matches(' '))).collect();
    let code: Vec<&str> = code.lines().map(str::trim_start).collect();
    ensure!(
        page.join("\n").contains(&code.join("\n")),
        "src/lib.rs shows another program than examples/first.rs"
    );
    Ok(())
}

#[test]
fn two_processes_with_a_card_each_move_data() -> Result<()> {
    let served = Served::start(2)?;
    // A port that nobody has.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let server = Command::new(example("two_hosts")?)
        .args([&served.names[0], &address])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let visitor = run("two_hosts", &[&served.names[1], "-", &address]);
    let server = server.wait_with_output()?;
    ensure!(server.status.success(), "{}", String::from_utf8_lossy(&server.stderr));
    let text = String::from_utf8(server.stdout)?;
    ensure!(text == "the peer says \"look at your memory\"\nand has written \"hello\"\n", "{text}");
    ensure!(visitor? == "the peer answers \"thank you\"\n");
    served.end()
}

#[test]
fn tokio_runs_over_a_card_of_this_process_and_over_a_served_one() -> Result<()> {
    ensure!(run("tokio", &[])? == "10 messages there and back\n");
    let served = Served::start(1)?;
    ensure!(run("tokio", &[&served.names[0]])? == "10 messages there and back\n");
    served.end()
}
