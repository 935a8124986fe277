//! The worked traces of protocol 3.12 with the card as responder: what it answers, packet by packet, to a peer whose frames are made by
//! hand. Trace I is in [`middle`](crate::middle).
use crate::asker::{Asker, FIRST_PSN, Said, responses, same, shown};
use crate::rig::{IPV4, Rig};
use anyhow::{Context, Result, ensure};
use rnic_driver::{RemoteMemory, RemoteRights, SharedRegion};
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::wire::ExtendedRepr;
use rnic_layout::wire::extended::{AtomicEthRepr, RethRepr};

/// Bytes of the card's region: the WRITE goes to its beginning, the READ comes from `READ`, and its last ones are the word.
const WINDOW_BYTES: usize = 8000;
const WRITTEN: usize = 2500;
const READ: usize = 3000;
const READ_BYTES: usize = 3000;
const WORD: usize = WINDOW_BYTES - 8;
const VALUE: u64 = 0x0123_4567_89ab_cdef;
const ADDEND: u64 = 5;

/// The requests of the traces, in order, and the memory that they are for.
struct Play {
    asker: Asker,
    window: SharedRegion,
    /// What the READ gives.
    read: Vec<u8>,
    written: Vec<u8>,
}

impl Play {
    fn begin(rig: &mut Rig) -> Result<Play> {
        let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
        let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 53 / 3) as u8).collect();
        window.write(0, &bytes)?;
        window.write(WORD, &VALUE.to_le_bytes())?;
        let asker = Asker::connect(rig, IPV4, Pmtu::Bytes1024, window.remote(), 4)?;
        let read = bytes[READ..][..READ_BYTES].to_vec();
        Ok(Play { asker, window, read, written: (0..WRITTEN).map(|place| (place * 7) as u8).collect() })
    }

    /// A receive for the SEND.
    fn posts_receive(&mut self, rig: &mut Rig) -> Result<()> {
        let receive = rig.receive_request(1);
        self.asker.queue_pair.post_receive(receive)?;
        rig.device.check()?;
        Ok(())
    }

    /// The WRITE with this key and this payload, in three packets.
    fn write(&self, remote_key: u32, payload: &[u8]) -> [Vec<u8>; 3] {
        let RemoteMemory { address, .. } = self.asker.remote;
        let reth = RethRepr {
            virtual_address: address,
            remote_key,
            dma_length: payload.len().try_into().expect("short"),
        };
        [
            self.asker.frame(
                Op::WriteFirst,
                FIRST_PSN,
                vec![ExtendedRepr::Reth(reth)],
                payload[..1024].to_vec(),
            ),
            self.asker.frame(Op::WriteMiddle, FIRST_PSN + 1, Vec::new(), payload[1024..2048].to_vec()),
            self.asker.frame(Op::WriteLast, 0, Vec::new(), payload[2048..].to_vec()),
        ]
    }

    /// The READ from this PSN on, the SEND, and the atomic.
    fn others(&self, read_psn: u32) -> [Vec<u8>; 3] {
        let skipped = (read_psn as usize - 1) * 1024;
        let atomic = AtomicEthRepr {
            virtual_address: self.asker.remote.address + WORD as u64,
            remote_key: self.asker.remote.key,
            swap_add: ADDEND,
            compare: 0,
        };
        [
            self.asker.read(read_psn, READ + skipped, READ_BYTES - skipped),
            self.asker.send(4),
            self.asker.frame(Op::FetchAdd, 5, vec![ExtendedRepr::AtomicEth(atomic)], Vec::new()),
        ]
    }

    fn all(&self) -> Vec<Vec<u8>> {
        let write = self.write(self.asker.remote.key, &self.written);
        write.into_iter().chain(self.others(1)).collect()
    }

    /// Sends frames and gives what the card says, up to a last packet.
    fn asks(&self, rig: &mut Rig, frames: &[Vec<u8>], last: &Said) -> Result<Vec<Said>> {
        self.asker.ask_until(rig, frames, last)
    }

    /// The answers to the READ from this PSN on.
    fn data(&self, read_psn: u32, msn: u32) -> Vec<Said> {
        responses(read_psn, msn, &self.read[(read_psn as usize - 1) * 1024..], 1024)
    }

    /// The WRITE and the atomic were executed once.
    fn ensure_executed_once(&self) -> Result<()> {
        let mut found = vec![0; WRITTEN];
        self.window.read(0, &mut found)?;
        ensure!(found == self.written, "the WRITE was not executed as it was first sent");
        let mut word = [0; 8];
        self.window.read(WORD, &mut word)?;
        let word = u64::from_le_bytes(word);
        ensure!(word == VALUE + ADDEND, "the atomic was not executed once: {word:#x}");
        Ok(())
    }

    /// The queue pair expects PSN 6 and has counted 4 messages: a READ of one byte is answered.
    fn goes_on(&self, rig: &mut Rig) -> Result<()> {
        let last = (Op::ReadResponseOnly, 6, Some(5), self.read[..1].to_vec());
        same(&self.asks(rig, &[self.asker.read(6, READ, 1)], &last)?, &[last])
    }

    fn ends(self, rig: &mut Rig) -> Result<()> {
        drop(self);
        rig.exchange()?;
        rig.settle()
    }
}

fn ack(psn: u32, msn: u32) -> Said {
    (Op::Acknowledge, psn, Some(msn), Vec::new())
}

fn nak(psn: u32, msn: u32, syndrome: u8) -> Said {
    (Op::Acknowledge, psn, Some(msn), vec![syndrome])
}

fn atomic_ack() -> Said {
    (Op::AtomicAcknowledge, 5, Some(4), VALUE.to_le_bytes().to_vec())
}

/// These packets in this order; an ACK may be left out if another packet follows, which stands for it (protocol 3.8).
fn same_but_for_acks(said: &[Said], expected: &[Said]) -> Result<()> {
    let mut rest = said.iter().peekable();
    for (place, packet) in expected.iter().enumerate() {
        let may_be_absent =
            *packet == ack(packet.1, packet.2.unwrap_or_default()) && place + 1 < expected.len();
        if rest.next_if(|said| *said == packet).is_none() {
            ensure!(may_be_absent, "{} instead of {}", shown(said), shown(expected));
        }
    }
    ensure!(rest.next().is_none(), "{} instead of {}", shown(said), shown(expected));
    Ok(())
}

/// All that is answered without a loss.
fn answers(play: &Play) -> Vec<Said> {
    let mut expected = vec![ack(0, 1)];
    expected.extend(play.data(1, 2));
    expected.extend([ack(4, 3), atomic_ack()]);
    expected
}

/// Everything is asked and answered once.
fn plays_all(rig: &mut Rig) -> Result<Play> {
    let mut play = Play::begin(rig)?;
    play.posts_receive(rig)?;
    let said = play.asks(rig, &play.all(), &atomic_ack())?;
    same_but_for_acks(&said, &answers(&play))?;
    rig.moved()?;
    Ok(play)
}

pub(crate) fn a_no_loss(rig: &mut Rig) -> Result<()> {
    let play = plays_all(rig)?;
    play.ensure_executed_once()?;
    play.goes_on(rig)?;
    play.ends(rig)
}

/// The second packet of the WRITE is lost: one NAK, and what follows is dropped, until it comes.
pub(crate) fn b_request_lost(rig: &mut Rig) -> Result<()> {
    let mut play = Play::begin(rig)?;
    play.posts_receive(rig)?;
    let all = play.all();
    let gap = nak(FIRST_PSN + 1, 0, 0x60);
    let lossy: Vec<_> = [0, 2, 3, 4, 5].map(|place: usize| all[place].clone()).into();
    same(&play.asks(rig, &lossy, &gap)?, &[gap])?;
    let moved = rig.moved()?;
    ensure!(moved.of("request_gap") == 4 && moved.of("nak_sequence_sent") == 1, "{moved:?}");
    let said = play.asks(rig, &all[1..], &atomic_ack())?;
    same_but_for_acks(&said, &answers(&play))?;
    play.ensure_executed_once()?;
    play.goes_on(rig)?;
    play.ends(rig)
}

/// The READ is asked again from `psn` on, and what follows it, too: the READ is answered from there on, SEND and atomic are not executed
/// again.
fn asked_again(rig: &mut Rig, psn: u32) -> Result<()> {
    let play = plays_all(rig)?;
    // The ACK of the SEND may be sent before the atomic comes, or after its answer.
    let said = play.asker.ask(rig, &play.others(psn), play.data(psn, 4).len() + 2)?;
    let (data, rest) = said.split_at(said.len() - 2);
    same(data, &play.data(psn, 4))?;
    // It names the SEND, not the atomic behind it (protocol 3.4).
    let both = [ack(4, 4), atomic_ack()];
    ensure!(both.iter().all(|one| rest.contains(one)), "{} instead of {}", shown(rest), shown(&both));
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_request") == 3 && moved.named().len() == 1, "{moved:?}");
    play.ensure_executed_once()?;
    play.goes_on(rig)?;
    play.ends(rig)
}

/// The second response is lost.
pub(crate) fn c_response_lost(rig: &mut Rig) -> Result<()> {
    asked_again(rig, 2)
}

/// All responses are lost.
pub(crate) fn d_ack_overtakes(rig: &mut Rig) -> Result<()> {
    asked_again(rig, 1)
}

/// No receive is posted: an RNR NAK of the SEND, and the atomic behind it is dropped, until both come again.
pub(crate) fn e_receive_queue_empty(rig: &mut Rig) -> Result<()> {
    let mut play = Play::begin(rig)?;
    let not_ready = nak(4, 2, 0x20 | crate::rig::MIN_RNR_TIMER);
    let said = play.asks(rig, &play.all(), &not_ready)?;
    let mut expected = vec![ack(0, 1)];
    expected.extend(play.data(1, 2));
    expected.push(not_ready);
    same_but_for_acks(&said, &expected)?;
    let moved = rig.moved()?;
    ensure!(moved.of("nak_rnr_sent") == 1 && moved.of("request_gap") == 1, "{moved:?}");
    play.posts_receive(rig)?;
    let [_, send, atomic] = play.others(1);
    let said = play.asks(rig, &[send, atomic], &atomic_ack())?;
    same_but_for_acks(&said, &[ack(4, 3), atomic_ack()])?;
    play.ensure_executed_once()?;
    play.goes_on(rig)?;
    play.ends(rig)
}

/// The ACKs of the WRITE are lost: all of it comes again, and is acknowledged once more and not executed.
pub(crate) fn f_acks_lost(rig: &mut Rig) -> Result<()> {
    let play = Play::begin(rig)?;
    let key = play.asker.remote.key;
    let once = play.write(key, &play.written);
    same(&play.asks(rig, &once, &ack(0, 1))?, &[ack(0, 1)])?;
    rig.moved()?;
    let again = play.write(key, &[0x55; WRITTEN]);
    same(&play.asks(rig, &again, &ack(0, 1))?, &[ack(0, 1)])?;
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_request") == 3 && moved.named().len() == 1, "{moved:?}");
    let mut found = vec![0; WRITTEN];
    play.window.read(0, &mut found)?;
    ensure!(found == play.written, "the duplicate was executed");
    play.ends(rig)
}

/// The ATOMIC_ACK is lost: the atomic comes again, and has the value of its first execution.
pub(crate) fn g_atomic_ack_lost(rig: &mut Rig) -> Result<()> {
    let play = plays_all(rig)?;
    let [.., atomic] = play.others(1);
    same(&play.asks(rig, &[atomic], &atomic_ack())?, &[atomic_ack()])?;
    play.ensure_executed_once()?;
    play.goes_on(rig)?;
    play.ends(rig)
}

/// The R_Key of the WRITE is wrong: NAK 0x62, the event, and silence.
pub(crate) fn h_wrong_key(rig: &mut Rig) -> Result<()> {
    let mut play = Play::begin(rig)?;
    play.posts_receive(rig)?;
    let number = play.asker.queue_pair.number();
    let write = play.write(play.asker.remote.key ^ 0x100, &play.written);
    let frames: Vec<_> = write.into_iter().chain(play.others(1)).collect();
    let refused = nak(FIRST_PSN, 0, 0x62);
    same(&play.asks(rig, &frames, &refused)?, &[refused])?;
    let raised = rig.wait("the event", |rig| rig.event())?;
    ensure!(raised.code == AsyncEvent::QueuePairAccessError && raised.object_number == number, "{raised:?}");
    let mut found = vec![0; WRITTEN];
    play.window.read(0, &mut found)?;
    ensure!(found != play.written, "something of the WRITE was executed");
    play.ends(rig)
}

/// The NAK of trace B is lost: there is no second one, and the peer's timeout ends the silence.
pub(crate) fn j_nak_lost(rig: &mut Rig) -> Result<()> {
    let mut play = Play::begin(rig)?;
    play.posts_receive(rig)?;
    let all = play.all();
    let gap = nak(FIRST_PSN + 1, 0, 0x60);
    same(&play.asks(rig, &[all[0].clone(), all[2].clone()], &gap)?, &[gap])?;
    play.asker.ask(rig, &all[3..], 0).context("what follows the gap")?;
    // A requester that goes back begins with what was executed.
    let said = play.asks(rig, &all, &atomic_ack())?;
    same_but_for_acks(&said, &answers(&play))?;
    let moved = rig.moved()?;
    ensure!(moved.of("nak_sequence_sent") == 1 && moved.of("duplicate_request") == 1, "{moved:?}");
    play.ensure_executed_once()?;
    play.goes_on(rig)?;
    play.ends(rig)
}
