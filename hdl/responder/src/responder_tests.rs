//! The responder as a whole, in lock step with its Verilog, between a host, a table of regions and a place stage that are
//! written here.
use crate::Responder;
use num_bigint::BigUint;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::receive::ReceiveWork;
use rnic_layout::state::{PathMtu, QpState};
use rnic_token::PacketToken;
use rnic_token::doorbell::WorkPosted;
use rnic_token::host::{HostSpan, Slot};
use rnic_token::path::Path;
use rnic_token::protect::{AccessAnswer, AccessRequest};
use rnic_token::receive::{PlaceCommand, ReplyEvent};
use rnic_token::setup::{FailureEvent, SetupEvent, SetupKind};
use rnic_token::transmit::LaunchToken;
use std::collections::{HashMap, VecDeque};

const QPN: u64 = 0x5a_c003;
const DOMAIN: u64 = 7;
const PEER: u128 = 0xffff_0a00_0001;
const RING: u64 = 0x40_0000;
const FIRST_PSN: u64 = 0xff_fffe;

/// A responder and its neighbours.
struct Machine {
    bench: Bench<Responder>,
    random: Random,
    requests: Source<PacketToken>,
    place: Sink<PlaceCommand>,
    replies: Sink<LaunchToken>,
    failures: Sink<FailureEvent>,
    asked: Sink<AccessRequest>,
    answers: Source<AccessAnswer>,
    reads: Sink<HostSpan>,
    owed: Source<ReplyEvent>,
    /// Slots on their way from the host.
    slots: VecDeque<Slot>,
    /// Receive entries by device address.
    memory: HashMap<u64, [u8; 64]>,
    /// Keys that are refused.
    forbidden: Vec<u64>,
    seen: [usize; 3],
    cycles: usize,
}

fn path() -> Path {
    Path {
        local_qp: bits(QPN),
        path_mtu: bits(PathMtu::Bytes1024 as u64),
        remote_write: true,
        destination_address: BigUint::from(PEER).into(),
        partition_key: bits(0xffff),
        domain: bits(DOMAIN),
        min_rnr_timer: bits(12),
        receive_completion_queue: bits(5),
        receive_base_page: bits(RING >> 12),
        receive_entries_log2: bits(6),
        generation: bits(3),
        ..Path::default()
    }
}

impl Machine {
    fn new(stalls: Stalls) -> Self {
        let bench = Bench::clocked(Responder::new().unwrap(), |block| &mut block.clock).in_lock_step();
        Machine {
            bench,
            random: random(),
            requests: Source::of_tokens([], stalls),
            place: Sink::new(stalls),
            replies: Sink::new(stalls),
            failures: Sink::new(stalls),
            asked: Sink::new(stalls),
            answers: Source::of_tokens([], stalls),
            reads: Sink::new(stalls),
            owed: Source::of_tokens([], Stalls::None),
            slots: VecDeque::new(),
            memory: HashMap::new(),
            forbidden: Vec::new(),
            seen: [0; 3],
            cycles: 0,
        }
    }

    fn cycle(&mut self) {
        let Machine { bench, random, .. } = self;
        let block = &mut bench.block;
        self.requests.drive(&mut block.requests, random);
        self.place.drive(&mut block.place, random);
        self.replies.drive(&mut block.reply, random);
        self.failures.drive(&mut block.failure, random);
        self.asked.drive(&mut block.access_request, random);
        self.answers.drive(&mut block.access_answer, random);
        self.reads.drive(&mut block.receive_read, random);
        self.owed.drive(&mut block.place_reply, random);
        let arrives = self.slots.front().is_some() && self.cycles.is_multiple_of(3);
        block.receive_slot_valid.next = arrives;
        if arrives {
            block.receive_slot.next = self.slots.pop_front().unwrap();
        }
        bench.settle();
        let block = &bench.block;
        self.requests.sample(&block.requests);
        self.place.sample(&block.place);
        self.replies.sample(&block.reply);
        self.failures.sample(&block.failure);
        self.asked.sample(&block.access_request);
        self.answers.sample(&block.access_answer);
        self.reads.sample(&block.receive_read);
        self.owed.sample(&block.place_reply);
        bench.tick();
        self.cycles += 1;
        // Regions are where they say: the device address is the address above a constant.
        for request in &self.asked.received[self.seen[0]..] {
            let ok = !self.forbidden.contains(&request.key.to_u64());
            let device_address = bits(request.address.to_u64() | 1 << 40);
            self.answers.push(AccessAnswer { ok, device_address });
        }
        self.seen[0] = self.asked.received.len();
        for span in &self.reads.received[self.seen[1]..] {
            let (address, count) = (span.address.to_u64(), span.length.to_u64() / 64);
            for index in 0..count {
                let entry = self.memory.get(&(address + index * 64)).copied().unwrap_or([0xee; 64]);
                self.slots.push_back(Slot {
                    data: BigUint::from_bytes_le(&entry).into(),
                    last: index + 1 == count,
                    error: false,
                });
            }
        }
        self.seen[1] = self.reads.received.len();
        // Each command is one write, which is done at once.
        for command in &self.place.received[self.seen[2]..] {
            if command.has_reply {
                self.owed.push(command.reply);
            }
        }
        self.seen[2] = self.place.received.len();
    }

    fn run(&mut self, cycles: usize) {
        (0..cycles).for_each(|_| self.cycle());
    }

    /// Tells all stages.
    fn setup(&mut self, kind: SetupKind, state: QpState, psn: u64) {
        let event = SetupEvent {
            kind,
            queue_pair: bits(QPN & 0x3ff),
            state: bits(state as u64),
            generation: bits(3),
            psn: bits(psn),
            path: path(),
        };
        let mut taken = [false; 3];
        let mut waited = 0;
        while taken != [true; 3] {
            let block = &mut self.bench.block;
            let ports = [&mut block.setup_admit, &mut block.setup_receive, &mut block.setup_reply];
            for (port, taken) in ports.into_iter().zip(taken) {
                port.beat.next = event;
                port.valid.next = !taken;
            }
            self.bench.settle();
            let block = &self.bench.block;
            let ready =
                [&block.setup_admit, &block.setup_receive, &block.setup_reply].map(|port| port.ready.val());
            self.cycle();
            for (taken, ready) in taken.iter_mut().zip(ready) {
                *taken |= ready;
            }
            waited += 1;
            assert!(waited < 2100, "a setup event is taken in bounded time");
        }
        let block = &mut self.bench.block;
        block.setup_admit.valid.next = false;
        block.setup_receive.valid.next = false;
        block.setup_reply.valid.next = false;
    }

    fn connect(&mut self) {
        self.setup(SetupKind::Restart, QpState::Reset, 0);
        self.setup(SetupKind::ReceivePsn, QpState::ReadyToReceive, FIRST_PSN);
        self.setup(SetupKind::Probe, QpState::ReadyToReceive, 0);
        assert_eq!(self.bench.block.probed.val(), bits(FIRST_PSN));
    }

    /// Writes entries and rings, as a driver does.
    fn post(&mut self, from: u64, entries: &[ReceiveWork]) {
        for (place, entry) in entries.iter().enumerate() {
            let slot = (from + place as u64) % 64;
            self.memory.insert(RING + slot * 64, entry.to_bytes().unwrap());
        }
        let producer_index = bits(from + entries.len() as u64);
        self.bench.block.receive_posted.next = WorkPosted { queue_pair: bits(QPN & 0x3ff), producer_index };
        self.bench.block.receive_posted_valid.next = true;
        self.cycle();
        self.bench.block.receive_posted_valid.next = false;
    }
}

fn packet(opcode: u64, psn: u64, extended: BigUint, payload_bytes: u64) -> PacketToken {
    PacketToken {
        source_address: BigUint::from(PEER).into(),
        opcode: bits(opcode),
        partition_key: bits(0x7fff),
        destination_qp: bits(QPN),
        ack_request: true,
        psn: bits(psn & 0xff_ffff),
        extended: extended.into(),
        payload_bytes: bits(payload_bytes),
        ..PacketToken::default()
    }
}

/// RETH, and immediate data behind it.
fn reth(address: u64, key: u32, length: u32, immediate: u32) -> BigUint {
    let mut bytes = Vec::new();
    bytes.extend(address.to_be_bytes());
    bytes.extend(key.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(immediate.to_be_bytes());
    BigUint::from_bytes_le(&bytes)
}

fn write(psn: u64, address: u64, length: u32) -> PacketToken {
    packet(0x0a, psn, reth(address, 0x142, length, 0), length.into())
}

fn send(psn: u64, length: u64) -> PacketToken {
    packet(0x04, psn, BigUint::ZERO, length)
}

fn entry(tag: u64) -> ReceiveWork {
    ReceiveWork {
        tag,
        sge_count: 2,
        sge0_address: tag << 16,
        sge0_key: 0x207,
        sge0_length: 100,
        sge1_address: (tag << 16) + 0x8000,
        sge1_key: 0x307,
        sge1_length: 4096,
        ..ReceiveWork::at_reset()
    }
}

/// Syndrome, PSN and MSN of a reply.
fn aeth(reply: &LaunchToken) -> (u64, u64, u64) {
    assert_eq!(reply.opcode, bits(0x11));
    let extended = reply.extended.get_bits::<32>(0).to_u64() as u32;
    let bytes = extended.to_le_bytes();
    let msn = u64::from(u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]));
    (bytes[0].into(), reply.psn.to_u64(), msn)
}

#[test]
fn a_write_and_a_send_are_placed_and_acknowledged() {
    for stalls in [Stalls::None, Stalls::Both] {
        let mut machine = Machine::new(stalls);
        machine.connect();
        machine.post(0, &[entry(0x11), entry(0x22)]);
        machine.requests.push(write(FIRST_PSN, 0x7000, 300));
        machine.requests.push(send(FIRST_PSN + 1, 150));
        machine.requests.push(packet(0x0b, 0, reth(0, 0, 0, 0x0403_0201), 0));
        machine.run(400);
        let placed = &machine.place.received;
        assert_eq!(placed.len(), 3);
        assert_eq!(placed[0].span_count, bits(1));
        assert_eq!(placed[0].first, HostSpan { address: bits(0x7000 | 1 << 40), length: bits(300) });
        assert!(!placed[0].has_completion && placed[0].has_reply);
        assert_eq!(placed[1].span_count, bits(2));
        assert_eq!(placed[1].first, HostSpan { address: bits(0x11_0000 | 1 << 40), length: bits(100) });
        assert_eq!(placed[1].second, HostSpan { address: bits(0x11_8000 | 1 << 40), length: bits(50) });
        let completion = placed[1].completion;
        assert!(placed[1].has_completion);
        assert_eq!(completion.tag, bits(0x11));
        assert_eq!(completion.length, bits(150));
        assert_eq!(completion.opcode, bits(CompletionOpcode::Receive as u64));
        assert_eq!(completion.status, bits(CompletionStatus::Success as u64));
        assert_eq!((completion.qp_number, completion.consumer_index), (bits(QPN), bits(1)));
        assert_eq!(completion.completion_queue, bits(5));
        let completion = placed[2].completion;
        assert_eq!((placed[2].span_count, placed[2].has_completion), (bits(0), true));
        assert_eq!((completion.tag, completion.consumer_index), (bits(0x22), bits(2)));
        assert_eq!(completion.opcode, bits(CompletionOpcode::ReceiveWrite as u64));
        assert!(completion.with_immediate);
        // The bytes are kept in the order of the wire.
        assert_eq!(completion.immediate, bits(0x0102_0304));
        let last = machine.replies.received.last().map(aeth);
        assert_eq!(last, Some((0x1f, 0, 3)), "the newest acknowledgement covers all");
        let passage = machine.bench.block.passage.val();
        assert_eq!(passage.entered, passage.left);
        assert!(machine.failures.received.is_empty());
    }
}
