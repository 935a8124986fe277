//! A queue pair that is not attacked: after each batch it moves data both ways, byte for byte, at the wire's rate.
use crate::rig::{IPV4, PEER_FIRST, PEER_KEY, Passed, Rig, ensure_same};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    CompletionQueue, CompletionQueueOptions, QueuePair, QueuePairOptions, Region, RemoteMemory, RemoteRights,
    SendRequest, SharedRegion,
};
use rnic_endpoint::memory::Sge;
use rnic_endpoint::qp::{Data, Operation, SendWqe};
use rnic_layout::opcode;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_machine::world::CardOptions;

/// QPN of the endpoint's side.
const PEER: u32 = 0x31;
/// Bytes of a message, in packets of 1024.
const BYTES: usize = 4096;
const PACKETS: u64 = 4;
/// Bytes of a full packet of a WRITE on the wire, with preamble, FCS and gap; the first has a RETH in addition.
const PACKET_BYTES: u64 = 8 + 14 + 20 + 8 + 12 + 1024 + 4 + 4 + 12;
/// Place of its memory in that of the endpoint: what the card reads, and what it writes.
const SOURCE: usize = 0x1_0000;
const DESTINATION: usize = 0x1_2000;
/// A cycle of the core clock.
const CYCLE_PS: u64 = 4000;
/// Cycles from the last byte of a WRITE at the card's port to its ACK at the peer, when nothing else is under way.
const ANSWER_CYCLES: u64 = 500;

/// The bystander.
pub(crate) struct Bystander {
    queue_pair: QueuePair<ReadyToSend>,
    completions: CompletionQueue,
    /// Where the endpoint writes.
    written: SharedRegion,
    /// What the card sends; with the card while it does.
    source: Option<Region>,
    rounds: u64,
    /// Time of a full packet on the wire.
    packet_cycles: f64,
}

impl Bystander {
    pub(crate) fn new(rig: &Rig, width_bits: u32) -> Result<Bystander> {
        let completions =
            rig.device.create_completion_queue(&rig.device.events(), &CompletionQueueOptions::default())?;
        let options = QueuePairOptions::default();
        let queue_pair = rig.domain.create_queue_pair(&completions, &completions, &options)?;
        let queue_pair = queue_pair.initialize(RemoteRights::WRITE).map_err(rnic_driver::Error::from)?;
        let queue_pair = rig.connect_to_endpoint(queue_pair, PEER, IPV4, Pmtu::Bytes1024, 0xff_fff0)?;
        let written = rig.domain.share(BYTES, RemoteRights::WRITE)?;
        let source = Some(rig.domain.allocate(BYTES)?);
        let rate = CardOptions::standard(width_bits).bits_per_second as f64;
        let packet_cycles = PACKET_BYTES as f64 * 8.0 * 1e12 / rate / CYCLE_PS as f64;
        Ok(Bystander { queue_pair, completions, written, source, rounds: 0, packet_cycles })
    }

    /// QPN of the card's side.
    pub(crate) fn number(&self) -> u32 {
        self.queue_pair.number()
    }

    /// Returns whether a frame of the card is one of its own.
    pub(crate) fn is_for(destination: u32) -> bool {
        destination == PEER
    }

    /// Moves a message each way at the same time. Returns how many requests and responses the endpoint has sent for it.
    pub(crate) fn run(&mut self, rig: &mut Rig) -> Result<(u64, u64)> {
        self.rounds += 1;
        let wr_id = self.rounds;
        let pattern = |salt: u64| -> Vec<u8> {
            (0..BYTES as u64).map(|place| (place * 7 + place / 251 + salt * wr_id) as u8).collect()
        };
        let (ours, theirs) = (pattern(3), pattern(5));
        let mut source = self.source.take().context("its memory has come back")?;
        source.bytes_mut().copy_from_slice(&ours);
        let remote =
            RemoteMemory { address: PEER_FIRST + DESTINATION as u64, key: PEER_KEY, bytes: BYTES as u64 };
        rig.passed();
        self.queue_pair.post_send(SendRequest::write(wr_id, remote).sge(source).signalled())?;
        let RemoteMemory { address, key, .. } = self.written.remote();
        let sge = Sge { address: PEER_FIRST + SOURCE as u64, key: PEER_KEY, length: BYTES as u32 };
        let work = SendWqe::new(wr_id, Operation::Write { address, key }, Data::Sges(vec![sge]));
        let begin_ps = rig.world().now_ps();
        rig.endpoint(|endpoint| {
            endpoint.memory().bytes[SOURCE..][..BYTES].copy_from_slice(&theirs);
            endpoint.post_send(PEER, work);
        });
        let (mut sent, mut received) = (None, None);
        rig.wait("the bystander's messages", |rig| {
            sent = sent.take().or(self.completions.poll_one()?);
            received = received.take().or_else(|| rig.endpoint(|endpoint| endpoint.poll(PEER)));
            Ok((sent.is_some() && received.is_some()).then_some(()))
        })?;
        let (sent, received) = (sent.context("it is sent")?, received.context("it is received")?);
        ensure!(sent.status == CompletionStatus::Success && sent.wr_id == wr_id, "{sent:?}");
        ensure!(received.status == CompletionStatus::Success && received.wr_id == wr_id, "{received:?}");
        self.source = sent.sg_list.into_iter().next();
        let mut found = vec![0; BYTES];
        self.written.read(0, &mut found)?;
        ensure_same(&found, &theirs).context("what the endpoint has written")?;
        let sent = rig.endpoint(|endpoint| endpoint.memory().bytes[DESTINATION..][..BYTES].to_vec());
        ensure_same(&sent, &ours).context("what the card has written")?;
        self.check_rate(rig, begin_ps)
    }

    /// Checks how long both messages took, and counts the endpoint's packets.
    fn check_rate(&self, rig: &Rig, begin_ps: u64) -> Result<(u64, u64)> {
        let passed = rig.passed();
        let own = passed.iter().filter(|passed| !passed.is_from_endpoint && passed.destination == PEER);
        let is_request = |passed: &&Passed| opcode::class(passed.opcode) == Some(opcode::Class::Request);
        let (requests, answers): (Vec<&Passed>, Vec<&Passed>) = own.partition(is_request);
        let [first, .., last] = requests[..] else {
            anyhow::bail!("the WRITE has {} packets", requests.len())
        };
        let cycles = |from_ps: u64, to_ps: u64| to_ps.saturating_sub(from_ps).div_ceil(CYCLE_PS);
        let out = cycles(first.time_ps, last.time_ps);
        // Between its first packet and its last, an ACK leaves as well.
        let most = (self.packet_cycles * 1.1 * (PACKETS - 1) as f64) as u64 + 40;
        ensure!(out <= most, "the card's WRITE takes {out} cycles from packet to packet, not {most}");
        let answer = answers.last().context("the endpoint's WRITE is acknowledged")?;
        let taken = cycles(begin_ps, answer.time_ps);
        // The ACK may wait behind a packet of the card's WRITE.
        let most = (self.packet_cycles * (PACKETS + 1) as f64) as u64 + ANSWER_CYCLES;
        ensure!(taken <= most, "the endpoint's WRITE takes {taken} cycles until its ACK, not {most}");
        let theirs = passed.iter().filter(|passed| passed.is_from_endpoint);
        let (requests, answers): (Vec<&Passed>, Vec<&Passed>) = theirs.partition(is_request);
        Ok((requests.len() as u64, answers.len() as u64))
    }
}
