//! A card of a world as the driver sees it: the back end of [`Function`] that lives in this process.
//!
//! The world stands still unless it is asked. A read of a register takes as long as it takes and everything else goes on
//! meanwhile; a write is posted, as on PCI Express; and [`Function::idle`] lets a little time pass. Several functions share a
//! world behind one lock, so that two drivers can talk to each other from one thread.
use crate::host::{Access, Backing, Bar as Window, BufferId, Operation, RegisterAccess};
use crate::world::World;
use rnic_driver::function::{Bar, DOORBELL_BAR, Function, FunctionError, REGISTER_BAR};
use rnic_driver::memory::{DeviceView, Memory, PAGE_BYTES};
use rnic_layout::limits::INTERRUPT_VECTORS_MAX;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time that passes when software has nothing to do.
const IDLE_PS: u64 = 100_000;
/// Where the first mapping stands, so that a zero address is always a fault.
const FIRST_ADDRESS: u64 = 1 << 32;

/// A world that several drivers share.
pub type SharedWorld = Arc<Mutex<World>>;

/// Memory of the driver, as the card reaches it.
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

/// One window of the card.
struct SimulatedBar {
    world: SharedWorld,
    card: usize,
    window: Window,
}

impl SimulatedBar {
    fn read(&self, offset: u64) -> u64 {
        let access = RegisterAccess { bar: self.window, offset: offset & !7, operation: Operation::Read };
        // As on PCI, a read that fails gives all ones.
        lock(&self.world).access(self.card, access).unwrap_or(u64::MAX)
    }

    fn write(&self, offset: u64, value: u64, strobe: u8) {
        let operation = Operation::Write { value, strobe };
        let access = RegisterAccess { bar: self.window, offset, operation };
        lock(&self.world).start_access(self.card, access, true);
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

/// A card of a world.
pub struct SimulatedFunction {
    world: SharedWorld,
    card: usize,
    registers: SimulatedBar,
    doorbells: SimulatedBar,
    mappings: Mutex<Mappings>,
}

/// What the driver has mapped. Addresses are not used twice, so that a card that goes on using one is caught.
struct Mappings {
    next_address: u64,
    buffers: BTreeMap<u64, BufferId>,
}

impl SimulatedFunction {
    /// Takes a card of a world.
    pub fn new(world: SharedWorld, card: usize) -> SimulatedFunction {
        let bar = |window| SimulatedBar { world: Arc::clone(&world), card, window };
        let (registers, doorbells) = (bar(Window::Registers), bar(Window::Doorbells));
        let mappings = Mutex::new(Mappings { next_address: FIRST_ADDRESS, buffers: BTreeMap::new() });
        SimulatedFunction { world, card, registers, doorbells, mappings }
    }

    /// The world, which stands still while it is held.
    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    fn vector(&self, vector: u32) -> Result<u8, FunctionError> {
        let known = u8::try_from(vector).ok().filter(|_| vector < INTERRUPT_VECTORS_MAX);
        known.ok_or(FunctionError::NoVector { vector })
    }
}

/// A panic elsewhere has left the world between two events, where it can go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Function for SimulatedFunction {
    fn config_space(&self) -> Result<Vec<u8>, FunctionError> {
        Ok(Vec::new())
    }

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        match index {
            REGISTER_BAR => Ok(&self.registers),
            DOORBELL_BAR => Ok(&self.doorbells),
            _ => Err(FunctionError::NoBar { index }),
        }
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        let view = memory.device_view();
        let bytes = view.bytes();
        let mut mappings = lock(&self.mappings);
        let address = mappings.next_address;
        // A page between two mappings belongs to nobody.
        let end = address.checked_add((bytes + PAGE_BYTES) as u64);
        let end = end.ok_or(FunctionError::OutOfAddresses { bytes })?;
        let mut world = lock(&self.world);
        let host = world.host_mut(self.card).memory_mut();
        let buffer = host.adopt(Box::new(DriverMemory(view)));
        host.map(address, buffer, 0, bytes, Access::ReadWrite)
            .map_err(|error| FunctionError::Other(error.to_string()))?;
        mappings.next_address = end;
        mappings.buffers.insert(address, buffer);
        Ok(address)
    }

    fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
        let buffer = lock(&self.mappings).buffers.remove(&device_address);
        let buffer = buffer.ok_or(FunctionError::NotMapped { device_address })?;
        let mut world = lock(&self.world);
        let host = world.host_mut(self.card).memory_mut();
        host.unmap(device_address)
            .and_then(|_| host.free(buffer))
            .map_err(|error| FunctionError::Other(error.to_string()))
    }

    fn interrupt_vectors(&self) -> u32 {
        INTERRUPT_VECTORS_MAX
    }

    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError> {
        let vector = self.vector(vector)?;
        Ok(lock(&self.world).host_mut(self.card).take_interrupts_of(vector))
    }

    fn reset(&self) -> Result<(), FunctionError> {
        Err(FunctionError::Unsupported { what: "reset the function from outside" })
    }

    fn now(&self) -> Duration {
        // Rounded up, so that a wait for a time in the future ends.
        Duration::from_nanos(lock(&self.world).now_ps().div_ceil(1000))
    }

    fn idle(&self) {
        // Time goes on even when a rule is violated, so that no wait is for ever; the violation stays recorded, and the
        // world's next check or its end tells it.
        let mut world = lock(&self.world);
        let end_ps = world.now_ps() + IDLE_PS;
        while world.now_ps() < end_ps && world.step() {}
    }
}
