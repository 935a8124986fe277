//! Two cards that WRITE to each other and READ from each other without a pause, while their hosts stall at random.
//!
//! As much is in flight as the receive buffers hold, and no more, since the queue pairs have no retries. Each WRITE carries the
//! bytes that belong to its place, so the contents of a window do not depend on the order of WRITEs; each READ reads memory
//! that does not change. At the end nothing is in flight on either card, and both report so.
use crate::hosts::{self, Host, TURNS_MAX, any_pmtu, open};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::function::REGISTER_BAR;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, ConnectOptions, Function, QueuePair, Region, RemoteMemory, RemoteRights, SendRequest,
    SharedRegion,
};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::registers::{Control, REG_CONTROL, REG_STATUS, Status};
use rnic_machine::function::IDLE_CYCLES;
use rnic_stimulus::chance::Seed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum of bytes of a host's WRITEs in flight, and of its READs: the smallest receive buffer has room for them.
const BYTES: usize = 24 << 10;
/// Queue pairs of each host.
const PAIRS: usize = 6;
/// Memory that each queue pair opens to its peer.
const WINDOW_BYTES: usize = 40_000;
/// Longest message.
const MESSAGE_BYTES: usize = 12 << 10;
/// Buffers of each queue pair, which is also its maximum of messages in flight.
const PIECES: usize = 24;
/// Maximum distance between the beginning of a buffer and its message.
const GAP_BYTES: usize = 64;
/// Initial contents of memory.
const UNTOUCHED: u8 = 0xa5;
/// Calls of `idle` within which a card must be drained.
const DRAIN_MAX: usize = 1_000;

/// Contents of a window or of a source.
fn pattern(side: usize, pair: usize, place: usize) -> u8 {
    (place.wrapping_mul(0x9e37) >> 7) as u8 ^ (place as u8).wrapping_mul(29) ^ (side * 0x40 + pair) as u8
}

/// Kind of a message.
#[derive(Clone, Debug)]
enum Under {
    Write,
    Read { place: usize },
}

struct Flight {
    under: Under,
    length: usize,
    /// Memory before and after the message in its buffer.
    around: [Region; 2],
}

/// One end of a pair.
struct End {
    queue_pair: QueuePair<ReadyToSend>,
    /// Windows for the peer's WRITEs and READs.
    window: SharedRegion,
    #[expect(dead_code, reason = "the peer reads it")]
    source: SharedRegion,
    /// Windows of the peer.
    remote_window: RemoteMemory,
    remote_source: RemoteMemory,
    /// Bytes of the peer's window that were written.
    written: Vec<bool>,
    pieces: Vec<Region>,
    flights: BTreeMap<u64, Flight>,
    next_wr_id: u64,
}

/// Bytes in flight of a host's WRITEs and of its READs.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    writing: usize,
    reading: usize,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    /// Bytes of all WRITEs, by the host of the requester, and of all READs.
    pub(crate) written: [u64; 2],
    pub(crate) read: [u64; 2],
}

impl End {
    /// Posts one message if there is room for it. Returns whether it did.
    fn post(
        &mut self,
        (side, pair): (usize, usize),
        busy: &mut Busy,
        random: &mut ChaCha8Rng,
    ) -> Result<bool> {
        let longest = if random.random_bool(0.3) { MESSAGE_BYTES } else { 1500 };
        let length = random.random_range(0..=longest);
        let is_read = random.random();
        let busy = if is_read { &mut busy.reading } else { &mut busy.writing };
        if *busy + length > BYTES {
            return Ok(false);
        }
        let Some(piece) = self.pieces.pop() else { return Ok(false) };
        let place = random.random_range(0..=WINDOW_BYTES - length);
        let cut = |region: Region, at: usize| region.split_at(at).ok().context("a piece is longer");
        let (front, rest) = cut(piece, random.random_range(0..GAP_BYTES))?;
        let (mut body, back) = cut(rest, length)?;
        let memory = if is_read { self.remote_source } else { self.remote_window };
        let remote = RemoteMemory { address: memory.address + place as u64, bytes: length as u64, ..memory };
        let wr_id = self.next_wr_id;
        let (request, under) = if is_read {
            body.bytes_mut().fill(UNTOUCHED);
            (SendRequest::read(wr_id, remote), Under::Read { place })
        } else {
            let mut bytes = body.bytes_mut();
            bytes.iter_mut().zip(place..).for_each(|(byte, place)| *byte = pattern(1 - side, pair, place));
            self.written[place..place + length].fill(true);
            (SendRequest::write(wr_id, remote), Under::Write)
        };
        let (first, second) = cut(body, random.random_range(0..=length))?;
        let request = request.sge(first).sge(second).signalled();
        self.queue_pair.post_send(request)?;
        *busy += length;
        self.flights.insert(wr_id, Flight { under, length, around: [front, back] });
        self.next_wr_id += 1;
        Ok(true)
    }

    /// Processes the completion of a message. Returns whether it was a READ, and its length.
    fn complete(&mut self, (side, pair): (usize, usize), done: Completion) -> Result<(bool, usize)> {
        ensure!(done.status == CompletionStatus::Success, "{done:?}");
        let Flight { under, length, around: [front, back] } =
            self.flights.remove(&done.wr_id).with_context(|| format!("{done:?} belongs to no message"))?;
        ensure!(
            self.flights.first_key_value().is_none_or(|(&next, _)| next > done.wr_id),
            "{done:?} overtakes"
        );
        let join = |one: Region, other: Region| one.join(other).ok().context("pieces are neighbours");
        let body = done.sg_list.into_iter().map(Ok).reduce(|one, other| join(one?, other?));
        let body = body.context("its memory comes back")??;
        let is_read = matches!(under, Under::Read { .. });
        if let Under::Read { place } = under {
            let expected = (place..place + length).map(|place| pattern(1 - side, pair, place));
            ensure!(body.bytes().iter().copied().eq(expected), "{} bytes read at {place}", body.len());
        }
        self.pieces.push(join(join(front, body)?, back)?);
        Ok((is_read, length))
    }
}

/// Connects all pairs; lists are by host.
fn connect(hosts: &[Host; 2], random: &mut ChaCha8Rng) -> Result<Vec<[End; 2]>> {
    let rights = RemoteRights { read: true, ..RemoteRights::WRITE };
    let piece_bytes = MESSAGE_BYTES + GAP_BYTES;
    let mut pairs = Vec::new();
    for pair in 0..PAIRS {
        let queue_pairs = [hosts[0].queue_pair(rights)?, hosts[1].queue_pair(rights)?];
        let queue_pairs = hosts::connect(queue_pairs, any_pmtu(random), &ConnectOptions::default())?;
        let begin = |side: usize| -> Result<_> {
            let domain = &hosts[side].domain;
            let (window, source) = (domain.share(WINDOW_BYTES, rights)?, domain.share(WINDOW_BYTES, rights)?);
            window.write(0, &vec![UNTOUCHED; WINDOW_BYTES])?;
            let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| pattern(side, pair, place)).collect();
            source.write(0, &bytes)?;
            Ok((window, source))
        };
        let regions = [begin(0)?, begin(1)?];
        let remotes = [1, 0].map(|peer| (regions[peer].0.remote(), regions[peer].1.remote()));
        let parts = queue_pairs.into_iter().zip(regions).zip(remotes).enumerate();
        let mut ends = parts.map(|(side, ((queue_pair, (window, source)), remote))| {
            let (remote_window, remote_source) = remote;
            let mut rest = hosts[side].domain.allocate(PIECES * piece_bytes + 1)?;
            let mut pieces = Vec::new();
            for _ in 0..PIECES {
                let (piece, tail) = rest.split_at(piece_bytes).ok().context("there is enough for all")?;
                pieces.push(piece);
                rest = tail;
            }
            let (written, flights) = (vec![false; WINDOW_BYTES], BTreeMap::new());
            Ok::<_, anyhow::Error>(End {
                queue_pair,
                window,
                source,
                remote_window,
                remote_source,
                written,
                pieces,
                flights,
                next_wr_id: 0,
            })
        });
        let mut next = || ends.next().context("a pair has two ends")?;
        pairs.push([next()?, next()?]);
    }
    Ok(pairs)
}

/// Quiesces a card, waits until it reports that nothing is in flight, and lets it work again: a card that is quiet executes no
/// command, so the driver would wait 10 ms for the first answer when its objects end, and then send no other.
fn drain(host: &Host) -> Result<()> {
    let bar = host.function.bar(REGISTER_BAR)?;
    let control = |quiesce| -> Result<()> {
        let control = Control { enable: true, reset: false, quiesce };
        bar.write64(REG_CONTROL.offset.into(), u64::from_le_bytes(control.to_bytes()?));
        Ok(())
    };
    control(true)?;
    for _ in 0..DRAIN_MAX {
        host.function.idle();
        let status = Status::parse(&bar.read64(REG_STATUS.offset.into()).to_le_bytes())?;
        ensure!(!status.fatal, "{status:?}");
        if status.drained {
            return control(false);
        }
    }
    anyhow::bail!("the card does not come to rest")
}

/// Runs two cards for this many cycles of the core clock.
pub(crate) fn run(functions: [Arc<dyn Function>; 2], seed: Seed, cycles: usize) -> Result<Moved> {
    let hosts = open(functions, seed)?;
    let mut busy = [Busy::default(); 2];
    let mut random = seed.stream("endurance");
    let mut pairs = connect(&hosts, &mut random)?;
    let numbers: [Vec<u32>; 2] =
        [0, 1].map(|side| pairs.iter().map(|pair| pair[side].queue_pair.number()).collect());
    let mut moved = Moved::default();
    let (mut idle, mut silent) = (0, 0);
    let end = cycles / IDLE_CYCLES as usize;
    while idle < end || pairs.iter().flatten().any(|end| !end.flights.is_empty()) {
        let first = random.random_range(0..PAIRS);
        for side in 0..2 {
            for pair in (0..PAIRS).map(|pair| (pair + first) % PAIRS) {
                while idle < end && pairs[pair][side].post((side, pair), &mut busy[side], &mut random)? {}
            }
        }
        hosts[0].function.idle();
        (idle, silent) = (idle + 1, silent + 1);
        for side in 0..2 {
            for done in hosts[side].poll()? {
                silent = 0;
                let pair = numbers[side].iter().position(|number| *number == done.qp_number);
                let pair = pair.with_context(|| format!("{done:?} belongs to no queue pair"))?;
                let context = || format!("host {side}, pair {pair}");
                let (is_read, length) =
                    pairs[pair][side].complete((side, pair), done).with_context(context)?;
                let busy = &mut busy[side];
                let (busy, sum) = if is_read {
                    (&mut busy.reading, &mut moved.read[side])
                } else {
                    (&mut busy.writing, &mut moved.written[side])
                };
                *busy -= length;
                *sum += length as u64;
            }
        }
        ensure!(silent < TURNS_MAX, "nothing completes any more");
    }
    for (pair, ends) in pairs.iter().enumerate() {
        for side in 0..2 {
            let mut found = vec![0; WINDOW_BYTES];
            ends[side].window.read(0, &mut found)?;
            let expected =
                ends[1 - side].written.iter().enumerate().map(|(place, &is_written)| {
                    if is_written { pattern(side, pair, place) } else { UNTOUCHED }
                });
            ensure!(found.into_iter().eq(expected), "the window of pair {pair}, host {side}");
        }
    }
    for host in &hosts {
        drain(host)?;
        let event = host.device.events().poll()?;
        ensure!(event.is_none(), "{event:?}");
    }
    Ok(moved)
}
