//! The machine of [`Admit`](super::Admit): what it does next, and which queue pair the sweep looks at.
//!
//! ```text
//!   Clear ──> Idle ─┬─> Setup ─────────────────> Idle
//!                   ├─> Compare ─(Share)─> Decide ─> Idle
//!                   └─> Look ─> Flush ─────────> Idle
//! ```
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, next_queue_pair};

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(super) enum Step {
    /// Clears the records after a reset.
    Clear,
    /// Chooses a setup event, a packet or a step of the sweep.
    Idle,
    /// Applies a setup event.
    Setup,
    /// Compares a packet with path and record.
    Compare,
    /// Compares a packet that needs a WQE of an SRQ with the record of that.
    Share,
    /// Decides and writes back.
    Decide,
    /// The sweep compares path and record.
    Look,
    /// Flushes a WQE, or proceeds to the next queue pair.
    Flush,
}

/// What is chosen in `Idle`; at most one of the last three is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Choice {
    /// A packet is taken if there is one.
    pub may_take_packet: Bit,
    pub takes_event: Bit,
    pub takes_packet: Bit,
    pub sweeps: Bit,
}

/// What changes records besides packets and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Setting {
    /// A setup event is applied.
    pub applies: Bit,
    /// It is one of a queue pair.
    pub sets: Bit,
    /// It is one of an SRQ.
    pub sets_srq: Bit,
    /// A record is cleared after a reset.
    pub clears: Bit,
}

/// Chooses what is done next: setup events first, then packets, last the sweep, which comes first after sixteen
/// packets. Packets and the sweep need room in the outputs.
#[kernel]
pub(super) fn choice_of(
    is_idle: Bit,
    has_event: Bit,
    has_packet: Bit,
    is_sweep_due: Bit,
    may_forward: Bit,
) -> Choice {
    let may_pass = is_idle && !has_event && may_forward;
    let takes_packet = may_pass && has_packet && !is_sweep_due;
    Choice {
        may_take_packet: may_pass && !is_sweep_due,
        takes_event: is_idle && has_event,
        takes_packet,
        sweeps: may_pass && !takes_packet,
    }
}

/// Gives the queue pair whose records are read: that of the setup event, of the packet that is offered, or of the sweep.
#[kernel]
pub(super) fn asked_of(
    choice: Choice,
    set: Bits<QUEUE_PAIR_BITS>,
    offered: Bits<QUEUE_PAIR_BITS>,
    swept: Bits<QUEUE_PAIR_BITS>,
) -> Bits<QUEUE_PAIR_BITS> {
    if choice.takes_event {
        set
    } else if choice.takes_packet {
        offered
    } else {
        swept
    }
}

/// Decides what is set in this cycle. A doorbell or a stop in the same cycle comes first: the memories have one
/// write port.
#[kernel]
pub(super) fn setting_of(step: Step, is_of_pair: Bit, rings: Bit, stops: Bit) -> Setting {
    let applies = step == Step::Setup && !rings && !stops;
    Setting {
        applies,
        sets: applies && is_of_pair,
        sets_srq: applies && !is_of_pair,
        clears: step == Step::Clear && !rings,
    }
}

/// Gives the next step. `asks_srq` says that the packet needs a WQE of an SRQ, `applies` that the setup event is
/// applied, `is_cleared` that the last record is cleared.
#[kernel]
pub(super) fn step_after(step: Step, choice: Choice, asks_srq: Bit, applies: Bit, is_cleared: Bit) -> Step {
    match step {
        Step::Clear => {
            if is_cleared {
                Step::Idle
            } else {
                Step::Clear
            }
        }
        Step::Idle => {
            if choice.takes_event {
                Step::Setup
            } else if choice.takes_packet {
                Step::Compare
            } else if choice.sweeps {
                Step::Look
            } else {
                Step::Idle
            }
        }
        Step::Setup => {
            if applies {
                Step::Idle
            } else {
                Step::Setup
            }
        }
        Step::Compare => {
            if asks_srq {
                Step::Share
            } else {
                Step::Decide
            }
        }
        Step::Share => Step::Decide,
        Step::Look => Step::Flush,
        Step::Decide | Step::Flush => Step::Idle,
    }
}

/// Gives the queue pair that is cleared or swept next: it proceeds after a cleared record and after a queue pair
/// with nothing left to flush, and moves at once to one that enters ERR.
#[kernel]
pub(super) fn sweep_after(
    sweep: Bits<QUEUE_PAIR_BITS>,
    proceeds: Bit,
    enters_error: Bit,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
) -> Bits<QUEUE_PAIR_BITS> {
    if proceeds {
        next_queue_pair(sweep)
    } else if enters_error {
        queue_pair
    } else {
        sweep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_comes_before_packets_and_these_before_the_sweep() {
        // Idle, event, packet, sweep due, room; may take a packet, takes an event, takes a packet, sweeps.
        for (is_idle, has_event, has_packet, is_sweep_due, may_forward, expected) in [
            (true, true, true, true, true, [false, true, false, false]),
            (true, true, true, false, false, [false, true, false, false]),
            (true, false, true, false, true, [true, false, true, false]),
            (true, false, true, true, true, [false, false, false, true]),
            (true, false, false, false, true, [true, false, false, true]),
            (true, false, false, true, true, [false, false, false, true]),
            (true, false, true, false, false, [false; 4]),
            (true, false, false, true, false, [false; 4]),
            (false, true, true, true, true, [false; 4]),
        ] {
            let choice = choice_of(is_idle, has_event, has_packet, is_sweep_due, may_forward);
            let Choice { may_take_packet, takes_event, takes_packet, sweeps } = choice;
            let row = format!("{is_idle} {has_event} {has_packet} {is_sweep_due} {may_forward}");
            assert_eq!([may_take_packet, takes_event, takes_packet, sweeps], expected, "{row}");
        }
    }

    const STEPS: [Step; 8] = [
        Step::Clear,
        Step::Idle,
        Step::Setup,
        Step::Compare,
        Step::Share,
        Step::Decide,
        Step::Look,
        Step::Flush,
    ];

    #[test]
    fn a_doorbell_and_a_stop_come_before_a_setup_event() {
        for step in STEPS {
            for (is_of_pair, rings, stops, applies, clears) in [
                (true, false, false, true, true),
                (false, false, false, true, true),
                (true, true, false, false, false),
                (true, false, true, false, true),
                (false, true, true, false, false),
            ] {
                let applies = applies && step == Step::Setup;
                let expected = Setting {
                    applies,
                    sets: applies && is_of_pair,
                    sets_srq: applies && !is_of_pair,
                    clears: clears && step == Step::Clear,
                };
                assert_eq!(setting_of(step, is_of_pair, rings, stops), expected, "{step:?} {rings} {stops}");
            }
        }
    }

    #[test]
    fn the_records_of_what_is_chosen_are_read() {
        let none = Choice::default();
        for (choice, expected) in [
            (Choice { takes_event: true, ..none }, 1),
            (Choice { takes_packet: true, may_take_packet: true, ..none }, 2),
            (Choice { sweeps: true, may_take_packet: true, ..none }, 3),
            (none, 3),
        ] {
            assert_eq!(asked_of(choice, bits(1), bits(2), bits(3)), bits(expected), "{choice:?}");
        }
    }

    /// Every state with every event: takes an event, takes a packet, sweeps; asks for an SRQ, applies, cleared.
    #[test]
    fn each_state_goes_where_the_drawing_says() {
        for step in STEPS {
            for events in 0..64u32 {
                let is = |place: u32| events >> place & 1 == 1;
                let choice = Choice {
                    takes_event: is(0),
                    takes_packet: is(1) && !is(0),
                    sweeps: is(2) && !is(1) && !is(0),
                    ..Choice::default()
                };
                let expected = match (step, events & 7) {
                    (Step::Idle, 0) => Step::Idle,
                    (Step::Idle, 1 | 3 | 5 | 7) => Step::Setup,
                    (Step::Idle, 2 | 6) => Step::Compare,
                    (Step::Idle, _) => Step::Look,
                    (Step::Compare, _) => [Step::Decide, Step::Share][usize::from(is(3))],
                    (Step::Setup, _) => [Step::Setup, Step::Idle][usize::from(is(4))],
                    (Step::Clear, _) => [Step::Clear, Step::Idle][usize::from(is(5))],
                    (Step::Share, _) => Step::Decide,
                    (Step::Look, _) => Step::Flush,
                    (Step::Decide | Step::Flush, _) => Step::Idle,
                };
                assert_eq!(step_after(step, choice, is(3), is(4), is(5)), expected, "{step:?} {events:06b}");
            }
        }
    }

    #[test]
    fn the_sweep_proceeds_or_moves_to_a_queue_pair_in_err() {
        for (sweep, proceeds, enters_error, expected) in
            [(5, false, false, 5), (5, true, false, 6), (0x3ff, true, false, 0), (5, false, true, 0x2a7)]
        {
            assert_eq!(sweep_after(bits(sweep), proceeds, enters_error, bits(0x2a7)), bits(expected));
        }
    }
}
