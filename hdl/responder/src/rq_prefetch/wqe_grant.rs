//! Answers requests for receive WQEs: finds the line of the next WQE of the ring, if it is here.
//!
//! ```text
//!  request ──> Choose ─> Check ─(Turn)─> request is taken, answer, given
//!                │         │ the first WQE of a line: last_line ──> link
//!                │         └─ not here: answered as absent, demand
//!                └─ lives, taken, arrived, shut
//! ```
//!
//! Two cycles a request, and one more where a line begins.
//!
//! 1. A WQE is given only if the last read of the ring that completed was requested by the generation that asks.
//! 2. A request of another generation is answered as stale.
//! 3. WQEs are given in the order of the packets of their ring: after an answer without a WQE the ring is shut, and all others
//!    get none, until the oldest packet asks again. Park sends the requests of a ring in their order, and that of the oldest
//!    after those that were answered while the ring was shut.
use super::record::{
    Answer, Arrived, ArrivedWrite, Demand, Given, LINE_BITS, PLACE_BITS, RING_BITS, RingWrite, Taken,
    TakenWrite, is_shared,
};
use crate::messages::ReceiveWqeRequest;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{StreamRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::doorbell::is_shared_ring;
use rnic_messages::sizes::{GENERATION_BITS, sizes};

/// The attributes that a request must match.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Life {
    is_alive: Bit,
    generation: Bits<GENERATION_BITS>,
}

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Grant {
    /// Waits for a request.
    Choose,
    /// Compares it with the records of its ring.
    Check,
    /// Its WQE is the first of a line, which was read from the list of lines.
    Turn,
}

/// Results of the comparisons of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Compared {
    /// Its generation is the one of the ring.
    is_current: Bit,
    /// Its WQE is here.
    is_here: Bit,
    /// The WQE is for a packet before this one.
    is_held: Bit,
    /// Its WQE is the first of the same line again.
    stays: Bit,
    /// Its WQE is the first of the next line.
    moves: Bit,
}

/// What is answered in a cycle; one of them at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Decision {
    is_stale: Bit,
    grants: Bit,
    is_absent: Bit,
    /// The WQE follows when its line is known.
    turns: Bit,
}

/// Compares a request with the records of its ring. The generation does not count for an SRQ, which outlives its
/// queue pairs.
#[kernel]
fn compare(request: ReceiveWqeRequest, life: Life, taken: Taken, arrived: Arrived, is_shut: Bit) -> Compared {
    let is_of_srq = is_shared_ring(request.ring);
    let begins_line = !taken.index.get_bits::<PLACE_BITS>(0).any();
    let stays = begins_line && arrived.stay != taken.stay;
    Compared {
        is_current: life.is_alive && (life.generation == request.generation || is_of_srq),
        is_here: arrived.generation == life.generation && arrived.index != taken.index,
        is_held: is_shut && !request.restarts,
        stays,
        moves: begins_line && !stays,
    }
}

/// Decides what is answered.
#[kernel]
fn decide(grant: Grant, compared: Compared) -> Decision {
    let checks = grant == Grant::Check;
    let may_find = checks && !compared.is_held && compared.is_current;
    let finds = may_find && compared.is_here;
    Decision {
        is_stale: checks && !compared.is_held && !compared.is_current,
        grants: (finds && !compared.moves) || grant == Grant::Turn,
        is_absent: (checks && compared.is_held) || (may_find && !compared.is_here),
        turns: finds && compared.moves,
    }
}

/// Gives the next state.
#[kernel]
fn grant_after(grant: Grant, begins: Bit, turns: Bit) -> Grant {
    match grant {
        Grant::Choose => {
            if begins {
                Grant::Check
            } else {
                Grant::Choose
            }
        }
        Grant::Check => {
            if turns {
                Grant::Turn
            } else {
                Grant::Choose
            }
        }
        Grant::Turn => Grant::Choose,
    }
}

/// Gives the WQE of `line` for a request. A ring leaves its own line when it moves on from it.
#[kernel]
fn given_of(
    request: ReceiveWqeRequest,
    taken: Taken,
    arrived: Arrived,
    line: Bits<LINE_BITS>,
    grants: Bit,
    turned: Bit,
    stays: Bit,
) -> Given {
    let behind = taken.index + 1;
    let leaves_shared = turned && is_shared(taken.line);
    Given {
        valid: grants,
        ring: request.ring,
        after: Taken {
            index: behind,
            line,
            lap: select(turned && !leaves_shared, !taken.lap, taken.lap),
            stay: select(stays, !taken.stay, taken.stay),
        },
        is_last: !behind.get_bits::<PLACE_BITS>(0).any() || behind == arrived.index,
        leaves_shared,
    }
}

/// Answers requests; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct WqeGrant {
    /// From admission, those of a ring in the order of their indices; `ready` is a function of registers.
    pub request: StreamRx<ReceiveWqeRequest>,
    /// A request may be looked at: no records are being rewritten, and there is room for its answer.
    pub may_begin: Signal<In, Bit>,
    /// No request is being looked at; a function of registers.
    pub is_idle: Signal<Out, Bit>,
    /// A WQE that is not here, and is due to a request; a function of registers.
    pub demand: ValidTx<Demand>,
    /// The answer; combinational from `link`.
    pub answer: Signal<Out, Answer>,
    /// What was given; combinational from `link`.
    pub given: Signal<Out, Given>,
    /// Line of the last WQE that was given of the ring; registered.
    pub last_line: Signal<Out, Bits<LINE_BITS>>,
    /// The line after it in the list of the ring, a cycle later.
    pub link: Signal<In, Bits<LINE_BITS>>,
    /// Write of the attributes of a ring.
    pub ring_write: Signal<In, RingWrite>,
    /// Write of the consumer side of a ring.
    pub taken_write: Signal<In, TakenWrite>,
    /// Write of the arrival side of a ring.
    pub arrived_write: Signal<In, ArrivedWrite>,
    /// After a reset: the ring of `ring_write` is cleared.
    pub clears: Signal<In, Bit>,

    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    lives: Memory<Life, RING_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    taken: Memory<Taken, RING_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    arrived: Memory<Arrived, RING_BITS>,
    /// The last answer was without a WQE.
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    shut: Memory<Bit, RING_BITS>,
    #[init(Reg::new(Grant::Choose))]
    grant: Reg<Grant>,
}

impl Logic for WqeGrant {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let request = self.request.beat.val();
        let grant = self.grant.q.val();
        let is_idle = grant == Grant::Choose;
        self.is_idle.next = is_idle;
        self.lives.read(is_idle, request.ring);
        self.taken.read(is_idle, request.ring);
        self.arrived.read(is_idle, request.ring);
        self.shut.read(is_idle, request.ring);
        let taken = self.taken.read_data.val();
        let arrived = self.arrived.read_data.val();

        let life = self.lives.read_data.val();
        let compared = compare(request, life, taken, arrived, self.shut.read_data.val());
        let decision = decide(grant, compared);
        let begins = self.may_begin.val() && self.request.valid.val();
        self.grant.d.next = grant_after(grant, begins, decision.turns);
        let answers = decision.is_stale || decision.grants || decision.is_absent;
        self.request.ready.next = answers;
        self.demand.valid.next = decision.is_absent && !compared.is_held;
        self.demand.value.next =
            Demand { ring: request.ring, generation: life.generation, index: taken.index };

        let turned = grant == Grant::Turn;
        let line = select(turned, self.link.val(), taken.line);
        self.last_line.next = taken.line;
        self.answer.next = Answer {
            valid: answers,
            is_stale: decision.is_stale,
            is_absent: decision.is_absent,
            line,
            place: taken.index.get_bits::<PLACE_BITS>(0),
        };
        self.given.next = given_of(request, taken, arrived, line, decision.grants, turned, compared.stays);

        // After a reset no request comes before all rings are cleared.
        let ring_write = self.ring_write.val();
        let clears = self.clears.val();
        self.shut.write_enable.next = answers || clears;
        self.shut.write_address.next = select(clears, ring_write.ring, request.ring);
        self.shut.write_data.next = decision.is_absent && !clears;
        self.lives.write_enable.next = ring_write.enable;
        self.lives.write_address.next = ring_write.ring;
        self.lives.write_data.next =
            Life { is_alive: ring_write.data.is_alive, generation: ring_write.data.generation };
        let taken_write = self.taken_write.val();
        self.taken.write(taken_write.enable, taken_write.ring, taken_write.data);
        let arrived_write = self.arrived_write.val();
        self.arrived.write(arrived_write.enable, arrived_write.ring, arrived_write.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(ring: u64, generation: u64) -> ReceiveWqeRequest {
        ReceiveWqeRequest { ring: bits(ring), generation: bits(generation), restarts: false }
    }

    #[test]
    fn a_ring_that_is_shut_gives_its_wqes_to_none_but_the_oldest_packet() {
        for (is_shut, restarts, is_held) in
            [(false, false, false), (false, true, false), (true, true, false), (true, false, true)]
        {
            let request = ReceiveWqeRequest { restarts, ..asked(5, 0) };
            let found = compare(request, Life::default(), Taken::default(), Arrived::default(), is_shut);
            assert_eq!(found.is_held, is_held, "{request:?} {is_shut}");
        }
    }

    #[test]
    fn a_request_is_current_if_its_generation_lives() {
        for (ring, is_alive, generation, expected) in [
            (5, true, 3, true),
            (5, true, 4, false),
            (5, false, 3, false),
            (0x400, true, 3, true),
            (0x400, true, 4, true),
            (0x43f, false, 3, false),
        ] {
            let request = asked(ring, generation);
            let life = Life { is_alive, generation: bits(3) };
            let compared = compare(request, life, Taken::default(), Arrived::default(), false);
            assert_eq!(compared.is_current, expected, "ring {ring:#x}, generation {generation}");
        }
    }

    /// Index given, index that arrived, generation that requested it, stay of both; is here, stays, moves.
    #[test]
    fn a_wqe_is_here_if_more_arrived_than_were_given() {
        for (given, arrived, generation, taken_stay, stay, expected) in [
            (4, 8, 3, false, false, [true, false, true]),
            (4, 8, 3, true, true, [true, false, true]),
            (4, 8, 3, false, true, [true, true, false]),
            (4, 8, 3, true, false, [true, true, false]),
            (5, 8, 3, false, false, [true, false, false]),
            (5, 8, 3, false, true, [true, false, false]),
            (7, 8, 3, false, false, [true, false, false]),
            (8, 8, 3, false, false, [false, false, true]),
            (4, 8, 2, false, false, [false, false, true]),
            (0xfffc, 0, 3, false, false, [true, false, true]),
        ] {
            let life = Life { is_alive: true, generation: bits(3) };
            let taken = Taken { index: bits(given), stay: taken_stay, ..Taken::default() };
            let here = Arrived { generation: bits(generation), index: bits(arrived), stay };
            let found = compare(ReceiveWqeRequest::default(), life, taken, here, false);
            assert_eq!([found.is_here, found.stays, found.moves], expected, "{given} of {arrived}");
        }
    }

    /// State, comparisons; stale, grants, absent, turns.
    #[test]
    fn a_request_has_one_answer() {
        for is_current in [false, true] {
            let compared = Compared { is_held: true, is_current, is_here: true, ..Compared::default() };
            let found = decide(Grant::Check, compared);
            assert_eq!(found, Decision { is_absent: true, ..Decision::default() });
        }
        for (grant, is_current, is_here, moves, expected, next) in [
            (Grant::Choose, true, true, false, [false; 4], Grant::Choose),
            (Grant::Check, false, true, false, [true, false, false, false], Grant::Choose),
            (Grant::Check, false, false, true, [true, false, false, false], Grant::Choose),
            (Grant::Check, true, false, false, [false, false, true, false], Grant::Choose),
            (Grant::Check, true, false, true, [false, false, true, false], Grant::Choose),
            (Grant::Check, true, true, false, [false, true, false, false], Grant::Choose),
            (Grant::Check, true, true, true, [false, false, false, true], Grant::Turn),
            (Grant::Turn, true, true, true, [false, true, false, false], Grant::Choose),
        ] {
            let compared = Compared { is_current, is_here, is_held: false, stays: false, moves };
            let found = decide(grant, compared);
            assert_eq!([found.is_stale, found.grants, found.is_absent, found.turns], expected, "{grant:?}");
            assert_eq!(grant_after(grant, false, found.turns), next, "{grant:?} {compared:?}");
        }
        assert_eq!(grant_after(Grant::Choose, true, false), Grant::Check);
    }

    /// Line before, turned, stays; lap and stay are toggled, a shared line is left.
    #[test]
    fn the_consumer_side_tells_which_line_was_left() {
        const OWN: u64 = 5;
        const SHARED: u64 = 0x805;
        for (before, turned, stays, lap, stay, leaves_shared) in [
            (OWN, false, false, false, false, false),
            (OWN, true, false, true, false, false),
            (OWN, false, true, false, true, false),
            (SHARED, true, false, false, false, true),
            (SHARED, false, false, false, false, false),
            (SHARED, false, true, false, true, false),
        ] {
            let taken = Taken { index: bits(8), line: bits(before), lap: false, stay: false };
            let arrived = Arrived { index: bits(12), ..Arrived::default() };
            let line = bits(if turned { 0x900 } else { before });
            let request = asked(OWN, 0);
            let given = given_of(request, taken, arrived, line, true, turned, stays);
            assert_eq!(
                given.after,
                Taken { index: bits(9), line, lap, stay },
                "{before:#x} {turned} {stays}"
            );
            assert_eq!(given.leaves_shared, leaves_shared, "{before:#x} {turned} {stays}");
        }
    }

    #[test]
    fn the_last_wqe_of_a_line_and_the_last_that_is_here_are_noted() {
        for (index, arrived, is_last) in
            [(8, 12, false), (10, 12, false), (11, 12, true), (11, 16, true), (8, 9, true), (0xffff, 4, true)]
        {
            let taken = Taken { index: bits(index), ..Taken::default() };
            let arrived = Arrived { index: bits(arrived), ..Arrived::default() };
            let given = given_of(ReceiveWqeRequest::default(), taken, arrived, bits(0), true, false, false);
            assert_eq!((given.is_last, given.valid), (is_last, true), "WQE {index}");
        }
    }
}
