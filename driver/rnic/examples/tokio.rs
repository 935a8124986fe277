//! Messages in a tokio runtime, with its reactor and with futures that know no executor. The library does not depend on tokio.
//!
//! ```sh
//! cargo run -p rnic --example tokio                     # a simulated card, or
//! cargo run -p rnic --example tokio -- vfu:card0.sock   # one that is served
//! ```

use rnic::state::ReadyToSend;
use rnic::{
    Completion, Completions, Endpoint, EndpointOptions, QueuePair, ReceiveRequest, SendRequest,
    UnconnectedEndpoint,
};
use std::error::Error;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Messages there and back.
const MESSAGES: u64 = 10;

/// Sends back what it receives, by futures that any executor polls.
async fn echo(mut queue_pair: QueuePair<ReadyToSend>, mut completions: Completions) -> Outcome<()> {
    let mut sent = 0;
    while sent < MESSAGES {
        let completion = completions.next_completion().await?;
        completion.check()?;
        if completion.is_receive() {
            queue_pair.post_send(SendRequest::send(0).inline(&completion.message()).signalled())?;
            queue_pair.post_receive(ReceiveRequest { wr_id: 0, sg_list: completion.sg_list })?;
        } else {
            sent += 1;
        }
    }
    Ok(())
}

/// Has the reactor of tokio watch the completions, which keep their file descriptor open as long as they live.
#[expect(deprecated, reason = "what replaces it is unsafe, and needs what is said above")]
fn watch(completions: Completions) -> Outcome<AsyncFd<Completions>> {
    Ok(AsyncFd::with_interest(completions, Interest::READABLE)?)
}

/// Waits for the next completion with the reactor of tokio.
async fn next(completions: &mut AsyncFd<Completions>) -> Outcome<Completion> {
    loop {
        if let Some(completion) = completions.get_mut().try_next()? {
            return Ok(completion);
        }
        completions.readable_mut().await?.clear_ready();
    }
}

/// Sends numbers, and gets them back.
async fn ask(mut queue_pair: QueuePair<ReadyToSend>, completions: Completions) -> Outcome<()> {
    let mut completions = watch(completions)?;
    for number in 0..MESSAGES {
        queue_pair.post_send(SendRequest::send(number).inline(&number.to_be_bytes()).signalled())?;
        let mut answer = None;
        while answer.is_none() {
            let completion = next(&mut completions).await?;
            completion.check()?;
            if completion.is_receive() {
                answer = Some(completion.message());
                queue_pair.post_receive(ReceiveRequest { wr_id: 0, sg_list: completion.sg_list })?;
            }
        }
        assert_eq!(answer.as_deref(), Some(&number.to_be_bytes()[..]));
    }
    Ok(())
}

/// An end whose completions have an interrupt of their own.
fn end(card: &rnic::Card, vector: u32) -> Outcome<UnconnectedEndpoint> {
    Ok(card.endpoint_with(EndpointOptions { vector: Some(vector), ..EndpointOptions::default() })?)
}

fn main() -> Outcome<()> {
    let card = rnic::open(std::env::args().nth(1).as_deref().unwrap_or("sim:"))?;
    let [here, there] = Endpoint::pair_of(end(&card, 1)?, end(&card, 2)?)?;
    let (queue_pair, queue, _domain) = here.into_parts();
    let here = ask(queue_pair, Completions::new(&card.device, queue)?);
    let (queue_pair, queue, _domain) = there.into_parts();
    let there = echo(queue_pair, Completions::new(&card.device, queue)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let there = tokio::spawn(there);
        tokio::time::timeout(Duration::from_secs(60), here).await??;
        there.await?
    })?;
    println!("{MESSAGES} messages there and back");
    Ok(())
}
