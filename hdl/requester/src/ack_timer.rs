//! AckTimer: one timer for each queue pair, which finds peers that do not answer and ends RNR waits.
//!
//! A timer for each queue pair would be 1,024 comparators. One deadline in a memory for each, and a visit a cycle,
//! find an expiry at most one round late, which is short beside the shortest timeout.
//!
//! ```text
//!            ┌────────────────────────────────────────────────────────────┐
//!  unit ────>│ cycles ─> time ─────────────────────────┐                  │
//!  setup ───>│ path: timeout, generation ─┐            v                  │
//!  departed ─>│ sent: next PSN, epoch ────┼─ look ─> judge ─┬─> expire ───┼──> expired (acknowledge)
//!  set ─────>│ order: kind, una, attempt ─┤   ^             │             │
//!            │ timer: deadline, order ────┘   └─ next index │             │
//!            │    ^                                         │             │
//!            │    └──────────────── start, stop ────────────┘             │
//!            └────────────────────────────────────────────────────────────┘
//! ```
//!
//! Nobody starts or stops a timer: a visit compares what is there. A timer of acknowledgements runs while the PSN
//! after the last packet that has left the card is beyond the oldest unacknowledged PSN, which acknowledge writes;
//! so a packet that leaves while the last acknowledgement arrives is never without a timer. A timer starts anew
//! when the order is not the one that it was started for.
//!
//! A packet that was issued may wait in the card, behind the payload of others or behind a wire that is held up.
//! No peer can answer it yet, so its timer does not run. After the cursor has gone back the same is true until
//! the first packet of the new epoch leaves: packets of the epoch before do not count.
//!
//! Time is counted in units of 4.096 us, `unit` cycles each; zero counts as one. T is 2^timeout units, the delay
//! of an RNR NAK that of its code, rounded up to units. Deadlines are compared modulo 2^33.
//!
//! Latency: a round is a cycle for each queue pair, 1,024 at most, and three from a visit to `expired`. The round stands
//! still while `expired` waits.
//!
//! 1. A timer expires no earlier than T after its start, and no later than 4T or 3,584 cycles, whichever is more,
//!    plus the cycles in which `expired` waits: at 250 MHz within 4T for every timeout. It starts when the oldest
//!    unacknowledged packet leaves the card, and anew with each order of another `una_psn`, `attempt` or `kind`.
//! 2. An RNR wait ends no earlier than the delay of its code after its order.
//! 3. An expiry starts the next period; so one that comes too late for acknowledge costs nothing, and a queue
//!    pair waits at `expired` at most once.
//! 4. A queue pair that is not in RTS or SQD has no timer; a timeout of zero is no timer of acknowledgements.
//! 5. Every memory has one writer.
//!
//! Protocol 1.6, 2.6, 2.7.
use crate::messages::{Expired, RNR_CODE_BITS, TimerOrder, TimerSet};
use crate::sweep::SweepStep;
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_layout::syndrome::rnr_timer_us;
use rnic_messages::setup::SetupEvent;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, TIMER_UNIT_BITS, next_queue_pair, sizes};
use rnic_messages::transmit::Departed;
use rules::{
    Action, Look, Sent, TIME_BITS, Timer, TimerPath, action_of, expired_of, look_of, path_of, period_of,
    sent_of, ticks, timer_after,
};

mod rules;
#[cfg(test)]
mod tests;

/// Width of an RNR delay in units.
const DELAY_BITS: usize = 18;

/// Gives the RNR delay of a timer code in units of 4.096 us, rounded up.
fn rnr_units(code: usize) -> Bits<DELAY_BITS> {
    let nanoseconds = u64::from(rnr_timer_us(code as u8)) * 1000;
    bits(nanoseconds.div_ceil(UNIT_NANOSECONDS))
}

/// Nanoseconds in a unit.
const UNIT_NANOSECONDS: u64 = 4096;

/// Timers of all queue pairs; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub struct AckTimer {
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From control: register `timer_unit`, cycles in 4.096 us.
    pub unit: Signal<In, Bits<TIMER_UNIT_BITS>>,
    /// From control; acknowledge must have taken the event before. `ready` is always high.
    pub setup: StreamRx<SetupEvent>,
    /// From gather: a request leaves the card.
    pub departed: Signal<In, Departed>,
    /// From acknowledge.
    pub set: ValidRx<TimerSet>,
    /// To acknowledge; registered.
    pub expired: StreamTx<Expired>,

    departed_held: Reg<Departed>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    paths: Memory<TimerPath, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    sent: Memory<Sent, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    orders: Memory<TimerOrder, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    timers: Memory<Timer, QUEUE_PAIR_BITS>,
    #[init(ConstantRom::new(rnr_units))]
    rnr_delays: ConstantRom<RNR_CODE_BITS, DELAY_BITS>,
    cycles: Reg<Bits<TIMER_UNIT_BITS>>,
    time: Reg<Bits<TIME_BITS>>,
    /// Queue pair whose records are read.
    index: Reg<Bits<QUEUE_PAIR_BITS>>,
    /// Queue pair whose records have been read.
    looked: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_looked: Reg<Bit>,
    /// Queue pair that is judged, and what is known of it.
    judged: DFF<Bits<QUEUE_PAIR_BITS>>,
    look: DFF<Look>,
    action: Reg<Action>,
}

impl Logic for AckTimer {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_sweeping = self.sweep.val().is_sweeping;
        let sweep_index = self.sweep.val().index;

        // What the other stages write.
        let event = self.setup.beat.val();
        self.setup.ready.next = true;
        self.paths.write_enable.next = self.setup.valid.val() || is_sweeping;
        self.paths.write_address.next = select(is_sweeping, sweep_index, event.queue_pair);
        self.paths.write_data.next = path_of(event, is_sweeping);
        self.departed_held.d.next = self.departed.val();
        let departed = self.departed_held.q.val();
        self.sent.write_enable.next = departed.valid || is_sweeping;
        self.sent.write_address.next = select(is_sweeping, sweep_index, departed.queue_pair);
        self.sent.write_data.next = sent_of(departed, is_sweeping);
        let set = self.set.value.val();
        self.orders.write_enable.next = self.set.valid.val() || is_sweeping;
        self.orders.write_address.next = select(is_sweeping, sweep_index, set.queue_pair);
        self.orders.write_data.next = select(is_sweeping, TimerOrder::default(), set.order);

        // Time.
        let is_tick = ticks(self.cycles.q.val(), self.unit.val());
        self.cycles.d.next = select(is_tick, bits::<TIMER_UNIT_BITS>(0), self.cycles.q.val() + 1);
        let time = self.time.q.val();
        if is_tick {
            self.time.d.next = time + 1;
        }

        // A visit: reads the records, finds out about them, and acts. All steps wait for an expiry to be taken.
        let action = self.action.q.val();
        let look = self.look.q.val();
        let moves = action != Action::Expire || self.expired.ready.val();
        self.paths.read(moves, self.index.q.val());
        self.sent.read(moves, self.index.q.val());
        self.orders.read(moves, self.index.q.val());
        self.timers.read(moves, self.index.q.val());
        let path = self.paths.read_data.val();
        let order = self.orders.read_data.val();
        let timer = self.timers.read_data.val();
        self.rnr_delays.address.next = order.rnr_code;
        let delay = bit_cast::<TIME_BITS, DELAY_BITS>(self.rnr_delays.value.val());
        if moves {
            self.index.d.next = next_queue_pair(self.index.q.val());
            self.looked.d.next = self.index.q.val();
            self.has_looked.d.next = !is_sweeping;
            self.judged.d.next = self.looked.q.val();
            self.look.d.next =
                Look { order, generation: path.generation, period: period_of(order, path, delay) };
            let found = look_of(path, self.sent.read_data.val(), order, timer, time);
            self.action.d.next = select(self.has_looked.q.val(), action_of(found), Action::Nothing);
        }
        self.timers.write_enable.next = is_sweeping || (moves && action != Action::Nothing);
        self.timers.write_address.next = select(is_sweeping, sweep_index, self.judged.q.val());
        self.timers.write_data.next = timer_after(look, action, time, is_sweeping);
        self.expired.offer(action == Action::Expire, expired_of(self.judged.q.val(), look));
    }
}
