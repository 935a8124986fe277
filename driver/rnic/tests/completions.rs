//! Futures of completions, polled by an executor of ten lines.

mod served;

use anyhow::{Context as _, Result, ensure};
use rnic::{Card, CompletionError, Completions, Endpoint, EndpointOptions, Error, SendRequest};
use served::Served;
use std::future::Future;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Longest run of a future.
const PATIENCE: Duration = Duration::from_secs(60);

/// Wakes a thread.
struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

/// Polls a future when it is woken, until it is done. Returns what it gives, and the number of wakes.
fn block_on<T>(future: impl Future<Output = T>) -> Result<(T, usize)> {
    let unpark = Arc::new(Unpark(thread::current(), AtomicUsize::new(0)));
    let (waker, began) = (Waker::from(Arc::clone(&unpark)), Instant::now());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok((value, unpark.1.load(Ordering::Relaxed)));
        }
        let left = PATIENCE.checked_sub(began.elapsed()).context("the future does not end")?;
        thread::park_timeout(left);
    }
}

/// Two ends of a card in loopback, each with an interrupt of its own.
fn ends(card: &Card) -> Result<[Endpoint; 2]> {
    let end = |vector| card.endpoint_with(EndpointOptions { vector: Some(vector), ..Default::default() });
    Ok(Endpoint::pair_of(end(1)?, end(2)?)?)
}

/// Sends messages, each after the completion of the one before. Returns the number of wakes.
fn converse(card: &Card) -> Result<usize> {
    let [here, there] = ends(card)?;
    let (mut queue_pair, queue, _domain) = here.into_parts();
    let (_other_pair, other_queue, _other_domain) = there.into_parts();
    let mut sent = Completions::new(&card.device, queue)?;
    let mut received = Completions::new(&card.device, other_queue)?;
    ensure!(sent.as_raw_fd() >= 0);
    let talk = async {
        for number in 0..10u64 {
            queue_pair.post_send(SendRequest::send(number).inline(&number.to_le_bytes()).signalled())?;
            let completion = received.next_completion().await?;
            completion.check()?;
            assert_eq!(completion.message(), number.to_le_bytes());
            let completion = sent.next_completion().await?;
            completion.check()?;
            assert_eq!(completion.wr_id, number);
        }
        Ok::<(), Error>(())
    };
    let (outcome, wakes) = block_on(talk)?;
    outcome?;
    Ok(wakes)
}

#[test]
fn a_future_is_woken_by_the_interrupt_of_a_served_card() -> Result<()> {
    let served = Served::start(1)?;
    let card = rnic::open(&served.names[0])?;
    let wakes = converse(&card)?;
    ensure!((1..100).contains(&wakes), "20 completions wake {wakes} times");
    drop(card);
    served.end()
}

#[test]
fn a_future_over_a_card_of_this_process_polls_it() -> Result<()> {
    let card = rnic::open("sim:")?;
    ensure!(converse(&card)? > 20, "a card without interrupts needs to be polled");
    Ok(())
}

#[test]
fn a_card_that_goes_ends_the_future_that_waits() -> Result<()> {
    let served = Served::start(1)?;
    let card = rnic::open(&served.names[0])?;
    let [here, _there] = ends(&card)?;
    let (_queue_pair, queue, _domain) = here.into_parts();
    let mut completions = Completions::new(&card.device, queue)?;
    let server = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        served.end()
    });
    let (outcome, _) = block_on(completions.next_completion())?;
    let error = outcome.expect_err("nothing was posted");
    ensure!(!matches!(error, Error::Completion(CompletionError::Impossible { .. })), "{error}");
    server.join().expect("nobody panics")
}
