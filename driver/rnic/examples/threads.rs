//! Two ends that write to each other's memory without copies, each in a thread of its own, over two simulated cards on one wire.
//!
//! ```sh
//! cargo run -p rnic --example threads
//! ```

use rnic::{Endpoint, RemoteMemory, RemoteRights, SendRequest};
use std::error::Error;
use std::thread;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const BUFFERS: usize = 16;
const BUFFER_BYTES: usize = 4096;
/// Limit of each wait, on the clock of the card.
const LIMIT: Duration = Duration::from_secs(1);

/// Writes buffers one behind the other, all in flight at once, and gets them back.
fn write_all(end: Endpoint, target: RemoteMemory, salt: u8) -> Outcome<()> {
    let (mut queue_pair, queue, domain) = end.into_parts();
    for index in 0..BUFFERS {
        let part =
            target.part((index * BUFFER_BYTES) as u64, BUFFER_BYTES as u64).ok_or("too little memory")?;
        let region = domain.register(vec![salt + index as u8; BUFFER_BYTES])?;
        queue_pair.post_send(SendRequest::write(index as u64, part).sge(region).signalled())?;
    }
    let mut poller = queue.poller().ok_or("somebody else polls")?;
    for index in 0..BUFFERS {
        let mut done = poller.spin(LIMIT)?.ok_or("no completion in time")?;
        done.check()?;
        let buffer = done.sg_list.pop().ok_or("the request had a region")?.release()?.into_vec();
        assert_eq!(buffer.ok().as_deref(), Some(&[salt + index as u8; BUFFER_BYTES][..]));
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let [first, second] = rnic::simulated_pair("")?;
    let (first, second) = (first.open()?, second.open()?);
    let ends = Endpoint::pair(&first, &second)?;
    let share = |end: &Endpoint| end.share(BUFFERS * BUFFER_BYTES, RemoteRights::WRITE);
    let windows = [share(&ends[0])?, share(&ends[1])?];
    let [here, there] = ends;
    let targets = [windows[1].remote(), windows[0].remote()];
    thread::scope(|scope| {
        let there = scope.spawn(|| write_all(there, targets[1], 100));
        write_all(here, targets[0], 0)?;
        there.join().map_err(|_| "the other thread has panicked")?
    })?;
    for (window, salt) in windows.iter().zip([100, 0]) {
        let is_right = |(place, byte): (usize, &u8)| usize::from(*byte) == salt + place / BUFFER_BYTES;
        assert!(window.to_vec().iter().enumerate().all(is_right));
    }
    println!("{BUFFERS} buffers of {BUFFER_BYTES} bytes each way");
    Ok(())
}
