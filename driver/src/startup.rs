//! Bringing up a card, in the order that the register manual prescribes.

use crate::admin::check_alive;
use crate::config_space::{enable_bus_master, enable_registers};
use crate::doorbell::Doorbells;
use crate::encoding::{mac_number, path_mtu};
use crate::error::{Error, check_option};
use crate::event_ring::{EventRing, Routes};
use crate::function::Function;
use crate::mapping::Mapping;
use crate::memory::Purpose;
use crate::registers::Registers;
use crate::waits::Waits;
use rnic_layout::limits::{
    DEVICE_ADDRESS_BITS, EQES_LOG2_MAX, HOST_LIMIT_RESET_MS, PAGE_ENTRIES_LOG2, RING_LOG2_MIN,
};
use rnic_layout::path::{Gid, Pmtu};
use rnic_layout::registers::{
    Control, EventQueueBase, EventQueueControl, Features, Geometry, HostMemoryBase, HostMemoryBytes,
    LAYOUT_MAJOR, LayoutVersion, MAGIC, MemoryKind, MemoryLimits, MessageLimit, OwnMac, PortControl,
    QueueLimits, REG_MAGIC, SourceAddressHigh, SourceAddressLow, SourceAddressPort, Status, TableSizes,
};
use std::sync::Arc;
use std::time::Duration;

/// Parameters of [`Device::open`](crate::Device::open).
#[derive(Clone, Debug)]
pub struct Options {
    /// MAC address of the port.
    pub mac: [u8; 6],
    /// Source addresses (the GID table), at most 16. Address handles refer to them by index. If empty, the only source
    /// address is the link-local address of `mac`.
    pub addresses: Vec<Gid>,
    /// Active MTU: largest payload of a packet that the port carries.
    pub active_mtu: Pmtu,
    /// Seed of QPNs, keys, first PSNs and region addresses. With `None` the operating system provides it, as is necessary
    /// where peers are not trusted. A fixed seed makes runs reproducible.
    pub seed: Option<u64>,
    /// Time that the card itself has for a reset, for its start, and for each command, in the time of the [`Function`], whose
    /// [`time_scale`](Function::time_scale) multiplies it. What it may wait for the host comes on top: see [`Self::host_limit`].
    pub timeout: Duration,
    /// Longest time that the host may take to answer a read of the card, or to report a write, on the card's clock. After that the
    /// card gives the access up, which fails one queue pair, or the device if it was for a command. The driver waits accordingly: a
    /// little longer for a reset, and for a command as many times as long as it has accesses that follow one another. At least a
    /// nanosecond, and at most what the register `host_limit` holds: 268 ms at 250 MHz. A read of PCI Express may take 50 ms.
    pub host_limit: Duration,
    /// log2 of the number of EQEs of event queue 0, from 6 to the card's limit. Half of them are kept for asynchronous
    /// events, which are lost if they find no room; see [`Error::EventsLost`]. Events of completion queues are never lost.
    pub eqes_log2: u32,
}

impl Options {
    /// Default options for a port with this MAC address: its link-local address, an MTU of 4096 bytes, a seed of the
    /// operating system, a timeout of 10 ms and a host limit of 64 ms, 256 EQEs.
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            addresses: Vec::new(),
            active_mtu: Pmtu::Bytes4096,
            seed: None,
            timeout: Duration::from_millis(10),
            host_limit: Duration::from_millis(HOST_LIMIT_RESET_MS),
            eqes_log2: 8,
        }
    }

    /// The options of a device on a function: its timeouts are on the function's clock.
    pub(crate) fn scaled(mut self, function: &dyn Function) -> Self {
        self.timeout = self.timeout.saturating_mul(function.time_scale());
        self
    }

    /// Name of the owner of a function that is opened with these options.
    pub(crate) fn owner(&self) -> String {
        let [a, b, c, d, e, f] = self.mac;
        let process = std::process::id();
        format!("process {process} with the MAC address {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }

    /// Source addresses of the port, at least one.
    pub(crate) fn source_addresses(&self) -> Vec<Gid> {
        if self.addresses.is_empty() { vec![Gid::from_mac(self.mac)] } else { self.addresses.clone() }
    }
}

/// Capabilities of the card, read from its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations and kinds of objects that the card implements.
    pub features: Features,
    /// Datapath width, clock frequency and number of interrupt vectors.
    pub geometry: Geometry,
    /// log2 of the number of objects of each kind.
    pub tables: TableSizes,
    /// Largest queues, and largest work requests.
    pub queues: QueueLimits,
    /// Largest message in bytes.
    pub message_bytes: u64,
    /// Width of device addresses, the pages of regions, and the slots of READs and atomics that all queue pairs share. Older cards say
    /// nothing and read as zeros.
    pub memory: MemoryLimits,
}

impl Limits {
    /// Bits of the device addresses that the card puts out.
    pub fn address_bits(&self) -> u32 {
        match self.memory.address_bits {
            0 => DEVICE_ADDRESS_BITS,
            bits => bits.into(),
        }
    }

    /// READs and atomics in flight that a queue pair has room for when its options say nothing: as many as every queue pair can have,
    /// up to `limit`, which is that of one queue pair.
    pub(crate) fn fair_reads(&self, limit: u8) -> u8 {
        if self.memory.read_slots_log2 == 0 {
            // A card that says nothing has room for all.
            return limit;
        }
        let each = 1u32 << self.memory.read_slots_log2.saturating_sub(self.tables.queue_pairs_log2);
        u8::try_from(each).map_or(limit, |each| each.min(limit))
    }

    /// Pages that all regions can have together, log2.
    pub(crate) fn pages_log2(&self) -> u32 {
        match self.memory.pages_log2 {
            0 => PAGE_ENTRIES_LOG2,
            log2 => log2.into(),
        }
    }
}

/// Fails unless the registers are those of an rnic card with the layout of this driver.
pub(crate) fn identify(registers: &Registers) -> Result<(), Error> {
    match registers.raw(REG_MAGIC.offset)? {
        MAGIC => {}
        u64::MAX => return Err(registers.absent()),
        found => return Err(Error::NotThisCard { found }),
    }
    let version: LayoutVersion = registers.read()?;
    if u64::from(version.major) != LAYOUT_MAJOR {
        return Err(Error::LayoutVersion { found_major: version.major, found_minor: version.minor });
    }
    Ok(())
}

/// Resets the card through its register. If that times out, resets the function, then the card through its register once
/// more. The card itself has the time `own` for it.
pub(crate) fn reset(function: &dyn Function, registers: &Registers, own: Duration) -> Result<(), Error> {
    let attempt = || {
        // A reset of the function has changed the card's limit.
        let timeout = Waits::of_card(function, registers, own)?.reset();
        registers.write(Control { enable: false, reset: true, quiesce: false })?;
        wait(function, registers, timeout, "a reset", |status| !status.resetting)
    };
    match attempt() {
        Err(late @ Error::TimedOut { .. }) => {
            if function.reset().is_err() {
                return Err(late);
            }
            enable_registers(function)?;
            attempt()
        }
        done => done,
    }
}

/// Lets the card reach memory, enables it, and waits until it is ready.
pub(crate) fn enable(function: &dyn Function, registers: &Registers, timeout: Duration) -> Result<(), Error> {
    enable_bus_master(function)?;
    registers.write(Control { enable: true, reset: false, quiesce: false })?;
    wait(function, registers, timeout, "the start of the card", |status| status.ready)
}

fn wait(
    function: &dyn Function,
    registers: &Registers,
    timeout: Duration,
    what: &'static str,
    done: impl Fn(&Status) -> bool,
) -> Result<(), Error> {
    let deadline = function.now().saturating_add(timeout);
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

/// Reads the capabilities of the card.
pub(crate) fn read_limits(registers: &Registers) -> Result<Limits, Error> {
    let message: MessageLimit = registers.read()?;
    Ok(Limits {
        features: registers.read()?,
        geometry: registers.read()?,
        tables: registers.read()?,
        queues: registers.read()?,
        message_bytes: message.message_bytes,
        memory: registers.read()?,
    })
}

/// Allocates host memory for each kind of context that the card keeps there, and writes the addresses to the card.
pub(crate) fn provide_contexts(
    function: &Arc<dyn Function>,
    registers: &Registers,
) -> Result<Vec<Mapping>, Error> {
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

/// Allocates event queue 0, and enables it on the card.
pub(crate) fn start_events(
    function: &Arc<dyn Function>,
    registers: &Registers,
    doorbells: &Doorbells,
    limits: &Limits,
    options: &Options,
    routes: &Arc<Routes>,
) -> Result<EventRing, Error> {
    let log2 = options.eqes_log2;
    let limit = u32::from(limits.queues.eqes_log2).min(EQES_LOG2_MAX);
    check_option("eqes_log2", log2.into(), RING_LOG2_MIN.into(), limit.into())?;
    let ring = EventRing::new(function, doorbells.clone(), 0, 0, log2, routes)?;
    registers.write(EventQueueBase { address: ring.memory().device_address() })?;
    registers.write(EventQueueControl { entries_log2: log2 as u8, enable: true, vector: 0 })?;
    Ok(ring)
}

/// Writes the MAC address, the active MTU and the source addresses of the port.
pub(crate) fn set_addresses(registers: &Registers, options: &Options) -> Result<(), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_in_flight_are_as_many_as_every_queue_pair_can_have() {
        for (queue_pairs_log2, read_slots_log2, limit, expected) in [
            (10, 0, 16, 16),
            (10, 13, 16, 8),
            (10, 14, 16, 16),
            (10, 20, 16, 16),
            (4, 20, 16, 16),
            (10, 13, 4, 4),
            (10, 13, 0, 0),
            (10, 9, 16, 1),
        ] {
            let limits = Limits {
                features: Features::at_reset(),
                geometry: Geometry::at_reset(),
                tables: TableSizes { queue_pairs_log2, ..TableSizes::at_reset() },
                queues: QueueLimits::at_reset(),
                message_bytes: 0,
                memory: MemoryLimits { read_slots_log2, ..MemoryLimits::at_reset() },
            };
            assert_eq!(limits.fair_reads(limit), expected, "{queue_pairs_log2} {read_slots_log2} {limit}");
        }
    }
}
