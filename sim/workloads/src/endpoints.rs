//! Two reference endpoints, back to back: checks the model against an independent implementation of the protocol.
use super::model::shared_index;
use super::plan::{
    Kind, Mistake, Pair, Piece, Plan, Receive, Source, TargetMemory, WINDOW_BYTES, Wrapping, background,
    window_background,
};
use super::run::{Machine, Outcome, Post};
use anyhow::{Context, Result, ensure};
use rnic_endpoint::Endpoint;
use rnic_endpoint::memory::{Region, Rights, Sge};
use rnic_endpoint::packet::Path;
use rnic_endpoint::qp::{Data, Operation, Queue, QueuePairSetup, ReceiveWqe, SendWqe};
use rnic_layout::path::Gid;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_layout::wire::{MacAddress, VlanTag};
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

/// Mistakes that an endpoint cannot make, because its WQEs cannot hold such values.
pub const NO_MISTAKES: [Mistake; 2] = [Mistake::TooLong, Mistake::Opcode];

/// Memory of each endpoint, in bytes.
const MEMORY_BYTES: usize = 1 << 25;
/// Offset of the first window; the memory below it is unused.
const WINDOWS: usize = 1 << 17;
/// Difference between virtual addresses and offsets in memory.
const ADDRESS_BIAS: u64 = 0x7000_0000;
const LOCAL_KEY: u32 = 0x1000_0001;
const NO_RIGHT_KEY: u32 = 0x2000_0001;
const OTHER_DOMAIN_KEY: u32 = 0x3000_0001;
const WINDOW_KEY: u32 = 0x4000_0000;
/// Number of the shared receive queue of each endpoint.
const SHARED_RECEIVES: u32 = 0;
/// Keys that will be invalidated: by the peer, and by their owner.
const ENDING_KEYS: [u32; 2] = [0x9000_0001, 0xa000_0001];
/// Contents of unused memory.
const UNTOUCHED: u8 = 0xc3;

/// A posted send.
struct Posted {
    wr_id: u64,
    is_signalled: bool,
    opcode: CompletionOpcode,
    /// Destination of a READ.
    sges: Vec<Sge>,
}

/// A posted receive, and the offsets of its memory.
struct PostedReceive {
    wr_id: u64,
    sges: Vec<Sge>,
}

struct Host {
    endpoint: Endpoint,
    /// Offset of the first free byte.
    free: usize,
    sends: Vec<VecDeque<Posted>>,
    receives: Vec<VecDeque<PostedReceive>>,
    /// Posted receives of the shared receive queue, by `wr_id`.
    shared: BTreeMap<u64, Vec<Sge>>,
}

/// Two endpoints with connected queue pairs.
pub struct Endpoints {
    hosts: [Host; 2],
    /// Length of a window.
    window_bytes: usize,
}

fn mac(side: usize) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, side as u8 + 1])
}

fn gid(side: usize, is_ipv4: bool) -> Gid {
    if is_ipv4 { Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, side as u8 + 1)) } else { Gid::from_mac(mac(side).0) }
}

fn qp_number(side: usize, pair: usize) -> u32 {
    0x100 * (side as u32 + 1) + pair as u32
}

fn first_psn(pair: &Pair, side: usize) -> Psn {
    pair.first_psns[side].map_or(Psn::ZERO, Psn::wrapping)
}

fn path(side: usize, wrapping: &Wrapping) -> Path {
    let is_ipv4 = wrapping.is_ipv4;
    Path {
        vlan: wrapping.vlan.map(VlanTag::from_control),
        traffic_class: wrapping.traffic_class,
        hop_limit: wrapping.hop_limit,
        flow_label: wrapping.flow_label,
        ..Path::new(mac(side), gid(side, is_ipv4), mac(1 - side), gid(1 - side, is_ipv4))
    }
}

impl Endpoints {
    /// Sets up two endpoints as the plan says.
    pub fn new(plan: &Plan) -> Endpoints {
        Endpoints { hosts: [0, 1].map(|side| Host::new(plan, side)), window_bytes: plan.window_bytes }
    }
}

impl Host {
    fn new(plan: &Plan, side: usize) -> Host {
        let mut endpoint = Endpoint::new(mac(side), MEMORY_BYTES);
        let memory = endpoint.memory();
        memory.bytes.fill(UNTOUCHED);
        let write = Rights::ALL;
        let local = Rights { local_write: true, ..Rights::NONE };
        let region = |offset: usize, length: usize, domain: u32, rights: Rights| Region {
            first_address: ADDRESS_BIAS + offset as u64,
            length: length as u64,
            offset,
            domain,
            rights,
            invalidatable: false,
        };
        memory.register(NO_RIGHT_KEY, region(0, WINDOW_BYTES, 0, local));
        memory.register(OTHER_DOMAIN_KEY, region(0, WINDOW_BYTES, 1, write));
        for pair in 0..plan.pairs.len() {
            let offset = window_offset(plan.window_bytes, pair);
            memory.register(WINDOW_KEY + pair as u32 * 256, region(offset, plan.window_bytes, 0, write));
            for key in ENDING_KEYS {
                let region = Region { invalidatable: true, ..region(0, WINDOW_BYTES, 0, write) };
                memory.register(key + pair as u32 * 256, region);
            }
            for (index, byte) in memory.bytes[offset..][..plan.window_bytes].iter_mut().enumerate() {
                *byte = window_background(index);
            }
        }
        let free = window_offset(plan.window_bytes, plan.pairs.len());
        memory.register(LOCAL_KEY, region(free, MEMORY_BYTES - free, 0, local));
        for (index, pair) in plan.pairs.iter().enumerate() {
            let opens = pair.lets_write[side];
            let numbers = [qp_number(side, index), qp_number(1 - side, index)];
            endpoint.create(QueuePairSetup {
                rights: Rights {
                    remote_write: opens,
                    remote_read: opens,
                    remote_atomic: opens,
                    ..Rights::NONE
                },
                pmtu: pair.pmtu,
                send_psn: first_psn(pair, side),
                receive_psn: first_psn(pair, 1 - side),
                read_atomic: pair.reads[side],
                destination_read_atomic: pair.reads[1 - side],
                shared_receives: pair.shares[side].then_some(SHARED_RECEIVES),
                ..QueuePairSetup::new(numbers[0], numbers[1], path(side, &pair.wrapping))
            });
        }
        let pairs = plan.pairs.len();
        let sends = (0..pairs).map(|_| VecDeque::new()).collect();
        let receives = (0..pairs).map(|_| VecDeque::new()).collect();
        Host { endpoint, free, sends, receives, shared: BTreeMap::new() }
    }

    /// Allocates memory for pieces, which is used only once.
    fn sges(&mut self, pieces: &[Piece]) -> Result<Vec<Sge>> {
        let place = |piece: &Piece| {
            let start = self.free.next_multiple_of(super::plan::LANES) + piece.lane;
            self.free = start + piece.length;
            ensure!(self.free <= MEMORY_BYTES, "the endpoint's memory is used up");
            let address = ADDRESS_BIAS + start as u64;
            Ok(Sge { address, key: LOCAL_KEY, length: piece.length as u32 })
        };
        pieces.iter().map(place).collect()
    }

    /// Allocates memory for a receive, with the background pattern.
    fn receive(&mut self, wr_id: u64, pieces: &[Piece]) -> Result<Vec<Sge>> {
        let sges = self.sges(pieces)?;
        for sge in &sges {
            let bytes = self.bytes(sge).iter_mut().enumerate();
            bytes.for_each(|(index, byte)| *byte = background(wr_id, index));
        }
        Ok(sges)
    }

    fn bytes(&mut self, sge: &Sge) -> &mut [u8] {
        let start = (sge.address - ADDRESS_BIAS) as usize;
        &mut self.endpoint.memory().bytes[start..][..sge.length as usize]
    }

    fn contents(&mut self, sges: &[Sge]) -> Vec<Vec<u8>> {
        sges.iter().map(|sge| self.bytes(sge).to_vec()).collect()
    }
}

/// Offset of a window in memory, of windows of this length.
fn window_offset(window_bytes: usize, pair: usize) -> usize {
    WINDOWS + pair * (window_bytes + 55)
}

impl Machine for Endpoints {
    fn post_sends(&mut self, side: usize, pair: usize, posts: &[Post]) -> Result<usize> {
        let host = &mut self.hosts[side];
        for Post { wr_id, message, payload, compare } in posts {
            let data = match &message.source {
                Source::Inline(_) => Data::Inline(payload.to_vec()),
                Source::Pieces(pieces) => {
                    let mut sges = host.sges(pieces)?;
                    let mut rest = *payload;
                    for sge in &sges {
                        let (here, tail) = rest.split_at(sge.length as usize);
                        host.bytes(sge).copy_from_slice(here);
                        rest = tail;
                    }
                    match message.mistake {
                        Some(Mistake::LocalKey) => sges[0].key ^= 0x100,
                        Some(Mistake::LastKey) => {
                            sges.iter_mut().last().into_iter().for_each(|last| last.key ^= 0x100);
                        }
                        // An endpoint checks the whole message before it sends the first packet.
                        Some(Mistake::LocalRange | Mistake::LocalEnd) => {
                            sges[0].address = ADDRESS_BIAS + MEMORY_BYTES as u64 - 1
                        }
                        _ => {}
                    }
                    Data::Sges(sges)
                }
            };
            let (offset, key) = match message.target.memory {
                TargetMemory::Window => {
                    (window_offset(self.window_bytes, pair), WINDOW_KEY + pair as u32 * 256)
                }
                TargetMemory::NoRight => (0, NO_RIGHT_KEY),
                TargetMemory::OtherDomain => (0, OTHER_DOMAIN_KEY),
                TargetMemory::Ending => {
                    (0, ENDING_KEYS[usize::from(message.kind == Kind::LocalInvalidate)] + pair as u32 * 256)
                }
            };
            let address = message.target.address(ADDRESS_BIAS + offset as u64, payload.len());
            let key = key ^ message.target.key_change;
            let immediate = message.immediate;
            let operation = match message.kind {
                Kind::Send => Operation::Send,
                Kind::SendImmediate => Operation::SendImmediate(immediate),
                Kind::Write => Operation::Write { address, key },
                Kind::WriteImmediate => Operation::WriteImmediate { address, key, immediate },
                Kind::Read => Operation::Read { address, key },
                Kind::CompareSwap => {
                    Operation::CompareSwap { address, key, compare: *compare, swap: message.operand }
                }
                Kind::FetchAdd => Operation::FetchAdd { address, key, add: message.operand },
                Kind::SendInvalidate => Operation::SendInvalidate(key),
                Kind::LocalInvalidate => Operation::LocalInvalidate(key),
            };
            let work = SendWqe {
                signalled: message.signalled,
                solicited: message.solicited,
                fence: message.fence,
                ..SendWqe::new(*wr_id, operation, data)
            };
            let opcode = operation.completion_opcode();
            let sges = match &work.data {
                Data::Sges(sges) if message.kind.is_answered() => sges.clone(),
                _ => Vec::new(),
            };
            let is_signalled = message.signalled;
            host.sends[pair].push_back(Posted { wr_id: *wr_id, is_signalled, opcode, sges });
            host.endpoint.post_send(qp_number(side, pair), work);
        }
        Ok(posts.len())
    }

    fn post_receive(&mut self, side: usize, pair: usize, wr_id: u64, receive: &Receive) -> Result<bool> {
        let host = &mut self.hosts[side];
        let sges = host.receive(wr_id, &receive.pieces)?;
        host.receives[pair].push_back(PostedReceive { wr_id, sges: sges.clone() });
        let mut work = ReceiveWqe { wr_id, sges };
        if receive.is_mistaken {
            work.sges[0].key ^= 0x100;
        }
        host.endpoint.post_receive(qp_number(side, pair), work);
        Ok(true)
    }

    fn post_shared_receive(&mut self, side: usize, wr_id: u64, receive: &Receive) -> Result<bool> {
        let host = &mut self.hosts[side];
        let sges = host.receive(wr_id, &receive.pieces)?;
        host.shared.insert(wr_id, sges.clone());
        host.endpoint.post_shared_receive(SHARED_RECEIVES, ReceiveWqe { wr_id, sges });
        Ok(true)
    }

    fn confirm(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    /// Passes one frame in each direction.
    fn idle(&mut self) -> Result<()> {
        let frames = self.hosts.each_mut().map(|host| host.endpoint.transmit());
        for (side, frame) in frames.iter().enumerate() {
            if let Some(frame) = frame {
                self.hosts[1 - side].endpoint.receive(frame);
            }
        }
        Ok(())
    }

    fn poll(&mut self, side: usize, outcomes: &mut Vec<Outcome>) -> Result<()> {
        let host = &mut self.hosts[side];
        while let Some(completion) = host.endpoint.poll(0) {
            let pair = (completion.qp_number - qp_number(side, 0)) as usize;
            let mut outcome = Outcome {
                pair,
                is_receive: completion.queue == Queue::Receive,
                wr_id: completion.wr_id,
                status: completion.status,
                opcode: completion.opcode,
                length: completion.length,
                immediate: completion.immediate,
                is_solicited: completion.solicited,
                ends_key: completion.invalidated.is_some(),
                is_signalled: true,
                contents: Vec::new(),
            };
            if let Some(key) = completion.invalidated {
                ensure!(key == ENDING_KEYS[0] + pair as u32 * 256, "key {key:#x} is reported as invalidated");
            }
            if outcome.is_receive && shared_index(outcome.wr_id).is_some() {
                let sges = host.shared.remove(&outcome.wr_id);
                outcome.contents = host.contents(&sges.context("a receive completes twice")?);
                outcomes.push(outcome);
                continue;
            }
            if outcome.is_receive {
                let posted =
                    host.receives[pair].pop_front().context("a receive completes that was not posted")?;
                ensure!(posted.wr_id == outcome.wr_id, "receives complete out of order");
                outcome.contents = host.contents(&posted.sges);
                outcomes.push(outcome);
                continue;
            }
            // Unsignalled messages complete with the next CQE.
            while host.sends[pair]
                .front()
                .is_some_and(|posted| posted.wr_id != outcome.wr_id && !posted.is_signalled)
            {
                let posted = host.sends[pair].pop_front().context("it is there")?;
                outcomes.push(Outcome {
                    wr_id: posted.wr_id,
                    status: CompletionStatus::Success,
                    opcode: posted.opcode,
                    contents: host.contents(&posted.sges),
                    is_signalled: false,
                    ..outcome.clone()
                });
            }
            let posted = host.sends[pair].pop_front().context("a message completes that was not posted")?;
            if outcome.status == CompletionStatus::Success {
                ensure!(posted.is_signalled, "wr_id {:#x} has a CQE and is not signalled", posted.wr_id);
                outcome.contents = host.contents(&posted.sges);
            }
            outcomes.push(outcome);
        }
        Ok(())
    }

    fn fail(&mut self, side: usize, pair: usize) -> Result<()> {
        self.hosts[side].endpoint.modify(qp_number(side, pair), QpState::Error);
        Ok(())
    }

    fn window(&mut self, side: usize, pair: usize) -> Result<Vec<u8>> {
        let offset = window_offset(self.window_bytes, pair);
        Ok(self.hosts[side].endpoint.memory().bytes[offset..][..self.window_bytes].to_vec())
    }

    fn event(&mut self, side: usize) -> Result<Option<(usize, AsyncEvent)>> {
        let event = self.hosts[side].endpoint.event();
        Ok(event.map(|event| ((event.qp_number - qp_number(side, 0)) as usize, event.kind)))
    }

    fn check_untouched(&mut self) -> Result<()> {
        for (side, host) in self.hosts.iter_mut().enumerate() {
            let free = host.free;
            let bytes = &host.endpoint.memory().bytes;
            let is_untouched = |part: &[u8]| part.iter().all(|&byte| byte == UNTOUCHED);
            ensure!(is_untouched(&bytes[..WINDOWS]), "host {side}: memory that no request uses was written");
            ensure!(is_untouched(&bytes[free..]), "host {side}: free memory was written");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
