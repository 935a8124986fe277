//! The card in the place of the responder.
use crate::machine::{Machine, Role, operation, retarget};
use anyhow::{Context, Result, ensure};
use rnic_driver::{Completion, ReceiveRequest, RemoteRights, SendOptions, SharedRegion};
use rnic_layout::opcode::Operation;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::syndrome::{NakCode, Syndrome};
use rnic_layout::wire::extended::RethRepr;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use rnic_stimulus::captures::flow::{Crossing, Flow, Said};
use std::collections::BTreeMap;

/// Length of receives, more than that of any message of the captures.
const RECEIVE_BYTES: usize = 8192;

/// Range that the peer accesses with one key.
struct Range {
    first: u64,
    end: u64,
}

/// Memory of the card for each key that the peer used.
struct Grounds(BTreeMap<u32, (u64, SharedRegion)>);

impl Grounds {
    fn new(machine: &Machine, flow: &Flow) -> Result<Grounds> {
        let mut ranges: BTreeMap<u32, Range> = BTreeMap::new();
        for Crossing { packet, .. } in flow.requests() {
            let reached = packet.extended_headers().find_map(|header| match header {
                ExtendedRepr::Reth(reth) => {
                    Some((reth.remote_key, reth.virtual_address, reth.dma_length.into()))
                }
                ExtendedRepr::AtomicEth(atomic) => Some((atomic.remote_key, atomic.virtual_address, 8)),
                _ => None,
            });
            if let Some((key, first, bytes)) = reached {
                let end: u64 = first + bytes;
                let range = ranges.entry(key).or_insert(Range { first, end });
                *range = Range { first: range.first.min(first), end: range.end.max(end) };
            }
        }
        let share = |(key, range): (u32, Range)| {
            // Cells of atomics stay aligned to eight bytes, since regions begin at a page.
            let first = range.first & !7;
            Ok((key, (first, machine.domain.share((range.end - first).max(1) as usize, RemoteRights::ALL)?)))
        };
        let grounds = Grounds(ranges.into_iter().map(share).collect::<Result<_>>()?);
        // The original value of the first atomic on a cell is its initial value; all later ones must follow from it.
        let mut cells = BTreeMap::new();
        for Crossing { packet, .. } in flow.requests() {
            let Some(ExtendedRepr::AtomicEth(atomic)) = packet.extended_headers().next() else { continue };
            let mut answers = flow.answers().map(|answer| Said::of(&answer.packet));
            let original =
                answers.find(|said| said.psn == packet.bth.psn.value()).and_then(|said| said.original);
            cells.entry((atomic.remote_key, atomic.virtual_address)).or_insert(original);
        }
        for ((key, address), original) in cells {
            let (region, place) = grounds.place(key, address);
            region.write(place, &original.unwrap_or_default().to_le_bytes())?;
        }
        Ok(grounds)
    }

    /// R_Key and address that the card has assigned.
    fn own(&self, key: u32, address: u64) -> (u32, u64) {
        let (first, region) = &self.0[&key];
        let remote = region.remote();
        (remote.key, remote.address + (address - first))
    }

    fn place(&self, key: u32, address: u64) -> (&SharedRegion, usize) {
        let (first, region) = &self.0[&key];
        (region, (address - first) as usize)
    }
}

/// Replay of one flow.
struct Replay<'a> {
    flow: &'a Flow<'a>,
    machine: Machine,
    grounds: Grounds,
    /// Responses of the card.
    said: Vec<Said>,
    /// Payload that READ responses must have, by PSN.
    data: BTreeMap<u32, Vec<u8>>,
    /// Payload that was sent, by message.
    sends: Vec<Vec<u8>>,
    /// Receives that were posted.
    receives: usize,
    /// PSN of the next request to execute.
    next_psn: Psn,
    /// R_Key and address of the next byte of the WRITE in progress.
    target: Option<(u32, u64)>,
}

impl Replay<'_> {
    /// Writes the data with which Linux answered a READ to the card's memory, and returns the number of its responses.
    fn prepare_read(&mut self, reth: &RethRepr, psn: Psn) -> Result<u32> {
        let (region, place) = self.grounds.place(reth.remote_key, reth.virtual_address);
        let (mut offset, mut count) = (0, 0);
        for answer in self.flow.answers().map(|answer| &answer.packet) {
            let is_next = answer.bth.psn == psn.add(count) && operation(answer)? != Operation::Acknowledge;
            if is_next && offset < reth.dma_length as usize {
                region.write(place + offset, answer.payload)?;
                self.data.insert(answer.bth.psn.value(), answer.payload.to_vec());
                offset += answer.payload.len();
                count += 1;
            }
        }
        ensure!(offset == reth.dma_length as usize, "{offset} bytes were read of {reth:?}");
        Ok(count.max(1))
    }

    /// Posts the receive that a request consumes, if it does.
    fn prepare_receive(&mut self, packet: &PacketRepr) -> Result<()> {
        let operation = operation(packet)?;
        let immediate = packet.extended_headers().any(|header| matches!(header, ExtendedRepr::Immediate(_)));
        let takes = if is_send(operation) { operation.starts_message() } else { immediate };
        if takes {
            let room = self.machine.domain.allocate(RECEIVE_BYTES)?;
            let receive = ReceiveRequest::new(self.receives as u64).sge(room);
            self.machine.queue_pair.post_receive(receive)?;
            self.machine.confirm()?;
            self.receives += 1;
        }
        if is_send(operation) {
            if takes {
                self.sends.push(Vec::new());
            }
            self.sends.last_mut().context("a message does not begin")?.extend(packet.payload);
        }
        Ok(())
    }

    /// Sends a request, and collects the responses of the card.
    fn ask(&mut self, packet: &PacketRepr) -> Result<()> {
        let psn = packet.bth.psn;
        let reth = packet.extended_headers().find_map(|header| match header {
            ExtendedRepr::Reth(reth) => Some(reth),
            _ => None,
        });
        // Duplicates were executed before, and requests after a gap are not executed.
        let is_next = psn == self.next_psn;
        let mut psns = 1;
        match reth {
            Some(reth) if operation(packet)? == Operation::ReadRequest => {
                psns = self.prepare_read(&reth, psn)?
            }
            Some(reth) if is_next => self.target = Some((reth.remote_key, reth.virtual_address)),
            _ => {}
        }
        if is_next {
            self.next_psn = psn.add(psns);
            self.prepare_receive(packet)?;
        }
        let own = |key: &mut u32, address: &mut u64| (*key, *address) = self.grounds.own(*key, *address);
        let own_psn = psn.add(self.machine.psn_shift);
        let frame = retarget(packet, self.machine.queue_pair.number(), own_psn, |mut header| {
            match &mut header {
                ExtendedRepr::Reth(reth) => own(&mut reth.remote_key, &mut reth.virtual_address),
                ExtendedRepr::AtomicEth(atomic) => own(&mut atomic.remote_key, &mut atomic.virtual_address),
                _ => {}
            }
            header
        })?;
        self.machine.send(frame);
        for answer in self.machine.listen(0)? {
            let answer = PacketRepr::parse(&answer)?;
            let peer = self.flow.peer.unwrap_or(self.flow.number);
            ensure!(answer.bth.destination_qp == peer, "to whom is {:?}", answer.bth);
            ensure!(answer.ethernet.vlan == self.machine.vlan, "the tag of {:?}", answer.ethernet);
            let captured_psn = answer.bth.psn.sub(self.machine.psn_shift).value();
            if let Some(expected) = self.data.get(&captured_psn) {
                ensure!(answer.payload == expected, "the bytes of the answer {:?}", answer.bth);
            }
            self.said.push(Said { psn: captured_psn, ..Said::of(&answer) });
        }
        let is_write = !is_send(operation(packet)?) && !packet.payload.is_empty();
        if let Some((key, address)) = self.target.filter(|_| is_next && is_write) {
            let (region, place) = self.grounds.place(key, address);
            let mut found = vec![0; packet.payload.len()];
            region.read(place, &mut found)?;
            ensure!(found == packet.payload, "the bytes that {psn:?} has written");
            self.target = Some((key, address + packet.payload.len() as u64));
        }
        Ok(())
    }

    /// Compares what was received with what was sent. Returns how many responses were compared.
    fn finish(self) -> Result<usize> {
        let linux = self.flow.answers().map(|answer| Said::of(&answer.packet)).collect();
        let count = compare(self.said, linux)?;
        let done = self.machine.completions(self.receives)?;
        ensure!(done.len() == self.receives, "{} of {} receives are done", done.len(), self.receives);
        ensure!(done.iter().all(|done| done.status == CompletionStatus::Success), "{done:?}");
        let sends = done.iter().filter(|done| done.opcode == CompletionOpcode::Receive);
        let messages: Vec<Vec<u8>> = sends.map(Completion::message).collect();
        ensure!(messages == self.sends, "the messages that were received");
        drop((done, self.grounds));
        self.machine.finish()?;
        Ok(count)
    }
}

fn is_send(operation: Operation) -> bool {
    use Operation::*;
    let sends = [SendFirst, SendMiddle, SendLast, SendLastImmediate, SendOnly, SendOnlyImmediate];
    sends.contains(&operation)
}

/// Sends the requests that Linux received to the card, which must respond alike. Returns how many responses were compared.
pub(crate) fn replay(width_bits: u32, flow: &Flow) -> Result<usize> {
    let machine = Machine::new(width_bits, flow, Role::Responder, SendOptions::default())?;
    let grounds = Grounds::new(&machine, flow)?;
    let mut replay = Replay {
        flow,
        machine,
        grounds,
        said: Vec::new(),
        data: BTreeMap::new(),
        sends: Vec::new(),
        receives: 0,
        next_psn: flow.crossings[0].packet.bth.psn,
        target: None,
    };
    for request in flow.requests() {
        replay.ask(&request.packet)?;
    }
    replay.finish()
}

/// Linux acknowledges each packet of a duplicate, the card only one that requests it, with the newest acknowledgement (protocol
/// 7.4). A capture may end before the last response.
fn compare(mut ours: Vec<Said>, mut linux: Vec<Said>) -> Result<usize> {
    let sequence = Syndrome::Nak(NakCode::PsnSequenceError).emit();
    let has_loss =
        |said: &[Said]| said.iter().any(|said| said.aeth.is_some_and(|(class, _)| class == sequence));
    let has_repeats = linux.windows(2).any(|two| two[0] == two[1]);
    if linux.windows(2).any(|two| goes_back(&two[0], &two[1])) {
        return compare_repeated_reads(&ours, &linux);
    }
    ensure!(has_loss(&ours) == has_loss(&linux), "a gap is reported once: {ours:?}, Linux {linux:?}");
    ours.dedup();
    linux.dedup();
    if has_repeats {
        // Duplicates may be acknowledged differently, so only the furthest acknowledgement is compared.
        let furthest = |said: &[Said]| said.iter().map(|said| (said.psn, said.aeth)).max();
        ensure!(furthest(&ours) == furthest(&linux), "{ours:?}, Linux {linux:?}");
        return Ok(ours.len());
    }
    let unheard = ours.len().saturating_sub(linux.len());
    ensure!(unheard <= 1, "{unheard} answers too many: {ours:?}, Linux {linux:?}");
    ours.truncate(linux.len());
    if let Some(place) = ours.iter().zip(&linux).position(|(ours, linux)| ours != linux) {
        anyhow::bail!("answer {place}: {:?}, Linux {:?}", ours[place], linux[place]);
    }
    ensure!(ours.len() == linux.len(), "{} answers, Linux {}", ours.len(), linux.len());
    Ok(ours.len())
}

/// Says whether of two READ responses in a row the second one is of a READ that is repeated.
fn goes_back(said: &Said, next: &Said) -> bool {
    let is_data = |said: &Said| said.bytes > 0;
    is_data(said) && is_data(next) && Psn::wrapping(next.psn).is_before(Psn::wrapping(said.psn))
}

/// Compares READ responses of which one was lost and the rest were asked for again. The lost one is not in the capture before it
/// is repeated. What is repeated has the PSNs and lengths of Linux, but begins with FIRST, where rxe goes on with MIDDLE (protocol
/// 2.8).
fn compare_repeated_reads(ours: &[Said], linux: &[Said]) -> Result<usize> {
    let back =
        linux.windows(2).position(|two| goes_back(&two[0], &two[1])).context("nothing is repeated")? + 1;
    let lost = linux[back].psn;
    let parts = |said: &[Said]| said.iter().map(|said| (said.psn, said.bytes)).collect::<Vec<_>>();
    let place =
        linux[..back].iter().position(|said| said.psn > lost).context("nothing follows what was lost")?;
    let mut expected = parts(linux);
    expected.insert(place, (lost, linux[back].bytes));
    ensure!(parts(ours) == expected, "{ours:?}, Linux {linux:?}");
    let begins = ours[back + 1].code;
    ensure!(begins == Operation::ReadResponseFirst as u8, "what is repeated begins with {begins:#x}");
    Ok(ours.len())
}
