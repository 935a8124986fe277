//! Typed access to BAR 0: one type per register, from the tables of the layout.

use crate::error::Error;
use crate::function::{Bar, Function, REGISTER_BAR};
use rnic_layout::field::FieldError;
use rnic_layout::registers::{
    self, AdminAnswerBase, AdminCommandBase, AdminControl, AdminDoorbell, AdminProgress, Control,
    CounterLatch, EventQueueBase, EventQueueControl, Fatal, Features, Geometry, HostLimit, HostMemoryBase,
    HostMemoryBytes, LayoutVersion, MemoryLimits, MessageLimit, OwnMac, PermanentMac, PortControl, PortSpeed,
    QueueLimits, Register, SourceAddressHigh, SourceAddressLow, SourceAddressPort, Status, TableSizes,
};
use std::sync::Arc;

/// Decoded value of a register.
pub(crate) trait Value: Sized {
    /// Register that holds such a value; gives its offset in BAR 0.
    const REGISTER: &'static Register;
    /// Decodes the eight bytes of the register.
    fn parse(bytes: [u8; 8]) -> Result<Self, FieldError>;
    /// Encodes the eight bytes of the register.
    fn bytes(self) -> Result<[u8; 8], FieldError>;
}

macro_rules! values {
    ($($type:ident: $register:ident),+ $(,)?) => {$(
        impl Value for $type {
            const REGISTER: &'static Register = &registers::$register;

            fn parse(bytes: [u8; 8]) -> Result<Self, FieldError> {
                Self::parse(&bytes)
            }

            fn bytes(self) -> Result<[u8; 8], FieldError> {
                self.to_bytes()
            }
        }
    )+};
}

values! {
    LayoutVersion: REG_LAYOUT_VERSION,
    Features: REG_FEATURES,
    Geometry: REG_GEOMETRY,
    TableSizes: REG_TABLE_SIZES,
    QueueLimits: REG_QUEUE_LIMITS,
    MessageLimit: REG_MESSAGE_LIMIT,
    MemoryLimits: REG_MEMORY_LIMITS,
    PermanentMac: REG_PERMANENT_MAC,
    PortSpeed: REG_PORT_SPEED,
    Status: REG_STATUS,
    Fatal: REG_FATAL,
    HostLimit: REG_HOST_LIMIT,
    OwnMac: REG_OWN_MAC,
    PortControl: REG_PORT_CONTROL,
    AdminCommandBase: REG_ADMIN_COMMAND_BASE,
    AdminAnswerBase: REG_ADMIN_ANSWER_BASE,
    AdminControl: REG_ADMIN_CONTROL,
    AdminDoorbell: REG_ADMIN_DOORBELL,
    AdminProgress: REG_ADMIN_PROGRESS,
    EventQueueBase: REG_EVENT_QUEUE_BASE,
    EventQueueControl: REG_EVENT_QUEUE_CONTROL,
    HostMemoryBase: REG_HOST_MEMORY_BASE,
    HostMemoryBytes: REG_HOST_MEMORY_BYTES,
    SourceAddressHigh: REG_SOURCE_ADDRESS_HIGH,
    SourceAddressLow: REG_SOURCE_ADDRESS_LOW,
    SourceAddressPort: REG_SOURCE_ADDRESS_PORT,
    CounterLatch: REG_COUNTER_LATCH,
    Control: REG_CONTROL,
}

/// Registers of a card, in BAR 0.
pub(crate) struct Registers {
    function: Arc<dyn Function>,
}

impl Registers {
    /// Checks that BAR 0 exists and is large enough.
    pub(crate) fn new(function: &Arc<dyn Function>) -> Result<Self, Error> {
        let bytes = function.bar(REGISTER_BAR)?.bytes();
        let needed = u64::from(registers::BAR0_BYTES);
        if bytes < needed {
            return Err(Error::BarTooSmall { bar: REGISTER_BAR, bytes, needed });
        }
        Ok(Self { function: Arc::clone(function) })
    }

    /// The reason why a register reads as all ones.
    pub(crate) fn absent(&self) -> Error {
        self.function.check().map_or_else(Error::from, |()| Error::Absent)
    }

    fn bar(&self) -> Result<&dyn Bar, Error> {
        Ok(self.function.bar(REGISTER_BAR)?)
    }

    /// Reads the 64 bits at a byte offset without decoding them.
    pub(crate) fn raw(&self, offset: u32) -> Result<u64, Error> {
        Ok(self.bar()?.read64(u64::from(offset)))
    }

    /// Reads a register. All ones, which is no legal value of any register, fail with [`Error::Absent`].
    pub(crate) fn read<V: Value>(&self) -> Result<V, Error> {
        self.read_at(0)
    }

    /// Reads element `index` of a register array.
    pub(crate) fn read_at<V: Value>(&self, index: u32) -> Result<V, Error> {
        let value = self.raw(V::REGISTER.at(index))?;
        if value == u64::MAX {
            return Err(self.absent());
        }
        Ok(V::parse(value.to_le_bytes())?)
    }

    /// Writes a register.
    pub(crate) fn write<V: Value>(&self, value: V) -> Result<(), Error> {
        self.write_at(0, value)
    }

    /// Writes element `index` of a register array.
    pub(crate) fn write_at<V: Value>(&self, index: u32, value: V) -> Result<(), Error> {
        let value = u64::from_le_bytes(value.bytes()?);
        self.bar()?.write64(u64::from(V::REGISTER.at(index)), value);
        Ok(())
    }
}
