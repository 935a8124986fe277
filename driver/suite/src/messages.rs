//! Messages between two queue pairs. Every byte is compared.

use crate::cards::{Cards, End, Pair, PairOptions, connect, memory, next, pattern, same, until};
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::{
    CompletionQueueOptions, Error, FunctionError, PageSize, ProtectionDomain, QueuePairOptions,
    ReceiveRequest, Region, RemoteRights, SendRequest, SharedReceiveQueueOptions, UserMemory,
};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionOpcode;
use rnic_layout::queue::event::AsyncEvent;

/// Lengths around the sizes of inline data, of packets and of several packets.
const LENGTHS: [usize; 12] = [0, 1, 31, 33, 255, 256, 257, 4095, 4096, 4097, 8192, 20_001];

/// Sends one message from end 0 to end 1, and compares it.
fn send(pair: &mut Pair, salt: usize, length: usize) -> Result<()> {
    let bytes = pattern(salt, length);
    pair.receive(1, 1000 + salt as u64, length)?;
    let mut request = SendRequest::send(salt as u64).signalled();
    if length != 0 {
        request = request.sge(pair.memory(0, &bytes)?);
    }
    pair.post(0, request)?;
    let what = format!("a message of {length} bytes");
    let received = pair.success(1).with_context(|| what.clone())?;
    ensure!(received.is_receive() && received.wr_id == 1000 + salt as u64, "{received:?}");
    same(&what, &received.message(), &bytes)?;
    let sent = pair.success(0).with_context(|| what.clone())?;
    ensure!((sent.wr_id, sent.opcode) == (salt as u64, CompletionOpcode::Send), "{sent:?}");
    Ok(())
}

pub(crate) fn sends(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    LENGTHS.iter().enumerate().try_for_each(|(salt, &length)| send(&mut pair, salt, length))
}

pub(crate) fn scatter_gather(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    let limits = pair.ends[0].card.device.limits().queues;
    for pieces in 1..=limits.send_sges.into() {
        let length = 101 * pieces;
        let bytes = pattern(pieces, length);
        let mut receive = ReceiveRequest::new(1);
        for _ in 0..limits.receive_sges {
            receive = receive.sge(pair.ends[1].domain.allocate(length.div_ceil(limits.receive_sges.into()))?);
        }
        pair.ends[1].queue_pair.post_receive(receive)?;
        let mut request = SendRequest::send(2).signalled();
        for piece in bytes.chunks(101) {
            request = request.sge(pair.memory(0, piece)?);
        }
        pair.post(0, request)?;
        same(&format!("a message of {pieces} pieces"), &pair.success(1)?.message(), &bytes)?;
        pair.success(0)?;
    }
    Ok(())
}

pub(crate) fn inline(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    let most = pair.ends[0].card.device.limits().queues.inline_bytes.into();
    for length in [0, 1, 32, 33, most] {
        let bytes = pattern(length, length);
        pair.receive(1, 1, most)?;
        pair.post(0, SendRequest::send(2).inline(&bytes).signalled())?;
        same(&format!("{length} inline bytes"), &pair.success(1)?.message(), &bytes)?;
        pair.success(0)?;
    }
    let beyond = SendRequest::send(3).inline(&vec![0; most + 1]);
    ensure!(pair.post(0, beyond).is_err(), "{} inline bytes were posted", most + 1);
    Ok(())
}

pub(crate) fn immediates(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    let target = pair.ends[1].domain.share(64, RemoteRights::WRITE)?;
    pair.receive(1, 1, 16)?;
    pair.receive(1, 2, 0)?;
    pair.post(0, SendRequest::send_immediate(3, *b"sent").inline(b"message"))?;
    pair.post(0, SendRequest::write_immediate(4, target.remote(), *b"done").inline(b"written").signalled())?;
    let received = pair.success(1)?;
    ensure!((received.wr_id, received.immediate) == (1, Some(*b"sent")), "{received:?}");
    same("the message of the SEND", &received.message(), b"message")?;
    let received = pair.success(1)?;
    ensure!((received.wr_id, received.immediate) == (2, Some(*b"done")), "{received:?}");
    ensure!(received.opcode == CompletionOpcode::ReceiveWrite && received.length == 7, "{received:?}");
    let mut written = [0; 7];
    target.read(0, &mut written)?;
    same("the payload of the WRITE", &written, b"written")?;
    // The SEND is not signalled, and completes with the WRITE.
    ensure!(pair.success(0)?.wr_id == 3 && pair.success(0)?.wr_id == 4);
    Ok(())
}

pub(crate) fn writes(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    const ROOM: usize = 24 << 10;
    let target = pair.ends[1].domain.share(ROOM, RemoteRights::WRITE)?;
    for (salt, &length) in LENGTHS.iter().enumerate() {
        target.write(0, &[0xee; ROOM])?;
        let offset = 13 * salt;
        let bytes = pattern(salt, length);
        let remote = target.remote().part(offset as u64, length as u64).context("the target is longer")?;
        let mut request = SendRequest::write(1, remote).signalled();
        if length != 0 {
            request = request.sge(pair.memory(0, &bytes)?);
        }
        pair.post(0, request)?;
        let done = pair.success(0).with_context(|| format!("a WRITE of {length} bytes"))?;
        ensure!(done.opcode == CompletionOpcode::Write, "{done:?}");
        let mut expected = vec![0xee; ROOM];
        expected[offset..offset + length].copy_from_slice(&bytes);
        let mut found = vec![0; ROOM];
        target.read(0, &mut found)?;
        same(&format!("the memory after a WRITE of {length} bytes at {offset}"), &found, &expected)?;
    }
    Ok(())
}

pub(crate) fn reads(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    const ROOM: usize = 24 << 10;
    let source = pair.ends[1].domain.share(ROOM, RemoteRights { read: true, ..RemoteRights::NONE })?;
    let bytes = pattern(5, ROOM);
    source.write(0, &bytes)?;
    // All of them at once, as many as may be in flight and more.
    for (salt, &length) in LENGTHS.iter().enumerate() {
        let remote = source.remote().part(7 * salt as u64, length as u64).context("the source is longer")?;
        let mut request = SendRequest::read(salt as u64, remote).signalled();
        if length != 0 {
            request = request.sge(pair.memory(0, &vec![0xee; length])?);
        }
        pair.post(0, request)?;
    }
    for (salt, &length) in LENGTHS.iter().enumerate() {
        let read = pair.success(0).with_context(|| format!("a READ of {length} bytes"))?;
        ensure!((read.wr_id, read.opcode) == (salt as u64, CompletionOpcode::Read), "{read:?}");
        same(&format!("a READ of {length} bytes"), &read.message(), &bytes[7 * salt..7 * salt + length])?;
    }
    Ok(())
}

pub(crate) fn atomics(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    let cells = pair.ends[1].domain.share(24, RemoteRights { atomic: true, ..RemoteRights::NONE })?;
    cells.write(8, &7u64.to_le_bytes())?;
    let remote = cells.remote().part(8, 8).context("a cell")?;
    for (request, original, result) in [
        (SendRequest::fetch_add(1, remote, u64::MAX), 7, 6),
        (SendRequest::compare_swap(2, remote, 6, 0x0102_0304_0506_0708), 6, 0x0102_0304_0506_0708),
        (SendRequest::compare_swap(3, remote, 6, 9), 0x0102_0304_0506_0708, 0x0102_0304_0506_0708),
    ] {
        let (operation, room) = (request.operation, pair.ends[0].domain.allocate(8)?);
        pair.post(0, request.sge(room).signalled())?;
        let done = pair.success(0)?;
        ensure!(done.original() == Some(original), "{operation:?} brings {:?}", done.original());
        let mut found = [0; 24];
        cells.read(0, &mut found)?;
        let expected = [[0; 8], u64::to_le_bytes(result), [0; 8]].concat();
        same(&format!("the cell and its neighbours after {operation:?}"), &found, &expected)?;
    }
    Ok(())
}

pub(crate) fn invalidation(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    let regions = [(); 2].map(|()| pair.ends[1].domain.share_invalidatable(8, RemoteRights::ALL));
    let [by_peer, by_owner] = regions;
    let (by_peer, by_owner) = (by_peer?, by_owner?);
    let key = by_peer.remote().key;
    pair.receive(1, 1, 4)?;
    pair.post(0, SendRequest::write(2, by_peer.remote()).inline(b"before").signalled())?;
    pair.post(0, SendRequest::send_invalidate(3, key).inline(b"end").signalled())?;
    let received = pair.success(1)?;
    ensure!(received.invalidated == Some(key) && received.immediate.is_none(), "{received:?}");
    pair.success(0)?;
    pair.success(0)?;
    pair.post(1, SendRequest::local_invalidate(4, by_owner.remote().key).signalled())?;
    ensure!(pair.success(1)?.opcode == CompletionOpcode::LocalInvalidate);
    pair.post(0, SendRequest::write(5, by_owner.remote()).inline(b"behind").signalled())?;
    let done = pair.next(0)?;
    ensure!(!done.is_success(), "a WRITE with an invalid key succeeded");
    let mut found = [0; 8];
    by_owner.read(0, &mut found)?;
    same("memory of an invalid key", &found, &[0; 8])?;
    by_peer.read(0, &mut found)?;
    same("memory that was written before its key ended", &found, b"before\0\0")
}

pub(crate) fn region_kinds(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    // Of two pages, and of more than a page list of the smallest pages needs to be one.
    for (salt, bytes) in [5000, 150_000].into_iter().enumerate() {
        let domain = &pair.ends[1].domain;
        let targets = [
            ("shared", domain.share(bytes, RemoteRights::ALL)?),
            ("invalidatable", domain.share_invalidatable(bytes, RemoteRights::ALL)?),
        ];
        for (kind, target) in targets {
            let sent = pattern(salt, bytes);
            let what = format!("a {kind} region of {bytes} bytes");
            pair.post(0, SendRequest::write(1, target.remote()).sge(pair.memory(0, &sent)?))?;
            let room = pair.ends[0].domain.allocate(bytes)?;
            pair.post(0, SendRequest::read(2, target.remote()).sge(room).fence().signalled())?;
            pair.success(0).with_context(|| format!("WRITE to {what}"))?;
            let read = pair.success(0).with_context(|| format!("READ from {what}"))?;
            same(&format!("READ from {what}"), &read.message(), &sent)?;
            let mut found = vec![0; bytes];
            target.read(0, &mut found)?;
            same(&what, &found, &sent)?;
        }
    }
    Ok(())
}

/// Registers a vector, or, where the card is in another process, memory of a file with the same bytes.
fn register(domain: &ProtectionDomain, bytes: Vec<u8>) -> Result<Region> {
    let refused = match domain.register(bytes) {
        Ok(region) => return Ok(region),
        Err(refused) => refused,
    };
    let (Error::Function(FunctionError::NotShared { .. }), Some(bytes)) = (&refused.error, refused.memory)
    else {
        bail!("a vector cannot be registered: {}", refused.error);
    };
    let mut memory = UserMemory::in_file(bytes.len(), PageSize::Base)?;
    memory[..bytes.len()].copy_from_slice(&bytes);
    let region = domain.register(memory).map_err(Error::from)?;
    let (region, rest) = region.split_at(bytes.len()).map_err(|_| anyhow::anyhow!("a page is too short"))?;
    // The memory stays registered until both parts have gone.
    drop(rest);
    Ok(region)
}

pub(crate) fn user_memory(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    for (salt, length) in LENGTHS.into_iter().enumerate().filter(|&(_, length)| length != 0) {
        let bytes = pattern(salt, length);
        let what = format!("a message of {length} bytes of the application");
        let room = register(&pair.ends[1].domain, vec![0xee; length + 1])?;
        let receive = ReceiveRequest::new(1).sge(room);
        pair.ends[1].queue_pair.post_receive(receive)?;
        let region = register(&pair.ends[0].domain, bytes.clone())?;
        pair.post(0, SendRequest::send(2).sge(region).signalled())?;
        let mut received = pair.success(1).with_context(|| what.clone())?;
        same(&what, &received.message(), &bytes)?;
        let room = received.sg_list.pop().context("the completion returns the memory")?;
        ensure!(room.bytes()[length] == 0xee, "{what}: the byte behind it has changed");
        if let Ok(memory) = room.release() {
            same(&what, &memory[..length], &bytes)?;
        }
        pair.success(0)?;
    }
    Ok(())
}

pub(crate) fn path_mtus(cards: &Cards) -> Result<()> {
    let both = cards.open_both()?;
    for path_mtu in Pmtu::ALL {
        let mut pair = Pair::of(both.clone(), &PairOptions { path_mtu, ..PairOptions::default() })?;
        let payload = path_mtu.bytes() as usize;
        let before = both[0].device.counters()?;
        for (salt, length) in [payload - 1, payload, payload + 1, 3 * payload].into_iter().enumerate() {
            send(&mut pair, salt, length).with_context(|| format!("path MTU {payload}"))?;
        }
        // Of the messages: one packet, one, two and three. A peer on the same card sends acknowledgements besides.
        let frames = both[0].counted(&before, "frames_sent")?;
        ensure!(frames >= 7, "{frames} frames carried 7 packets of a path MTU of {payload}");
    }
    Ok(())
}

pub(crate) fn addresses(cards: &Cards) -> Result<()> {
    let both = cards.open_both()?;
    for address in [0, 1] {
        let mut pair = Pair::of(both.clone(), &PairOptions { address, ..PairOptions::default() })?;
        send(&mut pair, address.into(), 5000).with_context(|| format!("source address {address}"))?;
    }
    Ok(())
}

pub(crate) fn shared_receives(cards: &Cards) -> Result<()> {
    let [first, second] = cards.open_both()?;
    let domains = [first.device.create_protection_domain()?, second.device.create_protection_domain()?];
    let completions = [
        first.completion_queue(&first.device.events())?,
        second.device.create_completion_queue(
            &second.device.events(),
            &CompletionQueueOptions { entries_log2: 8, ..CompletionQueueOptions::default() },
        )?,
    ];
    let shared = domains[1].create_shared_receive_queue(&SharedReceiveQueueOptions::default())?;
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let options = QueuePairOptions::default();
        let from = domains[0].create_queue_pair(&completions[0], &completions[0], &options)?;
        let to =
            domains[1].create_queue_pair_with_srq(&completions[1], &completions[1], &shared, &options)?;
        let queue_pairs = [from.initialize(RemoteRights::ALL)?, to.initialize(RemoteRights::ALL)?];
        pairs.push(connect(queue_pairs, &PairOptions::default())?);
    }
    const COUNT: usize = 12;
    for wr_id in 0..COUNT as u64 {
        let request = ReceiveRequest::new(wr_id).sge(domains[1].allocate(600)?);
        shared.post_receive(request)?;
    }
    shared.set_limit(4)?;
    for count in 0..COUNT {
        let bytes = pattern(count, 50 * count);
        let [from, to] = &mut pairs[count % 2];
        let request = SendRequest::send(count as u64).sge(memory(&domains[0], &bytes)?).signalled();
        from.post_send(request)?;
        let received = next(&completions[1], &second)?;
        ensure!(received.is_success() && received.wr_id == count as u64, "{received:?}");
        ensure!(received.qp_number == to.number(), "the receive is that of another queue pair");
        // A message of no bytes is sent from memory of one.
        same("a message to the SRQ", &received.message()[..bytes.len()], &bytes)?;
        ensure!(next(&completions[0], &first)?.is_success());
    }
    second.event(AsyncEvent::SharedReceiveLimit, shared.number())?;
    ensure!(shared.in_flight() == 0, "{} receives are left", shared.in_flight());
    Ok(())
}

pub(crate) fn both_directions(cards: &Cards) -> Result<()> {
    const COUNT: u64 = 300;
    const AT_ONCE: u64 = 24;
    const BYTES: usize = 500;
    let mut pair = Pair::open(cards)?;
    let mut posted = [0; 2];
    let mut sent = [0; 2];
    let mut received = [0; 2];
    // Memory that has come back with completions, of each end.
    let mut free: [Vec<Region>; 2] = Default::default();
    let card = pair.ends[0].card.clone();
    until(&card, "messages in both directions", || {
        for end in 0..2 {
            while posted[end] < COUNT && posted[end] < received[1 - end].min(sent[end]) + AT_ONCE {
                let number: u64 = posted[end];
                let mut memory =
                    |end: usize| free[end].pop().map_or_else(|| pair.ends[end].domain.allocate(BYTES), Ok);
                let (mut from, to) = (memory(end)?, memory(1 - end)?);
                from.bytes_mut().copy_from_slice(&pattern(number as usize, BYTES));
                let receive = ReceiveRequest::new(number).sge(to);
                pair.ends[1 - end].queue_pair.post_receive(receive)?;
                let request = SendRequest::send(number).sge(from);
                let is_signalled = number % 4 == 3 || number == COUNT - 1;
                pair.post(end, if is_signalled { request.signalled() } else { request })?;
                posted[end] += 1;
            }
        }
        for end in 0..2 {
            while let Some(done) = pair.ends[end].completions.poll_one()? {
                ensure!(
                    done.is_success(),
                    "end {end}: request {} failed: {}",
                    done.wr_id,
                    done.status.name()
                );
                let count = if done.is_receive() { &mut received[end] } else { &mut sent[end] };
                ensure!(
                    done.wr_id == *count,
                    "end {end}: request {} completes instead of {count}",
                    done.wr_id
                );
                *count += 1;
                if done.is_receive() {
                    same("a message", &done.message(), &pattern(done.wr_id as usize, BYTES))?;
                }
                free[end].extend(done.sg_list);
            }
        }
        Ok((sent == [COUNT; 2] && received == [COUNT; 2]).then_some(()))
    })
}

pub(crate) fn draining(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    pair.receive(1, 1, 8)?;
    pair.receive(1, 2, 8)?;
    pair.post(0, SendRequest::send(3).inline(b"before").signalled())?;
    let Pair { ends: [first, second] } = pair;
    let End { queue_pair, completions, domain, card } = first;
    let mut drained = queue_pair.drain(true)?;
    card.event(AsyncEvent::SendQueueDrained, drained.number())?;
    ensure!(!drained.is_draining()?, "drained, and in flight");
    drained.post_send(SendRequest::send(4).inline(b"behind").signalled())?;
    let queue_pair = drained.resume()?;
    let pair = Pair { ends: [End { queue_pair, completions, domain, card }, second] };
    for (wr_id, text) in [(1, b"before"), (2, b"behind")] {
        let received = pair.success(1)?;
        ensure!(received.wr_id == wr_id);
        same("a message", &received.message(), text)?;
        ensure!(pair.success(0)?.wr_id == wr_id + 2);
    }
    Ok(())
}

pub(crate) fn reopening(cards: &Cards) -> Result<()> {
    for salt in 0..3 {
        let mut pair = Pair::open(cards).with_context(|| format!("opened for the {}. time", salt + 1))?;
        send(&mut pair, salt, 3000)?;
        let target = pair.ends[1].domain.share(40_000, RemoteRights::WRITE)?;
        for wr_id in 0..8 {
            pair.receive(1, wr_id, 64)?;
            pair.post(
                0,
                SendRequest::write(wr_id, target.remote()).sge(pair.memory(0, &pattern(salt, 40_000))?),
            )?;
        }
        // Everything ends while it is in flight.
    }
    Ok(())
}
