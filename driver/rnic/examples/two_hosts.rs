//! Two processes, each with a card of its own: one offers memory, the other one writes to it, adds to it, and sends a message.
//!
//! ```sh
//! cargo run --release -p rnic-sim --bin rnic-sim -- serve --socket card0.sock --socket card1.sock &
//! cargo run -p rnic --example two_hosts -- vfu:card0.sock 0.0.0.0:7471 &
//! cargo run -p rnic --example two_hosts -- vfu:card1.sock - 127.0.0.1:7471
//! ```

use rnic::{RemoteRights, UnconnectedEndpoint};
use std::error::Error;
use std::net::TcpListener;
use std::time::Duration;

/// Longest wait for the peer.
const LIMIT: Duration = Duration::from_secs(60);

/// Offers memory, and shows what the peer has done to it.
fn serve(end: UnconnectedEndpoint, listener: &TcpListener) -> Result<(), Box<dyn Error>> {
    let window = end.share(64, RemoteRights::ALL)?;
    let mut endpoint = end.offer(&window).accept(listener, LIMIT)?;
    let message = endpoint.receive()?;
    println!("the peer says {:?}", String::from_utf8_lossy(&message));
    println!("and has written {:?}", String::from_utf8_lossy(&window.to_vec()[8..13]));
    endpoint.send(b"thank you")?;
    Ok(endpoint.finish()?)
}

/// Writes to the memory of the peer.
fn visit(end: UnconnectedEndpoint, address: &str) -> Result<(), Box<dyn Error>> {
    let mut endpoint = end.connect(address, LIMIT)?;
    let window = *endpoint.peer_memory().first().ok_or("the peer offers no memory")?;
    let text = window.part(8, 5).ok_or("the peer offers too little memory")?;
    endpoint.write(text, b"hello")?;
    assert_eq!(endpoint.read(text)?, b"hello");
    assert_eq!(endpoint.fetch_add(window, 7)?, 0);
    endpoint.send(b"look at your memory")?;
    println!("the peer answers {:?}", String::from_utf8_lossy(&endpoint.receive()?));
    Ok(endpoint.finish()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [card, address] => serve(rnic::open(card)?.endpoint()?, &TcpListener::bind(address)?),
        [card, "-", address] => visit(rnic::open(card)?.endpoint()?, address),
        _ => {
            Err("usage: two_hosts <card> <address to listen at>, or two_hosts <card> - <address of the peer>"
                .into())
        }
    }
}
