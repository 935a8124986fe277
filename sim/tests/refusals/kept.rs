//! Slots that the card keeps of send queues that wait for their READs: each queue pair sends its own. The test plays the peers.
use crate::own_reads::response;
use crate::rig::{IPV4, Rig};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::{Init, ReadyToSend};
use rnic_driver::{QueuePair, RemoteMemory, RemoteRights, SendOptions, SendRequest};
use rnic_layout::opcode::Operation;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::wire::extended::RethRepr;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};

/// QPNs of the peers.
const PEERS: [u32; 2] = [0x3c, 0x3d];
/// Syndrome of an ACK.
const ACK: u8 = 0x1f;
/// READs of each queue pair, and their length.
const READS: u32 = 40;
const BYTES: usize = 16;
/// Low bits in which the numbers of both queue pairs agree.
const SAME_BITS: u32 = 0x1f;

/// A queue pair that has one READ in flight at a time.
struct Reader {
    queue_pair: QueuePair<ReadyToSend>,
    peer: u32,
    first_psn: Psn,
}

impl Reader {
    fn connect(rig: &Rig, queue_pair: QueuePair<Init>, peer: u32) -> Result<Reader> {
        let first_psn = Psn::wrapping(queue_pair.info(IPV4)?.first_psn);
        let queue_pair = rig.connect_with(queue_pair, peer, IPV4, Pmtu::Bytes1024, 0, |options| {
            options.send = SendOptions { read_atomic: Some(1), ..options.send };
        })?;
        Ok(Reader { queue_pair, peer, first_psn })
    }

    /// What a READ names; the keys of both queue pairs differ.
    fn remote(&self, number: u32) -> RemoteMemory {
        let address = 0x1000 + u64::from(number) * BYTES as u64;
        RemoteMemory { address, key: self.peer, bytes: BYTES as u64 }
    }

    fn post(&mut self, rig: &Rig) -> Result<()> {
        let read = |number: u32| -> Result<SendRequest> {
            let request = SendRequest::read(number.into(), self.remote(number));
            Ok(request.sge(rig.domain.allocate(BYTES)?).signalled())
        };
        let mut requests = (0..READS).map(read).collect::<Result<Vec<_>>>()?;
        Ok(self.queue_pair.post_sends(&mut requests)?)
    }

    fn contents(&self, number: u32) -> Vec<u8> {
        (0..BYTES as u32).map(|place| (self.peer + number * 3 + place) as u8).collect()
    }

    /// Waits for the READ of this number, which is all that comes.
    fn comes(&self, rig: &mut Rig, number: u32) -> Result<()> {
        let frame = rig.wait("a READ", |rig| {
            let frames = rig.heard();
            ensure!(frames.len() <= 1, "{} frames come", frames.len());
            Ok(frames.into_iter().next())
        })?;
        let packet = PacketRepr::parse(&frame).map_err(|reason| anyhow::anyhow!("{reason:?}"))?;
        let RemoteMemory { address, key, bytes } = self.remote(number);
        let expected = RethRepr { virtual_address: address, remote_key: key, dma_length: bytes.try_into()? };
        let reth = packet.extended_headers().find_map(|header| match header {
            ExtendedRepr::Reth(reth) => Some(reth),
            _ => None,
        });
        let (to, psn) = (packet.bth.destination_qp, packet.bth.psn.sub(self.first_psn.value()).value());
        let is_right = (to, psn) == (self.peer, number) && reth == Some(expected);
        ensure!(is_right, "PSN {psn} to {to:#x} with {reth:x?}, not {expected:x?} to {:#x}", self.peer);
        Ok(())
    }

    fn answer(&self, rig: &Rig, number: u32) {
        let (qp_number, psn) = (self.queue_pair.number(), self.first_psn.add(number));
        rig.send(&[response(qp_number, Operation::ReadResponseOnly, psn, ACK, self.contents(number))]);
    }
}

/// Two queue pairs whose numbers differ in high bits only have one READ in flight each, and are answered in turn: each goes on with
/// its own READs, whichever of them the card keeps.
pub(crate) fn of_two_queue_pairs(rig: &mut Rig) -> Result<()> {
    let first = rig.new_queue_pair(RemoteRights::NONE)?;
    let number = first.number();
    let mut between = Vec::new();
    let second = loop {
        let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
        if (queue_pair.number() ^ number) & SAME_BITS == 0 {
            break queue_pair;
        }
        between.push(queue_pair);
        ensure!(between.len() < 4 * SAME_BITS as usize, "no number agrees with {number:#x}");
    };
    let mut readers = [Reader::connect(rig, first, PEERS[0])?, Reader::connect(rig, second, PEERS[1])?];
    drop(between);
    rig.settle()?;
    for reader in &mut readers {
        reader.post(rig)?;
        reader.comes(rig, 0).context("the first READ")?;
    }
    for number in 0..READS {
        for reader in &readers {
            reader.answer(rig, number);
            if number + 1 < READS {
                reader.comes(rig, number + 1).with_context(|| format!("READ {}", number + 1))?;
            }
        }
    }
    let done = rig.completed(2 * READS as usize)?;
    for reader in &readers {
        let mine = done.iter().filter(|done| done.qp_number == reader.queue_pair.number());
        let mine: Vec<_> = mine.map(|done| (done.status, done.wr_id, done.message.clone())).collect();
        let all =
            (0..READS).map(|number| (CompletionStatus::Success, u64::from(number), reader.contents(number)));
        ensure!(mine.iter().cloned().eq(all), "{mine:?}");
    }
    ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
    drop(readers);
    rig.settle()
}
