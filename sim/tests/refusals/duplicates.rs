//! READs and atomics that a peer asks for again: traces C and G of protocol 3.12, replays in the middle of other answers, more of
//! them than slots, and replays of a region that is gone.
use crate::asker::{Asker, FIRST_PSN, PEER, Said, responses, same, same_in_any_order, shown};
use crate::rig::{IPV4, IPV6, Rig, Version};
use anyhow::{Context, Result, ensure};
use rnic_driver::RemoteRights;
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::wire::ExtendedRepr;
use rnic_layout::wire::extended::{AtomicEthRepr, RethRepr};

/// Bytes of the card's region; its last ones are a word for atomics.
const WINDOW_BYTES: usize = 30_000;
const WORD: usize = WINDOW_BYTES - 8;
/// Value of the word, and what is added.
const VALUE: u64 = 0x0123_4567_89ab_cdef;
const ADDEND: u64 = 0x1_0000;
/// READs and atomics that may be in flight.
const DEPTH: u8 = 4;

/// A FETCH_ADD of the word.
fn fetch_add(asker: &Asker, psn: u32) -> Vec<u8> {
    let atomic = AtomicEthRepr {
        virtual_address: asker.remote.address + WORD as u64,
        remote_key: asker.remote.key,
        swap_add: ADDEND,
        compare: 0,
    };
    asker.frame(Op::FetchAdd, psn, vec![ExtendedRepr::AtomicEth(atomic)], Vec::new())
}

pub(crate) fn answered(rig: &mut Rig) -> Result<()> {
    for version in [IPV4, IPV6] {
        traces(rig, version).with_context(|| format!("traces, addresses {version}"))?;
    }
    messages_again(rig).context("SENDs and WRITEs that come again behind READs")?;
    going_back(rig).context("a peer that goes back twice")?;
    for new in [2, 4] {
        slots_are_used_again(rig, new).with_context(|| format!("a long READ again, and {new} new ones"))?;
    }
    not_counted(rig).context("a replay beside new READs")?;
    for (depth, slots) in [(3, 4), (4, 4), (5, 8), (9, 16)] {
        as_many_as_slots(rig, depth, slots).with_context(|| format!("{depth} READs in flight"))?;
    }
    former_life(rig).context("requests of before a reset")?;
    region_is_gone(rig).context("a region that is gone")
}

/// Traces C and G: the WRITE, the READ, the SEND and the atomic of protocol 3.12; then the peer asks again for what it has lost.
fn traces(rig: &mut Rig, version: Version) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 29 / 3) as u8).collect();
    window.write(0, &bytes)?;
    window.write(WORD, &VALUE.to_le_bytes())?;
    let mut asker = Asker::connect(rig, version, Pmtu::Bytes1024, window.remote(), DEPTH)?;
    let receive = rig.receive_request(1);
    asker.queue_pair.post_receive(receive)?;
    rig.device.check()?;
    let written: Vec<u8> = (0..2500).map(|place| (place * 7) as u8).collect();
    let first = asker.frame(Op::WriteFirst, FIRST_PSN, vec![asker.reth(0, 2500)], written[..1024].to_vec());
    let middle = asker.frame(Op::WriteMiddle, FIRST_PSN + 1, Vec::new(), written[1024..2048].to_vec());
    let last = asker.frame(Op::WriteLast, 0, Vec::new(), written[2048..].to_vec());
    let ack = |psn, msn| (Op::Acknowledge, psn, Some(msn), Vec::new());
    ensure!(asker.ask(rig, &[first, middle, last], 1)? == [ack(0, 1)], "the ACK of the WRITE");
    let asked = [asker.read(1, 100, 3000), asker.send(4), fetch_add(&asker, 5)];
    let mut image = bytes.clone();
    image[..2500].copy_from_slice(&written);
    let atomic = |psn, msn| (Op::AtomicAcknowledge, psn, Some(msn), VALUE.to_le_bytes().to_vec());
    let said = asker.ask_until(rig, &asked, &atomic(5, 4))?;
    same(&said[..3], &responses(1, 2, &image[100..3100], 1024))?;
    // The answer of the atomic stands for an ACK that has waited for the READ until then.
    let both = [ack(4, 3), atomic(5, 4)];
    same(&said[3..], if said.len() == 4 { &both[1..] } else { &both })?;
    rig.moved()?;

    // Memory is read again, and so what it holds now.
    window.write(1200, &[0x5a; 100])?;
    image[1200..1300].fill(0x5a);
    let again = [asker.read(2, 1124, 1976), asker.send(4), fetch_add(&asker, 5)];
    let said = asker.ask(rig, &again, 4)?;
    same(&said[..2], &responses(2, 4, &image[1124..3100], 1024))?;
    // The ACK names the SEND, not the atomic behind it. It waits for the READ, and may wait for the atomic.
    same_in_any_order(&said[2..], &[ack(4, 4), atomic(5, 4)])?;
    let mut word = [0; 8];
    window.read(WORD, &mut word)?;
    ensure!(u64::from_le_bytes(word) == VALUE + ADDEND, "the atomic is executed once: {word:x?}");
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_request") == 3 && moved.named().len() == 1, "{moved:?}");

    // What is not noted gets no answer: another key, bytes or PSNs outside of the READ, an atomic that is none.
    let other_key = ExtendedRepr::Reth(RethRepr {
        virtual_address: asker.remote.address + 100,
        remote_key: asker.remote.key ^ 1,
        dma_length: 3000,
    });
    let unknown = [
        asker.frame(Op::ReadRequest, 1, vec![other_key], Vec::new()),
        asker.read(1, 99, 100),
        asker.read(1, 101, 3000),
        asker.read(3, 1124, 1976),
        asker.read(4, 100, 100),
        fetch_add(&asker, 4),
    ];
    asker.ask(rig, &unknown, 0)?;
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_dropped") == 6 && moved.named().len() == 1, "{moved:?}");

    // The peer goes on as if nothing had happened.
    let said = asker.ask(rig, &[asker.read(6, 7, 1993)], 2)?;
    same(&said, &responses(6, 5, &image[7..2000], 1024))?;
    drop(asker);
    rig.exchange()?;
    Ok(())
}

/// The ACK of a duplicate names the last SEND or WRITE, never a READ or an atomic behind it: a peer could take it for their answer.
fn messages_again(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 23 / 3) as u8).collect();
    window.write(0, &bytes)?;
    window.write(WORD, &VALUE.to_le_bytes())?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes1024, window.remote(), DEPTH)?;
    let ack = |psn, msn| (Op::Acknowledge, psn, Some(msn), Vec::new());
    let read = |psn, msn, length: usize| responses(psn, msn, &bytes[2000..2000 + length], 1024);
    // Nothing but a READ was executed: the PSN before the first one.
    same(&asker.ask(rig, &[asker.read(FIRST_PSN, 2000, 900)], 1)?, &read(FIRST_PSN, 1, 900))?;
    same(&asker.ask(rig, &[asker.send(FIRST_PSN - 1)], 1)?, &[ack(FIRST_PSN - 1, 1)])?;
    // A WRITE, and behind it a READ and an atomic.
    let write = asker.frame(Op::WriteOnly, 0xff_ffff, vec![asker.reth(0, 64)], bytes[..64].to_vec());
    same(&asker.ask(rig, std::slice::from_ref(&write), 1)?, &[ack(0xff_ffff, 2)])?;
    let said = asker.ask(rig, &[asker.read(0, 2000, 2900), fetch_add(&asker, 3)], 4)?;
    same(&said[..3], &read(0, 3, 2900))?;
    same(&asker.ask(rig, std::slice::from_ref(&write), 1)?, &[ack(0xff_ffff, 4)])?;
    // In the middle of the next WRITE.
    let first = asker.frame(Op::WriteFirst, 4, vec![asker.reth(0, 1100)], bytes[..1024].to_vec());
    let last = asker.frame(Op::WriteLast, 5, Vec::new(), bytes[1024..1100].to_vec());
    same(&asker.ask(rig, &[first, write], 1)?, &[ack(4, 4)])?;
    same(&asker.ask(rig, std::slice::from_ref(&last), 1)?, &[ack(5, 5)])?;
    // Behind a READ that is not answered, and in front of a gap.
    let said = asker.ask(rig, &[asker.read(6, 2000, 20_000), last, asker.send(40)], 22)?;
    same(&said[..20], &read(6, 6, 20_000))?;
    same(&said[20..], &[ack(5, 6), (Op::Acknowledge, 26, Some(6), vec![0x60])])?;
    drop(asker);
    Ok(())
}

/// The peer asks for three long READs again, and in the middle of the answer for the second half of the first, and for the others: so
/// that two answers that are under way get no end.
fn going_back(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 31 / 3) as u8).collect();
    window.write(0, &bytes)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes256, window.remote(), DEPTH)?;
    let count = WINDOW_BYTES.div_ceil(256) as u32;
    let psn_of = |number: u32| (FIRST_PSN + number * count) & 0xff_ffff;
    let all = [0, 1, 2].map(|number| asker.read(psn_of(number), 0, WINDOW_BYTES));
    let answers = |numbers: std::ops::Range<u32>| -> Vec<Said> {
        numbers.flat_map(|number| responses(psn_of(number), 3, &bytes, 256)).collect()
    };
    let said = asker.ask(rig, &all, 3 * count as usize)?;
    // An MSN counts what was accepted when its response was made.
    let plain = |said: &[Said]| said.iter().map(|said| (said.0, said.1, said.3.clone())).collect::<Vec<_>>();
    ensure!(plain(&said) == plain(&answers(0..3)), "the first answers");

    // All again, and when the answer has begun, from its middle. The card has made 128 responses by then at most.
    rig.send(&all);
    let mut said = Vec::new();
    rig.wait("the first answers", |rig| {
        said.extend(asker.heard(rig)?);
        Ok((said.len() >= 3).then_some(()))
    })?;
    let half = count / 2;
    let middle = (FIRST_PSN + half) & 0xff_ffff;
    let skipped = half as usize * 256;
    let again = [asker.read(middle, skipped, WINDOW_BYTES - skipped), all[1].clone(), all[2].clone()];
    rig.send(&again);
    let mut rest = responses(middle, 3, &bytes[skipped..], 256);
    rest.extend(answers(1..3));
    rig.wait("the last answer", |rig| {
        said.extend(asker.heard(rig)?);
        Ok(said.ends_with(&rest).then_some(()))
    })
    .with_context(|| shown(&said[said.len().saturating_sub(3)..]))?;
    rig.idle(100);
    ensure!(asker.heard(rig)?.is_empty(), "nothing follows the second answer");
    let begun = said.len() - rest.len();
    ensure!(begun < 2 * count as usize, "{begun} packets came before the second answer");
    same(&said[..begun], &answers(0..2)[..begun]).context("the first answer, as far as it came")?;
    acknowledged(rig, &asker, psn_of(3), 4)
}

/// A WRITE with this PSN is acknowledged: no answer is awaited that never comes.
fn acknowledged(rig: &mut Rig, asker: &Asker, psn: u32, msn: u32) -> Result<()> {
    let psn = psn & 0xff_ffff;
    let write = asker.frame(Op::WriteOnly, psn, vec![asker.reth(0, 8)], vec![1; 8]);
    same(&asker.ask(rig, &[write], 1)?, &[(Op::Acknowledge, psn, Some(msn), Vec::new())])
        .context("the ACK of a WRITE behind them")
}

/// A READ that waits behind another one is asked again: it is answered once. Then the first of them is asked again, and while that is
/// answered new ones come. With the second of these there are as many as there are slots, and the second answer comes to its end; the
/// third one takes its slot, and ends the second answer.
fn slots_are_used_again(rig: &mut Rig, new: u32) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 47 / 3) as u8).collect();
    window.write(0, &bytes)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes256, window.remote(), DEPTH)?;
    let count = WINDOW_BYTES.div_ceil(256) as u32;
    let at = |number: u32| (FIRST_PSN + count + number) & 0xff_ffff;
    let long = asker.read(FIRST_PSN, 0, WINDOW_BYTES);
    let short = |number: u32| asker.read(at(number), 10 * number as usize, 200);
    let answer = |number: u32, msn| responses(at(number), msn, &bytes[10 * number as usize..][..200], 256);
    let mut expected = responses(FIRST_PSN, 1, &bytes, 256);
    expected.extend(answer(0, 2));
    let said = asker.ask(rig, &[long.clone(), short(0), short(0)], expected.len())?;
    let plain = |said: &[Said]| said.iter().map(|said| (said.0, said.1, said.3.clone())).collect::<Vec<_>>();
    ensure!(plain(&said) == plain(&expected), "{}", shown(&said[count as usize - 1..]));

    // Of four slots, the first new ones take the empty ones, and the third that of the long READ.
    let frames: Vec<_> = std::iter::once(long).chain((1..=new).map(short)).collect();
    rig.send(&frames);
    let mut said = Vec::new();
    let last = answer(new, new + 2);
    rig.wait("the last answer", |rig| {
        said.extend(asker.heard(rig)?);
        Ok(plain(&said).ends_with(&plain(&last)).then_some(()))
    })
    .with_context(|| shown(&said[said.len().saturating_sub(6)..]))?;
    rig.idle(100);
    ensure!(asker.heard(rig)?.is_empty(), "something follows the last answer");
    let answers: Vec<Said> = (1..=new).flat_map(|number| answer(number, number + 2)).collect();
    let again: Vec<Said> = said
        .iter()
        .filter(|said| !plain(&answers).contains(&(said.0, said.1, said.3.clone())))
        .cloned()
        .collect();
    ensure!(said.len() - again.len() == answers.len(), "each new one is answered once");
    ensure!(
        (again.len() == count as usize) == (new == 2),
        "{} packets of the second answer came",
        again.len()
    );
    ensure!(plain(&again) == plain(&expected)[..again.len()], "the second answer, as far as it came");
    acknowledged(rig, &asker, FIRST_PSN + count + new + 1, new + 3)
}

/// With one READ in flight: the peer asks for one again, has it, and asks for the next while the card repeats it.
fn not_counted(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 37 / 3) as u8).collect();
    window.write(0, &bytes)?;
    let asker = Asker::connect(rig, IPV6, Pmtu::Bytes256, window.remote(), 1)?;
    let count = WINDOW_BYTES.div_ceil(256) as u32;
    let mut psn = FIRST_PSN;
    asker.ask(rig, &[asker.read(psn, 0, WINDOW_BYTES)], count as usize)?;
    // More than there are slots.
    for turn in 0..20u32 {
        let next = (psn + count) & 0xff_ffff;
        let (at, length) = (turn as usize, WINDOW_BYTES - turn as usize);
        let length_before = WINDOW_BYTES - turn.saturating_sub(1) as usize;
        let before = turn.saturating_sub(1) as usize;
        let frames = [asker.read(psn, before, length_before), asker.read(next, at, length)];
        let said = asker.ask(rig, &frames, 2 * count as usize)?;
        let mut expected = responses(psn, turn + 1, &bytes[before..], 256);
        expected.extend(responses(next, turn + 2, &bytes[at..], 256));
        same(&said, &expected).with_context(|| format!("turn {turn}: the replay and the answer"))?;
        psn = next;
    }
    drop(asker);
    Ok(())
}

/// As many requests are kept for duplicates as the queue pair has slots: they are answered, and the one before them is not.
fn as_many_as_slots(rig: &mut Rig, depth: u8, slots: u32) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 41 / 3) as u8).collect();
    window.write(0, &bytes)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes256, window.remote(), depth)?;
    let count = slots + 7;
    let psn_of = |number: u32| (FIRST_PSN + number) & 0xff_ffff;
    let read = |number: u32| asker.read(psn_of(number), 100 * number as usize, 100);
    let answer = |number: u32, msn| {
        let at = 100 * number as usize;
        responses(psn_of(number), msn, &bytes[at..at + 100], 256)
    };
    let numbers: Vec<u32> = (0..count).collect();
    for some in numbers.chunks(depth.into()) {
        let frames: Vec<_> = some.iter().map(|&number| read(number)).collect();
        let expected: Vec<_> = some.iter().flat_map(|&number| answer(number, number + 1)).collect();
        same(&asker.ask(rig, &frames, expected.len())?, &expected)?;
    }
    rig.moved()?;
    let noted = numbers[7..].to_vec();
    let frames: Vec<_> = noted.iter().map(|&number| read(number)).collect();
    let expected: Vec<_> = noted.iter().flat_map(|&number| answer(number, count)).collect();
    same(&asker.ask(rig, &frames, expected.len())?, &expected).context("those that are kept")?;
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_request") == u64::from(slots) && moved.named().len() == 1, "{moved:?}");
    asker.ask(rig, &[read(6), read(0)], 0)?;
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_dropped") == 2 && moved.named().len() == 1, "{moved:?}");
    Ok(())
}

/// A queue pair is reset when it has answered a READ and an atomic, and while it answers a long READ. Then all of them come again, and are
/// of another life: none is answered, and the word is not touched. A new READ is.
fn former_life(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 43 / 3) as u8).collect();
    window.write(0, &bytes)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes256, window.remote(), DEPTH)?;
    let at = |number: u32| (FIRST_PSN + number) & 0xff_ffff;
    let count = WINDOW_BYTES.div_ceil(256) as u32;
    let asked = [asker.read(at(0), 5, 100), fetch_add(&asker, at(1)), asker.read(at(2), 0, WINDOW_BYTES)];
    asker.ask(rig, &asked[..2], 2)?;
    let mut word = [0; 8];
    window.read(WORD, &mut word)?;
    // A duplicate is being answered as well, and another one waits.
    rig.send(&[asked[2].clone(), asked[2].clone(), asked[0].clone()]);
    rig.wait("the first response", |rig| Ok((!asker.heard(rig)?.is_empty()).then_some(())))?;
    let Asker { queue_pair, version, remote } = asker;
    let queue_pair = queue_pair.reset().map_err(rnic_driver::Error::from)?;
    let queue_pair = queue_pair.initialize(RemoteRights::ALL).map_err(rnic_driver::Error::from)?;
    let queue_pair =
        rig.connect_with(queue_pair, PEER, version, Pmtu::Bytes256, at(2 + count), |options| {
            options.destination_read_atomic = Some(DEPTH);
        })?;
    rig.settle()?;
    let asker = Asker { queue_pair, version, remote };
    asker.ask(rig, &asked, 0)?;
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_dropped") == 3 && moved.named().len() == 1, "{moved:?}");
    let said = asker.ask(rig, &[asker.read(at(2 + count), 7, 300), fetch_add(&asker, at(4 + count))], 3)?;
    same(&said[..2], &responses(at(2 + count), 1, &bytes[7..307], 256))?;
    let atomic = (Op::AtomicAcknowledge, at(4 + count), Some(2), word.to_vec());
    same(&said[2..], &[atomic])?;
    drop(asker);
    rig.exchange()?;
    rig.settle()
}

/// The region is checked again: NAK 0x62 in the place of the response, and ERR.
fn region_is_gone(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes1024, window.remote(), DEPTH)?;
    let number = asker.queue_pair.number();
    asker.ask(rig, &[asker.read(FIRST_PSN, 0, 3000)], 3)?;
    drop(window);
    rig.device.check()?;
    let said = asker.ask(rig, &[asker.read(FIRST_PSN + 1, 1024, 1976)], 1)?;
    let expected = (Op::Acknowledge, FIRST_PSN + 1, Some(1), vec![0x62]);
    same(&said, &[expected])?;
    let raised = rig.wait("the event", |rig| rig.event())?;
    ensure!(raised.code == AsyncEvent::QueuePairAccessError && raised.object_number == number, "{raised:?}");
    drop(asker);
    rig.exchange()?;
    rig.settle()
}
