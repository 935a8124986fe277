//! Opening a card, in the order of the register manual, and what all its objects share.

use crate::admin::{AdminQueue, check_alive};
use crate::doorbell::Doorbells;
use crate::error::{Error, check_option};
use crate::event::{EventQueue, EventQueueOptions, EventRing, Routes};
use crate::function::Function;
use crate::id_allocator::IdAllocator;
use crate::memory::{Mapping, Purpose};
use crate::pages::PageTable;
use crate::registers::Registers;
use crate::sync::lock;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use rnic_layout::admin::{Answer, Body, CommandOpcode};
use rnic_layout::limits::{DOMAIN_BITS, EVENT_ENTRIES_LOG2_MAX, RING_LOG2_MIN, SOURCE_ADDRESSES};
use rnic_layout::path::{Gid, Pmtu};
use rnic_layout::registers::{
    COUNTERS, Control, CounterLatch, EventQueueBase, EventQueueControl, Features, Geometry, HostMemoryBase,
    HostMemoryBytes, LAYOUT_MAJOR, LayoutVersion, MAGIC, MemoryKind, MessageLimit, OwnMac, PortControl,
    QueueLimits, REG_MAGIC, SourceAddressHigh, SourceAddressLow, SourceAddressPort, Status, TableSizes,
    counter, counter_offset,
};
use rnic_layout::state::PathMtu;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a card is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Station address of the port.
    pub mac: [u8; 6],
    /// Source addresses, at most 16; address handles name them by their place here. Empty stands for the link-local
    /// address of `mac`.
    pub addresses: Vec<Gid>,
    /// Largest payload of a packet that the port carries.
    pub active_mtu: Pmtu,
    /// Source of QPNs, keys, first PSNs and region addresses. `None` takes it from the operating system, as it must be
    /// where peers are not trusted; a fixed seed makes runs repeat.
    pub seed: Option<u64>,
    /// How long a reset or a command may take, in the time of the function.
    pub timeout: Duration,
    /// Entries of event queue 0, as a power of two. Each completion queue that uses it needs one, and some are for
    /// asynchronous events.
    pub event_entries_log2: u32,
}

impl Options {
    /// What the port answers for.
    pub(crate) fn source_addresses(&self) -> Vec<Gid> {
        if self.addresses.is_empty() { vec![Gid::from_mac(self.mac)] } else { self.addresses.clone() }
    }

    /// Usual options for a port of this address.
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            addresses: Vec::new(),
            active_mtu: Pmtu::Bytes4096,
            seed: None,
            timeout: Duration::from_millis(10),
            event_entries_log2: 8,
        }
    }
}

/// What the card was generated with, as its registers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Which operations and objects it knows.
    pub features: Features,
    /// Width, clock, interrupt vectors.
    pub geometry: Geometry,
    /// How many objects of each kind.
    pub tables: TableSizes,
    /// Largest queues and requests.
    pub queues: QueueLimits,
    /// Largest message, in bytes.
    pub message_bytes: u64,
}

/// Which numbers are in use, for all kinds of objects.
pub(crate) struct IdAllocators {
    pub(crate) rng: ChaCha12Rng,
    pub(crate) domains: IdAllocator,
    pub(crate) queue_pairs: IdAllocator,
    pub(crate) completion_queues: IdAllocator,
    pub(crate) event_queues: IdAllocator,
    pub(crate) regions: IdAllocator,
    pub(crate) pages: PageTable,
    pub(crate) address_handles: IdAllocator,
    pub(crate) shared_receive_queues: IdAllocator,
}

/// What all objects of a card share. Memory that the card was given goes last, after a reset has ended its use.
pub(crate) struct DeviceShared {
    pub(crate) function: Arc<dyn Function>,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    pub(crate) doorbells: Doorbells,
    pub(crate) ids: Mutex<IdAllocators>,
    pub(crate) events: EventRing,
    pub(crate) routes: Arc<Routes>,
    registers: Arc<Registers>,
    admin: Mutex<AdminQueue>,
    /// Contexts that do not fit on the card; never read here.
    _contexts: Vec<Mapping>,
}

impl DeviceShared {
    /// Gives a command, and looks after events that may have come with it.
    pub(crate) fn execute(
        &self,
        opcode: CommandOpcode,
        object_number: u32,
        body: Body,
    ) -> Result<Answer, Error> {
        let answer = lock(&self.admin).execute(opcode, object_number, body)?;
        self.events.collect()?;
        Ok(answer)
    }

    /// Ends an object whose owner is being dropped and can do nothing about a failure. Memory is safe all the same: it
    /// is unmapped before it is freed.
    pub(crate) fn end(&self, opcode: CommandOpcode, object_number: u32) {
        let _ = self.execute(opcode, object_number, Body::Destroy);
    }
}

impl Drop for DeviceShared {
    fn drop(&mut self) {
        // After the reset nothing of the card is in flight any more. If it does not answer, unmapping stops it.
        let _ = reset(&*self.function, &self.registers, self.options.timeout);
    }
}

/// An open card. Handles are cheap to clone; the card is reset when the last handle and the last object are gone.
#[derive(Clone)]
pub struct Device {
    pub(crate) shared: Arc<DeviceShared>,
}

impl Device {
    /// Opens a card: recognizes it, resets it, gives it memory and addresses, and starts it.
    ///
    /// # Errors
    ///
    /// If this is no rnic card of a known layout, an option does not fit it, or it does not start in time.
    pub fn open(function: Arc<dyn Function>, options: Options) -> Result<Self, Error> {
        let count = options.addresses.len() as u64;
        check_option("addresses.len()", count, 0, SOURCE_ADDRESSES as u64)?;
        let registers = Arc::new(Registers::new(&function)?);
        recognize(&registers)?;
        reset(&*function, &registers, options.timeout)?;
        let limits = read_limits(&registers)?;

        let contexts = give_contexts(&function, &registers)?;
        let mut admin = AdminQueue::start(&function, &registers, options.timeout)?;
        let doorbells = Doorbells::new(&function, 0)?;
        let routes = Arc::default();
        let events = start_events(&function, &registers, &doorbells, &limits, &options, &routes)?;
        set_addresses(&registers, &options)?;
        let on = Control { enable: true, reset: false, quiesce: false };
        registers.write(on)?;
        wait(&*function, &registers, options.timeout, "the start of the card", |status| status.ready)?;
        // A command that does nothing shows that the way there and back works.
        admin.execute(CommandOpcode::Nothing, 0, Body::Nothing)?;

        let rng = match options.seed {
            Some(seed) => ChaCha12Rng::seed_from_u64(seed),
            None => ChaCha12Rng::from_os_rng(),
        };
        let ids = Mutex::new(start_ids(rng, &limits.tables)?);
        let shared = DeviceShared {
            function,
            limits,
            options,
            doorbells,
            ids,
            events,
            routes,
            registers,
            admin: Mutex::new(admin),
            _contexts: contexts,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Tells what the card was generated with.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Tells how the card was opened; `addresses` holds what the port answers for.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Gives source address `index`, if it is set.
    pub fn address(&self, index: usize) -> Option<Gid> {
        self.shared.options.source_addresses().get(index).copied()
    }

    /// Gives event queue 0, which tells about the device, the port and queue pairs.
    pub fn events(&self) -> EventQueue {
        EventQueue::own(&self.shared)
    }

    /// Makes another event queue.
    ///
    /// # Errors
    ///
    /// If an option does not fit the card, or the card refuses.
    pub fn create_event_queue(&self, options: &EventQueueOptions) -> Result<EventQueue, Error> {
        EventQueue::create(&self.shared, options)
    }

    /// Tells whether the network port has a link.
    ///
    /// # Errors
    ///
    /// If the card cannot be reached.
    pub fn link_up(&self) -> Result<bool, Error> {
        Ok(self.shared.registers.read::<Status>()?.link_up)
    }

    /// Finds out whether the card has failed.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceFailed`] if it has.
    pub fn check(&self) -> Result<(), Error> {
        check_alive(&self.shared.registers)
    }

    /// Takes a snapshot of all counters.
    ///
    /// # Errors
    ///
    /// If the card does not make it in time.
    pub fn counters(&self) -> Result<Counters, Error> {
        let DeviceShared { function, registers, options, .. } = &*self.shared;
        // One snapshot at a time.
        let _admin = lock(&self.shared.admin);
        registers.write(CounterLatch { latch: true })?;
        let deadline = function.now() + options.timeout;
        while registers.read::<CounterLatch>()?.latch {
            if function.now() >= deadline {
                return Err(Error::TimedOut { what: "a snapshot of the counters", limit: options.timeout });
            }
            function.idle();
        }
        let values = (0..COUNTERS.len()).map(|index| registers.raw(counter_offset(index)));
        Ok(Counters(values.collect::<Result<_, _>>()?))
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

/// All counters of the card at one moment. They run on, never stop, and are cleared by nothing: take differences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters(Vec<u64>);

impl Counters {
    /// Gives a counter by its name in the register manual.
    ///
    /// # Panics
    ///
    /// If there is no counter of this name.
    pub fn get(&self, name: &str) -> u64 {
        self.0[counter(name)]
    }

    /// Walks over all counters, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNTERS.iter().map(|counter| counter.name).zip(self.0.iter().copied())
    }
}

/// Believes nothing of the card until it has shown who it is.
fn recognize(registers: &Registers) -> Result<(), Error> {
    match registers.raw(REG_MAGIC.offset)? {
        MAGIC => {}
        u64::MAX => return Err(Error::Absent),
        found => return Err(Error::NotThisCard { found }),
    }
    let version: LayoutVersion = registers.read()?;
    if u64::from(version.major) != LAYOUT_MAJOR {
        return Err(Error::LayoutVersion { found_major: version.major, found_minor: version.minor });
    }
    Ok(())
}

/// Resets the card by its register; if that does not end, by the function, and once more by the register.
fn reset(function: &dyn Function, registers: &Registers, timeout: Duration) -> Result<(), Error> {
    let attempt = || {
        registers.write(Control { enable: false, reset: true, quiesce: false })?;
        wait(function, registers, timeout, "a reset", |status| !status.resetting)
    };
    match attempt() {
        Err(late @ Error::TimedOut { .. }) => {
            if function.reset().is_err() {
                return Err(late);
            }
            attempt()
        }
        done => done,
    }
}

fn wait(
    function: &dyn Function,
    registers: &Registers,
    timeout: Duration,
    what: &'static str,
    done: impl Fn(&Status) -> bool,
) -> Result<(), Error> {
    let deadline = function.now() + timeout;
    loop {
        if done(&registers.read()?) {
            return Ok(());
        }
        if function.now() >= deadline {
            check_alive(registers)?;
            return Err(Error::TimedOut { what, limit: timeout });
        }
        function.idle();
    }
}

fn read_limits(registers: &Registers) -> Result<Limits, Error> {
    let message: MessageLimit = registers.read()?;
    Ok(Limits {
        features: registers.read()?,
        geometry: registers.read()?,
        tables: registers.read()?,
        queues: registers.read()?,
        message_bytes: message.message_bytes,
    })
}

/// Gives the card memory for every kind of context that does not fit on chip.
fn give_contexts(function: &Arc<dyn Function>, registers: &Registers) -> Result<Vec<Mapping>, Error> {
    let mut contexts = Vec::new();
    for kind in MemoryKind::ALL {
        let index = kind.number().into();
        let HostMemoryBytes { bytes } = registers.read_at(index)?;
        if bytes != 0 {
            let bytes = usize::try_from(bytes).map_err(|_| Error::Option {
                name: "host_memory_bytes",
                value: bytes,
                min: 0,
                max: usize::MAX as u64,
            })?;
            let memory = Mapping::new(function, bytes, Purpose::Ring)?;
            registers.write_at(index, HostMemoryBase { address: memory.device_address() })?;
            contexts.push(memory);
        }
    }
    Ok(contexts)
}

fn start_events(
    function: &Arc<dyn Function>,
    registers: &Registers,
    doorbells: &Doorbells,
    limits: &Limits,
    options: &Options,
    routes: &Arc<Routes>,
) -> Result<EventRing, Error> {
    let log2 = options.event_entries_log2;
    let limit = u32::from(limits.queues.event_entries_log2).min(EVENT_ENTRIES_LOG2_MAX);
    check_option("event_entries_log2", log2.into(), RING_LOG2_MIN.into(), limit.into())?;
    let ring = EventRing::new(function, doorbells.clone(), 0, 0, log2, routes)?;
    registers.write(EventQueueBase { address: ring.device_address() })?;
    registers.write(EventQueueControl { entries_log2: log2 as u8, enable: true, vector: 0 })?;
    Ok(ring)
}

/// A MAC address as registers and commands hold it: the first byte on the wire is the most significant.
pub(crate) fn mac_number(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn set_addresses(registers: &Registers, options: &Options) -> Result<(), Error> {
    let mac = mac_number(options.mac);
    registers.write(OwnMac { mac })?;
    let active_mtu = path_mtu(options.active_mtu);
    registers.write(PortControl { active_mtu, ..PortControl::at_reset() })?;
    for (index, gid) in options.source_addresses().iter().enumerate() {
        let index = index as u32;
        let (high, low) = gid.0.split_at(8);
        let number = |half: &[u8]| half.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        registers.write_at(index, SourceAddressHigh { address_high: number(high) })?;
        registers.write_at(index, SourceAddressLow { address_low: number(low) })?;
        registers.write_at(index, SourceAddressPort { mac, valid: true })?;
    }
    Ok(())
}

/// A PMTU as commands and registers hold it.
pub(crate) fn path_mtu(pmtu: Pmtu) -> PathMtu {
    match pmtu {
        Pmtu::Bytes256 => PathMtu::Bytes256,
        Pmtu::Bytes512 => PathMtu::Bytes512,
        Pmtu::Bytes1024 => PathMtu::Bytes1024,
        Pmtu::Bytes2048 => PathMtu::Bytes2048,
        Pmtu::Bytes4096 => PathMtu::Bytes4096,
    }
}

fn start_ids(rng: ChaCha12Rng, tables: &TableSizes) -> Result<IdAllocators, Error> {
    let mut event_queues = IdAllocator::new("event queues", tables.event_queues_log2.into());
    // Queue 0 is the card's own.
    event_queues.allocate_lowest()?;
    Ok(IdAllocators {
        rng,
        domains: IdAllocator::new("protection domains", DOMAIN_BITS),
        queue_pairs: IdAllocator::new("queue pairs", tables.queue_pairs_log2.into()),
        completion_queues: IdAllocator::new("completion queues", tables.completion_queues_log2.into()),
        event_queues,
        regions: IdAllocator::new("regions", tables.regions_log2.into()),
        pages: PageTable::default(),
        address_handles: IdAllocator::new("address handles", tables.address_handles_log2.into()),
        shared_receive_queues: IdAllocator::new(
            "shared receive queues",
            tables.shared_receive_queues_log2.into(),
        ),
    })
}
