//! Plan: the work requests of two hosts, drawn from a seed.
//!
//! Pair `p` connects queue pair `p` of host 0 to queue pair `p` of host 1. In each direction it carries a list of messages,
//! with the receives that they need, which are posted before a message is: RNR NAKs do not occur by chance.
//!
//! A pair may end with a [`Mistake`]. All its other messages have completed by then, so that there is only one correct result.
//! Work that is posted after the mistake must be flushed.
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_layout::limits::{
    ATOMIC_BYTES, INLINE_BYTES_MAX, RECEIVE_SGES_MAX, SEND_SGES_FIRST_SLOT, SEND_SGES_MAX,
};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::PSN_COUNT;
use rnic_stimulus::chance::Seed;
use std::ops::Range;

/// Usual length of the memory that each queue pair opens to its peer, and of memory that mistakes name.
pub const WINDOW_BYTES: usize = 65_537;
/// Alignment of addresses is drawn modulo this number of bytes.
pub const LANES: usize = 64;
/// Maximum of consecutive unsignalled messages.
const UNSIGNALLED_MAX: usize = 4;
/// Offset of the cells for atomics in a window, a multiple of eight; and their number.
const CELLS: usize = 32_768;
const CELL_COUNT: usize = 6;
/// Length of each receive of a shared queue, which must be enough for any message.
const SHARED_BYTES: usize = 9000;
/// Probability that a message has a fence without needing it.
const FENCE_SHARE: f64 = 0.06;
/// Probability that a message invalidates a key, as long as there is one left to invalidate.
const ENDING_SHARE: f64 = 0.06;

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// SEND without immediate data.
    Send,
    /// SEND with immediate data.
    SendImmediate,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data.
    WriteImmediate,
    /// RDMA READ.
    Read,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// SEND with invalidate.
    SendInvalidate,
    /// Local invalidate.
    LocalInvalidate,
}

impl Kind {
    /// All kinds that invalidate no key.
    pub const LASTING: [Kind; 7] = [
        Kind::Send,
        Kind::SendImmediate,
        Kind::Write,
        Kind::WriteImmediate,
        Kind::Read,
        Kind::CompareSwap,
        Kind::FetchAdd,
    ];
    /// All of these but atomics.
    pub const MESSAGES: [Kind; 5] =
        [Kind::Send, Kind::SendImmediate, Kind::Write, Kind::WriteImmediate, Kind::Read];
    /// Kinds without a remote address.
    pub const SENDS: [Kind; 2] = [Kind::Send, Kind::SendImmediate];
    /// Kinds that invalidate a key: of the peer, and of the host itself.
    pub const ENDING: [Kind; 2] = [Kind::SendInvalidate, Kind::LocalInvalidate];
    /// All kinds.
    pub const ALL: [Kind; 9] = [
        Kind::Send,
        Kind::SendImmediate,
        Kind::Write,
        Kind::WriteImmediate,
        Kind::Read,
        Kind::CompareSwap,
        Kind::FetchAdd,
        Kind::SendInvalidate,
        Kind::LocalInvalidate,
    ];

    /// Returns whether the peer needs a receive.
    pub const fn consumes(self) -> bool {
        matches!(self, Kind::Send | Kind::SendImmediate | Kind::SendInvalidate | Kind::WriteImmediate)
    }

    /// Returns whether the message has a remote address.
    pub const fn has_target(self) -> bool {
        self.is_write() || self.is_answered()
    }

    /// Returns whether the message writes to its remote address.
    pub const fn is_write(self) -> bool {
        matches!(self, Kind::Write | Kind::WriteImmediate)
    }

    /// Returns whether the message is an atomic.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Kind::CompareSwap | Kind::FetchAdd)
    }

    /// Returns whether the peer answers with data: READs and atomics.
    pub const fn is_answered(self) -> bool {
        matches!(self, Kind::Read) || self.is_atomic()
    }

    /// Returns whether the message carries immediate data.
    pub const fn has_immediate(self) -> bool {
        matches!(self, Kind::SendImmediate | Kind::WriteImmediate)
    }
}

/// A piece of local memory, for one SGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Length, in bytes.
    pub length: usize,
    /// Address modulo [`LANES`].
    pub lane: usize,
}

/// Payload of a message, or destination of a READ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Pieces of memory.
    Pieces(Vec<Piece>),
    /// Inline data of this length.
    Inline(usize),
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetMemory {
    /// Window of the peer's queue pair.
    Window,
    /// Memory without remote rights.
    NoRight,
    /// Memory of another protection domain.
    OtherDomain,
    /// Memory whose key is invalidated, once in each direction of a pair: by the peer, or, with [`Kind::LocalInvalidate`], by
    /// its owner.
    Ending,
}

/// Where a WRITE or READ begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This many bytes after the first one.
    Offset(usize),
    /// One byte before the first one.
    BeforeStart,
    /// So near the end of the address space that the message wraps.
    RoundTheEnd,
}

/// Remote address of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Memory of the peer.
    pub memory: TargetMemory,
    /// Place in the memory.
    pub place: Place,
    /// Bits of the R_Key that are flipped.
    pub key_change: u32,
}

impl Target {
    /// Virtual address of a request of `length` bytes, in a region that begins at `first_address`.
    pub fn address(&self, first_address: u64, length: usize) -> u64 {
        match self.place {
            Place::Offset(offset) => first_address + offset as u64,
            Place::BeforeStart => first_address - 1,
            Place::RoundTheEnd => (length as u64 / 2).max(1).wrapping_neg(),
        }
    }
}

/// Mistakes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mistake {
    /// WRITE or READ whose R_Key has one bit flipped.
    RemoteKey,
    /// WRITE or READ of memory in another protection domain.
    RemoteDomain,
    /// WRITE or READ of memory without remote rights.
    RemoteRight,
    /// WRITE or READ that ends one byte after its region.
    RemoteEnd,
    /// WRITE or READ that begins one byte before its region.
    RemoteStart,
    /// WRITE or READ that wraps at the end of the address space.
    RemoteWrap,
    /// WRITE or READ to a queue pair that allows neither.
    QueuePairRight,
    /// L_Key with one bit flipped.
    LocalKey,
    /// L_Key of the last of several SGEs with one bit flipped.
    LastKey,
    /// Local address outside of its region.
    LocalRange,
    /// Local memory whose region ends after the first packet.
    LocalEnd,
    /// Message longer than 2 GiB.
    TooLong,
    /// Unassigned opcode.
    Opcode,
    /// SEND that is longer than the receive.
    ReceiveShort,
    /// Receive whose L_Key has one bit flipped.
    ReceiveKey,
    /// No receive is posted.
    NotReady,
    /// WRITE or READ with a key that was invalidated.
    EndedKey,
    /// SEND with invalidate of a key that the peer may not invalidate.
    PeerKey,
    /// Local invalidate of a key that may not be invalidated.
    OwnKey,
}

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 19] = [
        Mistake::RemoteKey,
        Mistake::RemoteDomain,
        Mistake::RemoteRight,
        Mistake::RemoteEnd,
        Mistake::RemoteStart,
        Mistake::RemoteWrap,
        Mistake::QueuePairRight,
        Mistake::LocalKey,
        Mistake::LastKey,
        Mistake::LocalRange,
        Mistake::LocalEnd,
        Mistake::TooLong,
        Mistake::Opcode,
        Mistake::ReceiveShort,
        Mistake::ReceiveKey,
        Mistake::NotReady,
        Mistake::EndedKey,
        Mistake::PeerKey,
        Mistake::OwnKey,
    ];

    /// Returns whether the queue pair of the responder fails as well (protocol 3.6).
    pub const fn fails_responder(self) -> bool {
        use Mistake::*;
        match self {
            RemoteKey | RemoteDomain | RemoteRight | RemoteEnd | RemoteStart | RemoteWrap => true,
            QueuePairRight | ReceiveShort | ReceiveKey | EndedKey | PeerKey => true,
            LocalKey | LastKey | LocalRange | LocalEnd | TooLong | Opcode | NotReady | OwnKey => false,
        }
    }

    /// Returns whether the mistake is in a receive, or may be detected when the message has taken one.
    const fn needs_own_receive(self) -> bool {
        use Mistake::*;
        matches!(self, LastKey | LocalEnd | ReceiveShort | ReceiveKey | NotReady | PeerKey)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Operation of the message.
    pub kind: Kind,
    /// Payload, or destination of the answer.
    pub source: Source,
    /// Immediate data, if the kind has any.
    pub immediate: [u8; 4],
    /// Remote address, or the memory whose key is invalidated.
    pub target: Target,
    /// Swap or add operand of an atomic.
    pub operand: u64,
    /// The compare of a compare and swap succeeds.
    pub is_equal: bool,
    /// It is signalled.
    pub signalled: bool,
    /// It requests a solicited event.
    pub solicited: bool,
    /// It has a fence.
    pub fence: bool,
    /// Its mistake.
    pub mistake: Option<Mistake>,
}

impl Message {
    /// Length of the message, in bytes.
    pub fn length(&self) -> usize {
        match &self.source {
            Source::Pieces(pieces) => pieces.iter().map(|piece| piece.length).sum(),
            Source::Inline(length) => *length,
        }
    }

    /// Range of the peer's window that it accesses.
    pub fn window(&self) -> Option<Range<usize>> {
        match (self.kind, self.target.place) {
            (kind, _) if !kind.has_target() => None,
            (_, Place::Offset(offset)) => Some(offset..offset + self.length()),
            _ => None,
        }
    }
}

/// A receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receive {
    /// Receive buffer, one piece for each SGE.
    pub pieces: Vec<Piece>,
    /// The L_Key of the first SGE is wrong.
    pub is_mistaken: bool,
}

/// One direction of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Messages, in order.
    pub sends: Vec<Message>,
    /// Receives that the peer posts for them, in order, unless it uses a shared receive queue.
    pub receives: Vec<Receive>,
}

/// The end of a pair with a mistake. Arrays of two are by host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Host that makes the mistake.
    pub side: usize,
    /// The mistake itself.
    pub mistake: Mistake,
    /// Receives that are posted first; the first one of the peer is for the invalid message, if it takes one.
    pub receives: [Vec<Receive>; 2],
    /// The invalid message, and the messages posted right after it.
    pub sends: Vec<Message>,
    /// Messages posted after the queue pair has failed.
    pub late_sends: [Vec<Message>; 2],
    /// Receives posted after the queue pair has failed.
    pub late_receives: [Vec<Receive>; 2],
}

/// Ethernet and IP fields of a pair's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrapping {
    /// IPv4; otherwise IPv6.
    pub is_ipv4: bool,
    /// VLAN tag, if any.
    pub vlan: Option<u16>,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// IPv6 flow label, from which the driver also makes the UDP source port.
    pub flow_label: u32,
}

/// Two connected queue pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Path MTU.
    pub pmtu: Pmtu,
    /// Ethernet and IP fields of its frames.
    pub wrapping: Wrapping,
    /// First PSN of each host's end, just before the PSNs wrap around; `None` leaves it to the host.
    pub first_psns: [Option<u32>; 2],
    /// Whether the queue pair allows WRITEs and READs of its peer, by host.
    pub lets_write: [bool; 2],
    /// Whether receives come from the shared receive queue of the host, by host.
    pub shares: [bool; 2],
    /// READs and atomics that each host may have in flight, by host; the other one takes as many.
    pub reads: [u8; 2],
    /// Messages, by the host that sends.
    pub lanes: [Lane; 2],
    /// Mistake at its end, if any.
    pub ending: Option<Ending>,
}

impl Pair {
    /// All messages of a host, in the order of posting.
    pub fn sends(&self, side: usize) -> impl Iterator<Item = &Message> {
        let ending = self.ending.iter().flat_map(move |ending| {
            let mistaken: &[Message] = if ending.side == side { &ending.sends } else { &[] };
            mistaken.iter().chain(&ending.late_sends[side])
        });
        self.lanes[side].sends.iter().chain(ending)
    }

    /// All receives of a host, in the order of posting.
    pub fn receives(&self, side: usize) -> impl Iterator<Item = &Receive> {
        let ending = self.ending.iter();
        let ending =
            ending.flat_map(move |ending| ending.receives[side].iter().chain(&ending.late_receives[side]));
        self.lanes[1 - side].receives.iter().chain(ending)
    }

    /// Receives of a host that valid messages of the peer consume.
    pub fn receives_taken(&self, side: usize) -> usize {
        self.lanes[1 - side].sends.iter().filter(|send| send.kind.consumes()).count()
    }
}

/// How often a queue pair sends again (protocol 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Timeout of an acknowledgement, as the queue pair has it: 0 for none.
    pub timeout: u8,
    /// Retries without progress.
    pub retry_count: u8,
    /// Retries after RNR NAKs; 7 for no limit.
    pub rnr_retry: u8,
}

impl Retries {
    /// Without retries, so that what is lost without need ends the run.
    pub const NONE: Retries = Retries { timeout: 14, retry_count: 0, rnr_retry: 0 };
}

/// Parameters of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// Number of pairs.
    pub pairs: usize,
    /// Messages of each pair in each direction.
    pub messages: usize,
    /// Share of the pairs that end with a mistake.
    pub mistaken_share: f64,
    /// Mistakes to choose from.
    pub mistakes: &'static [Mistake],
    /// Kinds of messages to choose from. One that invalidates a key is drawn seldom, and once in each direction of a pair at most.
    pub kinds: &'static [Kind],
    /// PMTUs to choose from.
    pub pmtus: &'static [Pmtu],
    /// Maximum length of a message. Of queue pairs without retries it must fit the share that one has of the receive buffer of
    /// the peer's card, which is half of it, unless the host there is quick.
    pub message_bytes_max: usize,
    /// Maximum of packets of most messages.
    pub packets_usual: usize,
    /// Length of the memory that each queue pair opens to its peer, at least that of a message.
    pub window_bytes: usize,
    /// READs and atomics that each host may have in flight; drawn for each queue pair if `None`.
    pub reads: Option<u8>,
    /// Maximum number of SGEs of a message.
    pub send_pieces_max: usize,
    /// Share of the queue pairs that use a shared receive queue.
    pub shared_share: f64,
    /// See [`Plan::in_flight_bytes`].
    pub in_flight_bytes: usize,
    /// Retries of all queue pairs.
    pub retries: Retries,
}

impl PlanOptions {
    /// Sixty-four pairs, half of which end with a mistake.
    pub const USUAL: PlanOptions = PlanOptions {
        pairs: 64,
        messages: 5,
        mistaken_share: 0.5,
        mistakes: &Mistake::ALL,
        kinds: &Kind::ALL,
        pmtus: &Pmtu::ALL,
        message_bytes_max: 16 << 10,
        packets_usual: 4,
        window_bytes: WINDOW_BYTES,
        reads: None,
        send_pieces_max: SEND_SGES_MAX,
        shared_share: 0.25,
        in_flight_bytes: 16 << 10,
        retries: Retries::NONE,
    };

    /// The given number of pairs and messages, without mistakes.
    pub const fn faultless(pairs: usize, messages: usize) -> PlanOptions {
        PlanOptions { pairs, messages, mistaken_share: 0.0, ..PlanOptions::USUAL }
    }

    /// The same for cards of which a queue pair without retries may hold `share_bytes` of the receive buffer.
    pub fn within(self, share_bytes: usize) -> PlanOptions {
        PlanOptions {
            message_bytes_max: self.message_bytes_max.min(share_bytes),
            in_flight_bytes: self.in_flight_bytes.min(share_bytes),
            ..self
        }
    }
}

/// Work requests of two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Seed that it was drawn from.
    pub seed: Seed,
    /// Maximum of bytes that a host has in flight, except for a longer message, which is sent alone. A queue pair without retries
    /// fails if it exceeds its share of the receive buffer of the peer's card while its host is slow.
    pub in_flight_bytes: usize,
    /// Retries of all queue pairs.
    pub retries: Retries,
    /// Length of the memory that each queue pair opens to its peer.
    pub window_bytes: usize,
    /// All pairs.
    pub pairs: Vec<Pair>,
    /// Receives that are posted to the shared receive queue of each host: as many as are consumed, each large enough for any
    /// message.
    pub shared: [Vec<Receive>; 2],
}

impl Plan {
    /// Draws a plan.
    pub fn new(seed: u64, options: &PlanOptions) -> Plan {
        let seed = Seed(seed);
        let draw = |name: &str| Draw { random: seed.stream(&format!("plan/{name}")), options: *options };
        let pairs: Vec<Pair> = (0..options.pairs).map(|pair| draw(&format!("pair{pair}")).pair()).collect();
        let shared = [0, 1].map(|side: usize| {
            let mut draw = draw(&format!("shared{side}"));
            let pairs = pairs.iter().filter(|pair| pair.shares[side]);
            let count = pairs.map(|pair| pair.receives_taken(side)).sum();
            (0..count).map(|_| draw.receive(SHARED_BYTES)).collect()
        });
        let PlanOptions { in_flight_bytes, retries, window_bytes, .. } = *options;
        Plan { seed, in_flight_bytes, retries, window_bytes, pairs, shared }
    }

    /// Number of valid messages before the mistakes.
    pub fn messages(&self) -> usize {
        self.pairs.iter().flat_map(|pair| &pair.lanes).map(|lane| lane.sends.len()).sum()
    }

    /// Payload of a message.
    pub fn payload(&self, side: usize, pair: usize, index: usize, length: usize) -> Vec<u8> {
        let name = [self.seed.0, side as u64, pair as u64, index as u64];
        let mut state = name.iter().fold(0x9e37_79b9_7f4a_7c15, |state, &part| mix(state ^ part));
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            state = mix(state);
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

/// Contents of a receive's memory before the message arrives.
pub fn background(wr_id: u64, index: usize) -> u8 {
    (wr_id as u8).wrapping_mul(31).wrapping_add(index as u8) ^ 0x5a
}

/// Initial contents of a window.
pub fn window_background(index: usize) -> u8 {
    (index % 253) as u8
}

/// One round of a generator whose successive values look random.
fn mix(state: u64) -> u64 {
    let mut value = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Maximum number of PSNs before the wrap-around that a queue pair begins at.
const FIRST_PSN_DISTANCE_MAX: u32 = 12;

/// Draws one pair.
struct Draw {
    random: ChaCha8Rng,
    options: PlanOptions,
}

impl Draw {
    fn pair(&mut self) -> Pair {
        let mistake = (!self.options.mistakes.is_empty()
            && self.random.random_bool(self.options.mistaken_share))
        .then(|| self.options.mistakes[self.random.random_range(0..self.options.mistakes.len())]);
        let pmtus = self.options.pmtus;
        let pmtu = pmtus[self.random.random_range(0..pmtus.len())];
        let side = self.random.random_range(0..2);
        let mut lets_write = [true; 2];
        if mistake == Some(Mistake::QueuePairRight) {
            lets_write[1 - side] = false;
        }
        let mut wrapping = Wrapping {
            is_ipv4: self.random.random(),
            vlan: self.random.random_bool(0.3).then(|| self.random.random_range(1..4095)),
            traffic_class: self.random.random_range(0..64) << 2,
            hop_limit: self.random.random_range(2..=255),
            flow_label: 0,
        };
        let mut shares = [0, 1].map(|_| self.random.random_bool(self.options.shared_share));
        shares[1 - side] &= !mistake.is_some_and(Mistake::needs_own_receive);
        let bytes = pmtu.bytes() as usize;
        let must_end = |lane: usize| mistake == Some(Mistake::EndedKey) && lane == side;
        let lanes = [0, 1]
            .map(|side: usize| self.lane(bytes, lets_write[1 - side], shares[1 - side], must_end(side)));
        let mut ending = mistake.map(|mistake| self.ending(bytes, side, mistake, lets_write));
        if let Some(ending) = &mut ending {
            for side in (0..2).filter(|&side| shares[side]) {
                ending.receives[side].clear();
                ending.late_receives[side].clear();
            }
        }
        // Every long message wraps around, and so do most queue pairs in half of their ends.
        let first_psns = [0, 1].map(|_| {
            self.random
                .random_bool(0.5)
                .then(|| PSN_COUNT - self.random.random_range(1..=FIRST_PSN_DISTANCE_MAX))
        });
        wrapping.flow_label = self.random.random_range(1..1 << 20);
        // Some READ slots are left over, most often none.
        let mut drawn = || if self.random.random() { 16 } else { self.random.random_range(1..=16) };
        let reads = [0, 1].map(|_| self.options.reads.unwrap_or_else(&mut drawn));
        Pair { pmtu, wrapping, first_psns, lets_write, shares, reads, lanes, ending }
    }

    /// Draws one direction. `must_end` requires that it invalidates a key of the peer.
    fn lane(&mut self, pmtu: usize, lets_write: bool, shares: bool, must_end: bool) -> Lane {
        let mut lane = Lane::default();
        let count = self.options.messages;
        // A group of messages of which only the last one is signalled completes together, so it must be posted together.
        let (mut unsignalled, mut bytes) = (0, 0);
        // A READ may see what a later WRITE or atomic writes, unless that has a fence; and an atomic may see a later WRITE
        // (protocol 2.10).
        let (mut reads, mut atomics): (Vec<Range<usize>>, Vec<Range<usize>>) = (Vec::new(), Vec::new());
        let mut ending = self.ending_kinds();
        for index in 0..count {
            let must = must_end && index + 1 == count && ending.contains(&Kind::SendInvalidate);
            let kind = if must { Kind::SendInvalidate } else { self.kind(lets_write, &mut ending) };
            let (mut send, receive) = self.message(pmtu, kind, shares);
            send.fence = self.random.random_bool(FENCE_SHARE);
            if let Some(range) = send.window() {
                let meets = |read: &Range<usize>| read.start < range.end && range.start < read.end;
                send.fence |= match send.kind {
                    Kind::Read => false,
                    kind if kind.is_atomic() => reads.iter().any(meets),
                    _ => reads.iter().chain(&atomics).any(meets),
                };
                reads.retain(|_| !send.fence);
                atomics.retain(|_| !send.fence);
                reads.extend((send.kind == Kind::Read).then_some(range.clone()));
                atomics.extend(send.kind.is_atomic().then_some(range));
            }
            bytes += send.length();
            let is_last = unsignalled == UNSIGNALLED_MAX || index + 1 == count;
            if bytes > self.options.in_flight_bytes {
                lane.sends.iter_mut().last().into_iter().for_each(|before| before.signalled = true);
                (unsignalled, bytes) = (0, send.length());
            }
            send.signalled |= is_last || bytes > self.options.in_flight_bytes;
            (unsignalled, bytes) = if send.signalled { (0, 0) } else { (unsignalled + 1, bytes) };
            lane.sends.push(send);
            lane.receives.extend(receive.filter(|_| !shares));
        }
        lane
    }

    /// Kinds of this plan that invalidate a key.
    fn ending_kinds(&self) -> Vec<Kind> {
        Kind::ENDING.into_iter().filter(|kind| self.options.kinds.contains(kind)).collect()
    }

    /// Draws a kind. It may invalidate a key as long as `ending` holds one.
    fn kind(&mut self, lets_write: bool, ending: &mut Vec<Kind>) -> Kind {
        let lasting = if lets_write { &Kind::LASTING[..] } else { &Kind::SENDS };
        let kinds: Vec<Kind> =
            lasting.iter().copied().filter(|kind| self.options.kinds.contains(kind)).collect();
        if !ending.is_empty() && self.random.random_bool(ENDING_SHARE) {
            ending.swap_remove(self.random.random_range(0..ending.len()))
        } else {
            kinds[self.random.random_range(0..kinds.len())]
        }
    }

    /// Draws a message and the receive that it needs; a receive of a shared queue is large enough for it.
    fn message(&mut self, pmtu: usize, kind: Kind, shares: bool) -> (Message, Option<Receive>) {
        let length = match kind {
            Kind::LocalInvalidate => 0,
            kind if kind.is_atomic() => ATOMIC_BYTES,
            _ => self.length(pmtu),
        };
        let is_limited = shares && kind.consumes() && !kind.is_write();
        let length = if is_limited { length.min(SHARED_BYTES) } else { length };
        let send = self.send(kind, length);
        let receive = kind.consumes().then(|| match kind.is_write() {
            // The contents of this memory must not change.
            true => {
                let length = self.random.random_range(0..300);
                self.receive(length)
            }
            false => {
                let slack = if self.random.random() { 0 } else { self.random.random_range(0..200) };
                self.receive(length + slack)
            }
        });
        (send, receive)
    }

    fn length(&mut self, pmtu: usize) -> usize {
        let PlanOptions { message_bytes_max: most, packets_usual, .. } = self.options;
        let length = match self.random.random_range(0..16) {
            0 => 0,
            1..=3 => self.random.random_range(1..=INLINE_BYTES_MAX),
            4 => pmtu - self.random.random_range(0..4),
            5 => pmtu,
            6..=9 => self.random.random_range(0..=pmtu),
            // Full packets up to the maximum, and a byte more or less.
            10 | 11 => {
                self.random.random_range(2..=packets_usual) * pmtu + self.random.random_range(0..3) - 1
            }
            12..=14 => self.random.random_range(pmtu + 1..=packets_usual * pmtu),
            _ => self.random.random_range(0..=most),
        };
        length.min(most)
    }

    fn send(&mut self, kind: Kind, length: usize) -> Message {
        let is_local = kind == Kind::LocalInvalidate;
        let is_inline =
            !kind.is_answered() && !is_local && length <= INLINE_BYTES_MAX && self.random.random_bool(0.4);
        let source = if is_inline {
            Source::Inline(length)
        } else {
            let most = match kind {
                _ if is_local => 0,
                _ if kind.is_atomic() => 1,
                _ if kind.is_answered() => SEND_SGES_FIRST_SLOT.min(self.options.send_pieces_max),
                _ => self.options.send_pieces_max,
            };
            Source::Pieces(self.pieces(length, most))
        };
        // The key of an empty message is not checked (protocol 3.6).
        let target = if Kind::ENDING.contains(&kind) {
            Target { memory: TargetMemory::Ending, place: Place::Offset(0), key_change: 0 }
        } else if length == 0 && self.random.random() {
            Target {
                memory: TargetMemory::Window,
                place: Place::RoundTheEnd,
                key_change: self.random.random(),
            }
        } else {
            let offset = if kind.is_atomic() {
                // Few cells, so that several atomics use the same one.
                CELLS + ATOMIC_BYTES * self.random.random_range(0..CELL_COUNT)
            } else {
                self.random.random_range(0..=self.options.window_bytes - length)
            };
            Target { memory: TargetMemory::Window, place: Place::Offset(offset), key_change: 0 }
        };
        Message {
            kind,
            source,
            immediate: self.random.random(),
            target,
            operand: self.random.random(),
            is_equal: self.random.random(),
            signalled: self.random.random_bool(0.6),
            solicited: self.random.random_bool(0.2),
            fence: false,
            mistake: None,
        }
    }

    fn receive(&mut self, length: usize) -> Receive {
        Receive { pieces: self.pieces(length, RECEIVE_SGES_MAX), is_mistaken: false }
    }

    /// Splits a length into up to `most` pieces, some of which may be empty.
    fn pieces(&mut self, length: usize, most: usize) -> Vec<Piece> {
        let least = usize::from(length > 0);
        let count = self.random.random_range(least..=most);
        let mut cuts: Vec<usize> = (1..count).map(|_| self.random.random_range(0..=length)).collect();
        cuts.sort_unstable();
        let mut start = 0;
        let ends = cuts.into_iter().chain((count > 0).then_some(length));
        let cut = ends.map(|end| {
            let length = end - start;
            start = end;
            let lane = if self.random.random_bool(0.3) { 0 } else { self.random.random_range(0..LANES) };
            Piece { length, lane }
        });
        cut.collect()
    }

    fn ending(&mut self, pmtu: usize, side: usize, mistake: Mistake, lets_write: [bool; 2]) -> Ending {
        let (mut send, receive) = self.mistaken(pmtu, mistake);
        send.mistake = Some(mistake);
        let mut receives = [Vec::new(), Vec::new()];
        for (host, list) in receives.iter_mut().enumerate() {
            if host != side {
                list.extend(receive.clone());
            }
            if host == side || mistake != Mistake::NotReady {
                list.extend((0..self.random.random_range(0..4)).map(|_| self.spare()));
            }
        }
        let mut flushed = |most: usize, lets_write: bool| -> Vec<Message> {
            let mut ending = self.ending_kinds();
            let count = self.random.random_range(0..=most);
            let mut flushed = |_| {
                let kind = self.kind(lets_write, &mut ending);
                self.message(pmtu, kind, false).0
            };
            (0..count).map(&mut flushed).collect()
        };
        let mut sends = vec![send];
        sends.extend(flushed(4, lets_write[1 - side]));
        let mut late_sends = [Vec::new(), Vec::new()];
        late_sends[side] = flushed(2, lets_write[1 - side]);
        if mistake.fails_responder() {
            late_sends[1 - side] = flushed(2, lets_write[side]);
        }
        let late_receives = [0, 1].map(|host| {
            let fails = host == side || mistake.fails_responder();
            let count = if fails { self.random.random_range(0..3) } else { 0 };
            (0..count).map(|_| self.spare()).collect()
        });
        Ending { side, mistake, receives, sends, late_sends, late_receives }
    }

    fn spare(&mut self) -> Receive {
        let length = self.random.random_range(0..300);
        self.receive(length)
    }

    /// Draws a message with a mistake, and the receive that it finds.
    fn mistaken(&mut self, pmtu: usize, mistake: Mistake) -> (Message, Option<Receive>) {
        // Too long for inline data, and long enough that a receive can be shorter.
        let packets = if mistake == Mistake::LocalEnd {
            2
        } else {
            self.random.random_range(1..=self.options.packets_usual)
        };
        let least = if mistake == Mistake::LocalEnd { pmtu } else { INLINE_BYTES_MAX };
        let most = (packets * pmtu).min(self.options.message_bytes_max).max(least + 1);
        let mut length = self.random.random_range(least + 1..=most);
        let mut offset = self.random.random_range(0..=WINDOW_BYTES - length);
        let kind = match mistake {
            Mistake::ReceiveShort | Mistake::ReceiveKey => Kind::SENDS[self.random.random_range(0..2)],
            Mistake::NotReady => {
                [Kind::Send, Kind::SendImmediate, Kind::WriteImmediate][self.random.random_range(0..3)]
            }
            Mistake::LocalKey
            | Mistake::LastKey
            | Mistake::LocalRange
            | Mistake::LocalEnd
            | Mistake::TooLong
            | Mistake::Opcode => Kind::MESSAGES[self.random.random_range(0..Kind::MESSAGES.len())],
            Mistake::RemoteKey
            | Mistake::RemoteDomain
            | Mistake::RemoteRight
            | Mistake::QueuePairRight
            | Mistake::EndedKey => {
                [Kind::Write, Kind::Read, Kind::CompareSwap, Kind::FetchAdd][self.random.random_range(0..4)]
            }
            Mistake::PeerKey => Kind::SendInvalidate,
            Mistake::OwnKey => Kind::LocalInvalidate,
            // With immediate data, the order of two checks would decide which side reports the mistake.
            _ => [Kind::Write, Kind::Read][self.random.random_range(0..2)],
        };
        if kind.is_atomic() {
            (length, offset) = (ATOMIC_BYTES, CELLS);
        }
        if mistake == Mistake::OwnKey {
            length = 0;
        }
        let mut target = Target { memory: TargetMemory::Window, place: Place::Offset(offset), key_change: 0 };
        match mistake {
            Mistake::RemoteKey => target.key_change = 1 << self.random.random_range(0..32),
            Mistake::RemoteDomain => target.memory = TargetMemory::OtherDomain,
            Mistake::RemoteRight => target.memory = TargetMemory::NoRight,
            Mistake::RemoteEnd => target.place = Place::Offset(WINDOW_BYTES - length + 1),
            Mistake::RemoteStart => target.place = Place::BeforeStart,
            Mistake::RemoteWrap => target.place = Place::RoundTheEnd,
            Mistake::EndedKey => target.memory = TargetMemory::Ending,
            Mistake::PeerKey | Mistake::OwnKey => match self.random.random_range(0..4) {
                0 => target.memory = TargetMemory::NoRight,
                1 => target.memory = TargetMemory::OtherDomain,
                // Only the variant, as a key of another index may be valid.
                2 => target.key_change = 1 << self.random.random_range(0..8),
                _ => {}
            },
            _ => {}
        }
        let receive = match mistake {
            Mistake::NotReady => None,
            Mistake::ReceiveShort => {
                let short = self.random.random_range(1..=length);
                Some(self.receive(length - short))
            }
            Mistake::ReceiveKey => {
                let piece = Piece { length, lane: self.random.random_range(0..LANES) };
                Some(Receive { pieces: vec![piece], is_mistaken: true })
            }
            _ => kind.consumes().then(|| self.receive(length)),
        };
        let mut pieces = vec![Piece { length, lane: self.random.random_range(0..LANES) }];
        if mistake == Mistake::LastKey {
            let most = if kind.is_answered() { SEND_SGES_FIRST_SLOT } else { self.options.send_pieces_max };
            // The key of an empty piece is not checked.
            let last = self.random.random_range(1..=length.min(300));
            pieces = self.pieces(length - last, most - 1);
            pieces.push(Piece { length: last, lane: self.random.random_range(0..LANES) });
        }
        if kind == Kind::LocalInvalidate {
            pieces.clear();
        }
        (Message { source: Source::Pieces(pieces), target, ..self.send(kind, 0) }, receive)
    }
}

#[cfg(test)]
mod tests;
