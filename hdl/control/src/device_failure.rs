//! Device failure: keeps the first failure that only a reset clears, and reports it once.
//!
//! ```text
//!  reports ──> first ─┬─> device_failed, code, detail
//!                     └─> event
//! ```
//!
//! Latency 1 cycle.
//!
//! 1. `code` and `detail` are those of the first report since reset; of several in a cycle, the first in the order of the ports.
//! 2. One event is raised for a failure. If event queue 0 is full, it is among the lost ones; the registers show the failure nevertheless.
//!
//! Design decision 12, protocol 4.4.
use crate::messages::FatalReport;
use rnic_blocks::stream::{StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::event::{AsyncEvent, EventKind};
use rnic_layout::registers::FatalCode;
use rnic_messages::complete::EqeToken;

/// Keeps the first failure of the device.
#[clocked(reset = "clears the failure")]
#[derive(Default, LogicBlock, Registers)]
pub struct DeviceFailure {
    /// From the admin ring: a failure.
    pub report: ValidRx<FatalReport>,
    /// A host read was never completed, or a completion came for a read that is not in flight.
    pub lost_read_tag: Signal<In, Bit>,
    /// A host write was never completed, or a completion came for a write that is not in flight.
    pub lost_write: Signal<In, Bit>,
    /// The host refused a write of an EQE.
    pub host_write_error: Signal<In, Bit>,

    /// The device has failed; registered.
    pub device_failed: Signal<Out, Bit>,
    /// A `FatalCode`: why the device failed; registered.
    pub code: Signal<Out, Bits<8>>,
    /// Detail of the failure, whose meaning depends on the code; registered.
    pub detail: Signal<Out, Bits<32>>,
    /// To event queue 0: the failure; registered.
    pub event: StreamTx<EqeToken>,

    failed: Reg<Bit>,
    first: Reg<FatalReport>,
    has_event: Reg<Bit>,
}

impl Logic for DeviceFailure {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let code = if self.lost_read_tag.val() {
            bits::<8>(FatalCode::LostReadTag as u64)
        } else if self.lost_write.val() {
            bits::<8>(FatalCode::LostWrite as u64)
        } else if self.host_write_error.val() {
            bits::<8>(FatalCode::HostWriteError as u64)
        } else {
            bits::<8>(0)
        };
        let has_report = self.report.valid.val();
        let fails = has_report || code.any();
        if fails && !self.failed.q.val() {
            self.failed.d.next = true;
            self.has_event.d.next = true;
            let other = FatalReport { code, detail: bits(0) };
            self.first.d.next = select(has_report, self.report.value.val(), other);
        } else if self.event.ready.val() {
            self.has_event.d.next = false;
        }
        let first = self.first.q.val();
        self.device_failed.next = self.failed.q.val();
        self.code.next = first.code;
        self.detail.next = first.detail;
        self.event.valid.next = self.has_event.q.val();
        self.event.beat.next = EqeToken {
            object_number: bits(0),
            detail: bit_cast::<32, 8>(first.code),
            kind: bits(EventKind::Asynchronous as u64),
            code: bits(AsyncEvent::DeviceFatal as u64),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Sink, Stalls, random};

    #[test]
    fn the_first_failure_is_kept_and_reported_once() {
        let mut random = random();
        let mut bench = Bench::clocked(DeviceFailure::default(), |block| &mut block.clock).in_lock_step();
        for _ in 0..200 {
            bench.block.reset.next = true;
            bench.tick();
            bench.block.reset.next = false;
            let mut sink = Sink::new(Stalls::Both);
            let mut first = None;
            for _ in 0..random.random_range(1..30) {
                let flags: [bool; 4] = std::array::from_fn(|_| random.random_bool(0.05));
                let block = &mut bench.block;
                block.report.valid.next = flags[0];
                block.report.value.next = FatalReport { code: bits(3), detail: bits(0x1234_5678) };
                block.lost_read_tag.next = flags[1];
                block.lost_write.next = flags[2];
                block.host_write_error.next = flags[3];
                let codes = [
                    FatalCode::HostReadError,
                    FatalCode::LostReadTag,
                    FatalCode::LostWrite,
                    FatalCode::HostWriteError,
                ];
                sink.drive(&mut block.event, &mut random);
                bench.settle();
                sink.sample(&bench.block.event);
                bench.tick();
                first = first.or(flags.iter().position(|&flag| flag).map(|index| codes[index]));
                bench.settle();
                let block = &bench.block;
                assert_eq!(block.device_failed.val(), first.is_some());
                assert_eq!(block.code.val().to_u64(), first.map_or(0, |code| u64::from(code.number())));
                let has_detail = first == Some(FatalCode::HostReadError);
                assert_eq!(block.detail.val().to_u64(), if has_detail { 0x1234_5678 } else { 0 });
            }
            let events = sink.received;
            assert!(events.len() <= usize::from(first.is_some()), "{events:?}");
            if let (Some(event), Some(code)) = (events.first(), first) {
                assert_eq!((event.kind.to_u64(), event.code.to_u64()), (1, 8));
                assert_eq!(event.detail.to_u64(), u64::from(code.number()));
            }
        }
    }
}
