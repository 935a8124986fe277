//! Programs that connect by the connection manager.
use super::{Cards, run, script, text};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Wall-clock time in which a peer that is refused or dead is noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);

/// A port that was free a moment ago.
fn free_port() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string())
}

/// Sends what is no message to a listener, which closes the connection.
fn disturb(port: &str) -> Result<()> {
    let mut stranger = TcpStream::connect(("127.0.0.1", port.parse::<u16>()?))?;
    stranger.set_read_timeout(Some(NOTICED_WITHIN))?;
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
    // A reset is an end too.
    ensure!(!matches!(stranger.read(&mut [0; 8]), Ok(1..)), "a stranger gets an answer");
    Ok(())
}

impl Cards {
    /// Runs a program as server on one card, and as client on the other.
    fn client_and_server(&self, server: &[&str], client: &[&str]) -> Result<[String; 2]> {
        let port = free_port()?;
        let with_port = |program: &[&str]| [program, &["-p", &port]].concat().join(" ");
        let [server, client] = [server, client].map(with_port);
        let server: Vec<&str> = server.split(' ').collect();
        let mut command = self.on("0", &server);
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let client: Vec<&str> = client.split(' ').collect();
        let client = self.connect(&client, &port);
        let ended = running.wait_with_output()?;
        ensure!(ended.status.success(), "{server:?}: {}", text(&ended));
        Ok([text(&ended), client?])
    }
}

#[test]
fn rping_ucmatose_and_rdma_server_connect() -> Result<()> {
    let cards = Cards::serve()?;
    let rping = ["rping", "-v", "-V", "-S", "1000", "-C", "10"];
    // With `-q` the program makes the queue pairs ready itself.
    for options in [&[][..], &["-q"]] {
        let server = [&rping[..], options, &["-s"]].concat();
        let client = [&rping[..], options, &["-c", "-a", "127.0.0.1"]].concat();
        for said in cards.client_and_server(&server, &client)? {
            ensure!(
                said.contains("rdma-ping-9: ") && said.contains("DISCONNECT EVENT"),
                "{options:?}: {said}"
            );
        }
    }
    let ucmatose = ["ucmatose", "-c", "3", "-C", "5", "-S", "3000"];
    let said = cards.client_and_server(&ucmatose, &[&ucmatose[..], &["-s", "127.0.0.1"]].concat())?;
    for said in said {
        ensure!(said.contains("data transfers complete") && said.contains("return status 0"), "{said}");
    }
    let [server, client] = cards.client_and_server(&["rdma_server"], &["rdma_client", "-s", "127.0.0.1"])?;
    ensure!(
        server.contains("rdma_server: end 0") && client.contains("rdma_client: end 0"),
        "{server}\n{client}"
    );
    let frames = cards.end()?;
    ensure!(frames.iter().all(|&frames| frames > 50), "messages went past the wire: {frames:?}");
    Ok(())
}

/// The program is compiled with the headers and the libraries of the distribution.
#[test]
fn a_program_of_all_connections_gets_what_the_manual_says() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("connections");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs/connections.c");
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    run(compiler.arg(source).args(["-lrdmacm", "-libverbs"]))?;
    let said = run(script().arg("--").arg(&program))?;
    ensure!(said.contains("all connections are right"), "{said}");
    Ok(())
}

#[test]
fn a_port_without_a_listener_is_refused() -> Result<()> {
    let cards = Cards::serve()?;
    let (port, begin) = (free_port()?, Instant::now());
    let output = cards.on("1", &["rping", "-c", "-a", "127.0.0.1", "-p", &port]).output()?;
    let said = text(&output);
    ensure!(!output.status.success() && said.contains("RDMA_CM_EVENT_REJECTED, error 8"), "{said}");
    ensure!(begin.elapsed() < NOTICED_WITHIN, "{:?}", begin.elapsed());
    Ok(())
}

#[test]
fn a_peer_that_is_killed_is_a_disconnect() -> Result<()> {
    let cards = Cards::serve()?;
    let port = free_port()?;
    let mut server = cards.on("0", &["rping", "-s", "-v", "-p", &port]);
    let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    cards.wait_for_listener(&port)?;
    disturb(&port)?;
    // Lines come as they are printed, and not when a buffer is full.
    let program = format!("echo $$; exec stdbuf -oL rping -c -v -C 1000000 -a 127.0.0.1 -p {port}");
    let mut client = cards.on("1", &["sh", "-c", &program]).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(client.stdout.take().context("the output is a pipe")?).lines();
    let pid: i32 = lines.next().context("the client says its number")??.parse()?;
    let is_pinging = |line: std::io::Result<String>| line.is_ok_and(|line| line.contains("rdma-ping-3: "));
    ensure!(lines.any(is_pinging), "the client does not ping");
    let begin = Instant::now();
    kill_process(Pid::from_raw(pid).context("a process has a number")?, Signal::KILL)?;
    client.wait()?;
    let ended = server.wait_with_output()?;
    ensure!(begin.elapsed() < NOTICED_WITHIN, "{:?}", begin.elapsed());
    let said = text(&ended);
    ensure!(said.contains("server ping data: rdma-ping-0: ") && said.contains("DISCONNECT EVENT"), "{said}");
    ensure!(said.contains("a peer was refused"), "{said}");
    Ok(())
}
