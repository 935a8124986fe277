//! Valid requests of every operation, as the state of a queue pair allows them.
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::RemoteMemory;
use rnic_endpoint::packet::{Packet, Path};
use rnic_layout::limits::ATOMIC_BYTES;
use rnic_layout::opcode::{self, Operation as Op};
use rnic_layout::psn::Psn;
use rnic_layout::wire::extended::{AtomicEthRepr, IethRepr, ImmediateRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};
use std::ops::Range;

/// Path MTU of the queue pairs under attack.
pub(crate) const PMTU_BYTES: usize = 256;
/// Length of each receive.
pub(crate) const RECEIVE_BYTES: usize = 600;
/// Length of the region under attack: odd, so that it does not end with a word.
pub(crate) const TARGET_BYTES: usize = 4001;
/// Offsets in it of what valid WRITEs, READs and atomics access. A READ or an atomic is not ordered before a later WRITE, so they
/// are apart.
const WRITTEN: Range<u64> = 0..2000;
const READ: Range<u64> = 2001..3001;
const ATOMIC: Range<u64> = 3008..3968;

/// The message that the peer has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Nothing,
    /// A SEND, of which this many bytes have come.
    Send(usize),
    /// A WRITE, the address of its next byte, and how many bytes are to come.
    Write(u64, usize),
}

impl Begun {
    /// The state after a request was executed, whether it was meant or not.
    pub(crate) fn after(self, packet: &PacketRepr) -> Begun {
        let Some(row) = opcode::lookup(packet.bth.opcode) else { return self };
        let bytes = packet.payload.len();
        let (address, left) = match (self, reth(packet)) {
            (_, Some(reth)) => (reth.virtual_address, reth.dma_length as usize),
            (Begun::Write(address, left), None) => (address, left),
            _ => (0, 0),
        };
        match row.operation {
            Op::SendFirst => Begun::Send(bytes),
            Op::SendMiddle if let Begun::Send(before) = self => Begun::Send(before + bytes),
            Op::WriteFirst | Op::WriteMiddle => {
                Begun::Write(address.wrapping_add(bytes as u64), left.saturating_sub(bytes))
            }
            _ => Begun::Nothing,
        }
    }

    /// Addresses that a request changes.
    pub(crate) fn written(self, packet: &PacketRepr) -> Option<Range<u64>> {
        let bytes = packet.payload.len() as u64;
        let (first, bytes) = match (self, reth(packet), atomic(packet)) {
            (_, _, Some(atomic)) => (atomic.virtual_address, ATOMIC_BYTES as u64),
            (_, Some(reth), _) => (reth.virtual_address, bytes),
            (Begun::Write(address, _), _, _) => (address, bytes),
            _ => return None,
        };
        Some(first..first.saturating_add(bytes))
    }
}

/// The RETH of a packet.
pub(crate) fn reth(packet: &PacketRepr) -> Option<RethRepr> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::Reth(reth) => Some(reth),
        _ => None,
    })
}

/// The AtomicETH of a packet.
pub(crate) fn atomic(packet: &PacketRepr) -> Option<AtomicEthRepr> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::AtomicEth(atomic) => Some(atomic),
        _ => None,
    })
}

/// What a valid request depends on.
pub(crate) struct State {
    pub(crate) path: Path,
    pub(crate) number: u32,
    pub(crate) psn: Psn,
    pub(crate) begun: Begun,
    /// Receives are posted.
    pub(crate) has_receive: bool,
    /// Another READ or atomic may be sent.
    pub(crate) may_ask: bool,
    pub(crate) region: RemoteMemory,
    /// Key that may be invalidated.
    pub(crate) ended_key: Option<u32>,
}

impl State {
    fn frame(&self, random: &mut ChaCha8Rng, op: Op, headers: Vec<ExtendedRepr>, bytes: usize) -> Vec<u8> {
        let is_asked = matches!(op, Op::ReadRequest | Op::CompareSwap | Op::FetchAdd);
        let ack_request = is_asked || op.ends_message() || random.random_bool(0.2);
        let bth = BthRepr { ack_request, ..BthRepr::new(op.code(), self.number, self.psn) };
        let mut payload = vec![0; bytes];
        random.fill(payload.as_mut_slice());
        Packet::new(bth, headers, payload).frame(&self.path, random.random())
    }

    fn reth(&self, offset: u64, bytes: usize) -> ExtendedRepr {
        let RemoteMemory { address, key, .. } = self.region;
        let virtual_address = address + offset;
        ExtendedRepr::Reth(RethRepr { virtual_address, remote_key: key, dma_length: bytes as u32 })
    }

    /// The next packet of the message that was begun.
    fn next(&self, random: &mut ChaCha8Rng) -> Option<Vec<u8>> {
        let immediate = ExtendedRepr::Immediate(ImmediateRepr { data: random.random() });
        Some(match self.begun {
            Begun::Nothing => return None,
            Begun::Send(before) => {
                let room = RECEIVE_BYTES.saturating_sub(before);
                match random.random_range(0..3) {
                    0 if room > PMTU_BYTES => self.frame(random, Op::SendMiddle, vec![], PMTU_BYTES),
                    1 => {
                        let bytes = length(random, 1..=room.clamp(1, PMTU_BYTES));
                        self.frame(random, Op::SendLastImmediate, vec![immediate], bytes)
                    }
                    _ => {
                        let bytes = length(random, 1..=room.clamp(1, PMTU_BYTES));
                        self.frame(random, Op::SendLast, vec![], bytes)
                    }
                }
            }
            Begun::Write(_, left) if left > PMTU_BYTES => {
                self.frame(random, Op::WriteMiddle, vec![], PMTU_BYTES)
            }
            Begun::Write(_, left) if self.has_receive && random.random() => {
                self.frame(random, Op::WriteLastImmediate, vec![immediate], left)
            }
            Begun::Write(_, left) => self.frame(random, Op::WriteLast, vec![], left),
        })
    }

    /// A packet that begins a message.
    fn first(&self, random: &mut ChaCha8Rng) -> Vec<u8> {
        let immediate = ExtendedRepr::Immediate(ImmediateRepr { data: random.random() });
        match random.random_range(0..12) {
            0 if self.has_receive => {
                let bytes = length(random, 0..=PMTU_BYTES);
                self.frame(random, Op::SendOnly, vec![], bytes)
            }
            1 if self.has_receive => {
                let bytes = length(random, 0..=PMTU_BYTES);
                self.frame(random, Op::SendOnlyImmediate, vec![immediate], bytes)
            }
            2 if self.has_receive => self.frame(random, Op::SendFirst, vec![], PMTU_BYTES),
            3 if self.has_receive
                && let Some(remote_key) = self.ended_key =>
            {
                let header = ExtendedRepr::Ieth(IethRepr { remote_key });
                let bytes = length(random, 0..=PMTU_BYTES);
                self.frame(random, Op::SendOnlyInvalidate, vec![header], bytes)
            }
            4 if self.has_receive => {
                let bytes = length(random, 0..=PMTU_BYTES);
                let headers = vec![self.reth(random.random_range(0..WRITTEN.end - 256), bytes), immediate];
                self.frame(random, Op::WriteOnlyImmediate, headers, bytes)
            }
            5 | 6 => {
                let total = random.random_range(PMTU_BYTES + 1..=4 * PMTU_BYTES);
                let reth = self.reth(random.random_range(0..WRITTEN.end - total as u64), total);
                self.frame(random, Op::WriteFirst, vec![reth], PMTU_BYTES)
            }
            7 | 8 if self.may_ask => {
                let bytes = length(random, 0..=800);
                let offset = random.random_range(READ.start..=READ.end - bytes as u64);
                self.frame(random, Op::ReadRequest, vec![self.reth(offset, bytes)], 0)
            }
            9 | 10 if self.may_ask => {
                let RemoteMemory { address, key, .. } = self.region;
                let words = (ATOMIC.end - ATOMIC.start) / 8;
                let place = (address + ATOMIC.start).next_multiple_of(8);
                let header = AtomicEthRepr {
                    virtual_address: place + 8 * random.random_range(0..words - 1),
                    remote_key: key,
                    swap_add: random.random(),
                    compare: if random.random() { 0 } else { random.random() },
                };
                let op = if random.random() { Op::CompareSwap } else { Op::FetchAdd };
                self.frame(random, op, vec![ExtendedRepr::AtomicEth(header)], 0)
            }
            _ => {
                let bytes = length(random, 0..=PMTU_BYTES);
                let reth = self.reth(random.random_range(0..WRITTEN.end - 256), bytes);
                self.frame(random, Op::WriteOnly, vec![reth], bytes)
            }
        }
    }

    /// A request that the queue pair executes.
    pub(crate) fn request(&self, random: &mut ChaCha8Rng) -> Vec<u8> {
        self.next(random).unwrap_or_else(|| self.first(random))
    }
}

/// Draws a length: often a short one, so that the frame is a minimum one.
fn length(random: &mut ChaCha8Rng, range: std::ops::RangeInclusive<usize>) -> usize {
    let most = if random.random() { (*range.end()).min(*range.start() + 8) } else { *range.end() };
    random.random_range(*range.start()..=most)
}
