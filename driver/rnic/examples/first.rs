//! A WRITE to the memory of a peer, verified.
//!
//! ```sh
//! cargo run -p rnic --example first
//! ```

use rnic::{Endpoint, RemoteRights};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let card = rnic::open("sim:")?;
    let [mut here, there] = Endpoint::pair(&card, &card)?;
    let window = there.share(5, RemoteRights::WRITE)?;
    here.write(window.remote(), b"hello")?;
    assert_eq!(window.to_vec(), b"hello");
    println!("the peer's memory says hello");
    Ok(())
}
