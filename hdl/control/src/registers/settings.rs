//! Settings: the registers whose values the card needs at all times, and what a write asks for once.
use super::{ABOVE, OFFSET_BITS, PAGE_BITS, WORD, WORD_BITS, bit};
use crate::register_map::{at, merge};
use rnic_kernel::prelude::*;
use rnic_layout::registers::{HostLimit, TimerUnit};
use rnic_messages::complete::EventQueueSetup;
use rnic_messages::sizes::{HOST_LIMIT_BITS, TIMER_UNIT_BITS, VECTOR_BITS};

/// A write of a register, of software or of the sweep of a reset, without its reserved bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct RegisterWrite {
    /// Number of the register.
    pub(super) word: Bits<WORD_BITS>,
    pub(super) data: Bits<64>,
    /// Bytes of `data` that are written.
    pub(super) strobe: Bits<8>,
    /// The sweep writes.
    pub(super) is_swept: Bit,
}

/// Values of registers, without their reserved bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Settings {
    pub(super) control: Bits<3>,
    pub(super) own_mac: Bits<48>,
    pub(super) host_limit: Bits<HOST_LIMIT_BITS>,
    pub(super) timer_unit: Bits<TIMER_UNIT_BITS>,
    /// Flags of `port_control` that software may change.
    pub(super) port_flags: Bits<2>,
    pub(super) command_page: Bits<PAGE_BITS>,
    pub(super) answer_page: Bits<PAGE_BITS>,
    pub(super) admin_control: Bits<10>,
    pub(super) admin_doorbell: Bits<16>,
    pub(super) event_queue_page: Bits<PAGE_BITS>,
    pub(super) event_queue_control: Bits<22>,
    pub(super) interrupt_mask: Bits<64>,
    /// The low half of `counter_latch` was written.
    pub(super) latch_requested: Bit,
}

/// Settings whose registers have their values at reset, those of a card of this core clock.
pub(super) fn settings_at_reset(clock_khz: u32) -> Settings {
    let limit = HostLimit::at_reset_of(clock_khz).limit;
    let unit = timer_unit(clock_khz).cycles;
    Settings { host_limit: bits(limit.into()), timer_unit: bits(unit.into()), ..Settings::default() }
}

/// Gives the unit of the timers at reset: cycles of the core clock in 4.096 us, rounded up.
pub(super) fn timer_unit(clock_khz: u32) -> TimerUnit {
    let cycles = (u64::from(clock_khz) * 4096).div_ceil(1_000_000);
    TimerUnit { cycles: u16::try_from(cycles).expect("a core clock is below 16 GHz") }
}

/// What a write asks for once.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Requests {
    /// A reset.
    pub(super) reset: Bit,
    /// Commands were posted.
    pub(super) admin_doorbell: Bit,
    /// The settings of event queue 0 take effect.
    pub(super) event_queue: Bit,
    /// All counters are copied for the reader.
    pub(super) latch: Bit,
    /// Interrupts that are no longer pending.
    pub(super) pending_clear: Bits<64>,
}

/// Gives the byte address of a register.
#[kernel]
fn address_of(word: Bits<WORD_BITS>) -> Bits<64> {
    bit_cast::<64, ABOVE>(cat!(word, bits::<WORD>(0)))
}

/// Writes the page of the address of a ring.
#[kernel]
fn merge_page(page: Bits<PAGE_BITS>, data: Bits<64>, strobe: Bits<8>) -> Bits<PAGE_BITS> {
    merge(cat!(page, bits::<OFFSET_BITS>(0)), data, strobe).get_bits::<PAGE_BITS>(OFFSET_BITS)
}

/// Gives `control` after a write of its low byte, with `reset` still in it.
#[kernel]
fn written_control(settings: Settings, write: RegisterWrite) -> Bits<3> {
    select(write.strobe.get_bit(0), write.data.get_bits::<3>(0), settings.control)
}

/// Tells whether `counter_latch` is set after a write of its low byte.
#[kernel]
fn written_latch(settings: Settings, write: RegisterWrite) -> Bit {
    select(write.strobe.get_bit(0), write.data.get_bit(0), settings.latch_requested)
}

/// Gives the settings after a write. `control.reset` and `counter_latch` go back to zero when byte 7 is written.
#[kernel]
pub(super) fn next_settings(settings: Settings, write: RegisterWrite) -> Settings {
    let (data, strobe) = (write.data, write.strobe);
    let acts = strobe.get_bit(7);
    let control = written_control(settings, write);
    match address_of(write.word).to_u64() {
        at::CONTROL => {
            Settings { control: select(acts, control.replace_bit(bit::RESET, false), control), ..settings }
        }
        at::OWN_MAC => {
            let old = bit_cast::<64, 48>(settings.own_mac);
            Settings { own_mac: merge(old, data, strobe).get_bits::<48>(0), ..settings }
        }
        at::HOST_LIMIT => {
            let old = bit_cast::<64, HOST_LIMIT_BITS>(settings.host_limit);
            Settings { host_limit: merge(old, data, strobe).get_bits::<HOST_LIMIT_BITS>(0), ..settings }
        }
        at::TIMER_UNIT => {
            let old = bit_cast::<64, TIMER_UNIT_BITS>(settings.timer_unit);
            Settings { timer_unit: merge(old, data, strobe).get_bits::<TIMER_UNIT_BITS>(0), ..settings }
        }
        at::PORT_CONTROL => {
            let flags = data.get_bits::<2>(0);
            Settings { port_flags: select(strobe.get_bit(0), flags, settings.port_flags), ..settings }
        }
        at::ADMIN_COMMAND_BASE => {
            Settings { command_page: merge_page(settings.command_page, data, strobe), ..settings }
        }
        at::ADMIN_ANSWER_BASE => {
            Settings { answer_page: merge_page(settings.answer_page, data, strobe), ..settings }
        }
        at::ADMIN_CONTROL => {
            let old = bit_cast::<64, 10>(settings.admin_control);
            Settings { admin_control: merge(old, data, strobe).get_bits::<10>(0), ..settings }
        }
        at::ADMIN_DOORBELL => {
            let old = bit_cast::<64, 16>(settings.admin_doorbell);
            Settings { admin_doorbell: merge(old, data, strobe).get_bits::<16>(0), ..settings }
        }
        at::EVENT_QUEUE_BASE => {
            Settings { event_queue_page: merge_page(settings.event_queue_page, data, strobe), ..settings }
        }
        at::EVENT_QUEUE_CONTROL => {
            let old = bit_cast::<64, 22>(settings.event_queue_control);
            Settings { event_queue_control: merge(old, data, strobe).get_bits::<22>(0), ..settings }
        }
        at::INTERRUPT_MASK => {
            Settings { interrupt_mask: merge(settings.interrupt_mask, data, strobe), ..settings }
        }
        at::COUNTER_LATCH => {
            Settings { latch_requested: written_latch(settings, write) && !acts, ..settings }
        }
        _ => settings,
    }
}

/// Gives what a write asks for. A register acts when its byte 7 is written; a sweep rings no doorbell and enters no queue.
#[kernel]
pub(super) fn requests_of(settings: Settings, write: RegisterWrite) -> Requests {
    let acts = write.strobe.get_bit(7);
    match address_of(write.word).to_u64() {
        at::CONTROL => Requests {
            reset: acts && written_control(settings, write).get_bit(bit::RESET),
            ..Default::default()
        },
        at::ADMIN_DOORBELL => Requests { admin_doorbell: acts && !write.is_swept, ..Default::default() },
        at::EVENT_QUEUE_CONTROL => Requests { event_queue: acts && !write.is_swept, ..Default::default() },
        at::INTERRUPT_PENDING => {
            Requests { pending_clear: merge(bits::<64>(0), write.data, write.strobe), ..Default::default() }
        }
        at::COUNTER_LATCH => Requests { latch: acts && written_latch(settings, write), ..Default::default() },
        _ => Requests::default(),
    }
}

/// Gives event queue 0; it restarts when `enable` has changed.
#[kernel]
pub(super) fn event_queue_0(settings: Settings, was_enabled: Bit) -> EventQueueSetup {
    let control = settings.event_queue_control;
    let enabled = control.get_bit(bit::QUEUE_ENABLE);
    EventQueueSetup {
        event_queue: bits(0),
        restarts: enabled != was_enabled,
        valid: enabled,
        entries_log2: control.get_bits::<5>(0),
        vector: control.get_bits::<VECTOR_BITS>(bit::QUEUE_VECTOR),
        base_page: settings.event_queue_page,
    }
}

/// What the card may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Permissions {
    /// New work may begin.
    pub(super) work: Bit,
    /// Commands may begin; a card that has failed answers them by code.
    pub(super) commands: Bit,
    /// Doorbells are taken, also while the card quiesces.
    pub(super) doorbells: Bit,
}

/// Decides what the card may do by `control`, by a reset that is requested or runs, and by a failure of the device.
#[kernel]
pub(super) fn permissions(control: Bits<3>, resets: Bit, device_failed: Bit) -> Permissions {
    let runs = control.get_bit(bit::ENABLE) && !resets;
    let may_begin = runs && !control.get_bit(bit::QUIESCE);
    Permissions { work: may_begin && !device_failed, commands: may_begin, doorbells: runs && !device_failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(address: u64, data: u64, strobe: u64) -> RegisterWrite {
        RegisterWrite { word: bits(address >> WORD), data: bits(data), strobe: bits(strobe), is_swept: false }
    }

    #[test]
    fn a_register_is_written_byte_by_byte() {
        let none = Settings::default();
        let all = u64::MAX;
        for (address, strobe, expected) in [
            (at::CONTROL, 0x0f, Settings { control: bits(7), ..none }),
            (at::CONTROL, 0xff, Settings { control: bits(5), ..none }),
            (at::CONTROL, 0xf0, none),
            (at::OWN_MAC, 0x01, Settings { own_mac: bits(0xff), ..none }),
            (at::OWN_MAC, 0x20, Settings { own_mac: bits(0xff00_0000_0000), ..none }),
            (at::OWN_MAC, 0x40, none),
            (at::HOST_LIMIT, 0x02, Settings { host_limit: bits(0xff00), ..none }),
            (at::HOST_LIMIT, 0xfc, none),
            (at::TIMER_UNIT, 0x01, Settings { timer_unit: bits(0xff), ..none }),
            (at::TIMER_UNIT, 0xfc, none),
            (at::PORT_CONTROL, 0x01, Settings { port_flags: bits(3), ..none }),
            (at::PORT_CONTROL, 0xfe, none),
            (at::ADMIN_COMMAND_BASE, 0x03, Settings { command_page: bits(0xf), ..none }),
            (at::ADMIN_ANSWER_BASE, 0x80, Settings { answer_page: bits(0xff << 44), ..none }),
            (at::ADMIN_CONTROL, 0xff, Settings { admin_control: bits(0x3ff), ..none }),
            (at::ADMIN_DOORBELL, 0x02, Settings { admin_doorbell: bits(0xff00), ..none }),
            (at::EVENT_QUEUE_BASE, 0x01, none),
            (at::EVENT_QUEUE_CONTROL, 0x04, Settings { event_queue_control: bits(0x3f_0000), ..none }),
            (at::INTERRUPT_MASK, 0xf0, Settings { interrupt_mask: bits(all << 32), ..none }),
            (at::COUNTER_LATCH, 0x0f, Settings { latch_requested: true, ..none }),
            (at::COUNTER_LATCH, 0xff, none),
            (at::INTERRUPT_PENDING, 0xff, none),
            (at::SCRATCH, 0xff, none),
        ] {
            let found = next_settings(none, write(address, all, strobe));
            assert_eq!(found, expected, "{address:x} {strobe:x}");
        }
    }

    #[test]
    fn a_unit_of_the_timers_is_4_096_us_of_the_core_clock_rounded_up() {
        for (clock_khz, cycles) in [(250_000, 1024), (500_000, 2048), (50_000, 205), (244_140, 1000)] {
            assert_eq!(timer_unit(clock_khz).cycles, cycles, "{clock_khz} kHz");
        }
        assert_eq!(timer_unit(250_000), TimerUnit::at_reset(), "the manual shows 250 MHz");
    }

    #[test]
    fn a_register_acts_when_its_last_byte_is_written() {
        let none = Requests::default();
        let half = Settings { control: bits(2), latch_requested: true, ..Settings::default() };
        let swept = |address| RegisterWrite { is_swept: true, ..write(address, 0, 0xff) };
        for (settings, write, expected) in [
            (Settings::default(), write(at::CONTROL, 2, 0x7f), none),
            (Settings::default(), write(at::CONTROL, 2, 0xff), Requests { reset: true, ..none }),
            (Settings::default(), write(at::CONTROL, 5, 0xff), none),
            (half, write(at::CONTROL, 0, 0xf0), Requests { reset: true, ..none }),
            (half, write(at::CONTROL, 0, 0xff), none),
            (half, write(at::COUNTER_LATCH, 0, 0x80), Requests { latch: true, ..none }),
            (half, write(at::COUNTER_LATCH, 0, 0x81), none),
            (Settings::default(), write(at::COUNTER_LATCH, 1, 0x01), none),
            (half, write(at::ADMIN_DOORBELL, 3, 0x0f), none),
            (half, write(at::ADMIN_DOORBELL, 3, 0x80), Requests { admin_doorbell: true, ..none }),
            (half, swept(at::ADMIN_DOORBELL), none),
            (half, write(at::EVENT_QUEUE_CONTROL, 3, 0xff), Requests { event_queue: true, ..none }),
            (half, swept(at::EVENT_QUEUE_CONTROL), none),
            (
                half,
                write(at::INTERRUPT_PENDING, 0x1234, 0x01),
                Requests { pending_clear: bits(0x34), ..none },
            ),
        ] {
            assert_eq!(requests_of(settings, write), expected, "{write:x?}");
        }
    }

    #[test]
    fn a_card_works_while_it_is_enabled_and_does_not_quiesce() {
        // `control`, a reset, a failure; work, commands, doorbells.
        for (control, resets, failed, [work, commands, doorbells]) in [
            (0b000, false, false, [false; 3]),
            (0b001, false, false, [true; 3]),
            (0b101, false, false, [false, false, true]),
            (0b100, false, false, [false; 3]),
            (0b001, true, false, [false; 3]),
            (0b001, false, true, [false, true, false]),
            (0b101, false, true, [false; 3]),
        ] {
            let found = permissions(bits(control), resets, failed);
            assert_eq!(found, Permissions { work, commands, doorbells }, "{control:b} {resets} {failed}");
        }
    }

    #[test]
    fn event_queue_0_restarts_when_it_is_enabled_or_disabled() {
        for (enabled, was_enabled) in [(false, false), (false, true), (true, false), (true, true)] {
            let settings = Settings {
                event_queue_control: bits(7 | u64::from(enabled) << bit::QUEUE_ENABLE),
                event_queue_page: bits(0x123),
                ..Settings::default()
            };
            let setup = event_queue_0(settings, was_enabled);
            assert_eq!((setup.valid, setup.restarts), (enabled, enabled != was_enabled));
            assert_eq!((setup.entries_log2, setup.base_page), (bits(7), bits(0x123)));
        }
    }
}
