//! Two endpoints back to back, and an endpoint against the responses of Linux.

mod captured;
mod errors;
mod operations;
mod recovery;
mod traces;

use rnic_endpoint::Endpoint;
use rnic_endpoint::fault::{Fault, Side};
use rnic_endpoint::memory::{Region, Rights, Sge};
use rnic_endpoint::packet::Path;
use rnic_endpoint::qp::{Completion, Data, Operation, QueuePairSetup, ReceiveWqe, SendWqe};
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::{Gid, Pmtu};
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_layout::wire::{ExtendedRepr, MacAddress, PacketRepr};
use std::net::Ipv4Addr;

/// Numbers of the queue pairs.
const A: u32 = 0x11;
const B: u32 = 0x12;
/// First PSN of A's requests, close to the wrap-around as in protocol 3.12, and of B's.
const PSN_A: Psn = Psn::wrapping(0xFF_FFFE);
const PSN_B: Psn = Psn::wrapping(0x12_3456);
const DOMAIN: u32 = 7;
/// The same region on both sides: its key, first address and length.
const KEY: u32 = 0x0001_05a7;
const FIRST: u64 = 0x7f00_0000_1003;
const LENGTH: u64 = 0x8000;
/// A region without remote rights.
const LOCAL_KEY: u32 = 0x0001_0601;
/// A region in another protection domain.
const FOREIGN_KEY: u32 = 0x0001_0702;
const FOREIGN_DOMAIN: u32 = 8;

const MAC_A: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const MAC_B: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

/// One packet that crossed the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    from: u32,
    code: u8,
    psn: u32,
    bytes: usize,
    ack_request: bool,
    /// Syndrome and MSN.
    aeth: Option<(u8, u32)>,
    /// Address and length.
    reth: Option<(u64, u32)>,
}

impl Seen {
    fn of(from: u32, frame: &[u8]) -> Option<Self> {
        let packet = PacketRepr::parse(frame).ok()?;
        let (mut aeth, mut reth) = (None, None);
        for header in packet.extended_headers() {
            match header {
                ExtendedRepr::Aeth(header) => aeth = Some((header.syndrome, header.msn.value())),
                ExtendedRepr::Reth(header) => reth = Some((header.virtual_address, header.dma_length)),
                _ => {}
            }
        }
        let (code, psn, bytes) = (packet.bth.opcode, packet.bth.psn.value(), packet.payload.len());
        Some(Self { from, code, psn, bytes, ack_request: packet.bth.ack_request, aeth, reth })
    }

    /// Opcode and PSN.
    fn brief(&self) -> (u8, u32) {
        (self.code, self.psn)
    }
}

/// Two endpoints, and all packets between them.
struct Pair {
    a: Endpoint,
    b: Endpoint,
    seen: Vec<Seen>,
    now_ps: u64,
}

fn path() -> Path {
    let [a, b] = [1, 2].map(|last| Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, last)));
    Path::new(MAC_A, a, MAC_B, b)
}

fn setup_a() -> QueuePairSetup {
    QueuePairSetup {
        domain: DOMAIN,
        send_psn: PSN_A,
        receive_psn: PSN_B,
        min_rnr_timer: 12,
        ..QueuePairSetup::new(A, B, path())
    }
}

/// Setup of a queue pair's peer.
fn opposite(setup: QueuePairSetup) -> QueuePairSetup {
    QueuePairSetup {
        number: setup.peer,
        peer: setup.number,
        path: setup.path.reversed(),
        send_psn: setup.receive_psn,
        receive_psn: setup.send_psn,
        ..setup
    }
}

fn endpoint(mac: MacAddress, seed: usize) -> Endpoint {
    let mut endpoint = Endpoint::new(mac, 2 * LENGTH as usize);
    let region = Region {
        first_address: FIRST,
        length: LENGTH,
        offset: 0,
        domain: DOMAIN,
        rights: Rights::ALL,
        invalidatable: false,
    };
    let memory = endpoint.memory();
    memory
        .bytes
        .iter_mut()
        .enumerate()
        .for_each(|(index, byte)| *byte = (((index + seed) * 7919) >> 5) as u8);
    memory.register(KEY, region);
    let offset = LENGTH as usize;
    memory.register(LOCAL_KEY, Region { rights: Rights::NONE, offset, length: 0x1000, ..region });
    let offset = offset + 0x1000;
    memory.register(FOREIGN_KEY, Region { domain: FOREIGN_DOMAIN, offset, length: 0x1000, ..region });
    endpoint
}

impl Pair {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// Makes a pair. `change` changes the setup, which is the same on both sides.
    fn with(change: impl FnOnce(&mut QueuePairSetup)) -> Self {
        let mut setup = setup_a();
        change(&mut setup);
        let (mut a, mut b) = (endpoint(MAC_A, 1), endpoint(MAC_B, 2));
        a.create(setup);
        b.create(opposite(setup));
        Self { a, b, seen: Vec::new(), now_ps: 0 }
    }

    /// Delivers all frames of A to B, and returns their number.
    fn a_speaks(&mut self) -> usize {
        let mut count = 0;
        while let Some(frame) = self.a.transmit() {
            self.seen.extend(Seen::of(A, &frame));
            self.b.receive(&frame);
            count += 1;
        }
        count
    }

    /// Delivers all frames of B to A.
    fn b_speaks(&mut self) -> usize {
        let mut count = 0;
        while let Some(frame) = self.b.transmit() {
            self.seen.extend(Seen::of(B, &frame));
            self.a.receive(&frame);
            count += 1;
        }
        count
    }

    /// Exchanges frames until neither side has any, without advancing time.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.a_speaks() + self.b_speaks() == 0 {
                return;
            }
        }
        panic!("they never stop talking");
    }

    /// Exchanges frames and lets timers fire, until no frame is left and no timer runs.
    fn run(&mut self) {
        for _ in 0..1000 {
            self.settle();
            let deadlines = [self.a.next_deadline_ps(), self.b.next_deadline_ps()];
            let Some(next) = deadlines.into_iter().flatten().min() else { return };
            self.now_ps = next;
            self.a.advance(next);
            self.b.advance(next);
        }
        panic!("timers never stop");
    }

    fn seen_from(&self, from: u32) -> Vec<Seen> {
        self.seen.iter().filter(|seen| seen.from == from).cloned().collect()
    }

    fn brief_from(&self, from: u32) -> Vec<(u8, u32)> {
        self.seen_from(from).iter().map(Seen::brief).collect()
    }

    /// Syndrome, PSN and MSN of all acknowledgements and NAKs from B.
    fn acknowledgements(&self) -> Vec<(u8, u32, u32)> {
        let answers = self.seen_from(B);
        let acknowledgements = answers.iter().filter(|seen| seen.code == Op::Acknowledge.code());
        acknowledgements
            .map(|seen| seen.aeth.map(|(syndrome, msn)| (syndrome, seen.psn, msn)).unwrap())
            .collect()
    }

    fn statuses_of_a(&mut self) -> Vec<(u64, CompletionStatus)> {
        drain(&mut self.a).iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }

    fn statuses_of_b(&mut self) -> Vec<(u64, CompletionStatus)> {
        drain(&mut self.b).iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }

    fn events_of_b(&mut self) -> Vec<AsyncEvent> {
        std::iter::from_fn(|| self.b.event()).map(|event| event.kind).collect()
    }
}

fn drain(endpoint: &mut Endpoint) -> Vec<Completion> {
    std::iter::from_fn(|| endpoint.poll(0)).collect()
}

/// An SGE in the common region.
fn sge(offset: u64, length: u32) -> Sge {
    Sge { address: FIRST + offset, key: KEY, length }
}

fn sges(offset: u64, length: u32) -> Data {
    Data::Sges(vec![sge(offset, length)])
}

fn write(wr_id: u64, from: u64, to: u64, length: u32) -> SendWqe {
    SendWqe::new(wr_id, Operation::Write { address: FIRST + to, key: KEY }, sges(from, length))
}

fn read(wr_id: u64, from: u64, to: u64, length: u32) -> SendWqe {
    SendWqe::new(wr_id, Operation::Read { address: FIRST + from, key: KEY }, sges(to, length))
}

fn send(wr_id: u64, from: u64, length: u32) -> SendWqe {
    SendWqe::new(wr_id, Operation::Send, sges(from, length))
}

fn fetch_add(wr_id: u64, at: u64, to: u64, add: u64) -> SendWqe {
    // The region begins at an odd address.
    let address = (FIRST + at).next_multiple_of(8);
    SendWqe::new(wr_id, Operation::FetchAdd { address, key: KEY, add }, sges(to, 8))
}

fn receive(wr_id: u64, to: u64, length: u32) -> ReceiveWqe {
    ReceiveWqe { wr_id, sges: vec![sge(to, length)] }
}

/// Bytes of the common region.
fn bytes(endpoint: &mut Endpoint, offset: u64, length: u32) -> Vec<u8> {
    endpoint.memory().region_bytes(KEY)[offset as usize..][..length as usize].to_vec()
}
