//! The reference endpoint: a RoCEv2 peer in software, against which the card is tested.
//!
//! It is written from the protocol rules and the wire formats of `rnic-layout` alone, independently of the hardware, so that a
//! mistake in one is not repeated in the other. It speaks RC, as requester and as responder, and can be made to
//! [misbehave](fault).
//!
//! ```text
//!  receive(frame) ─> checks of row 1 ─┬─> responder ─> replies  ─┐
//!                                     │       │ memory           ├─ faults ─> transmit() -> frame
//!  post_send ─> requester <───────────┘       ▼                  │
//!                 │  └─────────────────> completions, events     │
//!                 └─────────────────────> requests ──────────────┘
//! ```
//!
//! The endpoint is passive: frames go in with [`Endpoint::receive`], come out with [`Endpoint::transmit`], one at a time, and
//! time advances with [`Endpoint::advance`]. READ responses are made when they are sent, so a region that is deregistered
//! meanwhile ends the READ in the middle (protocol 3.7). Where the protocol leaves a choice, the endpoint
//!
//! * acknowledges a duplicate SEND or WRITE only if the packet asks for it (protocol 3.12, trace F);
//! * checks the SGEs of a receive only as far as the message reaches;
//! * completes a receive that is in use when a request is refused: with LOC_LEN for a message that is too long, LOC_PROT for an
//!   invalid SGE, and REM_INV_REQ or REM_ACCESS otherwise; a WRITE with immediate takes its receive before its length and its
//!   key are checked (protocol 3.1);
//! * refuses a SEND with invalidate of a key that may not be invalidated as an access error (protocol 3.6 row 15);
//! * reports an invalid work request after all earlier ones have been acknowledged.

#[macro_use]
mod mutants;

pub mod cases;
pub mod fault;
pub mod memory;
pub mod packet;
pub mod qp;
mod requester;
mod responder;

use std::collections::BTreeMap;

use rnic_layout::opcode::{self, Class, Transport};
use rnic_layout::psn::Psn;
use rnic_layout::state::{QpState, Traffic};
use rnic_layout::wire::extended::AethRepr;
use rnic_layout::wire::{BthRepr, ExtendedRepr, Filter, MacAddress, PacketRepr, classify};

use fault::{Armed, Fault, Side};
use memory::Memory;
use packet::Packet;
use qp::{Completion, Event, Host, Outcome, QueuePair, QueuePairSetup, ReceiveWqe, SendWqe};

/// A RoCEv2 peer with one port, one memory, and any number of RC queue pairs.
#[derive(Debug)]
pub struct Endpoint {
    mac: MacAddress,
    host: Host,
    queue_pairs: BTreeMap<u32, QueuePair>,
    /// QPN of the queue pair that sent last, for round-robin arbitration.
    last_sender: u32,
    armed: Vec<Armed>,
    /// Frames that are sent before all others.
    injected: std::collections::VecDeque<Vec<u8>>,
}

impl Endpoint {
    /// Makes an endpoint with an Ethernet address and a memory of zeros.
    pub fn new(mac: MacAddress, memory_bytes: usize) -> Self {
        let host = Host { memory: Memory::new(memory_bytes), ..Host::default() };
        Self {
            mac,
            host,
            queue_pairs: BTreeMap::new(),
            last_sender: 0,
            armed: Vec::new(),
            injected: Default::default(),
        }
    }

    /// Memory and regions.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.host.memory
    }

    /// Creates a queue pair. One with the same number is replaced.
    pub fn create(&mut self, setup: QueuePairSetup) {
        self.queue_pairs.insert(setup.number, QueuePair::new(setup));
    }

    /// Destroys a queue pair; frames for it are dropped from now on.
    pub fn destroy(&mut self, number: u32) {
        self.queue_pairs.remove(&number);
    }

    /// Changes the state of a queue pair. In ERR all posted work is flushed; in RESET it is discarded, and the queue pair
    /// starts again with the PSNs of its setup.
    ///
    /// # Panics
    ///
    /// If the queue pair does not exist, as all functions that take a QPN.
    pub fn modify(&mut self, number: u32, state: QpState) {
        let Self { queue_pairs, host, .. } = self;
        queue_pair(queue_pairs, number).modify(host, state);
    }

    /// State of a queue pair.
    pub fn state(&self, number: u32) -> QpState {
        self.queue_pairs[&number].state
    }

    /// PSN that a queue pair expects next from its peer.
    pub fn expected_psn(&self, number: u32) -> Psn {
        self.queue_pairs[&number].responder.expected
    }

    /// Messages of its peer that a queue pair has executed, modulo 2^24.
    pub fn msn(&self, number: u32) -> Psn {
        self.queue_pairs[&number].responder.msn
    }

    /// PSN of the first request that a queue pair has not sent yet.
    pub fn next_psn(&self, number: u32) -> Psn {
        self.queue_pairs[&number].requester.next
    }

    /// Posts a send WQE. In ERR it is flushed at once.
    pub fn post_send(&mut self, number: u32, work: SendWqe) {
        let Self { queue_pairs, host, .. } = self;
        queue_pair(queue_pairs, number).post_send(host, work);
    }

    /// Posts a receive WQE. In ERR it is flushed at once.
    pub fn post_receive(&mut self, number: u32, work: ReceiveWqe) {
        let Self { queue_pairs, host, .. } = self;
        queue_pair(queue_pairs, number).post_receive(host, work);
    }

    /// Posts a receive WQE to a shared receive queue.
    pub fn post_shared_receive(&mut self, number: u32, work: ReceiveWqe) {
        self.host.shared_receives.entry(number).or_default().push_back(work);
    }

    /// Takes the oldest CQE of a completion queue.
    pub fn poll(&mut self, completion_queue: u32) -> Option<Completion> {
        self.host.completions.get_mut(&completion_queue)?.pop_front()
    }

    /// Takes the oldest asynchronous event.
    pub fn event(&mut self) -> Option<Event> {
        self.host.events.pop_front()
    }

    /// Value of a counter, by the name of the card's counter for the same event.
    pub fn counter(&self, name: &str) -> u64 {
        self.host.counters.get(name).copied().unwrap_or_default()
    }

    /// Processes a frame from the wire.
    pub fn receive(&mut self, frame: &[u8]) -> Outcome {
        let filter = Filter { own_mac: self.mac, promiscuous: false, accept_multicast: false };
        let outcome = match classify(frame, false, &filter) {
            Ok(packet) => self.dispatch(&packet),
            Err(reason) => Outcome::Dropped(reason.name()),
        };
        if let Outcome::Dropped(name) = outcome {
            self.host.count(name);
        }
        outcome
    }

    /// The checks that drop a packet silently, and the hand-over to requester or responder (protocol 3.1 and 3.6 row 1).
    fn dispatch(&mut self, packet: &PacketRepr) -> Outcome {
        let Some(queue_pair) = self.queue_pairs.get_mut(&packet.bth.destination_qp) else {
            return Outcome::Dropped("unknown_qp");
        };
        if !partition_keys_match(packet.bth.partition_key, queue_pair.setup.partition_key) {
            return Outcome::Dropped("partition_key");
        }
        let traffic = queue_pair.state.permissions().receive;
        let class = opcode::class(packet.bth.opcode).expect("classify lets only known classes pass");
        let ready = match class {
            Class::Request => traffic != Traffic::None,
            Class::Response => matches!(traffic, Traffic::All | Traffic::ResponderAndBegun),
            Class::Congestion => traffic != Traffic::None,
        };
        if !ready {
            return Outcome::Dropped("qp_not_ready");
        }
        if class != Class::Congestion && Transport::of(packet.bth.opcode) != Some(Transport::Rc) {
            return Outcome::Dropped("transport_mismatch");
        }
        if !queue_pair.setup.path.admits(&packet.ip) {
            return Outcome::Dropped("source_address");
        }
        match class {
            Class::Request => queue_pair.respond(&mut self.host, packet),
            Class::Response => queue_pair.take_response(&mut self.host, packet),
            // The endpoint has no rate to reduce.
            Class::Congestion => {
                self.host.count("congestion_notifications_received");
                Outcome::Answered
            }
        }
    }

    /// Advances time, which must not decrease.
    pub fn advance(&mut self, now_ps: u64) {
        self.host.now_ps = self.host.now_ps.max(now_ps);
        for queue_pair in self.queue_pairs.values_mut() {
            queue_pair.check_timers(&mut self.host);
        }
    }

    /// Time at which the next timer expires, if one runs.
    pub fn next_deadline_ps(&self) -> Option<u64> {
        self.queue_pairs.values().filter_map(|queue_pair| queue_pair.requester.next_deadline_ps()).min()
    }

    /// Makes the next frame for the wire, if there is one: responses first, then requests, round robin over the queue pairs.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(frame) = self.injected.pop_front() {
                return Some(frame);
            }
            let (number, side, frame) = self.next_frame()?;
            // A fault may delay the frame, drop it, or duplicate it.
            self.injected.extend(fault::spoil(&mut self.armed, number, side, frame));
        }
    }

    fn next_frame(&mut self) -> Option<(u32, Side, Vec<u8>)> {
        let after = self.queue_pairs.range(self.last_sender + 1..).map(|(number, _)| *number);
        let before = self.queue_pairs.range(..=self.last_sender).map(|(number, _)| *number);
        let turns: Vec<u32> = after.chain(before).collect();
        for side in [Side::Responder, Side::Requester] {
            for &number in &turns {
                let queue_pair = queue_pair(&mut self.queue_pairs, number);
                let packet = match side {
                    Side::Responder => queue_pair.next_reply(&mut self.host),
                    Side::Requester => queue_pair.next_request(&mut self.host),
                };
                if let Some(packet) = packet {
                    self.last_sender = number;
                    return Some((number, side, queue_pair.frame(&packet)));
                }
            }
        }
        None
    }

    /// Arms a fault: `after` more frames of this side are sent correctly, and the next one is changed.
    pub fn misbehave(&mut self, number: u32, side: Side, after: u32, fault: Fault) {
        self.armed.push(Armed::new(number, side, after, fault));
    }

    /// Sends an unsolicited acknowledgement, RNR NAK or NAK.
    pub fn inject_response(&mut self, number: u32, psn: Psn, syndrome: u8, msn: Psn) {
        let code = opcode::Operation::Acknowledge.code();
        let extended = vec![ExtendedRepr::Aeth(AethRepr { syndrome, msn })];
        self.inject(number, |peer| Packet::new(BthRepr::new(code, peer, psn), extended, Vec::new()));
    }

    /// Sends any packet to the peer of a queue pair, without changing the state of the queue pair. `packet` receives the QPN of
    /// the peer.
    pub fn inject(&mut self, number: u32, packet: impl FnOnce(u32) -> Packet) {
        let queue_pair = queue_pair(&mut self.queue_pairs, number);
        let frame = queue_pair.frame(&packet(queue_pair.setup.peer));
        self.injected.push_back(frame);
    }

    /// Sends a frame as it is.
    pub fn inject_frame(&mut self, frame: Vec<u8>) {
        self.injected.push_back(frame);
    }
}

fn queue_pair(queue_pairs: &mut BTreeMap<u32, QueuePair>, number: u32) -> &mut QueuePair {
    queue_pairs.get_mut(&number).unwrap_or_else(|| panic!("there is no queue pair {number:#x}"))
}

/// Two keys match if their low 15 bits are equal and not zero, and one of them is a full member's (protocol 4.3).
fn partition_keys_match(one: u16, other: u16) -> bool {
    const MEMBERSHIP: u16 = 0x8000;
    one & !MEMBERSHIP == other & !MEMBERSHIP && one & !MEMBERSHIP != 0 && (one | other) & MEMBERSHIP != 0
}
