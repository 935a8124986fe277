//! A card of a world as a PCI function: its regions, its mappings, its interrupts, its reset.
//!
//! | Region | What |
//! |---|---|
//! | BAR 0, BAR 2 | registers and doorbells of the card. One access of 1, 2, 4 or 8 bytes, aligned to its size, as on the bus. Without memory enabled in the configuration space, and where the card refuses, reads are all ones and writes are lost |
//! | BAR 4 | table and pending bits of MSI-X. The table is kept for the client; eventfds are signalled whatever it says |
//! | 7 | configuration space |
//!
//! A card that is not bus master reaches no memory and raises no interrupt. A vector that is raised while it has no eventfd is
//! pending, and is signalled as soon as it has one.
//!
//! A reset, and the end of many mappings, take longer than a round of the server: they are [`Work`], which goes on in each round
//! until it is done.
use super::memory::{ClientMemory, Withheld};
use super::message::{CONFIG_REGION, Map, Refusal, Unmap};
use super::session::Device;
use crate::config_space::{ConfigSpace, Effect};
use crate::host::{Access, Backing, Bar, BufferId, MemoryError, Operation, RegisterAccess};
use crate::world::{FunctionReset, World};
use rnic_layout::limits::INTERRUPT_VECTORS_MAX;
use rnic_layout::pci::{
    CONFIG_BYTES, DOORBELL_BAR, MSIX_BAR, MSIX_ENTRY_BYTES, MSIX_PENDING_OFFSET, MSIX_TABLE_OFFSET,
    REGISTER_BAR, bar,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::fs::read_link;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Simulated time within which a register access is answered.
const ACCESS_PS_MAX: u64 = 100_000_000;
/// Mappings of one client.
const MAPPINGS_MAX: usize = 16_384;
/// Time for which mappings are ended in one round of the server.
const ENDING: Duration = Duration::from_micros(500);
/// Serial number of card 0, a locally administered EUI-64. The others count on.
const FIRST_SERIAL: u64 = 0x0200_00ff_fe00_0000;
/// Bytes of the table of MSI-X.
const TABLE_BYTES: usize = (INTERRUPT_VECTORS_MAX * MSIX_ENTRY_BYTES) as usize;

// The pending bits are one word.
const _: () = assert!(INTERRUPT_VECTORS_MAX == u64::BITS);

/// What the function does over several rounds of the server: first a reset, then the end of mappings.
#[derive(Default)]
struct Work {
    reset: Option<FunctionReset>,
    /// First addresses of mappings that end.
    ending: Vec<u64>,
    /// The client ends them: it says that the card does not need them any more.
    is_judged: bool,
    /// The card has not finished the reset.
    has_failed: bool,
}

/// The function of one card, with what its client has set up.
pub struct ServedFunction {
    card: usize,
    config: ConfigSpace,
    msix_table: [u8; TABLE_BYTES],
    eventfds: Vec<Option<OwnedFd>>,
    /// Vectors that were raised without an eventfd.
    pending: u64,
    /// By first device address: the buffer in the host, and the length.
    mappings: BTreeMap<u64, (BufferId, u64)>,
    /// Most mappings.
    mappings_max: usize,
    work: Option<Work>,
}

impl ServedFunction {
    /// Makes the function of a card, by index. Its client may have no more mappings than it gets open files.
    pub fn new(card: usize, files_max: usize) -> ServedFunction {
        ServedFunction {
            card,
            config: ConfigSpace::new(FIRST_SERIAL + card as u64),
            msix_table: [0; TABLE_BYTES],
            eventfds: (0..INTERRUPT_VECTORS_MAX).map(|_| None).collect(),
            pending: 0,
            mappings: BTreeMap::new(),
            mappings_max: files_max.min(MAPPINGS_MAX),
            work: None,
        }
    }

    /// Returns whether a reset or the end of mappings is under way.
    pub fn is_working(&self) -> bool {
        self.work.is_some()
    }

    /// Index of the card.
    pub fn card(&self) -> usize {
        self.card
    }

    /// Joins the function to its world, so that it can be accessed.
    pub fn attach<'a>(&'a mut self, world: &'a mut World) -> Attached<'a> {
        Attached { function: self, world }
    }

    fn signal(&mut self, vector: u32) {
        match self.eventfds.get(vector as usize) {
            Some(Some(eventfd)) => notify(eventfd),
            Some(None) => self.pending |= 1 << vector,
            None => {}
        }
    }

    /// Table and pending bits of MSI-X, as software reads them at an offset.
    fn msix_byte(&self, offset: u64) -> u8 {
        let table =
            offset.checked_sub(MSIX_TABLE_OFFSET.into()).and_then(|at| self.msix_table.get(at as usize));
        let pending = self.pending.to_le_bytes();
        let pending = offset.checked_sub(MSIX_PENDING_OFFSET.into()).and_then(|at| pending.get(at as usize));
        table.or(pending).copied().unwrap_or(0)
    }

    fn write_msix(&mut self, offset: u64, data: &[u8]) {
        for (offset, byte) in (offset..).zip(data) {
            let at = offset.checked_sub(MSIX_TABLE_OFFSET.into());
            if let Some(place) = at.and_then(|at| self.msix_table.get_mut(at as usize)) {
                *place = *byte;
            }
        }
    }
}

/// Adds one to an eventfd, unless that would have to wait for the client: a counter that is full says already that something
/// has happened.
fn notify(eventfd: &OwnedFd) {
    let mut fds = [PollFd::new(eventfd, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready == 1) {
        let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
    }
}

/// Returns whether a file descriptor is an eventfd. A client could give any, and writing to others may wait for somebody.
fn is_eventfd(fd: &OwnedFd) -> bool {
    let name = read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    name.is_ok_and(|name| name.to_str() == Some("anon_inode:[eventfd]"))
}

/// A function and the world of its card.
pub struct Attached<'a> {
    function: &'a mut ServedFunction,
    world: &'a mut World,
}

impl Attached<'_> {
    /// Signals the eventfds of interrupts that the card has raised.
    pub fn deliver(&mut self) {
        while let Some(interrupt) = self.world.host_mut(self.function.card).take_interrupt() {
            self.function.signal(interrupt.vector.into());
        }
    }

    /// The client has left: begins to reset the card, and to forget all that the client has set up.
    pub fn clean_up(&mut self) {
        if self.function.work.as_ref().is_none_or(|work| work.reset.is_none()) {
            self.reset();
        }
        self.function.eventfds.iter_mut().for_each(|eventfd| *eventfd = None);
        let ending = self.function.mappings.keys().copied().collect();
        if let Some(work) = &mut self.function.work {
            (work.ending, work.is_judged) = (ending, false);
        }
    }

    /// Runs the world until nothing of the function is under way.
    ///
    /// # Errors
    /// If a reset does not end. The card reaches no memory of the client nevertheless.
    pub fn finish(&mut self) -> Result<(), Refusal> {
        loop {
            if let Some(outcome) = self.proceed() {
                return outcome;
            }
            self.world.step();
        }
    }

    /// Makes a register access, and runs the world until it is answered. `None` if the card refuses or does not answer.
    fn access(&mut self, access: RegisterAccess) -> Option<u64> {
        let card = self.function.card;
        let ticket = self.world.start_access(card, access, false);
        let end_ps = self.world.now_ps() + ACCESS_PS_MAX;
        loop {
            let now_ps = self.world.now_ps();
            let registers = self.world.host_mut(card).registers_mut();
            if let Some(answer) = registers.take_answer(now_ps, ticket) {
                return answer.ok();
            }
            if now_ps > end_ps || !self.world.step() {
                return None;
            }
        }
    }

    fn read_register(&mut self, bar: Bar, offset: u64) -> Option<u64> {
        self.access(RegisterAccess { bar, offset: offset & !7, operation: Operation::Read })
    }

    fn write_register(&mut self, bar: Bar, offset: u64, data: &[u8]) {
        let lane = (offset % 8) as usize;
        let mut value = [0; 8];
        value[lane..lane + data.len()].copy_from_slice(data);
        let strobe = (((1_u16 << data.len()) - 1) << lane) as u8;
        let operation = Operation::Write { value: u64::from_le_bytes(value), strobe };
        let access = RegisterAccess { bar, offset: offset & !7, operation };
        self.world.start_access(self.function.card, access, true);
    }

    /// Tells the card what software has written to the configuration space.
    fn follow_config(&mut self) {
        self.world.set_bus_master(self.function.card, self.function.config.bus_master());
    }

    fn end_mapping(&mut self, address: u64) {
        if let Some((buffer, _)) = self.function.mappings.remove(&address) {
            let memory = self.world.host_mut(self.function.card).memory_mut();
            let outcome = memory.unmap(address).and_then(|_| memory.free(buffer));
            debug_assert_eq!(outcome, Ok(()), "host and function know the same mappings");
        }
    }
}

/// First addresses of the mappings that a request ends: all that lie in its range, as with the kernel's VFIO. There may be none;
/// virtual machines end whole ranges of addresses without looking.
fn ended_by(unmap: &Unmap, mapped: impl Iterator<Item = (u64, u64)>) -> Result<Vec<u64>, Refusal> {
    if unmap.is_all {
        return Ok(mapped.map(|(address, _)| address).collect());
    }
    // A range may reach to the very last address.
    let end = u128::from(unmap.address) + u128::from(unmap.bytes);
    if end > 1 << 64 {
        return Err(Refusal::Invalid);
    }
    let mut ended = Vec::new();
    for (address, bytes) in mapped {
        let mapping_end = u128::from(address) + u128::from(bytes);
        if unmap.address <= address && mapping_end <= end {
            ended.push(address);
        } else if u128::from(address) < end && u128::from(unmap.address) < mapping_end {
            return Err(Refusal::Invalid);
        }
    }
    Ok(ended)
}

/// The window of the card behind a region.
fn window(region: u32) -> Option<Bar> {
    match u8::try_from(region).ok()? {
        REGISTER_BAR => Some(Bar::Registers),
        DOORBELL_BAR => Some(Bar::Doorbells),
        _ => None,
    }
}

/// Checks that an access is one that a bus makes.
fn check_access(offset: u64, bytes: usize) -> Result<(), Refusal> {
    let is_one = [1, 2, 4, 8].contains(&bytes) && offset.is_multiple_of(bytes as u64);
    if is_one { Ok(()) } else { Err(Refusal::Invalid) }
}

impl Device for Attached<'_> {
    fn region_bytes(&self, region: u32) -> u64 {
        match region {
            CONFIG_REGION => CONFIG_BYTES as u64,
            region => u8::try_from(region).ok().and_then(bar).map_or(0, |bar| bar.bytes),
        }
    }

    fn read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Refusal> {
        if let Some(window) = window(region) {
            check_access(offset, data.len())?;
            let is_on = self.function.config.memory_enabled();
            let value = is_on.then(|| self.read_register(window, offset)).flatten().unwrap_or(u64::MAX);
            data.copy_from_slice(&value.to_le_bytes()[(offset % 8) as usize..][..data.len()]);
        } else if region == CONFIG_REGION {
            self.function.config.read(offset, data);
        } else {
            let places = data.iter_mut().zip(offset..);
            places.for_each(|(byte, offset)| *byte = self.function.msix_byte(offset));
        }
        Ok(())
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), Refusal> {
        if let Some(window) = window(region) {
            check_access(offset, data.len())?;
            if self.function.config.memory_enabled() {
                self.write_register(window, offset, data);
            }
        } else if region == CONFIG_REGION {
            // What was raised before the write is delivered by what was enabled before it.
            self.deliver();
            let effect = self.function.config.write(offset, data);
            self.follow_config();
            if effect == Effect::Reset {
                self.reset();
            }
        } else {
            debug_assert_eq!(region, u32::from(MSIX_BAR), "no other region has bytes");
            self.function.write_msix(offset, data);
        }
        Ok(())
    }

    fn map(&mut self, map: &Map, fd: Option<OwnedFd>) -> Result<(), Refusal> {
        if self.function.mappings.len() >= self.function.mappings_max {
            return Err(Refusal::Exhausted);
        }
        let (memory, access): (Box<dyn Backing>, Access) = match fd {
            Some(fd) => {
                let (memory, access) = ClientMemory::new(fd, map)?;
                (Box::new(memory), access)
            }
            None => (Box::new(Withheld::new(map)?), Access::Read),
        };
        let host = self.world.host_mut(self.function.card).memory_mut();
        let buffer = host.adopt(memory);
        let mapped = host.map(map.address, buffer, 0, map.bytes as usize, access);
        mapped.map_err(|error| {
            let _ = host.free(buffer);
            if matches!(error, MemoryError::Occupied { .. }) { Refusal::Exists } else { Refusal::Invalid }
        })?;
        self.function.mappings.insert(map.address, (buffer, map.bytes));
        Ok(())
    }

    fn unmap(&mut self, unmap: &Unmap) -> Result<(), Refusal> {
        let mappings = &self.function.mappings;
        // Those from the last that begins at or before the range, to the end of the range.
        let before = mappings.range(..=unmap.address).next_back();
        let first = before.filter(|_| !unmap.is_all).map_or(0, |(&address, _)| address);
        let end = if unmap.is_all { u64::MAX } else { unmap.address.saturating_add(unmap.bytes) };
        let near = mappings.range(first..=end).map(|(&address, &(_, bytes))| (address, bytes));
        let ending = ended_by(unmap, near)?;
        self.function.work = Some(Work { ending, is_judged: true, ..Work::default() });
        Ok(())
    }

    fn vectors(&self) -> u32 {
        INTERRUPT_VECTORS_MAX
    }

    fn set_eventfds(&mut self, first: u32, fds: Vec<Option<OwnedFd>>) -> Result<(), Refusal> {
        if !fds.iter().flatten().all(is_eventfd) {
            return Err(Refusal::Denied);
        }
        for (vector, fd) in (first..).zip(fds) {
            self.function.eventfds[vector as usize] = fd;
            let is_pending = self.function.pending & 1 << vector != 0;
            self.function.pending &= !(1 << vector);
            if is_pending {
                self.function.signal(vector);
            }
        }
        Ok(())
    }

    fn raise(&mut self, vector: u32) {
        self.function.signal(vector);
    }

    /// Vectors keep their eventfds, and mappings stay, as with a function behind the kernel's VFIO.
    fn reset(&mut self) {
        self.function.config.reset();
        self.follow_config();
        let reset = Some(self.world.begin_reset(self.function.card));
        self.function.work = Some(Work { reset, ..Work::default() });
    }

    fn proceed(&mut self) -> Option<Result<(), Refusal>> {
        let Some(mut work) = self.function.work.take() else { return Some(Ok(())) };
        if let Some(reset) = &mut work.reset {
            let Some(is_done) = self.world.continue_reset(reset) else {
                self.function.work = Some(work);
                return None;
            };
            (work.reset, work.has_failed) = (None, !is_done);
            self.function.msix_table = [0; TABLE_BYTES];
            self.function.pending = 0;
            while self.world.host_mut(self.function.card).take_interrupt().is_some() {}
        }
        let start = Instant::now();
        while let Some(address) = work.ending.pop() {
            if work.is_judged {
                let now_ps = self.world.now_ps();
                self.world.card_mut(self.function.card).check_release(now_ps, address);
            }
            self.end_mapping(address);
            if start.elapsed() >= ENDING && !work.ending.is_empty() {
                self.function.work = Some(work);
                return None;
            }
        }
        Some(if work.has_failed { Err(Refusal::Failed) } else { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_the_mappings_inside_and_cuts_none() {
        let ended = |is_all, address, bytes| {
            let mapped = [(0x1000, 0x2000), (0x4000, 0x1000), (0x5000, 0x1000)];
            ended_by(&Unmap { is_all, address, bytes }, mapped.into_iter())
        };
        for (address, bytes, expected) in [
            (0x1000, 0x2000, Ok(vec![0x1000])),
            (0x4000, 0x1000, Ok(vec![0x4000])),
            (0, 0x10000, Ok(vec![0x1000, 0x4000, 0x5000])),
            (0x3000, 0x1000, Ok(vec![])),
            (0x6000, 0x1000, Ok(vec![])),
            (0x1000, 0x1000, Err(Refusal::Invalid)),
            (0x2000, 0x2000, Err(Refusal::Invalid)),
            (0, 0x4800, Err(Refusal::Invalid)),
            (0x3000, u64::MAX - 0x2fff, Ok(vec![0x4000, 0x5000])),
            (1 << 63, 1 << 63, Ok(vec![])),
            (u64::MAX, 2, Err(Refusal::Invalid)),
        ] {
            assert_eq!(ended(false, address, bytes), expected, "{address:#x} {bytes:#x}");
        }
        assert_eq!(ended(true, 0, 0), Ok(vec![0x1000, 0x4000, 0x5000]));
        let last = Unmap { is_all: false, address: u64::MAX - 0xfff, bytes: 0x1000 };
        assert_eq!(ended_by(&last, [(last.address, 0x1000)].into_iter()), Ok(vec![last.address]));
    }
}
