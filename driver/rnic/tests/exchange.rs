//! Two ends that meet over TCP, and peers that are none: each ends in bounded time, with an error that names what is wrong.

use anyhow::{Result, ensure};
use rnic::{Card, Endpoint, EndpointError, ExchangeError, RemoteRights, simulated_pair};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Limit of what succeeds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Limit of what is to fail.
const SHORT: Duration = Duration::from_millis(400);
/// How much longer than its limit a call may take on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

fn cards() -> Result<[Card; 2]> {
    let [first, second] = simulated_pair("")?;
    Ok([first.open()?, second.open()?])
}

fn listener() -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    Ok((listener, address))
}

#[test]
fn two_ends_meet_over_tcp_and_move_data() -> Result<()> {
    let [first, second] = cards()?;
    let (listener, address) = listener()?;
    let there = thread::spawn(move || -> Result<()> {
        let end = second.endpoint()?;
        let window = end.share(64, RemoteRights::ALL)?;
        let mut end = end.offer(&window).accept(&listener, PATIENCE)?;
        assert_eq!(end.receive()?, b"look");
        assert_eq!(window.to_vec()[..8], 7u64.to_le_bytes());
        assert_eq!(window.to_vec()[8..48], [5; 40]);
        end.send(&[9; 3000])?;
        Ok(end.finish()?)
    });
    let mut here = first.endpoint()?.connect(&address, PATIENCE)?;
    let window = here.peer_memory()[0];
    ensure!(here.peer_memory().len() == 1 && window.bytes == 64);
    let part = window.part(8, 40).expect("the window is longer");
    here.write(part, &[5; 40])?;
    ensure!(here.read(part)? == [5; 40]);
    ensure!(here.fetch_add(window, 7)? == 0);
    here.send(b"look")?;
    ensure!(here.receive()? == [9; 3000]);
    here.finish()?;
    there.join().expect("nobody panics")
}

/// What an end says of a peer that does this, whichever side calls.
fn said_of(card: &Card, peer: impl FnOnce(TcpStream) + Send) -> Result<(EndpointError, Duration)> {
    let (listener, address) = listener()?;
    thread::scope(|scope| {
        scope.spawn(move || peer(TcpStream::connect(address).expect("the listener is there")));
        let end = card.endpoint()?;
        let began = Instant::now();
        let error = end.accept(&listener, SHORT).expect_err("the peer is none");
        Ok((error, began.elapsed()))
    })
}

/// The header of a message.
fn header(version: u16, kind: u8, length: u32) -> Vec<u8> {
    [&b"rnic"[..], &version.to_be_bytes(), &[kind, 0], &length.to_be_bytes()].concat()
}

#[test]
fn what_no_peer_sends_is_refused_in_time() -> Result<()> {
    let [card, _other] = cards()?;
    let descriptor = card.endpoint()?.descriptor()?.to_bytes()?;
    let good = [header(1, 1, descriptor.len() as u32), descriptor.clone()].concat();
    let mut group = descriptor.clone();
    group[22] |= 1;
    let texts = [
        (
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            "the peer sent \"GET / HTTP/1\" where a message begins with \"rnic\"",
        ),
        (header(2, 1, 31), "the peer speaks version 2 of the exchange, and this end version 1"),
        (header(1, 9, 0), "kind 9 with 0 bytes where the descriptor of the peer was to come"),
        (header(1, 2, 0), "kind 2 with 0 bytes where the descriptor of the peer was to come"),
        (header(1, 1, u32::MAX), "kind 1 with 4294967295 bytes"),
        (header(1, 1, 0), "the descriptor has 0 bytes, and 31 are needed"),
        ([header(1, 1, group.len() as u32), group].concat(), "names no host: its MAC address"),
        ([header(1, 3, 5), b"no\nwa".to_vec()].concat(), "the peer refuses: no.wa"),
        (good[..20].to_vec(), "closed the connection before the descriptor of the peer came"),
        (good.clone(), "closed the connection before the peer to be ready came"),
        (Vec::new(), "closed the connection before the descriptor of the peer came"),
    ];
    for (bytes, expected) in texts {
        let (error, took) = said_of(&card, |mut stream| {
            stream.write_all(&bytes).expect("it is a few bytes");
            stream.shutdown(Shutdown::Write).expect("it is connected");
            // Until the other end closes.
            let _ = stream.read_to_end(&mut Vec::new());
        })?;
        ensure!(error.to_string().contains(expected), "{error}, and expected was: {expected}");
        ensure!(took < SLACK, "{expected}: {took:?}");
    }
    Ok(())
}

#[test]
fn a_peer_that_says_nothing_or_dribbles_ends_by_the_limit() -> Result<()> {
    let [card, _other] = cards()?;
    let silent = |stream: TcpStream| {
        let _ = (&stream).read_to_end(&mut Vec::new());
    };
    let dribbles = |mut stream: TcpStream| {
        for byte in header(1, 1, 51).into_iter().chain([0; 51]) {
            if stream.write_all(&[byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
    };
    for outcome in [said_of(&card, silent)?, said_of(&card, dribbles)?] {
        let (error, took) = outcome;
        let timed_out =
            matches!(error, EndpointError::Exchange(ExchangeError::TimedOut { limit, .. }) if limit == SHORT);
        ensure!(timed_out && took >= SHORT && took < SHORT + SLACK, "{error}, {took:?}");
    }
    Ok(())
}

#[test]
fn nobody_at_the_other_end_ends_by_the_limit() -> Result<()> {
    let [card, _other] = cards()?;
    let (listener, address) = listener()?;
    let error = card.endpoint()?.accept(&listener, SHORT).unwrap_err();
    ensure!(error.to_string().starts_with("a connection did not come within 400ms"), "{error}");
    drop(listener);
    let error = card.endpoint()?.connect(&address, SHORT).unwrap_err();
    ensure!(error.to_string().starts_with("a peer that listens did not come within 400ms"), "{error}");
    let error = card.endpoint()?.connect("no port", SHORT).unwrap_err();
    ensure!(error.to_string().contains("write the host and the port"), "{error}");
    Ok(())
}

#[test]
fn a_peer_learns_why_it_is_refused() -> Result<()> {
    let [card, _other] = cards()?;
    let told = Mutex::new(Vec::new());
    let (error, _) = said_of(&card, |mut stream| {
        stream.write_all(&header(7, 1, 31)).expect("it is a few bytes");
        let _ = stream.read_to_end(&mut told.lock().unwrap_or_else(PoisonError::into_inner));
    })?;
    let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(
        String::from_utf8_lossy(&told).contains(&error.to_string()),
        "{:?}",
        String::from_utf8_lossy(&told)
    );
    Ok(())
}

#[test]
fn a_peer_that_dies_is_an_error_and_no_hang() -> Result<()> {
    let [first, second] = cards()?;
    let (listener, address) = listener()?;
    let mut here = thread::scope(|scope| -> Result<Endpoint> {
        let there = scope.spawn(|| second.endpoint()?.accept(&listener, PATIENCE));
        let here = first.endpoint()?.connect(&address, PATIENCE)?;
        drop(there.join().expect("nobody panics")?);
        Ok(here)
    })?;
    let began = Instant::now();
    let error = here.receive().unwrap_err();
    ensure!(matches!(error, EndpointError::PeerLeft { .. }), "{error}");
    ensure!(
        error.to_string().starts_with("a message does not come any more: the peer has closed"),
        "{error}"
    );
    here.set_limit(SHORT);
    let error = here.send(b"anybody there?").unwrap_err();
    ensure!(began.elapsed() < SLACK, "{error} after {:?}", began.elapsed());
    Ok(())
}
