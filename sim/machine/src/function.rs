//! A card of a world as the driver sees it: an implementation of [`Function`] in this process.
//!
//! Simulated time advances only in calls of the driver. A register read runs the world until the answer has come; a write is
//! posted, as on PCI Express; [`Function::idle`] advances time by a little. Several functions share one world through a lock,
//! so that two drivers can talk to each other from one thread.
use crate::config_space::{ConfigSpace, Effect};
use crate::host::{Access, Backing, Bar as Window, BufferId, MemoryError, Operation, RegisterAccess};
use crate::wire::WireOptions;
use crate::world::{CardOptions, Port, World};
use anyhow::Result;
use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use rnic_driver::function::{
    Bar, DOORBELL_BAR, DmaSegment, Function, FunctionError, Ownership, REGISTER_BAR,
};
use rnic_driver::memory::{DeviceView, Memory, PAGE_BYTES};
use rnic_layout::limits::INTERRUPT_VECTORS_MAX;
use rnic_layout::pci::{DEVICE_CONTROL, DEVICE_CONTROL_RESET};
use rnic_layout::registers::{Control, REG_CONTROL};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use verilator_sys::Model;

/// Simulated time of one call of [`Function::idle`], in cycles of the core clock: 100 ns of a card of 250 MHz.
pub const IDLE_CYCLES: u64 = 25;
/// Device address of the first mapping. It is not 0, so that the card faults when it uses a null address.
const FIRST_ADDRESS: u64 = 1 << 32;

/// A world that several drivers share.
pub type SharedWorld = Arc<Mutex<World>>;

/// Serial number of card 0, a locally administered EUI-64. The others count on.
const FIRST_SERIAL: u64 = 0x0200_00ff_fe00_0000;

/// Memory of the driver, as the host model accesses it.
struct DriverMemory(DeviceView);

impl Backing for DriverMemory {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        self.0.read(offset, bytes).is_ok()
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        self.0.write(offset, bytes).is_ok()
    }
}

/// One BAR of the card.
struct SimulatedBar {
    world: SharedWorld,
    card: usize,
    window: Window,
    config: Arc<Mutex<ConfigSpace>>,
}

impl SimulatedBar {
    fn read(&self, offset: u64) -> u64 {
        if !lock(&self.config).memory_enabled() {
            return u64::MAX;
        }
        let access = RegisterAccess { bar: self.window, offset: offset & !7, operation: Operation::Read };
        // As on PCI, a failed read returns all ones.
        lock(&self.world).access(self.card, access).unwrap_or(u64::MAX)
    }

    fn write(&self, offset: u64, value: u64, strobe: u8) {
        if !lock(&self.config).memory_enabled() {
            return;
        }
        let mut world = lock(&self.world);
        let is_control = self.window == Window::Registers && offset == u64::from(REG_CONTROL.offset);
        if is_control && Control::parse(&value.to_le_bytes()).is_ok_and(|control| control.reset) {
            world.check_before_reset(self.card);
        }
        let operation = Operation::Write { value, strobe };
        let access = RegisterAccess { bar: self.window, offset, operation };
        world.start_access(self.card, access, true);
    }
}

impl Bar for SimulatedBar {
    fn bytes(&self) -> u64 {
        self.window.bytes()
    }

    fn read32(&self, offset: u64) -> u32 {
        (self.read(offset) >> (offset % 8 * 8)) as u32
    }

    fn write32(&self, offset: u64, value: u32) {
        let shift = offset % 8;
        self.write(offset & !7, u64::from(value) << (shift * 8), 0xf << shift);
    }

    fn read64(&self, offset: u64) -> u64 {
        self.read(offset)
    }

    fn write64(&self, offset: u64, value: u64) {
        self.write(offset, value, 0xff);
    }
}

/// A card of a world, for the driver.
pub struct SimulatedFunction {
    world: SharedWorld,
    card: usize,
    registers: SimulatedBar,
    doorbells: SimulatedBar,
    config: Arc<Mutex<ConfigSpace>>,
    ownership: Ownership,
    mappings: Mutex<Mappings>,
    is_closed: AtomicBool,
}

/// Mappings of the driver. Device addresses are reused at once, or never, so that a card that uses a stale one faults.
struct Mappings {
    next_address: u64,
    /// Address and length of ranges that were unmapped and are reused, newest last.
    free: Vec<(u64, u64)>,
    /// By the first address: the buffer, and the device addresses of its segments.
    buffers: BTreeMap<u64, (BufferId, Vec<u64>)>,
    random: ChaCha8Rng,
}

impl Mappings {
    /// Assigns device addresses to memory that is made of pages of `unit` bytes, contiguous or in scattered pages of a size.
    fn place(
        &mut self,
        bytes: usize,
        unit: usize,
        page_log2: Option<u8>,
    ) -> Result<Vec<DmaSegment>, FunctionError> {
        let exhausted = FunctionError::OutOfAddresses { bytes };
        let Some(log2) = page_log2 else {
            if let Some(place) = self.free.iter().rposition(|&(_, free)| free == bytes as u64) {
                let (device_address, _) = self.free.remove(place);
                return Ok(vec![DmaSegment { device_address, bytes }]);
            }
            let device_address = self.next_address.next_multiple_of(unit as u64);
            // An unmapped guard page between two mappings.
            let end = device_address.checked_add((bytes + PAGE_BYTES) as u64);
            self.next_address = end.ok_or(exhausted)?;
            return Ok(vec![DmaSegment { device_address, bytes }]);
        };
        // The buffer begins in the middle of a page, and an unmapped page follows each of its pages.
        let page = 1usize << log2;
        let most = page.min(bytes) / unit;
        let first_bytes = self.random.random_range(1..=most) * unit;
        let count = 1 + (bytes - first_bytes).div_ceil(page);
        let begin = self.next_address.next_multiple_of(page as u64);
        let end = (2 * count as u64).checked_mul(page as u64).and_then(|bytes| begin.checked_add(bytes));
        self.next_address = end.ok_or(exhausted)?;
        let mut pages: Vec<u64> = (0..count as u64).map(|index| begin + 2 * index * page as u64).collect();
        pages.shuffle(&mut self.random);
        let mut done = 0;
        let segment = |(index, device_page): (usize, u64)| {
            let bytes = if index == 0 { first_bytes } else { page.min(bytes - done) };
            done += bytes;
            let skipped = if index == 0 { page - first_bytes } else { 0 };
            DmaSegment { device_address: device_page + skipped as u64, bytes }
        };
        Ok(pages.into_iter().enumerate().map(segment).collect())
    }
}

/// Page sizes for scattered memory, as log2.
const PAGES_LOG2: [u8; 4] = [12, 16, 21, 30];

impl SimulatedFunction {
    /// Attaches to a card of a world, by index. Unless another driver has opened the card, it is not bus master from then on until
    /// software says so.
    pub fn new(world: SharedWorld, card: usize) -> SimulatedFunction {
        let config = Arc::new(Mutex::new(ConfigSpace::new(FIRST_SERIAL + card as u64)));
        let bar =
            |window| SimulatedBar { world: Arc::clone(&world), card, window, config: Arc::clone(&config) };
        let (registers, doorbells) = (bar(Window::Registers), bar(Window::Doorbells));
        let random = lock(&world).seed().stream(&format!("function{card}"));
        let mappings =
            Mappings { next_address: FIRST_ADDRESS, free: Vec::new(), buffers: BTreeMap::new(), random };
        let mappings = Mutex::new(mappings);
        let ownership = lock(&world).host(card).ownership().clone();
        if let Ok(_claim) = ownership.claim("a function that is being attached".into()) {
            lock(&world).set_bus_master(card, false);
        }
        let is_closed = AtomicBool::new(false);
        SimulatedFunction { world, card, registers, doorbells, config, ownership, mappings, is_closed }
    }

    /// Closes the function, as the kernel does when a process ends: the card is reset and reaches no memory of its driver any
    /// more, and another [`SimulatedFunction`] can be opened. Objects of the driver that are left find no card.
    ///
    /// # Errors
    /// If the card does not finish its reset, or memory cannot be unmapped. The function is closed nevertheless.
    pub fn close(&self) -> Result<(), FunctionError> {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let mut outcome = self.reset_card();
        let buffers = std::mem::take(&mut lock(&self.mappings).buffers);
        for (buffer, addresses) in buffers.into_values() {
            outcome = outcome.and(self.end_mapping(buffer, &addresses));
        }
        lock(&self.world).host_mut(self.card).disown();
        outcome
    }

    /// Resets configuration space and card, as a function-level reset does.
    fn reset_card(&self) -> Result<(), FunctionError> {
        let mut config = lock(&self.config);
        config.reset();
        let mut world = lock(&self.world);
        world.set_bus_master(self.card, config.bus_master());
        reset_outcome(world.reset_function(self.card))
    }

    /// Unmaps the segments of a buffer, and frees it.
    fn end_mapping(&self, buffer: BufferId, addresses: &[u64]) -> Result<(), FunctionError> {
        let mut world = lock(&self.world);
        let now_ps = world.now_ps();
        for &address in addresses {
            world.card_mut(self.card).check_release(now_ps, address);
        }
        let host = world.host_mut(self.card).memory_mut();
        let other = |error: MemoryError| FunctionError::Other(error.to_string());
        for &address in addresses {
            host.unmap(address).map_err(other)?;
        }
        host.free(buffer).map_err(other)
    }

    /// Fails if the function is closed.
    fn check_open(&self) -> Result<(), FunctionError> {
        match self.is_closed.load(Ordering::Relaxed) {
            true => Err(FunctionError::Other("the function is closed".into())),
            false => Ok(()),
        }
    }

    /// Locks the world. Its time does not advance while the guard is held.
    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// Maps memory for the card, contiguous or in scattered pages of a size.
    fn show(&self, memory: &Arc<Memory>, page_log2: Option<u8>) -> Result<Vec<DmaSegment>, FunctionError> {
        self.check_open()?;
        let view = memory.device_view();
        let mut mappings = lock(&self.mappings);
        let segments = mappings.place(view.bytes(), memory.page_size().bytes(), page_log2)?;
        let mut world = lock(&self.world);
        let host = world.host_mut(self.card).memory_mut();
        let buffer = host.adopt(Box::new(DriverMemory(view)));
        let mut offset = 0;
        for segment in &segments {
            host.map(segment.device_address, buffer, offset, segment.bytes, Access::ReadWrite)
                .map_err(|error| FunctionError::Other(error.to_string()))?;
            offset += segment.bytes;
        }
        let addresses: Vec<u64> = segments.iter().map(|segment| segment.device_address).collect();
        mappings.buffers.insert(addresses[0], (buffer, addresses));
        Ok(segments)
    }

    fn vector(&self, vector: u32) -> Result<u8, FunctionError> {
        let known = u8::try_from(vector).ok().filter(|_| vector < INTERRUPT_VECTORS_MAX);
        known.ok_or(FunctionError::NoVector { vector })
    }
}

/// Locks a mutex, even if another thread panicked while it held it: a world is consistent between two events.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What software learns of a function-level reset that the card has acknowledged or not.
fn reset_outcome(is_done: bool) -> Result<(), FunctionError> {
    let refused = FunctionError::Unsupported { what: "reset a card that does not acknowledge it" };
    if is_done { Ok(()) } else { Err(refused) }
}

impl Function for SimulatedFunction {
    fn config_space(&self) -> Result<Vec<u8>, FunctionError> {
        self.check_open()?;
        Ok(lock(&self.config).bytes().to_vec())
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        self.check_open()?;
        let mut config = lock(&self.config);
        let effect = config.write(offset.into(), bytes);
        let mut world = lock(&self.world);
        world.set_bus_master(self.card, config.bus_master());
        match effect {
            Effect::Stored => Ok(()),
            Effect::Reset => reset_outcome(world.reset_function(self.card)),
        }
    }

    fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        match index {
            REGISTER_BAR => Ok(&self.registers),
            DOORBELL_BAR => Ok(&self.doorbells),
            _ => Err(FunctionError::NoBar { index }),
        }
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        Ok(self.show(memory, None)?[0].device_address)
    }

    fn map_scattered(&self, memory: &Arc<Memory>) -> Result<Vec<DmaSegment>, FunctionError> {
        let scatters = lock(&self.world).host(self.card).options().scatters;
        let page_log2 = {
            let random = &mut lock(&self.mappings).random;
            // Huge pages are not scattered in smaller pieces.
            let unit = memory.page_size().bytes();
            let sizes: Vec<u8> = PAGES_LOG2.into_iter().filter(|&log2| 1 << log2 >= unit).collect();
            if scatters && random.random_bool(0.7) { sizes.choose(random).copied() } else { None }
        };
        self.show(memory, page_log2)
    }

    fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
        if self.check_open().is_err() {
            // Nothing is mapped any more.
            return Ok(());
        }
        let mut mappings = lock(&self.mappings);
        let mapping = mappings.buffers.remove(&device_address);
        let (buffer, addresses) = mapping.ok_or(FunctionError::NotMapped { device_address })?;
        let world = lock(&self.world);
        if world.host(self.card).options().reuses_addresses {
            let bytes = |address: &u64| world.host(self.card).memory().mapped_bytes(*address);
            mappings.free.extend(addresses.iter().filter_map(|address| Some((*address, bytes(address)?))));
        }
        drop(world);
        self.end_mapping(buffer, &addresses)
    }

    fn interrupt_vectors(&self) -> u32 {
        INTERRUPT_VECTORS_MAX
    }

    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError> {
        let vector = self.vector(vector)?;
        Ok(lock(&self.world).host_mut(self.card).take_interrupts_of(vector))
    }

    fn reset(&self) -> Result<(), FunctionError> {
        self.write_config(DEVICE_CONTROL, &DEVICE_CONTROL_RESET.to_le_bytes())
    }

    fn now(&self) -> Duration {
        // Rounded up, so that waiting for a time in the future ends.
        Duration::from_nanos(lock(&self.world).now_ps().div_ceil(1000))
    }

    fn idle(&self) {
        // Time advances even when a rule is violated, so that no wait lasts forever. The violation stays recorded until the
        // next check of the world, or its end.
        let mut world = lock(&self.world);
        world.wait_for(self.card);
        let idle_ps = world.card(self.card).options().rates().cycles_ps(IDLE_CYCLES);
        let end_ps = world.now_ps() + idle_ps;
        while world.now_ps() < end_ps && world.step() {}
    }
}

/// Builds a world of two cards of the same model on one wire, runs it until they have left reset, and returns a function for
/// each.
///
/// # Errors
/// If the model is not a card, or a monitor sees a violation.
pub fn two_cards(
    model: &Model,
    options: [CardOptions; 2],
    wire: WireOptions,
    seed: u64,
) -> Result<(SharedWorld, [Arc<dyn Function>; 2])> {
    let mut world = World::new(seed);
    for options in options {
        world.add_card(model, options)?;
    }
    world.connect(Port::Card(0), Port::Card(1), wire)?;
    world.leave_reset()?;
    let world = Arc::new(Mutex::new(world));
    let functions = [0, 1]
        .map(|card| -> Arc<dyn Function> { Arc::new(SimulatedFunction::new(Arc::clone(&world), card)) });
    Ok((world, functions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_stimulus::chance::Seed;

    fn mappings(seed: u64) -> Mappings {
        let random = Seed(seed).stream("mappings");
        Mappings { next_address: FIRST_ADDRESS, free: Vec::new(), buffers: BTreeMap::new(), random }
    }

    fn contiguous(mappings: &mut Mappings, bytes: usize) -> u64 {
        mappings.place(bytes, PAGE_BYTES, None).unwrap()[0].device_address
    }

    #[test]
    fn what_was_unmapped_last_is_mapped_first_on_a_host_that_reuses_addresses() {
        let mut mappings = mappings(1);
        let [first, second] = [8192, 8192].map(|bytes| contiguous(&mut mappings, bytes));
        mappings.free.extend([(first, 8192), (second, 8192)]);
        let longer = contiguous(&mut mappings, 12288);
        assert!(longer > second, "no range of this length was unmapped");
        assert_eq!([8192, 8192].map(|bytes| contiguous(&mut mappings, bytes)), [second, first]);
        assert!(contiguous(&mut mappings, 8192) > longer);
    }

    #[test]
    fn a_host_that_reuses_nothing_never_gives_an_address_twice() {
        let mut mappings = mappings(2);
        let addresses: Vec<u64> = (0..20).map(|_| contiguous(&mut mappings, 4096)).collect();
        assert!(addresses.windows(2).all(|pair| pair[0] + 8192 <= pair[1]), "a page lies between them");
    }

    #[test]
    fn huge_pages_stay_whole() {
        const HUGE: usize = 2 << 20;
        for seed in 0..50 {
            let mut mappings = mappings(seed);
            contiguous(&mut mappings, 4096);
            for page_log2 in [None, Some(21), Some(30)] {
                let segments = mappings.place(5 * HUGE, HUGE, page_log2).unwrap();
                assert_eq!(segments.iter().map(|segment| segment.bytes).sum::<usize>(), 5 * HUGE);
                let is_whole = |segment: &DmaSegment| {
                    segment.bytes.is_multiple_of(HUGE) && segment.device_address.is_multiple_of(HUGE as u64)
                };
                assert!(segments.iter().all(is_whole), "{segments:?}");
            }
        }
    }
}
