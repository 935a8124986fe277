use super::*;
use crate::messages::{ParsedWqe, second_sge};
use crate::opcode::{
    ACKNOWLEDGE, READ_RESPONSE_FIRST, READ_RESPONSE_LAST, READ_RESPONSE_MIDDLE, READ_RESPONSE_ONLY,
};
use crate::segment::tests::packets;
use crate::testing::{Bytes, event, random_wqe, slot_bits};
use crate::vendor_error;
use crate::wqe_check::tests::judge;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use rnic_layout::queue::completion::CompletionOpcode;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::queue::send::{INLINE, SIGNALLED, TWO_SLOTS};
use rnic_layout::state::QpState;
use rnic_messages::host::HostSpan;
use rnic_messages::read::ReadShare;
use rnic_messages::setup::{SetupKind, SourceAddressWrite};
use rnic_messages::sizes::queue_pair_of;
use rnic_messages::transmit::TransmitRequest;
use std::collections::{BTreeMap, HashMap, VecDeque};

const PSN_MASK: u32 = 0xff_ffff;
/// The source address of the card, and its index in the table.
const OWN_ADDRESS: u64 = 0x0200_00ff_fe00_0001;
const OWN_PLACE: u64 = 6;
/// Where the region of a queue pair is, and how long.
const REGION_BYTES: u64 = 1 << 20;
/// READs that a queue pair may have outstanding.
const READ_ATOMIC: u64 = 3;

/// A posted WQE, the expected outcome, and the outcome so far.
struct PostedWqe {
    wr_id: u64,
    is_signalled: bool,
    next_slot: u16,
    /// Status in a queue pair that sends; and the commands of its packets, without the fields that depend on
    /// the order in the queue.
    status: u64,
    commands: Vec<GatherCommand>,
    /// The further commands of each packet.
    lists: Vec<VecDeque<HostSpan>>,
    /// First packet, except packet 0, whose access check fails.
    fails_at: Option<usize>,
    inline: Vec<Bits<SLOT_BITS>>,
    read: Option<Read>,
    /// Key of a LOCAL_INVALIDATE.
    key: Option<u64>,
    is_acknowledged: bool,
    /// How the peer, gather or an access check after the first packet refused it: statuses and reasons.
    refusals: Vec<(u64, u64)>,
}

/// A READ: where its bytes go, and its first PSN when it is sent.
#[derive(Clone)]
struct Read {
    length: u64,
    /// Addresses and lengths.
    sges: Vec<(u64, u64)>,
    first_psn: u32,
}

impl Read {
    fn responses(&self, pmtu: u64) -> u64 {
        self.length.div_ceil(pmtu).max(1)
    }

    /// Where `bytes` of the message after the first `before` go.
    fn spans(&self, mut before: u64, mut bytes: u64) -> Vec<HostSpan> {
        let mut spans = vec![];
        for &(address, length) in &self.sges {
            let skipped = before.min(length);
            let part = bytes.min(length - skipped);
            if part > 0 {
                spans.push(HostSpan { address: bits(address + skipped), length: bits(part) });
            }
            (before, bytes) = (before - skipped, bytes - part);
        }
        spans
    }
}

/// A queue pair as software, control and the peer see it.
struct Pair {
    number: usize,
    qpn: u32,
    generation: u8,
    state: QpState,
    ring_log2: u32,
    path_mtu: u64,
    wqes: Vec<PostedWqe>,
    producer: u16,
    consumer: u16,
    /// WQEs that were sent or can no longer be, and packets of the next one.
    sent: usize,
    sent_packets: usize,
    next_psn: u32,
    /// Messages and packets since the last request for an acknowledgement.
    unasked: usize,
    unasked_packets: usize,
    /// What the peer has not seen: WQE, whether it is its last packet, PSN, and whether it must respond.
    wire: VecDeque<(usize, bool, u32, bool)>,
    peer_is_silent: bool,
    completed: usize,
    has_failed: bool,
    failure_seen: bool,
    /// An event has reported a slot that could not be read; nothing completes after it.
    is_untold: bool,
}

impl Pair {
    fn key(&self) -> u32 {
        0x1234_0000 | self.number as u32
    }

    fn region(&self) -> u64 {
        (self.number as u64 + 1) << 32
    }

    fn device(&self) -> u64 {
        0x8_0000_0000_0000 | (self.number as u64) << 24
    }

    fn ring(&self) -> u64 {
        0x7000_0000_0000 | (self.number as u64) << 24
    }

    fn address(&self) -> u128 {
        0xffff_0a00_0000 | self.number as u128
    }

    /// The peer has executed all WQEs before this one; of a READ, only its data tells.
    fn acknowledges(&mut self, end: usize) {
        let wqes = self.wqes[..end].iter_mut();
        wqes.filter(|wqe| wqe.read.is_none()).for_each(|wqe| wqe.is_acknowledged = true);
    }
}

/// The card's requester and all of its neighbours.
struct World {
    bench: Bench<Requester>,
    random: Random,
    pairs: Vec<Pair>,
    memory: HashMap<u64, Bytes>,
    setups: VecDeque<SetupEvent>,
    setup_fetch: Source<SetupEvent>,
    setup_parse: Source<SetupEvent>,
    responses: Source<PacketToken>,
    gather_failure: Source<GatherFailure>,
    access_answer: Source<AccessAnswer>,
    wqe_read: Sink<HostSpan>,
    access_request: Sink<AccessRequest>,
    gather: Sink<GatherCommand>,
    inline_slot: Sink<Slot>,
    invalidate: Sink<Invalidation>,
    invalidated: Source<Invalidated>,
    /// Keys that control invalidates, and when it answers.
    endings: VecDeque<(u64, Invalidated)>,
    /// Keys that were invalidated.
    ended: usize,
    /// Peers respond only where they must.
    is_strict: bool,
    response_access_request: Sink<AccessRequest>,
    response_access_answer: Source<AccessAnswer>,
    place: Sink<ReadResponseCommand>,
    returned: Source<ResponseNotice>,
    completion: Sink<CqeToken>,
    failure: Sink<QpNotice>,
    doorbells: VecDeque<(usize, u16)>,
    /// When slots and responses are due.
    reads: VecDeque<(u64, u64, bool)>,
    answers: VecDeque<(u64, AccessAnswer)>,
    response_answers: VecDeque<(u64, AccessAnswer)>,
    /// What the place stage has, and when it returns that.
    placing: VecDeque<(u64, ResponseNotice)>,
    /// Payload of responses that is neither placed nor dropped.
    payload: VecDeque<u64>,
    reads_done: usize,
    read_fails: bool,
    expected_inline: VecDeque<Slot>,
    seen_inline: VecDeque<Slot>,
    lost: VecDeque<GatherFailure>,
    /// What gather reads: until when, for which queue pair and generation, and whether it is a mark.
    gathering: VecDeque<(u64, u64, u64, bool)>,
    /// A packet whose commands have not all come, and those that are due.
    continued: Option<(GatherCommand, VecDeque<HostSpan>)>,
    continuations: usize,
    counts: BTreeMap<&'static str, u64>,
    statuses: BTreeMap<(u64, u64), u64>,
    cycle: u64,
    next_tag: u64,
    host_delay: u64,
    answer_delay: u64,
    /// Messages that failed with a packet after their first.
    failed_behind: usize,
    /// Chances of things that go wrong, per packet.
    error_rate: f64,
    peer_rate: f64,
    /// Cycles of the wire for a packet.
    pace: u64,
}

impl World {
    fn new(rings: &[(usize, u32)], stalls: Stalls) -> Self {
        let mut random = random();
        let pairs = rings.iter().map(|&(number, ring_log2)| Pair {
            number,
            qpn: random.random::<u32>() & 0xff_fc00 | number as u32,
            generation: random.random(),
            state: QpState::Reset,
            ring_log2,
            path_mtu: 3,
            wqes: Vec::new(),
            producer: 0,
            consumer: 0,
            sent: 0,
            sent_packets: 0,
            next_psn: 0,
            unasked: 0,
            unasked_packets: 0,
            wire: VecDeque::new(),
            peer_is_silent: false,
            completed: 0,
            has_failed: false,
            failure_seen: false,
            is_untold: false,
        });
        let pairs = pairs.collect();
        let mut world = World {
            bench: Bench::clocked(Requester::default(), |block| &mut block.clock).in_lock_step(),
            random,
            pairs,
            memory: HashMap::new(),
            setups: VecDeque::new(),
            setup_fetch: Source::of_tokens([], stalls),
            setup_parse: Source::of_tokens([], stalls),
            responses: Source::of_tokens([], stalls),
            gather_failure: Source::of_tokens([], stalls),
            access_answer: Source::of_tokens([], stalls),
            invalidate: Sink::new(stalls),
            invalidated: Source::of_tokens([], stalls),
            endings: VecDeque::new(),
            ended: 0,
            is_strict: false,
            response_access_request: Sink::new(stalls),
            response_access_answer: Source::of_tokens([], stalls),
            place: Sink::new(stalls),
            returned: Source::of_tokens([], stalls),
            wqe_read: Sink::new(stalls),
            access_request: Sink::new(stalls),
            gather: Sink::new(stalls),
            inline_slot: Sink::new(stalls),
            completion: Sink::new(stalls),
            failure: Sink::new(stalls),
            doorbells: VecDeque::new(),
            reads: VecDeque::new(),
            answers: VecDeque::new(),
            response_answers: VecDeque::new(),
            placing: VecDeque::new(),
            payload: VecDeque::new(),
            reads_done: 0,
            read_fails: false,
            expected_inline: VecDeque::new(),
            seen_inline: VecDeque::new(),
            lost: VecDeque::new(),
            gathering: VecDeque::new(),
            continued: None,
            continuations: 0,
            counts: BTreeMap::new(),
            statuses: BTreeMap::new(),
            cycle: 0,
            next_tag: 1,
            host_delay: 10,
            answer_delay: 5,
            failed_behind: 0,
            error_rate: 0.0,
            peer_rate: 1.0,
            pace: 1,
        };
        world.bench.block.enable.next = true;
        world.bench.block.source_address_write.value.next = SourceAddressWrite {
            index: bits(OWN_PLACE),
            valid: true,
            address: bits(OWN_ADDRESS),
            ..SourceAddressWrite::default()
        };
        world.bench.block.source_address_write.valid.next = true;
        world.bench.tick();
        world.bench.block.source_address_write.valid.next = false;
        (0..world.pairs.len()).for_each(|index| world.start(index));
        // The sweep; nothing is taken in it.
        (0..1200).for_each(|_| world.step());
        world
    }

    /// Makes all ends of streams stall in another way; nothing may be in flight.
    fn stall(&mut self, stalls: Stalls) {
        self.setup_fetch = Source::of_tokens([], stalls);
        self.setup_parse = Source::of_tokens([], stalls);
        self.responses = Source::of_tokens([], stalls);
        self.gather_failure = Source::of_tokens([], stalls);
        self.access_answer = Source::of_tokens([], stalls);
        self.invalidate = Sink::new(stalls);
        self.invalidated = Source::of_tokens([], stalls);
        self.response_access_request = Sink::new(stalls);
        self.response_access_answer = Source::of_tokens([], stalls);
        self.place = Sink::new(stalls);
        self.returned = Source::of_tokens([], stalls);
        self.wqe_read = Sink::new(stalls);
        self.access_request = Sink::new(stalls);
        self.gather = Sink::new(stalls);
        self.inline_slot = Sink::new(stalls);
        self.completion = Sink::new(stalls);
        self.failure = Sink::new(stalls);
    }

    fn event(&self, kind: SetupKind, index: usize) -> SetupEvent {
        let pair = &self.pairs[index];
        let mut event = event(kind, pair.number, pair.state, pair.generation);
        event.psn = bits(pair.next_psn.into());
        event.path.local_qp = bits(pair.qpn.into());
        event.path.path_mtu = bits(pair.path_mtu);
        event.path.read_atomic = bits(READ_ATOMIC);
        event.read_share = ReadShare { unit: bits(index as u64), size: bits(1) };
        event.path.domain = bits(pair.number as u64);
        event.path.send_base_page = bits(pair.ring() >> 12);
        event.path.send_slots_log2 = bits(pair.ring_log2.into());
        event.path.partition_key = bits(0xffff);
        event.path.destination_address = num_bigint::BigUint::from(pair.address()).into();
        event.path.send_completion_queue = bits(pair.number as u64);
        event.path.source_address_index = bits(OWN_PLACE);
        event
    }

    /// Resets a queue pair and makes it ready.
    fn start(&mut self, index: usize) {
        let psn = self.random.random::<u32>() & PSN_MASK | 0xff_ff00;
        let path_mtu = self.random.random_range(1..=5);
        let pair = &mut self.pairs[index];
        pair.generation = pair.generation.wrapping_add(1);
        pair.state = QpState::Reset;
        pair.wqes.clear();
        (pair.producer, pair.consumer, pair.sent, pair.completed) = (0, 0, 0, 0);
        (pair.sent_packets, pair.path_mtu) = (0, path_mtu);
        (pair.next_psn, pair.unasked, pair.unasked_packets) = (psn, 0, 0);
        pair.wire.clear();
        (pair.peer_is_silent, pair.has_failed) = (false, false);
        (pair.failure_seen, pair.is_untold) = (false, false);
        let restart = self.event(SetupKind::Restart, index);
        let psn = self.event(SetupKind::SendPsn, index);
        self.pairs[index].state = QpState::ReadyToSend;
        let ready = self.event(SetupKind::Life, index);
        self.setups.extend([restart, psn, ready]);
    }

    fn fail(&mut self, index: usize) {
        self.pairs[index].state = QpState::Error;
        let event = self.event(SetupKind::Life, index);
        self.setups.push_back(event);
    }

    /// A WQE without faults, of one slot or two.
    fn right_wqe(&mut self, index: usize, two: bool) -> [Bytes; 2] {
        let pair = &self.pairs[index];
        let random = &mut self.random;
        let mut wqe: [Bytes; 2] = [[0; 64]; 2];
        random.fill(&mut wqe[0][4..]);
        random.fill(&mut wqe[1][..]);
        wqe[0][0] = match random.random_range(0..20) {
            0 | 1 => 9,
            2 => 7,
            _ => random.random_range(0..5),
        };
        let is_local = wqe[0][0] == 7;
        let is_read = wqe[0][0] == 4;
        wqe[0][1] = random.random::<u8>() & 3;
        let length: u32 = if is_local {
            0
        } else if !is_read && random.random_bool(0.4) {
            wqe[0][1] |= INLINE;
            random.random_range(0..=if two { 96 } else { 32 })
        } else {
            let count = random.random_range(0..=if two && !is_read { 6 } else { 2 });
            wqe[0][2] = count;
            let length_max = match random.random_range(0..20) {
                0..12 => 500,
                12..19 => 6_000,
                _ => 50 << 10,
            };
            (0..count)
                .map(|number| {
                    let length = random.random_range(0..length_max);
                    let (slot, place) = if number < 2 { (0, 2 + number) } else { (1, number - 2) };
                    let sge = &mut wqe[slot][16 * usize::from(place)..];
                    let mut address = pair.region() + random.random_range(0..REGION_BYTES - length_max);
                    let error_rate = self.error_rate * if length_max > 500 { 10.0 } else { 1.0 };
                    if random.random_bool(error_rate.min(1.0)) {
                        // Its end is beyond the end of the region.
                        address = pair.region() + REGION_BYTES - random.random_range(0..=length);
                    }
                    sge[..8].copy_from_slice(&address.to_le_bytes());
                    sge[8..12].copy_from_slice(&pair.key().to_le_bytes());
                    sge[12..16].copy_from_slice(&(length as u32).to_le_bytes());
                    length as u32
                })
                .sum()
        };
        if two {
            wqe[0][1] |= TWO_SLOTS;
        }
        wqe[0][28..32].copy_from_slice(&length.to_le_bytes());
        wqe
    }

    /// Writes a WQE into its ring if there is room; the caller rings the doorbell.
    fn post(&mut self, index: usize, mut wqe: [Bytes; 2]) -> bool {
        let two_slots = wqe[0][1] & TWO_SLOTS != 0;
        let slots = 1 + u16::from(two_slots);
        let wr_id = self.next_tag;
        let pair = &mut self.pairs[index];
        let size = 1u16 << pair.ring_log2;
        if pair.producer.wrapping_sub(pair.consumer) + slots > size {
            return false;
        }
        self.next_tag += 1;
        wqe[0][8..16].copy_from_slice(&wr_id.to_le_bytes());
        for (slot, bytes) in wqe.iter().enumerate().take(slots.into()) {
            let offset = pair.producer.wrapping_add(slot as u16) % size;
            self.memory.insert(pair.ring() + 64 * u64::from(offset), *bytes);
        }
        let mut item = ParsedWqe { two_slots, is_reliable: true, ..ParsedWqe::default() };
        item.header.generation = bits(pair.generation.into());
        item.header.queue_pair = bits(pair.number as u64);
        item.plan.path_mtu = bits(pair.path_mtu);
        item.plan.domain = bits(pair.number as u64);
        item.header.is_open = wqe[0][0] == 4;
        (item.first, item.second) = (slot_bits(&wqe[0]), slot_bits(&wqe[1]));
        let judged = judge(&item, &wqe);
        let checked = judged.checked;
        // A WQE that is not sent makes no packets.
        let is_sent = checked.completion.status == CompletionStatus::Success as u64 && !checked.kind.is_local;
        let made = if is_sent { packets(&checked, &judged.listed) } else { vec![] };
        let mut lists = Vec::new();
        let mut commands = Vec::new();
        let mut fails_at = None;
        for (number, made) in made.iter().enumerate() {
            let answers: Vec<_> = made.requests.iter().map(|request| access(pair, request)).collect();
            if answers.iter().any(|answer| !answer.ok) {
                fails_at = Some(number);
                break;
            }
            let span = |index: usize, length| match answers.get(index) {
                Some(answer) => HostSpan { address: answer.device_address, length },
                None => HostSpan::default(),
            };
            let packet = &made.packet;
            let behind = |index: usize| HostSpan {
                address: answers[index].device_address,
                length: made.requests[index].length.get_bits::<13>(0),
            };
            lists.push(if packet.is_listed {
                (1..answers.len()).map(behind).collect()
            } else {
                VecDeque::new()
            });
            commands.push(GatherCommand {
                is_mark: false,
                headers: TransmitRequest {
                    queue_pair: item.header.queue_pair,
                    generation: item.header.generation,
                    opcode: packet.opcode,
                    solicited: packet.solicited,
                    ack_request: packet.ack_request,
                    asks_if_newest: true,
                    psn: bits(0),
                    extended: packet.extended_or_key,
                    payload_bytes: packet.payload_bytes,
                    is_repeated: false,
                    is_response: false,
                    ends_response: false,
                    next_psn: bits(0),
                    epoch: bits(0),
                },
                is_inline: !judged.inline.is_empty(),
                continues: packet.is_listed,
                span_count: if checked.kind.is_read { bits(0) } else { packet.request_count },
                first: span(0, packet.first_length),
                second: span(1, packet.second_length),
            });
        }
        let sges = [checked.first, second_sge(checked.tail)].into_iter().filter(|sge| sge.length != 0);
        let sges = sges.map(|sge| {
            let offset = sge.address.to_u64().wrapping_sub(pair.region());
            (pair.device().wrapping_add(offset), sge.length.to_u64())
        });
        let read = (checked.kind.is_read && checked.completion.status == CompletionStatus::Success as u64)
            .then(|| Read { length: checked.length.to_u64(), sges: sges.collect(), first_psn: 0 });
        let status = if fails_at == Some(0) {
            CompletionStatus::LocalProtection as u64
        } else {
            checked.completion.status.to_u64()
        };
        let next_slot = pair.producer.wrapping_add(slots);
        pair.wqes.push(PostedWqe {
            wr_id,
            is_signalled: checked.completion.is_signalled,
            next_slot,
            status,
            commands,
            lists,
            fails_at,
            inline: judged.inline,
            read,
            key: (checked.kind.is_local && checked.completion.status == CompletionStatus::Success as u64)
                .then(|| checked.immediate_or_key.to_u64()),
            is_acknowledged: false,
            refusals: fails_at.map(|_| (CompletionStatus::LocalProtection as u64, 0)).into_iter().collect(),
        });
        pair.producer = next_slot;
        true
    }

    fn ring(&mut self, index: usize) {
        self.doorbells.push_back((self.pairs[index].number, self.pairs[index].producer));
    }

    /// The peer executes what it has received from one queue pair.
    fn answer(&mut self, index: usize) {
        let pair = &mut self.pairs[index];
        let Some((wqe, is_last, psn, asks)) = pair.wire.pop_front() else { return };
        if pair.peer_is_silent {
            return;
        }
        let mut token = PacketToken {
            opcode: bits(ACKNOWLEDGE),
            destination_qp: bits(pair.qpn.into()),
            queue_pair: queue_pair_of(bits(pair.qpn.into())),
            partition_key: bits(0xffff),
            source_address: num_bigint::BigUint::from(pair.address()).into(),
            destination_address: bits(OWN_ADDRESS),
            psn: bits(psn.into()),
            ..PacketToken::default()
        };
        let read = pair.wqes[wqe].read.clone();
        let mut tokens = vec![];
        if self.random.random_bool(self.error_rate) {
            let (syndrome, status) = [
                (0x60, CompletionStatus::RetryExceeded as u64),
                (0x61, CompletionStatus::RemoteInvalidRequest as u64),
                (0x62, CompletionStatus::RemoteAccess as u64),
                (0x63, CompletionStatus::RemoteOperation as u64),
                (0x25, CompletionStatus::RnrRetryExceeded as u64),
            ][self.random.random_range(0..5)];
            token.extended = bits(syndrome);
            pair.peer_is_silent = true;
            pair.wqes[wqe].refusals.push((status, syndrome));
            pair.acknowledges(wqe);
            tokens.push(token);
        } else if let Some(read) = read {
            let pmtu = 128 << pair.path_mtu;
            let count = read.responses(pmtu);
            token.extended = bits(0x1f);
            for number in 0..count {
                let (is_first, is_last) = (number == 0, number + 1 == count);
                let opcode = match (is_first, is_last) {
                    (true, true) => READ_RESPONSE_ONLY,
                    (true, false) => READ_RESPONSE_FIRST,
                    (false, false) => READ_RESPONSE_MIDDLE,
                    (false, true) => READ_RESPONSE_LAST,
                };
                tokens.push(PacketToken {
                    opcode: bits(opcode),
                    psn: bits((u64::from(psn) + number) & u64::from(PSN_MASK)),
                    payload_bytes: bits(pmtu.min(read.length - number * pmtu)),
                    ..token
                });
            }
            let number = self.random.random_range(0..tokens.len());
            if self.random.random_bool(self.error_rate) {
                // One response is lost, which the next one shows.
                let lost = tokens.remove(number);
                let rest = tokens.split_off(number);
                tokens.push(rest.first().copied().unwrap_or(PacketToken {
                    opcode: bits(ACKNOWLEDGE),
                    payload_bytes: bits(0),
                    ..lost
                }));
                pair.wqes[wqe].refusals.push((CompletionStatus::RetryExceeded as u64, 0));
                pair.peer_is_silent = true;
            } else if self.random.random_bool(self.error_rate) {
                // One response is wrong.
                tokens.truncate(number + 1);
                let token = tokens.last_mut().unwrap();
                if self.random.random() {
                    token.payload_bytes = token.payload_bytes + 1;
                } else {
                    token.opcode = bits(READ_RESPONSE_FIRST + (token.opcode.to_u64() + 2) % 4);
                }
                pair.wqes[wqe].refusals.push((CompletionStatus::BadResponse as u64, 0));
                pair.peer_is_silent = true;
            }
            pair.acknowledges(wqe);
        } else if asks || (!self.is_strict && (pair.wire.is_empty() || self.random.random_bool(0.1))) {
            token.extended = bits(0x1f);
            let whole = wqe + usize::from(is_last);
            pair.acknowledges(whole);
            tokens.push(token);
        } else {
            return;
        }
        for token in tokens {
            self.says(token);
            if self.random.random_bool(self.error_rate / 4.0) {
                // A duplicate; one of another queue pair; one that answers nothing.
                self.says(token);
                self.says(PacketToken { destination_qp: token.destination_qp ^ 0x400, ..token });
                self.says(PacketToken { psn: token.psn + 0x10_0000, ..token });
            }
        }
    }

    fn says(&mut self, token: PacketToken) {
        if token.payload_bytes.any() {
            self.payload.push_back(token.payload_bytes.to_u64());
        }
        self.responses.push(token);
    }

    /// The place stage takes a command: data to place or drop, and the notice to return.
    fn take_placing(&mut self, command: ReadResponseCommand) {
        if command.payload_bytes.any() {
            assert_eq!(self.payload.pop_front(), Some(command.payload_bytes.to_u64()));
        }
        let mut answer = command.notice;
        let number = answer.queue_pair.to_u64() as usize;
        let spans: Vec<_> =
            [command.first, command.second].into_iter().take(command.span_count.to_u64() as usize).collect();
        let pair = self.pairs.iter_mut().find(|pair| pair.number == number);
        let is_refused = answer.is_read_error && answer.status == CompletionStatus::LocalProtection as u64;
        assert!(answer.is_placed || spans.is_empty());
        if let Some(pair) = pair
            && answer.generation == u64::from(pair.generation)
            && (answer.is_placed || is_refused)
        {
            let pmtu = 128 << pair.path_mtu;
            let behind = |read: &Read| answer.psn.to_u64().wrapping_sub(read.first_psn.into()) & 0xff_ffff;
            let wqe = pair.wqes[..pair.sent]
                .iter_mut()
                .rfind(|wqe| wqe.read.as_ref().is_some_and(|read| behind(read) < read.responses(pmtu)))
                .expect("a READ was sent");
            let read = wqe.read.as_ref().unwrap();
            let before = behind(read) * pmtu;
            answer.write_failed = answer.is_placed && self.random.random_bool(self.error_rate / 4.0);
            let all = read.spans(before, pmtu.min(read.length - before));
            assert_eq!(spans, if is_refused { vec![] } else { all });
            if is_refused {
                wqe.refusals.push((CompletionStatus::LocalProtection as u64, 0));
            } else if answer.write_failed {
                wqe.refusals.push((CompletionStatus::LocalProtection as u64, vendor_error::PAYLOAD));
            } else if behind(read) + 1 == read.responses(pmtu) {
                self.reads_done += 1;
                wqe.is_acknowledged = wqe.refusals.is_empty();
            }
        }
        let soonest = self.placing.back().map_or(0, |placing| placing.0);
        let due = soonest.max(self.cycle + self.random.random_range(0..40));
        self.placing.push_back((due, answer));
    }

    /// Gather reads payload in the order of the commands.
    fn gathers(&mut self, command: &GatherCommand) {
        let soonest = self.gathering.back().map_or(0, |reading| reading.0);
        let due = soonest.max(self.cycle + self.random.random_range(0..self.host_delay.max(2)));
        let TransmitRequest { queue_pair, generation, .. } = command.headers;
        self.gathering.push_back((due, queue_pair.to_u64(), generation.to_u64(), command.is_mark));
    }

    fn take_command(&mut self, mut command: GatherCommand) {
        self.gathers(&command);
        if command.is_mark {
            assert!(self.continued.is_none(), "a mark is behind all commands of a packet");
            return;
        }
        if let Some((mut before, mut spans)) = self.continued.take() {
            before.first = spans.pop_front().expect("the packet continues");
            before.continues = !spans.is_empty();
            assert_eq!(command, before);
            self.continued = command.continues.then_some((command, spans));
            self.continuations += 1;
            return;
        }
        let number = command.headers.queue_pair.to_u64() as usize;
        let index = self.pairs.iter().position(|pair| pair.number == number).expect("it exists");
        let is_lost = self.random.random_bool(self.error_rate);
        let taken = command;
        let pair = &mut self.pairs[index];
        let inline_count =
            if command.is_inline { 1 + usize::from(command.headers.payload_bytes.to_u64() > 32) } else { 0 };
        if command.headers.generation != u64::from(pair.generation) {
            // Its inline data passes, too.
            for position in 1..=inline_count {
                self.expected_inline.push_back(Slot { last: position == inline_count, ..Slot::default() });
            }
            return;
        }
        let is_open = |wqe: &&PostedWqe| wqe.read.is_some() && !wqe.is_acknowledged;
        let open = pair.wqes[pair.completed.min(pair.sent)..=pair.sent].iter().filter(is_open).count() as u64;
        assert!(pair.has_failed || open <= READ_ATOMIC, "{open} READs are open");
        let is_open = |wqe: &PostedWqe| wqe.key.is_some() && !wqe.is_acknowledged;
        assert!(!pair.wqes[..pair.sent].iter().any(is_open), "nothing leaves before the key is invalidated");
        let wqe = &mut pair.wqes[pair.sent];
        assert_eq!(wqe.status, CompletionStatus::Success as u64, "a WQE in error is not sent");
        assert!(wqe.fails_at != Some(pair.sent_packets), "a packet whose access check fails is not sent");
        let mut expected = wqe.commands[pair.sent_packets];
        let is_last = wqe.fails_at.is_none() && pair.sent_packets + 1 == wqe.commands.len();
        assert_eq!(command.headers.psn, u64::from(pair.next_psn));
        pair.unasked += usize::from(is_last);
        pair.unasked_packets += 1;
        if command.headers.ack_request {
            (pair.unasked, pair.unasked_packets) = (0, 0);
        }
        assert!(pair.unasked < 8 && pair.unasked_packets < 8 * 32, "the peer is asked");
        assert!(command.headers.ack_request || !expected.headers.ack_request);
        assert!(is_last || command.headers.ack_request == expected.headers.ack_request);
        pair.wire.push_back((pair.sent, is_last, pair.next_psn, command.headers.ack_request));
        // Nothing is sent twice, so there is one epoch.
        let TransmitRequest { psn, next_psn, ack_request, .. } = command.headers;
        (expected.headers.psn, expected.headers.next_psn) = (psn, next_psn);
        expected.headers.ack_request = ack_request;
        if command.span_count < 2 {
            (command.second, expected.second) = (HostSpan::default(), HostSpan::default());
        }
        if command.span_count == 0 {
            (command.first, expected.first) = (HostSpan::default(), HostSpan::default());
        }
        assert_eq!(command, expected);
        self.continued = command.continues.then(|| (taken, wqe.lists[pair.sent_packets].clone()));
        for (position, &data) in wqe.inline.iter().enumerate() {
            self.expected_inline.push_back(Slot { data, last: position + 1 == inline_count, error: false });
        }
        let mut psns = 1;
        if let Some(read) = &mut wqe.read {
            read.first_psn = pair.next_psn;
            psns = read.responses(128 << pair.path_mtu) as u32;
        }
        if is_lost && !pair.peer_is_silent && wqe.read.is_none() {
            wqe.refusals.push((CompletionStatus::LocalProtection as u64, vendor_error::PAYLOAD));
            let number = pair.wire.pop_back().expect("it was pushed").0;
            // The peer still responds to what was sent before.
            while !self.pairs[index].wire.is_empty() {
                self.answer(index);
            }
            let pair = &mut self.pairs[index];
            if !pair.peer_is_silent {
                pair.acknowledges(number);
                pair.peer_is_silent = true;
                self.lost.push_back(GatherFailure {
                    queue_pair: command.headers.queue_pair,
                    generation: command.headers.generation,
                    psn: command.headers.psn,
                    is_response: false,
                    is_mark: false,
                });
            }
        }
        let pair = &mut self.pairs[index];
        pair.sent_packets += 1;
        if is_last {
            (pair.sent, pair.sent_packets) = (pair.sent + 1, 0);
        }
        pair.next_psn = (pair.next_psn + psns) & PSN_MASK;
        assert_eq!(command.headers.next_psn, u64::from(pair.next_psn));
    }

    /// Control is asked to invalidate a key: nothing of the queue pair is in flight then.
    fn take_key(&mut self, asked: Invalidation) {
        let number = asked.queue_pair.to_u64() as usize;
        let pair = self.pairs.iter_mut().find(|pair| pair.number == number).expect("it exists");
        let ok = self.random.random_bool(1.0 - self.error_rate);
        if asked.generation == u64::from(pair.generation) {
            let is_done = |wqe: &PostedWqe| wqe.is_acknowledged;
            assert!(pair.has_failed || pair.wqes[..pair.sent].iter().all(is_done), "all has arrived");
            let wqe = &pair.wqes[pair.sent];
            assert_eq!(wqe.key, Some(asked.key.to_u64()));
            assert_eq!(asked.domain, pair.number as u64);
            pair.sent += 1;
        }
        let due = self.cycle + self.random.random_range(10..300);
        let due = due.max(self.endings.back().map_or(0, |ending| ending.0));
        let answer = Invalidated { queue_pair: asked.queue_pair, generation: asked.generation, ok };
        self.endings.push_back((due, answer));
    }

    /// Control answers.
    fn end_key(&mut self, answer: Invalidated) {
        let number = answer.queue_pair.to_u64() as usize;
        let pair = self.pairs.iter_mut().find(|pair| pair.number == number).expect("it exists");
        if answer.generation == u64::from(pair.generation) {
            let wqe = pair.wqes[..pair.sent].last_mut().expect("it was asked for");
            assert!(wqe.key.is_some(), "nothing is sent after a LOCAL_INVALIDATE");
            if answer.ok {
                wqe.is_acknowledged = true;
                self.ended += 1;
            } else {
                wqe.refusals.push((CompletionStatus::LocalQueuePairOperation as u64, vendor_error::KEY));
            }
        }
        self.invalidated.push(answer);
    }

    fn take_completion(&mut self, token: CqeToken) {
        let status = token.status.to_u64();
        let index =
            self.pairs.iter().position(|pair| token.qp_number == u64::from(pair.qpn)).expect("it exists");
        let pair = &mut self.pairs[index];
        if token.generation != u64::from(pair.generation) {
            return;
        }
        *self.statuses.entry((status, token.vendor_error.to_u64())).or_insert(0) += 1;
        let is_read = |&(_, number, generation, is_mark): &(u64, u64, u64, bool)| {
            !is_mark && number == pair.number as u64 && generation == token.generation.to_u64()
        };
        // A CQE in error gives memory back that no response of the peer has given back.
        let is_success = status == CompletionStatus::Success as u64;
        assert!(is_success || !self.gathering.iter().any(is_read), "memory is read after a CQE in error");
        assert_eq!(token.completion_queue, pair.number as u64);
        let consumer = token.consumer_index.to_u64() as u16;
        loop {
            let wqe = &pair.wqes[pair.completed];
            pair.completed += 1;
            if token.wr_id != wqe.wr_id {
                let is_silent = !wqe.is_signalled && wqe.is_acknowledged && !pair.has_failed;
                assert!(is_silent, "WQE {} of {}: {token:?}", pair.completed - 1, pair.number);
                continue;
            }
            assert_eq!(consumer, wqe.next_slot);
            if pair.has_failed {
                assert_eq!(status, CompletionStatus::Flushed as u64);
            } else if status == CompletionStatus::Success as u64 {
                assert!(wqe.is_signalled && wqe.is_acknowledged);
                assert_eq!(token.opcode == CompletionOpcode::LocalInvalidate as u64, wqe.key.is_some());
                assert_eq!(token.length, wqe.read.as_ref().map_or(0, |read| read.length));
            } else {
                pair.has_failed = true;
                if status == CompletionStatus::Flushed as u64 {
                    assert_eq!(pair.state, QpState::Error, "flushed as the queue pair is in ERR");
                } else if wqe.status != CompletionStatus::Success as u64 {
                    assert_eq!(status, wqe.status);
                } else {
                    assert!(wqe.refusals.contains(&(status, token.vendor_error.to_u64())), "{token:?}");
                    self.failed_behind += usize::from(wqe.fails_at.is_some() && token.vendor_error == 0);
                }
            }
            break;
        }
        pair.consumer = consumer;
    }

    fn step(&mut self) {
        let random = &mut self.random;
        if self.setup_fetch.is_done()
            && self.setup_parse.is_done()
            && let Some(event) = self.setups.pop_front()
        {
            self.setup_fetch.push(event);
            self.setup_parse.push(event);
        }
        let block = &mut self.bench.block;
        let doorbell = if self.setups.is_empty() && self.setup_fetch.is_done() && self.setup_parse.is_done() {
            self.doorbells.pop_front()
        } else {
            None
        };
        block.send_posted.valid.next = doorbell.is_some();
        if let Some((number, producer)) = doorbell {
            block.send_posted.value.next.queue_pair = bits(number as u64);
            block.send_posted.value.next.producer_index = bits(producer.into());
        }
        block.wqe_slot.valid.next = false;
        if self.reads.front().is_some_and(|read| read.0 <= self.cycle) {
            let (_, address, last) = self.reads.pop_front().expect("it is there");
            let data = slot_bits(self.memory.get(&address).unwrap_or(&[0; 64]));
            let is_first = address >> 24 == self.pairs[0].ring() >> 24;
            self.read_fails |= is_first && random.random_bool(self.error_rate / 4.0);
            let error = self.read_fails && is_first;
            block.wqe_slot.value.next = Slot { data, last, error };
            block.wqe_slot.valid.next = true;
        }
        if self.answers.front().is_some_and(|answer| answer.0 <= self.cycle) {
            let answer = self.answers.pop_front().expect("it is there");
            self.access_answer.push(answer.1);
        }
        if self.response_answers.front().is_some_and(|answer| answer.0 <= self.cycle) {
            let answer = self.response_answers.pop_front().expect("it is there");
            self.response_access_answer.push(answer.1);
        }
        if self.placing.front().is_some_and(|placing| placing.0 <= self.cycle) {
            let placing = self.placing.pop_front().expect("it is there");
            self.returned.push(placing.1);
        }
        if self.endings.front().is_some_and(|ending| ending.0 <= self.cycle) {
            let ending = self.endings.pop_front().expect("it is there");
            self.end_key(ending.1);
        }
        while let Some(&(due, queue_pair, generation, is_mark)) = self.gathering.front()
            && due <= self.cycle
        {
            self.gathering.pop_front();
            if is_mark {
                let (queue_pair, generation) = (bits(queue_pair), bits(generation));
                self.lost.push_back(GatherFailure { queue_pair, generation, is_mark, ..Default::default() });
            }
        }
        let random = &mut self.random;
        if self.lost.front().is_some() && random.random_bool(0.05) {
            self.lost.pop_front().into_iter().for_each(|lost| self.gather_failure.push(lost));
        }
        for index in 0..self.pairs.len() {
            if self.random.random_bool(self.peer_rate) {
                self.answer(index);
            }
        }
        let (block, random) = (&mut self.bench.block, &mut self.random);
        self.setup_fetch.drive(&mut block.setup_fetch, random);
        self.setup_parse.drive(&mut block.setup_parse, random);
        self.responses.drive(&mut block.responses, random);
        self.gather_failure.drive(&mut block.gather_failure, random);
        self.access_answer.drive(&mut block.access_answer, random);
        self.invalidate.drive(&mut block.invalidate, random);
        self.invalidated.drive(&mut block.invalidated, random);
        self.response_access_request.drive(&mut block.response_access_request, random);
        self.response_access_answer.drive(&mut block.response_access_answer, random);
        self.place.drive(&mut block.place, random);
        self.returned.drive(&mut block.returned, random);
        self.wqe_read.drive(&mut block.wqe_read, random);
        self.access_request.drive(&mut block.access_request, random);
        self.gather.drive(&mut block.gather, random);
        if !self.cycle.is_multiple_of(self.pace) {
            block.gather.ready.next = false;
        }
        self.inline_slot.drive(&mut block.inline_slot, random);
        self.completion.drive(&mut block.completion, random);
        self.failure.drive(&mut block.failure, random);
        self.bench.settle();

        let block = &self.bench.block;
        self.setup_fetch.sample(&block.setup_fetch);
        self.setup_parse.sample(&block.setup_parse);
        self.responses.sample(&block.responses);
        self.gather_failure.sample(&block.gather_failure);
        self.access_answer.sample(&block.access_answer);
        self.response_access_answer.sample(&block.response_access_answer);
        self.returned.sample(&block.returned);
        self.invalidated.sample(&block.invalidated);
        let key = self.invalidate.sample(&block.invalidate);
        let placing = self.place.sample(&block.place);
        let response_access_request = self.response_access_request.sample(&block.response_access_request);
        for (name, pulse) in [
            ("work_refused", block.counts.val().work_refused),
            ("local_protection", block.counts.val().local_protection),
            ("messages_completed", block.counts.val().messages_completed),
            ("unknown_qp", block.counts.val().unknown_qp),
            ("response_stale", block.counts.val().response_stale),
            ("response_never_sent", block.counts.val().response_never_sent),
            ("nak_received", block.counts.val().nak_received),
            ("nak_rnr_received", block.counts.val().nak_rnr_received),
            ("acknowledgements_received", block.counts.val().acknowledgements_received),
            ("stale_dropped", block.counts.val().stale_dropped),
        ] {
            *self.counts.entry(name).or_insert(0) += u64::from(pulse);
        }
        if let Some(span) = self.wqe_read.sample(&block.wqe_read) {
            let (address, slots) = (span.address.to_u64(), span.length.to_u64() / 64);
            let delay = self.random.random_range(self.host_delay..=2 * self.host_delay);
            for slot in 0..slots {
                self.reads.push_back((self.cycle + delay, address + 64 * slot, slot + 1 == slots));
            }
        }
        if let Some(request) = self.access_request.sample(&block.access_request) {
            let pair =
                self.pairs.iter().find(|pair| request.domain == pair.number as u64).expect("it exists");
            self.answers.push_back((self.cycle + self.answer_delay, access(pair, &request)));
        }
        if let Some(request) = response_access_request {
            assert!(request.local_write);
            let pair =
                self.pairs.iter_mut().find(|pair| request.domain == pair.number as u64).expect("it exists");
            let mut answer = access(pair, &request);
            if self.random.random_bool(self.error_rate / 4.0) {
                // The region was invalidated meanwhile.
                answer.ok = false;
            }
            self.response_answers.push_back((self.cycle + self.answer_delay, answer));
        }
        let command = self.gather.sample(&block.gather);
        let slot = self.inline_slot.sample(&block.inline_slot);
        let completion = self.completion.sample(&block.completion);
        let failure = self.failure.sample(&block.failure);
        if let Some(command) = command {
            self.take_command(command);
        }
        if let Some(key) = key {
            self.take_key(key);
        }
        if let Some(placing) = placing {
            self.take_placing(placing);
        }
        if let Some(slot) = slot {
            self.seen_inline.push_back(slot);
        }
        // A slot may come before its command.
        while !self.seen_inline.is_empty() && !self.expected_inline.is_empty() {
            let slot = self.seen_inline.pop_front().expect("it is there");
            let expected = self.expected_inline.pop_front().expect("it is there");
            assert_eq!((slot.last, slot.error), (expected.last, false));
            assert!(slot.data == expected.data || expected.data == 0);
        }
        if let Some(completion) = completion {
            self.take_completion(completion);
        }
        if let Some(failure) = failure {
            let number = failure.queue_pair.to_u64() as usize;
            let index = self.pairs.iter().position(|pair| pair.number == number).expect("it exists");
            if failure.generation == u64::from(self.pairs[index].generation) {
                let pair = &mut self.pairs[index];
                let said = if failure.has_event { &mut pair.is_untold } else { &mut pair.failure_seen };
                assert!(!*said, "a queue pair fails once");
                *said = true;
                assert_eq!(failure.event_code, AsyncEvent::QueuePairFatal as u64);
                // Only a slot that cannot be read, or an overrun, raises an event, and only the first one.
                assert!(!failure.has_event || index == 0);
                self.fail(index);
            }
        }
        self.bench.tick();
        self.cycle += 1;
    }

    /// Whether all sources are empty.
    fn is_quiet(&self) -> bool {
        self.setups.is_empty()
            && self.setup_fetch.is_done()
            && self.setup_parse.is_done()
            && self.responses.is_done()
            && self.lost.is_empty()
            && self.gathering.is_empty()
            && self.gather_failure.is_done()
            && self.placing.is_empty()
            && self.returned.is_done()
            && self.endings.is_empty()
            && self.invalidated.is_done()
            && self.payload.is_empty()
    }

    /// Whether everything that was posted has completed.
    fn has_ended(&self, index: usize) -> bool {
        let pair = &self.pairs[index];
        let rest = &pair.wqes[pair.completed..];
        self.setups.is_empty()
            && self.setup_parse.is_done()
            && self.doorbells.is_empty()
            && (pair.is_untold
                || rest.iter().all(|wqe| !wqe.is_signalled && wqe.is_acknowledged && !pair.has_failed))
    }
}

/// The region table: each queue pair has one region.
fn access(pair: &Pair, request: &AccessRequest) -> AccessAnswer {
    let offset = request.address.to_u64().wrapping_sub(pair.region());
    let ok = request.key == u64::from(pair.key())
        && request.domain == pair.number as u64
        && offset < REGION_BYTES
        && request.length.to_u64() <= REGION_BYTES - offset;
    AccessAnswer { ok, device_address: bits(pair.device().wrapping_add(offset)) }
}

#[test]
fn writes_of_one_queue_pair_go_out_and_complete() {
    let mut world = World::new(&[(5, 11)], Stalls::None);
    world.host_delay = 150;
    let mut ends = Vec::new();
    for number in 0..1200 {
        posts_write(&mut world, 0, 64 * number, 64, number % 16 == 15);
    }
    world.ring(0);
    while !world.has_ended(0) || world.pairs[0].completed < 1200 {
        let before = world.gather.received.len();
        world.step();
        if world.gather.received.len() > before {
            ends.push(world.cycle);
        }
        assert!(world.cycle < 20_000, "{} sent", ends.len());
    }
    assert_eq!(world.completion.received.len(), 75);
    assert_eq!(world.counts["messages_completed"], 1200);
    let in_flight = world.bench.block.in_flight.val();
    assert_eq!(in_flight.entered, in_flight.left);
    let cycles = ends[1199] - ends[199];
    println!("{cycles} cycles for 1,000 WQEs");
    assert!(cycles < 3600, "{cycles} cycles for 1,000 WQEs");
}

/// Resets the queue pairs that have failed, runs all neighbours at random, completes everything, and checks
/// that nothing is left in flight.
fn runs(world: &mut World, cycles: u64, error_rate: f64) {
    world.error_rate = error_rate;
    world.statuses.clear();
    // A slot that could not be read may have been one that was not wanted.
    world.read_fails = false;
    for index in 0..world.pairs.len() {
        if world.pairs[index].has_failed || world.pairs[index].state == QpState::Error {
            world.start(index);
        }
    }
    let end = world.cycle + cycles;
    let mut ended = 0;
    loop {
        let index = world.random.random_range(0..world.pairs.len());
        let is_end = world.cycle >= end;
        let is_dead = world.pairs[index].has_failed || world.pairs[index].state == QpState::Error;
        if !is_end && world.random.random_bool(if is_dead { 0.02 } else { 0.3 }) {
            let mut has_posted = false;
            for _ in 0..world.random.random_range(1..6) {
                let two = world.random.random_bool(0.3);
                let mut wqe = world.right_wqe(index, two);
                if world.random.random_bool(error_rate / 2.0) {
                    wqe = random_wqe(&mut world.random);
                }
                has_posted |= world.post(index, wqe);
            }
            if has_posted {
                world.ring(index);
            }
        }
        if !is_end && world.setups.is_empty() && world.random.random_bool(error_rate / 20.0) {
            world.fail(index);
        }
        // Some wait in their ring for a while, and complete what is in flight.
        let state = world.pairs[index].state;
        let rests = state == QpState::SendQueueDrain;
        if world.setups.is_empty()
            && ((state == QpState::ReadyToSend && !is_end && world.random.random_bool(error_rate / 50.0))
                || (rests && (is_end || world.random.random_bool(0.02))))
        {
            world.pairs[index].state = if rests { QpState::ReadyToSend } else { QpState::SendQueueDrain };
            let event = world.event(SetupKind::Life, index);
            world.setups.push_back(event);
        }
        // Some are reset with messages in flight, most when all have completed.
        let is_failed = world.pairs[index].state == QpState::Error;
        if is_failed && world.setups.is_empty() && world.doorbells.is_empty() {
            if world.has_ended(index) && world.random.random_bool(0.05) {
                ended += 1;
                world.read_fails &= index != 0;
                world.start(index);
            } else if world.random.random_bool(0.0005) {
                world.start(index);
            }
        }
        world.step();
        let rests = world.pairs.iter().any(|pair| pair.state == QpState::SendQueueDrain);
        if is_end && !rests && (0..world.pairs.len()).all(|index| world.has_ended(index)) {
            break;
        }
        assert!(world.cycle < end + 60_000, "everything ends");
    }
    // Bursts that are not wanted any more may be in flight: one that was just requested, after all that were.
    let ended_at = world.cycle;
    while {
        let in_flight = world.bench.block.in_flight.val();
        in_flight.entered != in_flight.left || !world.is_quiet()
    } {
        world.step();
        assert!(world.cycle < ended_at + 3_000, "{:?}", world.bench.block.in_flight.val());
    }
    println!("empty after {} cycles", world.cycle - ended_at);
    (0..20).for_each(|_| world.step());
    assert!(world.expected_inline.is_empty() && world.seen_inline.is_empty());
    println!("{ended} failed; statuses {:?}; counts {:?}", world.statuses, world.counts);
}

#[test]
fn wqes_complete_once_in_order_and_errors_end_their_queue_pair_alone() {
    let (mut statuses, mut failed_behind) = (BTreeMap::new(), 0);
    let mut world = World::new(&[(3, 6), (0, 11), (1023, 6), (512, 7), (513, 6)], Stalls::None);
    world.peer_rate = 0.3;
    (world.host_delay, world.answer_delay) = (40, 20);
    // All the ways to stall once, or as often as there are to be seeds.
    let rounds = std::env::var("RNIC_SEEDS").map_or(1, |text| text.parse().expect("RNIC_SEEDS is a number"));
    for round in 0..12 * rounds {
        world.stall(Stalls::ALL[round % 4]);
        runs(&mut world, 300, 0.0);
        assert_eq!(world.statuses.keys().collect::<Vec<_>>(), [&(CompletionStatus::Success as u64, 0)]);
        runs(&mut world, 1_000, 0.03);
        statuses.append(&mut world.statuses);
        failed_behind += std::mem::take(&mut world.failed_behind);
        // Runs until the rare cases have occurred.
        if round + 1 >= 4 * rounds && failed_behind > 0 {
            break;
        }
    }
    assert!(world.reads_done > 50, "{} READs", world.reads_done);
    assert!(world.continuations > 100, "{} spans of long lists", world.continuations);
    assert!(
        statuses.len() >= 6 && failed_behind > 0,
        "{statuses:?}, {failed_behind} behind the first packet"
    );
}

/// A key is invalidated when all WQEs before were executed, although none of them is signalled, and before any
/// WQE after it begins. Peers respond only where they must.
#[test]
fn a_key_is_invalidated_after_earlier_and_before_later_wqes() {
    let mut world = World::new(&[(3, 6)], Stalls::None);
    (world.host_delay, world.answer_delay, world.is_strict) = (40, 20, true);
    // The invalidation alone, after a WQE that was posted before, and in the middle of a burst; then WQEs of
    // two slots.
    let rounds: [&[&[u8]]; 5] =
        [&[&[7]], &[&[2], &[7]], &[&[2, 0, 7, 2, 7, 7, 4, 7]], &[&[0; 7], &[7, 0]], &[&[0x82, 7, 0x82, 7]]];
    let mut expected = 0;
    for bells in rounds {
        for bell in bells {
            for &opcode in *bell {
                let mut wqe = world.right_wqe(0, opcode & 0x80 != 0);
                wqe[0][0] = opcode & 0x7f;
                // Empty and not signalled.
                wqe[0][1] &= TWO_SLOTS;
                wqe[0][2] = 0;
                wqe[0][28..32].fill(0);
                assert!(world.post(0, wqe));
                expected += usize::from(opcode == 7);
            }
            world.ring(0);
            (0..200).for_each(|_| world.step());
        }
        let posted_at = world.cycle;
        while world.counts["messages_completed"] < world.pairs[0].wqes.len() as u64 {
            world.step();
            assert!(world.cycle < posted_at + 8_000, "{bells:?} ends");
        }
        // Completed WQEs leave room in the ring, although none is signalled.
        world.pairs[0].consumer = world.pairs[0].producer;
    }
    assert_eq!(world.ended, expected);
    // A key that must not be invalidated fails the queue pair.
    world.error_rate = 1.0;
    let mut wqe = world.right_wqe(0, false);
    (wqe[0][0], wqe[0][1], wqe[0][2]) = (7, 0, 0);
    wqe[0][28..32].fill(0);
    assert!(world.post(0, wqe));
    world.ring(0);
    (0..2_000).for_each(|_| world.step());
    assert_eq!(world.completion.received.len(), 1);
    assert!(world.pairs[0].has_failed && world.pairs[0].failure_seen);
}

/// A requester that is not enabled fetches nothing, completes what it has, takes doorbells and commands, and
/// continues where it stopped.
#[test]
fn nothing_is_begun_while_the_card_rests() {
    let mut world = World::new(&[(3, 8), (512, 8)], Stalls::None);
    (world.host_delay, world.answer_delay) = (40, 20);
    for index in 0..2 {
        for _ in 0..100 {
            let wqe = world.right_wqe(index, false);
            assert!(world.post(index, wqe));
        }
        world.ring(index);
    }
    (0..60).for_each(|_| world.step());
    world.bench.block.enable.next = false;
    (0..3).for_each(|_| world.step());
    let is_busy = |world: &World| {
        let in_flight = world.bench.block.in_flight.val();
        in_flight.entered != in_flight.left
    };
    let begun = world.wqe_read.received.len();
    assert!(is_busy(&world) && (1..28).contains(&begun), "it stops in the middle: {begun}");
    let stopped_at = world.cycle;
    while is_busy(&world) || !world.is_quiet() {
        world.step();
        assert!(world.cycle < stopped_at + 6_000, "what is in flight completes");
    }
    // The last one may have waited in its queue.
    let reads = world.wqe_read.received.len();
    assert!(reads <= begun + 1);
    let entered = world.bench.block.in_flight.val().entered;
    for index in 0..2 {
        let wqe = world.right_wqe(index, false);
        assert!(world.post(index, wqe));
        world.ring(index);
    }
    let probe = world.event(SetupKind::Probe, 0);
    world.setups.push_back(probe);
    (0..2_000).for_each(|_| world.step());
    assert!(world.is_quiet() && world.doorbells.is_empty());
    assert_eq!((world.wqe_read.received.len(), world.bench.block.in_flight.val().entered), (reads, entered));
    world.bench.block.enable.next = true;
    let rested_until = world.cycle;
    while !(0..2).all(|index| world.has_ended(index)) {
        world.step();
        assert!(world.cycle < rested_until + 10_000, "it continues");
    }
    assert!(world.wqe_read.received.len() > reads);
    // A message that is not signalled shows only in the response that completes it.
    (0..100).for_each(|_| world.step());
    assert_eq!(world.counts["messages_completed"], 202);
}

/// It has no `wr_id` for a CQE, so an event reports it.
#[test]
fn an_overrun_ends_its_queue_pair() {
    let mut world = World::new(&[(7, 6)], Stalls::None);
    let wqe = world.right_wqe(0, false);
    assert!(world.post(0, wqe));
    world.doorbells.push_back((7, 1));
    (0..200).for_each(|_| world.step());
    world.doorbells.push_back((7, 66));
    (0..300).for_each(|_| world.step());
    assert!(world.pairs[0].is_untold && !world.pairs[0].failure_seen);
    assert_eq!((world.failure.received.len(), world.counts["work_refused"]), (1, 1));
    assert_eq!(world.completion.received.len(), usize::from(world.pairs[0].wqes[0].is_signalled));
}

/// Cycles per packet of WRITEs from one SGE, measured in the middle of the run.
fn cycles(messages: u64, length: u32) -> f64 {
    let mut world = World::new(&[(5, 8)], Stalls::None);
    world.host_delay = 150;
    // A restart has picked another PMTU.
    while world.pairs[0].path_mtu != 3 {
        world.start(0);
    }
    while !world.is_quiet() {
        world.step();
    }
    let mut ends = Vec::new();
    for number in 0..messages {
        posts_write(&mut world, 0, 0, length, number % 16 == 15);
    }
    world.ring(0);
    let packets = (messages * u64::from(length.div_ceil(1024))) as usize;
    while ends.len() < packets {
        let before = world.gather.received.len();
        world.step();
        if world.gather.received.len() > before {
            ends.push(world.cycle);
        }
        assert!(world.cycle < 30_000, "{} sent", ends.len());
    }
    let skipped = packets / 8;
    (ends[packets - 1] - ends[skipped]) as f64 / (packets - 1 - skipped) as f64
}

/// Posts a WRITE from one SGE, at an offset in the region of the queue pair.
fn posts_write(world: &mut World, index: usize, offset: u64, length: u32, is_signalled: bool) {
    let mut wqe = [[0; 64]; 2];
    wqe[0][1] = if is_signalled { SIGNALLED } else { 0 };
    wqe[0][2] = 1;
    wqe[0][28..32].copy_from_slice(&length.to_le_bytes());
    wqe[0][32..40].copy_from_slice(&(world.pairs[index].region() + offset).to_le_bytes());
    wqe[0][40..44].copy_from_slice(&world.pairs[index].key().to_le_bytes());
    wqe[0][44..48].copy_from_slice(&length.to_le_bytes());
    assert!(world.post(index, wqe));
}

/// A queue pair with one short message waits for 128 KiB, a quantum of each queue pair before it, and the packets
/// between segment and gather, whatever others have posted: messages of a quantum from the first one on, or after
/// many short ones, for which their bursts were counted as short, or long ones, of which one is sent and the rest of its
/// burst is fetched again.
#[test]
fn long_messages_leave_their_turns_to_others() {
    // Messages that are short, all of them, and the length of the others.
    for (short_before, messages, long) in [(0, 900, 1 << 14), (400, 900, 1 << 14), (0, 8, 1 << 19)] {
        let mut world = World::new(&[(5, 10), (6, 6)], Stalls::None);
        world.host_delay = 250;
        // A packet of 1 KiB lasts 21 cycles on the wire.
        world.pace = 21;
        while world.pairs[0].path_mtu != 3 {
            world.start(0);
        }
        while !world.is_quiet() {
            world.step();
        }
        for number in 0..messages {
            let length = if number < short_before { 64 } else { long };
            posts_write(&mut world, 0, 0, length, number % 16 == 15);
        }
        world.ring(0);
        let begun = short_before as usize + 30;
        while world.gather.received.len() < begun {
            world.step();
        }
        posts_write(&mut world, 1, 0, 64, true);
        world.ring(1);
        let (from, at) = (world.gather.received.len(), world.cycle);
        while world.pairs[1].completed == 0 {
            world.step();
            assert!(world.cycle < at + 40_000, "the message completes");
        }
        let between = world.gather.received.len() - from;
        println!("{between} packets of 1 KiB, {} cycles, {short_before}, {long}", world.cycle - at);
        assert!(
            between < 100,
            "{between} packets of 1 KiB before it: {short_before} short ones, {long} bytes"
        );
    }
}

/// Each queue pair has its part of the wire, however many others have shorter messages. Of several with long ones, three are between
/// wqe_fetch and segment, and not in the ready queue, so that those with shorter ones have up to twice their part.
#[test]
fn queue_pairs_have_their_shares_whatever_the_length_of_their_messages() {
    const LONG: u32 = 1 << 19;
    // Lengths of messages, and the least and the most that a queue pair has, in percent of an equal share.
    for (lengths, shares) in [
        ([LONG, 4096, 4096, 4096, 4096, 1 << 14], 75..=125),
        ([4096, LONG, LONG, LONG, 1 << 14, LONG], 60..=170),
    ] {
        let mut world = World::new(&[(5, 9), (6, 9), (7, 9), (8, 9), (9, 9), (10, 9)], Stalls::None);
        world.host_delay = 250;
        // A packet of 1 KiB lasts 21 cycles on the wire.
        world.pace = 21;
        for index in 0..lengths.len() {
            while world.pairs[index].path_mtu != 3 {
                world.start(index);
            }
        }
        while !world.is_quiet() {
            world.step();
        }
        for (index, &length) in lengths.iter().enumerate() {
            (0..(1 << 20) / length)
                .for_each(|number| posts_write(&mut world, index, 0, length, number % 16 == 15));
            world.ring(index);
        }
        let (skipped, counted) = (250, 600);
        while world.gather.received.len() < skipped + counted {
            world.step();
            assert!(world.cycle < 80_000, "{} packets", world.gather.received.len());
        }
        let of = |index: usize| {
            let queue_pair = world.pairs[index].number as u64;
            let packets = world.gather.received[skipped..].iter();
            packets.filter(|command| command.headers.queue_pair == queue_pair).count()
        };
        let percent: Vec<_> =
            (0..lengths.len()).map(|index| of(index) * 100 * lengths.len() / counted).collect();
        println!("{percent:?} % for messages of {lengths:?}");
        assert!(percent.iter().all(|percent| shares.contains(percent)), "{percent:?}");
    }
}

#[test]
fn packets_of_long_messages_follow_each_other_faster_than_the_wire() {
    let (few, quantum, long) = (cycles(160, 4096), cycles(60, 1 << 14), cycles(3, 1 << 19));
    println!("{few} cycles a packet for messages of 4 KiB, {quantum} for 16 KiB, {long} for 512 KiB");
    // A packet of 1 KiB lasts 21 cycles on the wire.
    assert!(few < 5.0 && quantum < 5.0 && long < 5.0);
}
