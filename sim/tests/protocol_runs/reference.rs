//! The reference endpoint as one side of a run.
use crate::mapping::{self, MEMORY_BYTES, MESSAGE_BYTES, Mapping, PMTU, Remote, VALUE, WORD};
use crate::play::{Done, Stimulus, Subject, Turn, play};
use crate::rig::{CARD_MAC, IPV4, MIN_RNR_TIMER, ensure_same, path_to_card};
use anyhow::{Context, Result, ensure};
use rnic_endpoint::Endpoint;
use rnic_endpoint::memory::{Region, Rights, Sge};
use rnic_endpoint::qp::{Data, Operation, Queue, QueuePairSetup, ReceiveWqe, SendWqe};
use rnic_layout::wire::MacAddress;
use rnic_protocol::{Kind, Side, Status, Trace};

/// QPNs of the endpoint and of its peer.
const OWN: u32 = 0x11;
const PEER: u32 = 0x12;
const KEY: u32 = 0x305;
/// Address of the endpoint's memory.
const FIRST: u64 = 0x7000_0000;
/// Memory of the requester, of receives.
const LOCAL: usize = 0x1_0000;
/// Any timeout: time does not advance by itself.
const TIMEOUT: u8 = 8;

struct Reference<'a> {
    endpoint: Endpoint,
    trace: &'a Trace,
    role: Side,
    receives: u8,
}

fn sge(place: usize, length: usize) -> Sge {
    Sge { address: FIRST + place as u64, key: KEY, length: length as u32 }
}

impl Reference<'_> {
    fn receive(&mut self) {
        let place = LOCAL + usize::from(self.receives) * MESSAGE_BYTES;
        let sges = vec![sge(place, MESSAGE_BYTES)];
        self.endpoint.post_receive(OWN, ReceiveWqe { wr_id: self.receives.into(), sges });
        self.receives += 1;
    }

    fn begin(&mut self, mapping: &Mapping) {
        if self.role == Side::Responder {
            (0..self.trace.receives_before).for_each(|_| self.receive());
            return;
        }
        for (number, message) in self.trace.messages.iter().enumerate() {
            let Remote { address, key } = mapping.remote.of(number, message);
            let length = mapping::length(number, message);
            let operation = match message.kind {
                Kind::Send => Operation::Send,
                Kind::Write => Operation::Write { address, key },
                Kind::WriteImm => Operation::WriteImmediate { address, key, immediate: mapping::IMMEDIATE },
                Kind::Read => Operation::Read { address, key },
                Kind::Atomic => Operation::FetchAdd { address, key, add: mapping::ADDEND },
            };
            let place = LOCAL + number * MESSAGE_BYTES;
            if !message.kind.returns_data() {
                let contents = mapping::contents(number, message);
                self.endpoint.memory().bytes[place..][..length].copy_from_slice(&contents);
            }
            let data = Data::Sges(vec![sge(place, length)]);
            self.endpoint.post_send(OWN, SendWqe::new(number as u64, operation, data));
        }
    }
}

impl Subject for Reference<'_> {
    fn take(&mut self, mapping: &Mapping, turn: &Turn) -> Result<Done> {
        match turn.stimulus {
            Stimulus::Begin => self.begin(mapping),
            Stimulus::Arrives(frame) => {
                let frame = mapping.packet(&frame).frame(&path_to_card(IPV4), 1);
                self.endpoint.receive(&frame);
            }
            Stimulus::Timeout | Stimulus::RnrWaitEnds => {
                let deadline = self.endpoint.next_deadline_ps().context("no timer runs")?;
                self.endpoint.advance(deadline);
            }
            Stimulus::Receive => self.receive(),
        }
        self.rest()
    }

    fn rest(&mut self) -> Result<Done> {
        let frames = std::iter::from_fn(|| self.endpoint.transmit()).collect();
        let is_requester = self.role == Side::Requester;
        let queue = if is_requester { Queue::Send } else { Queue::Receive };
        let completions = std::iter::from_fn(|| self.endpoint.poll(0));
        // Receives of a queue pair that has failed are flushed, which the model does not follow.
        let completions = completions.filter(|done| {
            done.queue == queue && (is_requester || done.status == mapping::status(Status::Success))
        });
        Ok(Done { frames, completions: completions.map(|done| (done.wr_id as u8, done.status)).collect() })
    }
}

/// Plays a run with the endpoint in a role.
pub(crate) fn run(trace: &Trace, role: Side) -> Result<()> {
    let mut endpoint = Endpoint::new(MacAddress(CARD_MAC), 2 * LOCAL);
    let length = endpoint.memory().bytes.len() as u64;
    let (domain, rights) = (0, Rights::ALL);
    let region = Region { first_address: FIRST, length, offset: 0, domain, rights, invalidatable: false };
    endpoint.memory().register(KEY, region);
    let first = mapping::first_psn(trace);
    endpoint.create(QueuePairSetup {
        pmtu: PMTU,
        send_psn: first,
        receive_psn: first,
        read_atomic: trace.slots,
        destination_read_atomic: trace.slots,
        min_rnr_timer: MIN_RNR_TIMER,
        timeout: TIMEOUT,
        retry_count: trace.retries,
        rnr_retry: trace.rnr_retries,
        ..QueuePairSetup::new(OWN, PEER, path_to_card(IPV4).reversed())
    });
    let (requester, responder) = if role == Side::Requester { (OWN, PEER) } else { (PEER, OWN) };
    let remote = Remote { address: FIRST, key: KEY };
    let mapping = Mapping { trace, remote, requester, responder, rnr_timer: MIN_RNR_TIMER };
    let memory = &mut endpoint.memory().bytes;
    memory[..MEMORY_BYTES].copy_from_slice(&before(trace));
    let mut reference = Reference { endpoint, trace, role, receives: 0 };
    play(&mapping, role, &mut reference)?;
    let memory = &reference.endpoint.memory().bytes;
    match role {
        Side::Responder => {
            ensure_same(&memory[..MEMORY_BYTES], &after(trace)).context("memory of the responder")?;
            let sends = received(trace).into_iter().enumerate();
            for (receive, number) in sends.filter(|(_, number)| trace.messages[*number].kind == Kind::Send) {
                let contents = mapping::contents(number, &trace.messages[number]);
                ensure_same(&memory[LOCAL + receive * MESSAGE_BYTES..][..contents.len()], &contents)
                    .with_context(|| format!("SEND {number}"))?;
            }
        }
        Side::Requester => {
            for (number, expected) in returned(trace) {
                let place = LOCAL + number * MESSAGE_BYTES;
                ensure_same(&memory[place..][..expected.len()], &expected)
                    .with_context(|| format!("data of message {number}"))?;
            }
        }
    }
    ensure!(reference.endpoint.transmit().is_none(), "it goes on");
    Ok(())
}

/// Memory of the responder before a run: what READs ask for, and the word.
pub(crate) fn before(trace: &Trace) -> Vec<u8> {
    let mut memory = vec![0; MEMORY_BYTES];
    for (number, message) in
        trace.messages.iter().enumerate().filter(|(_, message)| message.kind == Kind::Read)
    {
        let contents = mapping::contents(number, message);
        memory[number * MESSAGE_BYTES..][..contents.len()].copy_from_slice(&contents);
    }
    memory[WORD..].copy_from_slice(&VALUE.to_le_bytes());
    memory
}

/// Memory of the responder after it.
pub(crate) fn after(trace: &Trace) -> Vec<u8> {
    let mut memory = before(trace);
    let mut word = VALUE;
    for &(_, kind, data) in &trace.executed {
        let number = usize::from(data.message);
        let contents = mapping::contents(number, &trace.messages[number]);
        let at = usize::from(data.packet) * PMTU.bytes() as usize;
        match kind {
            Kind::Write | Kind::WriteImm => {
                let piece = &contents[at..contents.len().min(at + PMTU.bytes() as usize)];
                memory[number * MESSAGE_BYTES + at..][..piece.len()].copy_from_slice(piece);
            }
            Kind::Atomic => word = word.wrapping_add(mapping::ADDEND),
            Kind::Send | Kind::Read => {}
        }
    }
    memory[WORD..].copy_from_slice(&word.to_le_bytes());
    memory
}

/// Messages that took a receive, in this order. A WRITE with immediate leaves its memory as it is.
pub(crate) fn received(trace: &Trace) -> Vec<usize> {
    let ends = trace.executed.iter().filter(|(_, kind, data)| {
        kind.takes_receive() && data.packet + 1 == trace.messages[usize::from(data.message)].packets
    });
    ends.map(|(.., data)| usize::from(data.message)).collect()
}

/// READs and atomics that completed with success, and what they returned.
pub(crate) fn returned(trace: &Trace) -> Vec<(usize, Vec<u8>)> {
    let done = trace.completions.iter().filter(|(.., status)| *status == Status::Success);
    let numbers = done.map(|&(_, number, _)| usize::from(number));
    numbers
        .filter_map(|number| {
            let message = &trace.messages[number];
            let atomics =
                trace.messages[..number].iter().filter(|before| before.kind == Kind::Atomic).count();
            match message.kind {
                Kind::Read => Some((number, mapping::contents(number, message))),
                Kind::Atomic => {
                    let original = VALUE.wrapping_add(mapping::ADDEND * atomics as u64);
                    Some((number, original.to_le_bytes().to_vec()))
                }
                _ => None,
            }
        })
        .collect()
}
