//! Open cards, and the state that all objects of a card share.

use crate::admin::{AdminQueue, CommandFailure, check_alive};
use crate::config_space;
use crate::doorbell::Doorbells;
use crate::error::{Error, check_option};
use crate::event_ring::{EventRing, Routes};
use crate::function::{Claim, Function};
use crate::id_allocator::IdAllocator;
use crate::mapping::Mapping;
use crate::pages::PageTable;
use crate::path::Path;
use crate::process::Process;
use crate::registers::Registers;
use crate::startup::{
    Limits, Options, enable, identify, provide_contexts, read_limits, reset, set_addresses, start_events,
};
use crate::sync::{Mutex, lock};
use crate::waits::Waits;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use rnic_layout::admin::{Answer, Body, CommandOpcode};
use rnic_layout::limits::{DOMAIN_BITS, SOURCE_ADDRESSES};
use rnic_layout::path::Gid;
use rnic_layout::registers::{
    COUNTERS, CounterLatch, PermanentMac, PortSpeed, Status, counter, counter_offset,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Allocators of object numbers, for all kinds of objects, and the random number generator that they draw from.
pub(crate) struct IdAllocators {
    pub(crate) rng: ChaCha12Rng,
    pub(crate) domains: IdAllocator,
    pub(crate) queue_pairs: IdAllocator,
    pub(crate) completion_queues: IdAllocator,
    pub(crate) event_queues: IdAllocator,
    pub(crate) regions: IdAllocator,
    pub(crate) pages: PageTable,
    pub(crate) address_handles: IdAllocator,
    /// Paths of the address handles, by their numbers.
    pub(crate) paths: BTreeMap<u32, Path>,
    pub(crate) shared_receive_queues: IdAllocator,
}

/// An object for the card to create.
pub(crate) struct NewObject<'a> {
    /// The command that creates it.
    pub(crate) opcode: CommandOpcode,
    pub(crate) number: u32,
    /// Parameters of the command.
    pub(crate) body: Body,
    /// Memory that the object uses.
    pub(crate) memory: &'a [&'a Mapping],
}

/// State that all objects of a card share. Its `Drop` resets the card; the fields that hold mapped memory are dropped after
/// that, or leaked if the card does not confirm the reset and could harm whoever gets the memory next.
pub(crate) struct DeviceShared {
    pub(crate) function: Arc<dyn Function>,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    /// Times that the card has for what it does.
    pub(crate) waits: Waits,
    pub(crate) doorbells: Doorbells,
    pub(crate) ids: Mutex<IdAllocators>,
    pub(crate) events: EventRing,
    pub(crate) routes: Arc<Routes>,
    registers: Arc<Registers>,
    admin: Mutex<AdminQueue>,
    /// Host memory of contexts that the card keeps there; the driver does not read it.
    contexts: Vec<Mapping>,
    /// Memory of objects that the card may still have, because it has not confirmed that it has destroyed them.
    unconfirmed: Mutex<Vec<Mapping>>,
    /// Process that has opened the card.
    process: Process,
    /// Dropped last: then nobody has the card.
    _claim: Claim,
}

impl DeviceShared {
    /// Executes a command, then delivers the events that may have arrived with its answer. The next call that asks for
    /// events reports an illegal one; the result of the command does not depend on it.
    pub(crate) fn execute(
        &self,
        opcode: CommandOpcode,
        object_number: u32,
        body: Body,
    ) -> Result<Answer, CommandFailure> {
        if self.is_forked() {
            return Err(CommandFailure::closed(Error::Forked));
        }
        let answer = lock(&self.admin).execute(opcode, object_number, body)?;
        self.events.collect();
        Ok(answer)
    }

    /// As [`Self::execute`], of a command that lets the card access `memory`. If it is open whether the card executes the
    /// command, the memory is kept until a reset.
    pub(crate) fn execute_with(
        &self,
        opcode: CommandOpcode,
        object_number: u32,
        body: Body,
        memory: &[&Mapping],
    ) -> Result<(), CommandFailure> {
        match self.execute(opcode, object_number, body) {
            Ok(_) => Ok(()),
            Err(failure) => {
                if failure.is_open {
                    self.keep(memory);
                }
                Err(failure)
            }
        }
    }

    /// Creates an object. `free` frees its number; it is called if the card certainly has no such object.
    pub(crate) fn create(
        &self,
        object: NewObject<'_>,
        free: impl FnOnce(&mut IdAllocators),
    ) -> Result<(), Error> {
        let NewObject { opcode, number, body, memory } = object;
        self.execute_with(opcode, number, body, memory).map_err(|failure| {
            if !failure.is_open {
                free(&mut lock(&self.ids));
            }
            failure.error
        })
    }

    /// Destroys an object that uses `memory`. Returns whether the card has confirmed it. If not, the memory is kept until a
    /// reset, and the caller must not free the number of the object. Nothing is done in a process that was forked.
    #[must_use]
    pub(crate) fn destroy(&self, opcode: CommandOpcode, object_number: u32, memory: &[&Mapping]) -> bool {
        if self.is_forked() {
            return false;
        }
        let is_confirmed = self.execute(opcode, object_number, Body::Destroy).is_ok();
        if !is_confirmed {
            self.keep(memory);
        }
        is_confirmed
    }

    /// Returns whether this process was forked from the one that has opened the card. It leaves the card alone then, and takes no
    /// lock, which a thread may have had that exists in the other process only.
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Keeps memory until the card is reset.
    fn keep(&self, memory: &[&Mapping]) {
        lock(&self.unconfirmed).extend(memory.iter().map(|mapping| mapping.share()));
    }
}

impl Drop for DeviceShared {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        let reset = || reset(&*self.function, &self.registers, self.options.timeout);
        let is_reset = match reset() {
            // A function-level reset under the driver has turned the BARs off.
            Err(Error::Absent) => config_space::enable_registers(&*self.function).is_ok() && reset().is_ok(),
            outcome => outcome.is_ok(),
        };
        // Whether that succeeds shows nothing: a card that was removed fails here too.
        let _ = config_space::enable_registers(&*self.function);
        if is_reset || self.function.isolates_memory() {
            return;
        }
        // The card may still access its memory, and without an IOMMU unmapping does not prevent that.
        self.contexts.iter().chain(&*lock(&self.unconfirmed)).for_each(Mapping::leak);
        self.events.memory().leak();
        lock(&self.admin).leak();
    }
}

/// An open card. Clones are cheap and refer to the same card, which is reset when the last clone and the last of its objects
/// are dropped.
#[derive(Clone)]
pub struct Device {
    pub(crate) shared: Arc<DeviceShared>,
}

impl Device {
    /// Opens a card: identifies it, resets it, configures its rings, addresses and host memory, and enables it. As long as
    /// the device or an object of it exists, the function cannot be opened again.
    ///
    /// # Errors
    ///
    /// [`FunctionError::InUse`](crate::FunctionError::InUse) with the name of the owner if the function is open,
    /// [`Error::Absent`], [`Error::NotOurFunction`], [`Error::BarSize`], [`Error::NotThisCard`] or [`Error::LayoutVersion`] if this is no card for this driver,
    /// [`Error::Option`] if an option is outside the card's limits, [`Error::TimedOut`] if the card does not start in time,
    /// or a failure of the back end.
    pub fn open(function: Arc<dyn Function>, options: Options) -> Result<Self, Error> {
        let count = options.addresses.len() as u64;
        check_option("addresses.len()", count, 0, SOURCE_ADDRESSES as u64)?;
        // Peers drop frames from a group.
        check_option("multicast bit of mac", (options.mac[0] & 1).into(), 0, 0)?;
        let claim = function.ownership().claim(options.owner())?;
        let options = options.scaled(&*function);
        config_space::identify(&*function)?;
        config_space::enable_registers(&*function)?;
        let registers = Arc::new(Registers::new(&function)?);
        identify(&registers)?;
        reset(&*function, &registers, options.timeout)?;
        let limits = read_limits(&registers)?;
        function.limit_addresses(limits.address_bits())?;

        let contexts = provide_contexts(&function, &registers)?;
        let waits = Waits::set(&*function, &registers, options.timeout, options.host_limit)?;
        let admin = AdminQueue::start(&function, &registers, waits)?;
        let doorbells = Doorbells::new(&function, 0)?;
        let routes = Arc::default();
        let events = start_events(&function, &registers, &doorbells, &limits, &options, &routes)?;
        let rng = match options.seed {
            Some(seed) => ChaCha12Rng::seed_from_u64(seed),
            None => ChaCha12Rng::from_os_rng(),
        };
        let ids = Mutex::new(id_allocators(rng, &limits)?);
        let shared = DeviceShared {
            function,
            limits,
            options,
            waits,
            doorbells,
            ids,
            events,
            routes,
            registers,
            admin: Mutex::new(admin),
            contexts,
            unconfirmed: Mutex::default(),
            process: Process::current(),
            _claim: claim,
        };
        set_addresses(&shared.registers, &shared.options)?;
        // From here on the card accesses memory, so an error drops `shared`, which resets the card.
        enable(&*shared.function, &shared.registers, shared.options.timeout)?;
        // A command without effect checks that the admin queue works.
        shared.execute(CommandOpcode::Nothing, 0, Body::Nothing)?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Capabilities of the card.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Options that the card was opened with.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Source address (GID) of this index, or `None` if there is none.
    pub fn address(&self, index: usize) -> Option<Gid> {
        self.shared.options.source_addresses().get(index).copied()
    }

    /// Counts the objects of the card that are in use, to find those that an application has forgotten: it has not dropped them,
    /// or the card has not confirmed their end. Event queue 0, which belongs to the device, does not count.
    pub fn objects(&self) -> ObjectCounts {
        let ids = lock(&self.shared.ids);
        ObjectCounts {
            protection_domains: ids.domains.in_use(),
            queue_pairs: ids.queue_pairs.in_use(),
            completion_queues: ids.completion_queues.in_use(),
            event_queues: ids.event_queues.in_use() - 1,
            regions: ids.regions.in_use(),
            page_table_entries: ids.pages.in_use(),
            address_handles: ids.address_handles.in_use(),
            shared_receive_queues: ids.shared_receive_queues.in_use(),
        }
    }

    /// Returns whether the network port has a link.
    ///
    /// # Errors
    ///
    /// [`Error::Absent`] if the card was removed, or a failure of the back end.
    pub fn link_up(&self) -> Result<bool, Error> {
        Ok(self.shared.registers.read::<Status>()?.link_up)
    }

    /// MAC address that the board was given, for [`Options::mac`]; `None` if it has none.
    ///
    /// # Errors
    ///
    /// As [`Self::link_up`].
    pub fn permanent_mac(&self) -> Result<Option<[u8; 6]>, Error> {
        let PermanentMac { mac } = self.shared.registers.read()?;
        let [_, _, bytes @ ..] = mac.to_be_bytes();
        Ok((mac != 0).then_some(bytes))
    }

    /// Speed of the port in Mb/s; `None` if the board does not know it.
    ///
    /// # Errors
    ///
    /// As [`Self::link_up`].
    pub fn port_speed(&self) -> Result<Option<u32>, Error> {
        let PortSpeed { megabits } = self.shared.registers.read()?;
        Ok((megabits != 0).then_some(megabits))
    }

    /// Checks that the card has not failed.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceFailed`] if the card has reported a fatal failure, [`Error::Absent`] if it was removed, or a failure of
    /// the back end.
    pub fn check(&self) -> Result<(), Error> {
        check_alive(&self.shared.registers)
    }

    /// Takes a consistent snapshot of all counters.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] if the card does not finish it within [`Options::timeout`], or a failure of the back end.
    pub fn counters(&self) -> Result<Counters, Error> {
        let DeviceShared { function, registers, options, .. } = &*self.shared;
        // The lock admits one snapshot at a time.
        let _admin = lock(&self.shared.admin);
        registers.write(CounterLatch { latch: true })?;
        let deadline = function.now().saturating_add(options.timeout);
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

/// Objects of a card that are in use, of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Protection domains.
    pub protection_domains: u32,
    /// Queue pairs. One that was dropped counts until its completion queues have been polled once more.
    pub queue_pairs: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Event queues of the application.
    pub event_queues: u32,
    /// Registered regions. One whose memory is in a posted request, or in a completion, is in use.
    pub regions: u32,
    /// Entries of the page table, which regions of scattered memory use.
    pub page_table_entries: u32,
    /// Address handles.
    pub address_handles: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
}

/// Snapshot of all counters of a card at one moment. Counters run freely and wrap; not even a reset clears them, so software
/// takes differences of snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters(Vec<u64>);

impl Counters {
    /// Value of a counter, by its name in the register manual.
    ///
    /// # Panics
    ///
    /// If no counter has this name.
    pub fn get(&self, name: &str) -> u64 {
        self.0[counter(name)]
    }

    /// Iterates over the names and values of all counters, in the order of the register manual.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNTERS.iter().map(|counter| counter.name).zip(self.0.iter().copied())
    }
}

fn id_allocators(rng: ChaCha12Rng, limits: &Limits) -> Result<IdAllocators, Error> {
    let tables = &limits.tables;
    let mut event_queues = IdAllocator::new("event queues", tables.event_queues_log2.into());
    // Event queue 0 belongs to the device.
    event_queues.allocate_lowest()?;
    Ok(IdAllocators {
        rng,
        domains: IdAllocator::new("protection domains", DOMAIN_BITS),
        queue_pairs: IdAllocator::new("queue pairs", tables.queue_pairs_log2.into()),
        completion_queues: IdAllocator::new("completion queues", tables.completion_queues_log2.into()),
        event_queues,
        regions: IdAllocator::new("regions", tables.regions_log2.into()),
        pages: PageTable::new(limits.pages_log2()),
        address_handles: IdAllocator::new("address handles", tables.address_handles_log2.into()),
        paths: BTreeMap::new(),
        shared_receive_queues: IdAllocator::new(
            "shared receive queues",
            tables.shared_receive_queues_log2.into(),
        ),
    })
}
