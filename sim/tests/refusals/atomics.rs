//! The reference endpoint executes atomics on the card's memory: after its own WRITEs and before its own READs and SENDs, and
//! with several queue pairs on one word. The results must be the values of the words, one atomic after the other.
use crate::rig::{IPV4, IPV6, PEER_FIRST, PEER_KEY, Rig, Version};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rnic_driver::RemoteRights;
use rnic_endpoint::memory::Sge;
use rnic_endpoint::qp::{Data, Operation, SendWqe};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_stimulus::chance::Seed;

/// QPN of the endpoint on the first queue pair.
const PEER: u32 = 0x36;
/// Words of the card's region.
const WORDS: usize = 12;
/// Bytes before the first word, in a region whose length is no multiple of a word.
const MARGIN: usize = 24;
const BATCHES: u64 = 12;
/// Atomics of a batch, which with a READ and a SEND are fewer than may be in flight.
const ATOMICS: u64 = 9;
/// Queue pairs that share words, and the value that each adds to them.
const SHARERS: u32 = 4;
const ADDS: u64 = 12;
/// Destination of answers in the endpoint's memory: 8 bytes each, and that of the READ after them.
const READ_ROOM: u64 = 0x1000;

pub(crate) fn traffic(rig: &mut Rig) -> Result<()> {
    for (version, pmtu) in [(IPV4, Pmtu::Bytes1024), (IPV6, Pmtu::Bytes256)] {
        batches(rig, version, pmtu).with_context(|| format!("addresses {version}, {pmtu:?}"))?;
    }
    shared_words(rig).context("words that queue pairs share")
}

/// Destination of the answer of an atomic.
fn room(wr_id: u64) -> Data {
    Data::Sges(vec![Sge { address: PEER_FIRST + 8 * wr_id, key: PEER_KEY, length: 8 }])
}

/// Answer of an atomic.
fn answer(rig: &Rig, wr_id: u64) -> u64 {
    rig.endpoint(|endpoint| {
        let bytes = &endpoint.memory().bytes[8 * wr_id as usize..][..8];
        u64::from_le_bytes(bytes.try_into().expect("these are eight"))
    })
}

fn batches(rig: &mut Rig, version: Version, pmtu: Pmtu) -> Result<()> {
    let mut random = Seed(9).stream(&format!("atomics/{version}/{pmtu:?}"));
    let window = rig.domain.share(MARGIN + 8 * WORDS + 3, RemoteRights::ALL)?;
    let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
    let mut queue_pair = rig.connect_to_endpoint(queue_pair, PEER, version, pmtu, 0xff_ffc0)?;
    let remote = window.remote();
    let place = |word: usize| remote.address + (MARGIN + 8 * word) as u64;
    let mut model = [0u64; WORDS];
    for batch in 0..BATCHES {
        let receive = rig.receive_request(batch);
        queue_pair.post_receive(receive)?;
        rig.device.check()?;
        // A WRITE that the atomics must see.
        let written = random.random_range(0..WORDS - 2);
        let bytes: Vec<u8> = (0..24).map(|_| random.random()).collect();
        for (word, bytes) in model[written..].iter_mut().zip(bytes.chunks(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("these are eight"));
        }
        let mut work = vec![SendWqe::new(
            0,
            Operation::Write { address: place(written), key: remote.key },
            Data::Inline(bytes),
        )];
        let mut expected = Vec::new();
        for wr_id in 1..=ATOMICS {
            // Often the same word again.
            let word = if random.random_bool(0.6) { written } else { random.random_range(0..WORDS) };
            let before = model[word];
            let (address, key) = (place(word), remote.key);
            let operation = if random.random() {
                let compare = if random.random_bool(0.7) { before } else { random.random() };
                let swap = random.random();
                if compare == before {
                    model[word] = swap;
                }
                Operation::CompareSwap { address, key, swap, compare }
            } else {
                let add = random.random();
                model[word] = before.wrapping_add(add);
                Operation::FetchAdd { address, key, add }
            };
            expected.push((operation.completion_opcode(), before));
            work.push(SendWqe::new(wr_id, operation, room(wr_id)));
        }
        // And a READ of all of them, which must see what they did.
        let length = (8 * WORDS) as u32;
        let sge = Sge { address: PEER_FIRST + READ_ROOM, key: PEER_KEY, length };
        let read = Operation::Read { address: place(0), key: remote.key };
        work.push(SendWqe::new(ATOMICS + 1, read, Data::Sges(vec![sge])));
        work.push(SendWqe::new(ATOMICS + 2, Operation::Send, Data::Inline(vec![7; 20])));
        let count = work.len();
        rig.endpoint(|endpoint| work.into_iter().for_each(|work| endpoint.post_send(PEER, work)));
        let mut theirs = Vec::new();
        rig.wait("the batch", |rig| {
            rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
            Ok((theirs.len() >= count).then_some(()))
        })
        .with_context(|| format!("batch {batch}"))?;
        ensure!(theirs.iter().all(|done| done.status == CompletionStatus::Success), "{theirs:?}");
        ensure!(theirs.iter().map(|done| done.wr_id).eq(0..=ATOMICS + 2), "in order: {theirs:?}");
        let told = (1..=ATOMICS).map(|wr_id| (theirs[wr_id as usize].opcode, answer(rig, wr_id)));
        let told: Vec<(CompletionOpcode, u64)> = told.collect();
        ensure!(told == expected, "batch {batch}: {told:x?}, not {expected:x?}");
        let seen =
            rig.endpoint(|endpoint| endpoint.memory().bytes[READ_ROOM as usize..][..8 * WORDS].to_vec());
        let bytes: Vec<u8> = model.iter().flat_map(|word| word.to_le_bytes()).collect();
        ensure!(seen == bytes, "batch {batch}: a READ after the atomics sees {seen:x?}, not {bytes:x?}");
        let mut there = vec![0; bytes.len()];
        window.read(MARGIN, &mut there)?;
        ensure!(there == bytes, "batch {batch}: {there:x?}, not {bytes:x?}");
        rig.wait("the receive", |rig| Ok((!rig.completions()?.is_empty()).then_some(())))?;
    }
    let mut around = vec![0; MARGIN];
    window.read(0, &mut around)?;
    window.read(MARGIN + 8 * WORDS, &mut around[..3])?;
    ensure!(around.iter().all(|&byte| byte == 0), "nothing else is written: {around:x?}");
    let moved = rig.moved()?.named();
    ensure!(moved.is_empty(), "legal traffic moves {moved:?}");
    drop(queue_pair);
    rig.completions()?;
    Ok(())
}

/// Several queue pairs increment two words, which may share a lock: no increment is lost, and each value is returned once.
fn shared_words(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(64, RemoteRights::ALL)?;
    let remote = window.remote();
    let mut queue_pairs = Vec::new();
    for number in 0..SHARERS {
        let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
        queue_pairs.push(rig.connect_to_endpoint(queue_pair, PEER + 1 + number, IPV4, Pmtu::Bytes1024, 9)?);
    }
    let tag_of = |number: u32, turn: u64| 1 + u64::from(number) * ADDS + turn;
    rig.endpoint(|endpoint| {
        for turn in 0..ADDS {
            for number in 0..SHARERS {
                let address = remote.address + 8 * (turn % 2);
                let operation = Operation::FetchAdd { address, key: remote.key, add: 1 };
                let wr_id = tag_of(number, turn);
                endpoint.post_send(PEER + 1 + number, SendWqe::new(wr_id, operation, room(wr_id)));
            }
        }
    });
    let mut done = 0;
    rig.wait("all counts", |rig| {
        for number in 0..SHARERS {
            while let Some(completion) = rig.endpoint(|endpoint| endpoint.poll(PEER + 1 + number)) {
                ensure!(completion.status == CompletionStatus::Success, "{completion:?}");
                done += 1;
            }
        }
        Ok((done == u64::from(SHARERS) * ADDS).then_some(()))
    })?;
    let count = u64::from(SHARERS) * ADDS / 2;
    for word in 0..2 {
        let mut told: Vec<u64> = Vec::new();
        for number in 0..SHARERS {
            let turns = (word..ADDS).step_by(2).map(|turn| answer(rig, tag_of(number, turn)));
            let turns: Vec<u64> = turns.collect();
            ensure!(turns.is_sorted(), "those of a queue pair are done in order: {turns:?}");
            told.extend(turns);
        }
        told.sort_unstable();
        ensure!(told.iter().copied().eq(0..count), "each count is returned once: {told:?}");
        let mut bytes = [0; 8];
        window.read(8 * word as usize, &mut bytes)?;
        ensure!(u64::from_le_bytes(bytes) == count, "{bytes:?}");
    }
    let moved = rig.moved()?.named();
    ensure!(moved.is_empty(), "legal traffic moves {moved:?}");
    drop(queue_pairs);
    rig.completions()?;
    Ok(())
}
