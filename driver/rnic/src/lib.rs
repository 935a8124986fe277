//! RDMA in ten lines: opens a card, connects two ends, moves data.
//!
//! ```no_run
//! use rnic::{Endpoint, RemoteRights};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let card = rnic::open("sim:")?;
//!     let [mut here, there] = Endpoint::pair(&card, &card)?;
//!     let window = there.share(5, RemoteRights::WRITE)?;
//!     here.write(window.remote(), b"hello")?;
//!     assert_eq!(window.to_vec(), b"hello");
//!     println!("the peer's memory says hello");
//!     Ok(())
//! }
//! ```
//!
//! This is `examples/first.rs` of the crate. [`open`] takes the name of a
//! simulated card in this process (`sim:`), of one that another process serves (`vfu:/run/card.sock`), or of a PCI function
//! (`pci:0000:65:00.0`); the rest of the program is the same. A simulated card needs the feature `sim`, which is on by default, and
//! Verilator, which compiles the card when it is opened for the first time.
//!
//! From here on, each step gives up some comfort for some speed:
//!
//! | step | calls | in flight | copies | waits |
//! |---|---|---|---|---|
//! | [`Endpoint`] | [`write`](Endpoint::write), [`read`](Endpoint::read), [`send`](Endpoint::send), [`receive`](Endpoint::receive) | one operation | one | inside the call |
//! | [zero copy](#zero-copy) | [`QueuePair::post_send`], [`CompletionQueue::spin`] | a queue | none | where you poll |
//! | [threads](#threads) | [`QueuePair::split`], [`Poller`] | a queue for each | none | in each thread |
//! | [futures](#futures-and-event-loops) | [`Completions`] | a queue | none | in your executor or event loop |
//!
//! All that the driver has is here: this crate re-exports `rnic_driver`, whose page has the objects in the order of their use, and the
//! verbs that they are.
//!
//! # Two hosts
//!
//! Each process opens its card and makes an [`UnconnectedEndpoint`], which takes receives already. One listens and one connects; what
//! each must know of the other goes over TCP, in bounded time, whatever the other one does.
//!
//! ```no_run
//! use rnic::{EndpointError, RemoteRights, UnconnectedEndpoint};
//! use std::{net::TcpListener, time::Duration};
//!
//! const LIMIT: Duration = Duration::from_secs(60);
//!
//! fn server(end: UnconnectedEndpoint, listener: &TcpListener) -> Result<(), EndpointError> {
//!     let window = end.share(4096, RemoteRights::ALL)?;
//!     let mut endpoint = end.offer(&window).accept(listener, LIMIT)?;
//!     println!("{:?}, and {:?}", endpoint.receive()?, window.to_vec());
//!     endpoint.finish()
//! }
//!
//! fn client(end: UnconnectedEndpoint) -> Result<(), EndpointError> {
//!     let mut endpoint = end.connect("server.example:7471", LIMIT)?;
//!     let window = endpoint.peer_memory()[0];
//!     endpoint.write(window, b"hello")?;
//!     endpoint.send(b"look at your memory")?;
//!     endpoint.finish()
//! }
//! ```
//!
//! `examples/two_hosts.rs` is the whole of it. A program that has a channel of its own exchanges a [`Descriptor`] there, and calls
//! [`UnconnectedEndpoint::connect_to`].
//!
//! # Errors
//!
//! `?` takes all of them. A request that the queue does not take is a [`PostError`], which has the request, so that it can be posted
//! again; as an [`Error`] it has the reason only. A request that has failed is a [`FailedRequest`] from [`Completion::check`]: it says
//! what the status means, and what to check. Calls of an endpoint fail with an [`EndpointError`], at the latest after
//! [`Endpoint::set_limit`].
//!
//! # Zero copy
//!
//! A [`Region`] is memory that the card reads and writes where it is. It moves into the request, and comes back with the completion, so
//! that nobody touches it meanwhile. [`ProtectionDomain::register`] makes a region of a `Vec<u8>` or of other memory of the application.
//!
//! ```no_run
//! use rnic::{Endpoint, EndpointError, RemoteMemory, SendRequest};
//! use std::time::Duration;
//!
//! /// Writes each of these buffers to the memory of the peer, up to eight at a time. Returns the buffers.
//! fn write_all(end: Endpoint, target: RemoteMemory, buffers: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
//!     let (mut queue_pair, queue, domain) = end.into_parts();
//!     let (mut buffers, mut in_flight, mut written) = (buffers.into_iter(), 0, Vec::new());
//!     loop {
//!         while in_flight < 8 && let Some(buffer) = buffers.next() {
//!             let region = domain.register(buffer)?;
//!             queue_pair.post_send(SendRequest::write(1, target).sge(region).signalled())?;
//!             in_flight += 1;
//!         }
//!         if in_flight == 0 {
//!             return Ok(written);
//!         }
//!         let mut done = queue.spin(Duration::from_secs(1))?.ok_or("no completion in a second")?;
//!         done.check()?;
//!         in_flight -= 1;
//!         let region = done.sg_list.pop().ok_or("the request had a region")?;
//!         written.extend(region.release()?.into_vec());
//!     }
//! }
//! ```
//!
//! A program that uses the same memory again and again registers it once, and posts [`Region::split_at`] of it.
//!
//! # Threads
//!
//! Posting takes no lock: the two halves of a queue pair go to two threads, and a [`Poller`] to a third.
//!
//! ```no_run
//! use rnic::{Endpoint, ReceiveRequest, SendRequest};
//! use std::thread;
//!
//! /// Sends messages in one thread, and counts those of the peer in another.
//! fn both_ways(end: Endpoint) -> Result<(), Box<dyn std::error::Error>> {
//!     let (queue_pair, queue, _domain) = end.into_parts();
//!     let (mut send, mut receive) = queue_pair.split();
//!     let mut poller = queue.poller().ok_or("somebody else polls")?;
//!     thread::scope(|scope| {
//!         scope.spawn(move || (0..32).try_for_each(|wr_id| send.post_send(SendRequest::send(wr_id).inline(b"hello").signalled())));
//!         let (mut sent, mut received) = (0, 0);
//!         while (sent, received) != (32, 32) {
//!             let Some(completion) = poller.poll_one()? else { continue };
//!             completion.check()?;
//!             if completion.is_receive() {
//!                 received += 1;
//!                 receive.post_receive(ReceiveRequest { wr_id: 0, sg_list: completion.sg_list })?;
//!             } else {
//!                 sent += 1;
//!             }
//!         }
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # Futures and event loops
//!
//! [`Completions`] gives the completions of a queue to any executor ([`Completions::next_completion`]) or event loop ([`AsFd`]), without
//! a dependency on one. `examples/tokio.rs` does both in tokio.
//!
//! [`AsFd`]: std::os::fd::AsFd

mod card;
#[cfg(feature = "sim")]
mod sim;

mod completions;
mod endpoint;

pub use card::{Card, Named, OpenError, Reason, open};
pub use completions::Completions;
pub use endpoint::{
    Descriptor, DescriptorError, Endpoint, EndpointError, EndpointOptions, ExchangeError, REGIONS_MAX,
    UnconnectedEndpoint,
};
#[doc(inline)]
pub use rnic_driver::*;
#[doc(no_inline)]
pub use rnic_layout as layout;
#[cfg(feature = "sim")]
pub use sim::simulated_pair;
