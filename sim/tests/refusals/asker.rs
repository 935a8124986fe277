//! A peer without a requester: its frames are made by hand, and what the card sends to it is listed.
use crate::rig::{Rig, Version, path_to_card};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, RemoteMemory, RemoteRights};
use rnic_endpoint::packet::Packet;
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::wire::extended::{AethRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};

/// QPN of a peer that the endpoint does not have, and its first PSN.
pub(crate) const PEER: u32 = 0x57;
pub(crate) const FIRST_PSN: u32 = 0xff_fffe;

/// A packet of the card: opcode, PSN, MSN of its AETH, and what it carries.
pub(crate) type Said = (Op, u32, Option<u32>, Vec<u8>);

/// A peer without a requester: its frames are made by hand.
pub(crate) struct Asker {
    pub(crate) queue_pair: QueuePair<ReadyToSend>,
    pub(crate) version: Version,
    pub(crate) remote: RemoteMemory,
}

impl Asker {
    pub(crate) fn connect(
        rig: &mut Rig,
        version: Version,
        pmtu: Pmtu,
        remote: RemoteMemory,
        depth: u8,
    ) -> Result<Asker> {
        let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
        let queue_pair = rig.connect_with(queue_pair, PEER, version, pmtu, FIRST_PSN, |options| {
            options.destination_read_atomic = Some(depth);
        })?;
        rig.settle()?;
        Ok(Asker { queue_pair, version, remote })
    }

    pub(crate) fn frame(
        &self,
        operation: Op,
        psn: u32,
        headers: Vec<ExtendedRepr>,
        payload: Vec<u8>,
    ) -> Vec<u8> {
        let bth = BthRepr::new(operation.code(), self.queue_pair.number(), Psn::wrapping(psn));
        let is_read = matches!(operation, Op::ReadRequest | Op::FetchAdd | Op::CompareSwap);
        let ack_request = !is_read && !matches!(operation, Op::WriteFirst | Op::WriteMiddle);
        Packet::new(BthRepr { ack_request, ..bth }, headers, payload).frame(&path_to_card(self.version), 1)
    }

    pub(crate) fn reth(&self, at: usize, length: usize) -> ExtendedRepr {
        ExtendedRepr::Reth(RethRepr {
            virtual_address: self.remote.address + at as u64,
            remote_key: self.remote.key,
            dma_length: length as u32,
        })
    }

    pub(crate) fn read(&self, psn: u32, at: usize, length: usize) -> Vec<u8> {
        self.frame(Op::ReadRequest, psn, vec![self.reth(at, length)], Vec::new())
    }

    pub(crate) fn send(&self, psn: u32) -> Vec<u8> {
        self.frame(Op::SendOnly, psn, Vec::new(), Vec::new())
    }

    /// What the card has sent to the peer.
    pub(crate) fn heard(&self, rig: &mut Rig) -> Result<Vec<Said>> {
        let mut said = Vec::new();
        for frame in rig.heard() {
            let packet = PacketRepr::parse(&frame).map_err(|reason| anyhow::anyhow!("{reason:?}"))?;
            if packet.bth.destination_qp != PEER {
                continue;
            }
            let operation =
                rnic_layout::opcode::lookup(packet.bth.opcode).context("it is assigned")?.operation;
            let (mut msn, mut carries) = (None, packet.payload.to_vec());
            for header in packet.extended_headers() {
                match header {
                    ExtendedRepr::Aeth(AethRepr { syndrome, msn: told }) => {
                        msn = Some(told.value());
                        if operation == Op::Acknowledge && syndrome != 0x1f {
                            carries.push(syndrome);
                        }
                    }
                    ExtendedRepr::AtomicAckEth(atomic) => carries.extend(atomic.original.to_le_bytes()),
                    _ => {}
                }
            }
            said.push((operation, packet.bth.psn.value(), msn, carries));
        }
        Ok(said)
    }

    /// Sends frames, and waits until the card has said this many packets, and says no more.
    pub(crate) fn ask(&self, rig: &mut Rig, frames: &[Vec<u8>], count: usize) -> Result<Vec<Said>> {
        let mut said = Vec::new();
        rig.send(frames);
        rig.wait("the answers", |rig| {
            said.extend(self.heard(rig)?);
            Ok((said.len() >= count).then_some(()))
        })
        .with_context(|| format!("after {}", shown(&said)))?;
        rig.idle(100);
        said.extend(self.heard(rig)?);
        ensure!(said.len() == count, "{} packets, not {count}: {}", said.len(), shown(&said));
        Ok(said)
    }

    /// Sends frames, and waits until the card has said this, and says no more.
    pub(crate) fn ask_until(&self, rig: &mut Rig, frames: &[Vec<u8>], last: &Said) -> Result<Vec<Said>> {
        let mut said = Vec::new();
        rig.send(frames);
        rig.wait("the last answer", |rig| {
            said.extend(self.heard(rig)?);
            Ok(said.contains(last).then_some(()))
        })
        .with_context(|| format!("after {}", shown(&said)))?;
        rig.idle(100);
        said.extend(self.heard(rig)?);
        Ok(said)
    }
}

/// Packets in one line.
pub(crate) fn shown(said: &[Said]) -> String {
    let one = |(operation, psn, msn, carried): &Said| {
        let start = &carried[..carried.len().min(8)];
        format!("{operation:?} {psn:#x} MSN {msn:?}, {} bytes {start:02x?}", carried.len())
    };
    said.iter().map(one).collect::<Vec<_>>().join("; ")
}

pub(crate) fn same(said: &[Said], expected: &[Said]) -> Result<()> {
    let place = said.iter().zip(expected).position(|(said, expected)| said != expected);
    let place = place.or((said.len() != expected.len()).then_some(said.len().min(expected.len())));
    let Some(place) = place else { return Ok(()) };
    let [said, expected] = [said, expected].map(|all| shown(&all[place..all.len().min(place + 3)]));
    anyhow::bail!("packet {place} on: {said}, not {expected}")
}

pub(crate) fn same_in_any_order(said: &[Said], expected: &[Said]) -> Result<()> {
    let [said, expected] = [said, expected].map(|all| {
        let mut all = all.to_vec();
        all.sort_by_key(|one| one.0.code());
        all
    });
    same(&said, &expected)
}

/// The responses to a READ; the first and the last carry an MSN.
pub(crate) fn responses(psn: u32, msn: u32, bytes: &[u8], pmtu: usize) -> Vec<Said> {
    let count = bytes.len().div_ceil(pmtu);
    let response = |(index, piece): (usize, &[u8])| {
        let operation = match (index, index + 1 == count) {
            (0, true) => Op::ReadResponseOnly,
            (0, false) => Op::ReadResponseFirst,
            (_, false) => Op::ReadResponseMiddle,
            (_, true) => Op::ReadResponseLast,
        };
        let msn = (operation != Op::ReadResponseMiddle).then_some(msn);
        (operation, (psn + index as u32) & 0xff_ffff, msn, piece.to_vec())
    };
    bytes.chunks(pmtu).enumerate().map(response).collect()
}
