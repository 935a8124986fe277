//! Regions that the driver does not create: page lists in any order, with the first byte anywhere in the first page; and regions
//! that are changed, also while a peer writes to them (protocol 4.6).
use crate::rig::{IPV4, PEER_FIRST, PEER_KEY, Rig, ensure_same};
use anyhow::{Context, Result, ensure};
use rnic_driver::memory::Purpose;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{Function, Memory, QueuePair, RemoteRights, SharedReceiveQueue, SharedReceiveQueueOptions};
use rnic_endpoint::memory::Sge;
use rnic_endpoint::qp::{Data, Operation, SendWqe};
use rnic_layout::admin::{
    Body, Command, CommandHeader, CommandOpcode, CreateRegion, ModifyRegion, RegionKind, Translation,
};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The endpoint's side.
const PEER: u32 = 0x36;
/// Bytes of the region, and its first address; no power of two divides them.
const BYTES: usize = 30_001;
const FIRST_ADDRESS: u64 = 0x1234_5679;
/// Offsets and lengths of the endpoint's WRITEs: across one page boundary, across several, across none, and at both ends.
const WRITES: [(usize, usize); 6] =
    [(2800, 100), (1, 9000), (12_000, 64), (0, 1), (BYTES - 5000, 5000), (20_000, 4097)];
/// WRITEs while the region is changed: of one packet each, so far from each other.
const LATE_WRITES: usize = 16;
const LATE_BYTES: usize = 700;
const LATE_STEP: usize = 1800;

/// Pages of the host, and the page list for the card.
struct Pages {
    memory: Arc<Memory>,
    /// Offsets of the pages in `memory`, in the order of the list.
    places: Vec<usize>,
    list: u64,
    log2: u8,
    first_offset: usize,
    _list: Arc<Memory>,
}

impl Pages {
    fn new(rig: &Rig, log2: u8, first_offset: usize) -> Result<Pages> {
        let size = 1 << log2;
        let count = (first_offset + BYTES).div_ceil(size);
        let memory = rig.tamper.allocate((count + 1) * size, Purpose::Payload)?;
        let address = rig.tamper.map(&memory)?;
        let gap = address.next_multiple_of(size as u64) - address;
        // From the last one to the first one, but for two.
        let mut places: Vec<usize> = (0..count).rev().map(|page| gap as usize + page * size).collect();
        places.swap(0, 1);
        let list = rig.tamper.allocate(4096, Purpose::Ring)?;
        let view = list.device_view();
        for (index, &place) in places.iter().enumerate() {
            view.write(8 * index, &(address + place as u64).to_le_bytes())?;
        }
        let pages = Pages { memory, places, list: rig.tamper.map(&list)?, log2, first_offset, _list: list };
        pages.memory.device_view().write(0, &vec![0; (count + 1) * size])?;
        Ok(pages)
    }

    /// All bytes of the region.
    fn bytes(&self) -> Result<Vec<u8>> {
        let size = 1 << self.log2;
        let mut pages = vec![0; self.places.len() * size];
        for (page, &place) in pages.chunks_exact_mut(size).zip(&self.places) {
            self.memory.device_view().read(place, page)?;
        }
        Ok(pages[self.first_offset..][..BYTES].to_vec())
    }
}

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|place| (place * 11 + place / 256 + seed * 29 + 1) as u8).collect()
}

/// A region that the driver has not created.
struct Odd {
    key: u32,
    /// Object of the driver's commands that the interposer replaces.
    queue: SharedReceiveQueue,
}

impl Odd {
    fn execute(&self, rig: &Rig, opcode: CommandOpcode, body: Body) -> Result<()> {
        let command = Command { header: CommandHeader { opcode, tag: 0, object_number: self.key }, body };
        rig.interposer.replace_next(command.to_bytes()?);
        self.queue.set_limit(0)?;
        let answer = rig.interposer.answer()?;
        ensure!(answer.opcode == opcode.number() && answer.object_number == self.key, "{answer:?}");
        Ok(())
    }

    fn new(rig: &Rig, pages: &Pages) -> Result<Odd> {
        let queue = rig.domain.create_shared_receive_queue(&SharedReceiveQueueOptions::default())?;
        // An index that no other region has.
        let odd = Odd { key: rig.domain.allocate(1)?.key() ^ 0x15533, queue };
        let region = CreateRegion {
            kind: RegionKind::Region,
            local_write: true,
            remote_write: true,
            remote_read: true,
            translation: Translation::PageList,
            page_log2: pages.log2,
            domain: rig.domain.number(),
            first_address: FIRST_ADDRESS,
            length: BYTES as u64,
            translation_base: pages.list,
            first_offset: pages.first_offset as u32,
            first_entry: 100,
            ..CreateRegion::at_reset()
        };
        odd.execute(rig, CommandOpcode::CreateRegion, Body::CreateRegion(region))?;
        Ok(odd)
    }

    /// Replaces the pages by others, with other entries of the card's page table.
    fn translate(&self, rig: &Rig, pages: &Pages, first_entry: u16) -> Result<()> {
        let region = ModifyRegion {
            change_translation: true,
            translation: Translation::PageList,
            page_log2: pages.log2,
            first_address: FIRST_ADDRESS,
            length: BYTES as u64,
            translation_base: pages.list,
            first_offset: pages.first_offset as u32,
            first_entry,
            ..ModifyRegion::at_reset()
        };
        self.execute(rig, CommandOpcode::ModifyRegion, Body::ModifyRegion(region))
    }

    fn write(&self, wr_id: u64, place: usize, bytes: Vec<u8>) -> SendWqe {
        let operation = Operation::Write { address: FIRST_ADDRESS + place as u64, key: self.key };
        SendWqe::new(wr_id, operation, Data::Inline(bytes))
    }

    /// The endpoint writes at all these offsets, and reads the data back.
    fn traffic(&self, rig: &mut Rig, seed: usize, pages: &Pages, model: &mut [u8]) -> Result<()> {
        let _queue_pair = connect(rig)?;
        for (number, (place, length)) in WRITES.into_iter().enumerate() {
            let bytes = bytes(seed + number, length);
            model[place..][..length].copy_from_slice(&bytes);
            rig.endpoint(|endpoint| endpoint.post_send(PEER, self.write(0, place, bytes)));
        }
        self.read(rig, model)?;
        ensure_same(&pages.bytes()?, model)
    }

    /// The endpoint reads the whole region, after all other messages.
    fn read(&self, rig: &mut Rig, model: &[u8]) -> Result<()> {
        let sge = Sge { address: PEER_FIRST + 3, key: PEER_KEY, length: BYTES as u32 };
        let read = Operation::Read { address: FIRST_ADDRESS, key: self.key };
        rig.endpoint(|endpoint| {
            endpoint.memory().bytes[..BYTES + 3].fill(0);
            endpoint.post_send(PEER, SendWqe::new(1, read, Data::Sges(vec![sge])));
        });
        let mut theirs = Vec::new();
        rig.wait("the READ", |rig| {
            rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
            Ok(theirs.iter().any(|done| done.wr_id == 1).then_some(()))
        })?;
        ensure!(theirs.iter().all(|done| done.status == CompletionStatus::Success), "{theirs:?}");
        rig.endpoint(|endpoint| ensure_same(&endpoint.memory().bytes[3..][..BYTES], model))
    }

    /// The region moves while the endpoint writes: each WRITE is either in the old or in the new place, and all after the first
    /// one in the new place; or it is refused, with all that follow.
    fn moves(&self, rig: &mut Rig, old: &Pages, new: &Pages) -> Result<()> {
        let _queue_pair = connect(rig)?;
        rig.endpoint(|endpoint| {
            for number in 0..LATE_WRITES {
                let bytes = bytes(100 + number, LATE_BYTES);
                endpoint.post_send(PEER, self.write(number as u64, number * LATE_STEP, bytes));
            }
        });
        self.translate(rig, new, 300)?;
        let mut theirs = Vec::new();
        rig.wait("the WRITEs", |rig| {
            rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
            Ok((theirs.len() >= LATE_WRITES).then_some(()))
        })?;
        let good = theirs.iter().take_while(|done| done.status == CompletionStatus::Success).count();
        for (place, done) in theirs.iter().enumerate().skip(good) {
            let is_first = place == good;
            let status = if is_first { CompletionStatus::RemoteAccess } else { CompletionStatus::Flushed };
            ensure!(done.status == status, "{theirs:?}");
        }
        let (before, after) = (old.bytes()?, new.bytes()?);
        let mut has_moved = false;
        for number in 0..LATE_WRITES {
            let is_in =
                |found: &[u8]| found[number * LATE_STEP..][..LATE_BYTES] == bytes(100 + number, LATE_BYTES);
            let found = [is_in(&before), is_in(&after)];
            has_moved |= found[1];
            let expected = [number < good && !has_moved, number < good && has_moved];
            ensure!(found == expected, "WRITE {number} of {good} that were acknowledged: {found:?}");
        }
        while rig.event()?.is_some() {}
        rig.settle()
    }

    /// Peers may read from now on, and not write.
    fn closes(&self, rig: &mut Rig, pages: &Pages) -> Result<()> {
        let rights = ModifyRegion {
            change_rights: true,
            local_write: true,
            remote_read: true,
            ..ModifyRegion::at_reset()
        };
        self.execute(rig, CommandOpcode::ModifyRegion, Body::ModifyRegion(rights))?;
        let model = pages.bytes()?;
        let queue_pair = connect(rig)?;
        self.read(rig, &model)?;
        rig.moved()?;
        rig.endpoint(|endpoint| endpoint.post_send(PEER, self.write(2, 77, vec![0x5a; 300])));
        let theirs = rig.wait("the WRITE", |rig| Ok(rig.endpoint(|endpoint| endpoint.poll(PEER))))?;
        ensure!((theirs.wr_id, theirs.status) == (2, CompletionStatus::RemoteAccess), "{theirs:?}");
        let event = rig.wait("the event", |rig| rig.event())?;
        let found = (event.object_number, event.code);
        ensure!(found == (queue_pair.number(), AsyncEvent::QueuePairAccessError), "{event:?}");
        let moved = rig.moved()?.named();
        let expected = BTreeMap::from([("nak_access_sent", 1), ("remote_protection", 1)]);
        ensure!(moved == expected, "counters: {moved:?}, expected {expected:?}");
        ensure_same(&pages.bytes()?, &model)
    }
}

fn connect(rig: &mut Rig) -> Result<QueuePair<ReadyToSend>> {
    let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
    rig.connect_to_endpoint(queue_pair, PEER, IPV4, Pmtu::Bytes1024, 9)
}

pub(crate) fn regions(rig: &mut Rig) -> Result<()> {
    let (first, second, third) =
        (Pages::new(rig, 12, 1237)?, Pages::new(rig, 13, 8191)?, Pages::new(rig, 12, 0)?);
    let odd = Odd::new(rig, &first)?;
    odd.traffic(rig, 0, &first, &mut vec![0; BYTES]).context("made")?;
    odd.translate(rig, &second, 200)?;
    let before = first.bytes()?;
    odd.traffic(rig, 10, &second, &mut vec![0; BYTES]).context("changed")?;
    ensure_same(&first.bytes()?, &before)?;
    odd.moves(rig, &second, &third).context("changed under a peer")?;
    odd.closes(rig, &third).context("closed")?;
    odd.execute(rig, CommandOpcode::DestroyRegion, Body::Destroy)?;
    rig.settle()
}
