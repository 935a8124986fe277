//! Times that the driver waits for the card. They follow from the limit that the card has for its host.

use crate::error::{Error, check_option};
use crate::function::Function;
use crate::registers::Registers;
use rnic_layout::registers::{Geometry, HostLimit};
use std::time::Duration;

/// Times that the driver waits for the card: what the card takes itself, and what it waits for the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// Time of the card itself, on the clock of the function.
    own: Duration,
    /// The card's own limit for its host.
    limit: HostLimit,
    clock_khz: u32,
    time_scale: u32,
}

impl Waits {
    /// The waits that fit the limit that the card has now.
    pub(crate) fn of_card(
        function: &dyn Function,
        registers: &Registers,
        own: Duration,
    ) -> Result<Self, Error> {
        let Geometry { clock_khz, .. } = registers.read()?;
        Ok(Self { own, limit: registers.read()?, clock_khz, time_scale: function.time_scale() })
    }

    /// Gives the card a limit. Returns the waits that fit it.
    pub(crate) fn set(
        function: &dyn Function,
        registers: &Registers,
        own: Duration,
        host_limit: Duration,
    ) -> Result<Self, Error> {
        let Geometry { clock_khz, .. } = registers.read()?;
        let nanoseconds = u64::try_from(host_limit.as_nanos()).unwrap_or(u64::MAX);
        let longest = HostLimit::nanoseconds(HostLimit::UNITS_MAX, clock_khz);
        check_option("host_limit in ns", nanoseconds, 1, longest)?;
        let units = HostLimit::units(nanoseconds, clock_khz).min(HostLimit::UNITS_MAX);
        registers.write(HostLimit { limit: units as u16 })?;
        Self::of_card(function, registers, own)
    }

    /// Time of these units, on the clock of the function.
    fn host(&self, units: u64) -> Duration {
        let time = Duration::from_nanos(HostLimit::nanoseconds(units, self.clock_khz));
        time.saturating_mul(self.time_scale)
    }

    /// For a reset.
    pub(crate) fn reset(&self) -> Duration {
        self.own.saturating_add(self.host(self.limit.drain_units()))
    }

    /// For the answer to a command with this many accesses of the host.
    pub(crate) fn command(&self, accesses: u32) -> Duration {
        self.own.saturating_add(self.host(self.limit.limit.into()).saturating_mul(accesses))
    }
}
