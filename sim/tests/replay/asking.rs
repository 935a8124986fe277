//! The card in the place of the requester.
use crate::machine::{Machine, Role, operation, retarget};
use anyhow::{Context, Result, ensure};
use rnic_driver::{Completion, RemoteMemory, SendOptions, SendRequest};
use rnic_layout::opcode::Operation;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::wire::{ExtendedRepr, PacketRepr, VlanTag};
use rnic_stimulus::captures::flow::{Flow, Said};
use std::collections::BTreeMap;

/// A message: its packets in order, and its number of PSNs, which is larger than that of packets for a READ.
pub(crate) struct Message<'a> {
    pub(crate) packets: Vec<PacketRepr<'a>>,
    psns: u32,
}

impl<'a> Message<'a> {
    /// All messages of a flow, each once. A packet that Linux sent more than once is taken as it was sent last; so what
    /// was lost on the way is there.
    pub(crate) fn all(flow: &Flow<'a>, pmtu: u32) -> Result<Vec<Message<'a>>> {
        let first_psn = flow.crossings[0].packet.bth.psn;
        let packets: BTreeMap<i32, PacketRepr> = flow
            .requests()
            .map(|request| (request.packet.bth.psn.distance(first_psn), request.packet))
            .collect();
        let mut messages: Vec<Message> = Vec::new();
        let mut next_psn = first_psn;
        for packet in packets.into_values() {
            // The rest of a READ that was read again.
            if packet.bth.psn.is_before(next_psn) {
                continue;
            }
            ensure!(packet.bth.psn == next_psn, "{:?} is missing", next_psn);
            let operation = operation(&packet)?;
            let reth = packet.extended_headers().find_map(|header| match header {
                ExtendedRepr::Reth(reth) if operation == Operation::ReadRequest => Some(reth),
                _ => None,
            });
            let psns = reth.map_or(1, |reth| reth.dma_length.div_ceil(pmtu).max(1));
            next_psn = next_psn.add(psns);
            if operation.starts_message() {
                messages.push(Message { packets: vec![packet], psns });
            } else {
                let message = messages.last_mut().context("a message does not begin")?;
                message.packets.push(packet);
                message.psns += psns;
            }
        }
        Ok(messages)
    }

    fn first_psn(&self) -> Psn {
        self.packets[0].bth.psn
    }

    fn last_psn(&self) -> Psn {
        self.first_psn().add(self.psns - 1)
    }

    fn is_read(&self) -> bool {
        self.packets[0].bth.opcode == Operation::ReadRequest as u8
    }

    /// The request of an atomic, as the application posted it.
    fn atomic(&self, wr_id: u64) -> Option<SendRequest> {
        let packet = &self.packets[0];
        let Some(ExtendedRepr::AtomicEth(atomic)) = packet.extended_headers().next() else { return None };
        let remote = RemoteMemory { address: atomic.virtual_address, key: atomic.remote_key, bytes: 8 };
        let is_swap = packet.bth.opcode == Operation::CompareSwap as u8;
        Some(if is_swap {
            SendRequest::compare_swap(wr_id, remote, atomic.compare, atomic.swap_add)
        } else {
            SendRequest::fetch_add(wr_id, remote, atomic.swap_add)
        })
    }

    /// The request, as the application posted it.
    pub(crate) fn request(&self, machine: &Machine, wr_id: u64) -> Result<SendRequest> {
        let headers: Vec<ExtendedRepr> =
            self.packets.iter().flat_map(|packet| packet.extended_headers().collect::<Vec<_>>()).collect();
        let remote = headers.iter().find_map(|header| match header {
            ExtendedRepr::Reth(reth) => Some(RemoteMemory {
                address: reth.virtual_address,
                key: reth.remote_key,
                bytes: reth.dma_length.into(),
            }),
            _ => None,
        });
        let immediate = headers.iter().find_map(|header| match header {
            ExtendedRepr::Immediate(immediate) => Some(immediate.data.to_be_bytes()),
            _ => None,
        });
        if let Some(atomic) = self.atomic(wr_id) {
            return Ok(atomic.sge(machine.domain.allocate(8)?).signalled());
        }
        let payload: Vec<u8> = self.packets.iter().flat_map(|packet| packet.payload).copied().collect();
        let (request, bytes) = match (remote, immediate) {
            (Some(remote), None) if self.is_read() => {
                (SendRequest::read(wr_id, remote), vec![0; remote.bytes as usize])
            }
            (None, None) => (SendRequest::send(wr_id), payload),
            (None, Some(immediate)) => (SendRequest::send_immediate(wr_id, immediate), payload),
            (Some(remote), None) => (SendRequest::write(wr_id, remote), payload),
            (Some(remote), Some(immediate)) => {
                (SendRequest::write_immediate(wr_id, remote, immediate), payload)
            }
        };
        let is_solicited = self.packets.last().is_some_and(|packet| packet.bth.solicited);
        let request = if is_solicited { request.solicited() } else { request };
        if bytes.is_empty() {
            return Ok(request.signalled());
        }
        let mut piece = machine.domain.allocate(bytes.len())?;
        piece.bytes_mut().copy_from_slice(&bytes);
        Ok(request.sge(piece).signalled())
    }

    /// Compares the card's packets with the captured ones, except for its own PSNs.
    pub(crate) fn compare(
        &self,
        heard: &[Vec<u8>],
        flow: &Flow,
        vlan: Option<VlanTag>,
        own: impl Fn(Psn) -> Psn,
    ) -> Result<()> {
        compare_packets(heard, &self.packets, flow, vlan, own)?;
        // All requests are signalled, so the last packet of each requests an acknowledgement; a READ is answered in any case.
        let last = PacketRepr::parse(heard.last().context("a message has a packet")?)?;
        ensure!(last.bth.ack_request || self.is_read(), "the last packet asks for an answer");
        Ok(())
    }

    /// Compares the result of a READ or an atomic with the response of Linux.
    pub(crate) fn check_done(&self, done: &Completion, flow: &Flow) -> Result<()> {
        ensure!(done.status == CompletionStatus::Success, "{done:?}");
        let mut answers = flow.answers().map(|answer| Said::of(&answer.packet));
        let original =
            answers.find(|said| said.psn == self.first_psn().value()).and_then(|said| said.original);
        ensure!(done.original() == original, "{:?} was in the cell, and not {original:?}", done.original());
        if self.is_read() {
            let is_of_it = |psn: Psn| !psn.is_before(self.first_psn()) && !psn.is_after(self.last_psn());
            let answers =
                flow.answers().map(|answer| &answer.packet).filter(|answer| is_of_it(answer.bth.psn));
            let by_psn: BTreeMap<i32, &[u8]> =
                answers.map(|answer| (answer.bth.psn.distance(self.first_psn()), answer.payload)).collect();
            let bytes: Vec<u8> = by_psn.into_values().flatten().copied().collect();
            let found: Vec<u8> = done.sg_list.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
            ensure!(found == bytes && done.length as usize == bytes.len(), "the bytes of {done:?}");
        }
        Ok(())
    }
}

/// Compares packets of the card with captured ones, except for its own PSNs and for where an acknowledgement is requested.
pub(crate) fn compare_packets(
    heard: &[Vec<u8>],
    captured: &[PacketRepr],
    flow: &Flow,
    vlan: Option<VlanTag>,
    own: impl Fn(Psn) -> Psn,
) -> Result<()> {
    ensure!(heard.len() == captured.len(), "{} packets, Linux {}", heard.len(), captured.len());
    for (heard, linux) in heard.iter().zip(captured) {
        let ours = PacketRepr::parse(heard)?;
        let mut linux = *linux;
        linux.ethernet.vlan = vlan;
        let expected = retarget(&linux, flow.number, own(linux.bth.psn), |header| header)?;
        let said = |packet: &PacketRepr| {
            let bth = packet.bth;
            let numbers = (bth.opcode, bth.psn, bth.solicited, bth.destination_qp, bth.partition_key);
            let ip = (packet.ip.source(), packet.ip.destination());
            (numbers, bth.pad_count, packet.extended, packet.ethernet, ip)
        };
        let (ours_said, linux_said) = (said(&ours), said(&PacketRepr::parse(&expected)?));
        ensure!(ours_said == linux_said, "{ours_said:?}, Linux {linux_said:?}");
        ensure!(ours.payload == linux.payload, "the payload of {:?}", ours.bth);
    }
    Ok(())
}

/// Lets the driver post the requests of Linux, and sends the responses of Linux to the card; its packets must be the captured
/// ones. Returns how many messages were answered.
pub(crate) fn replay(width_bits: u32, flow: &Flow) -> Result<usize> {
    let mut machine = Machine::new(width_bits, flow, Role::Requester, SendOptions::default())?;
    let own_number = machine.queue_pair.number();
    let (first_psn, captured_psn) = (machine.first_psn, flow.crossings[0].packet.bth.psn);
    let own = |psn: Psn| first_psn.add(psn.distance(captured_psn) as u32);
    let messages = Message::all(flow, machine.pmtu.bytes())?;
    let mut posted = 0;
    let mut answered = None;
    for crossing in &flow.crossings {
        let packet = &crossing.packet;
        if !crossing.is_request {
            machine.send(retarget(packet, own_number, own(packet.bth.psn), |header| header)?);
            let heard = machine.listen(0)?;
            ensure!(heard.is_empty(), "an answer makes the card say {heard:x?}");
            answered = Some(packet.bth.psn);
            continue;
        }
        let Some(message) = messages.get(posted).filter(|next| next.first_psn() == packet.bth.psn) else {
            continue;
        };
        let request = message.request(&machine, posted as u64)?;
        machine.queue_pair.post_send(request)?;
        let heard = machine.listen(message.packets.len())?;
        message.compare(&heard, flow, machine.vlan, own).with_context(|| format!("message {posted}"))?;
        posted += 1;
    }
    // A capture may end before the last response.
    let is_answered =
        |message: &&Message| answered.is_some_and(|answered| !message.last_psn().is_after(answered));
    let count = messages.iter().filter(is_answered).count();
    let done = machine.completions(count)?;
    ensure!(done.len() == count, "{} of {count} messages are done", done.len());
    for (place, (done, message)) in done.iter().zip(&messages).enumerate() {
        ensure!(done.wr_id == place as u64, "in order: {done:?}");
        message.check_done(done, flow).with_context(|| format!("message {place}"))?;
    }
    drop(done);
    machine.finish()?;
    Ok(count)
}
