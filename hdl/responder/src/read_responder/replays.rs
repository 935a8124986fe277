//! ReplayTable: keeps the replays of all queue pairs, has duplicates looked up, and says which get no answer.
//!
//! ```text
//!  duplicate ──> finder ──> again, found ─┐
//!  read ──────────────────> replay ───────┼──> one cycle later
//!                              v          v
//!  repeats, stores, keeps ──> next replay ──> its record
//!                                  └────────> withdrawn
//! ```
//!
//! 1. A queue pair has at most one replay under way, and behind it those of later requests, in their order. A
//!    duplicate of an earlier request takes the place of all of them (protocol 3.4).
//! 2. Each duplicate that was released is answered by a last response, or withdrawn, or its queue pair fails. A request whose
//!    answer a replay ends has no last response of its own, and is withdrawn too (protocol 3.5).
//! 3. A release of a duplicate that is not dropped is looked up (`begins_search`) before it `repeats`.
//! 4. At most one of `repeats`, `stores` and `keeps` follows a read, for the queue pair that was read.
use super::finder::{DUPLICATE_COUNT, Finder};
use super::record::{Life, Progress, Slot};
use super::replay::{
    Action, Noted, Replay, action_of, ends_active, ends_waiting, has_begun, overwritten_by, replay_after,
    replay_after_store, replay_after_turn, withdrawn_by,
};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::read::{READ_COUNT_BITS, ReadRequest, ReadsWithdrawn};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, READ_POOL_BITS, sizes};

/// Keeps replays.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct ReplayTable {
    /// The record of `read_address` is read.
    pub reads: Signal<In, Bit>,
    /// Queue pair whose record is read.
    pub read_address: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Queue pair whose record is written.
    pub record_address: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Its attributes.
    pub life: Signal<In, Life>,
    /// Its replays are dropped.
    pub forgets: Signal<In, Bit>,
    /// Its requests.
    pub noted: Signal<In, Noted>,
    /// The queue pair has its turn, and the turn answers a replay.
    pub is_replaying: Signal<In, Bit>,

    /// Duplicates.
    pub duplicate: StreamRx<ReadRequest>,
    /// The oldest one is looked up.
    pub begins_search: Signal<In, Bit>,
    /// The slots are not read by another, in this cycle.
    pub may_seek: Signal<In, Bit>,
    /// A slot is read.
    pub seeks: Signal<Out, Bit>,
    /// Its place in the pool.
    pub seek_place: Signal<Out, Bits<READ_POOL_BITS>>,
    /// The slot that was read in the last cycle.
    pub slot: Signal<In, Slot>,
    /// The oldest duplicate is released, and leaves. The records of its queue pair were read two cycles before.
    pub repeats: Signal<In, Bit>,
    /// Its queue pair was restarted or has failed.
    pub is_dropped: Signal<In, Bit>,
    /// Progress of the answers to requests of the queue pair.
    pub progress: Signal<In, Progress>,

    /// A request is stored.
    pub stores: Signal<In, Bit>,

    /// A turn that answered a replay has ended.
    pub keeps: Signal<In, Bit>,
    /// The progress of its replay.
    pub kept: Signal<In, Progress>,
    /// The last response was made.
    pub is_last: Signal<In, Bit>,
    /// It ends the answer to the request, too.
    pub ends_answer: Signal<In, Bit>,
    /// Generation of the queue pair of the turn.
    pub turn_generation: Signal<In, Bits<GENERATION_BITS>>,

    /// The record that was read.
    pub replay: Signal<Out, Replay>,
    /// In this cycle a replay begins.
    pub begins: Signal<Out, Bit>,
    /// In this cycle the replay ends that the turn answers.
    pub aborts: Signal<Out, Bit>,
    /// After this cycle the queue pair has a replay.
    pub remains: Signal<Out, Bit>,
    /// A duplicate is answered.
    pub is_answered: Signal<Out, Bit>,
    /// Nothing is noted of a duplicate.
    pub is_unknown: Signal<Out, Bit>,
    /// There is room for `ends_answer`.
    pub has_room: Signal<Out, Bit>,
    /// There is room for `stores`, and no duplicate is looked up.
    pub may_store: Signal<Out, Bit>,
    /// There is a duplicate and room for `repeats`, and it is not being looked up.
    pub may_repeat: Signal<Out, Bit>,
    /// It was looked up.
    pub is_sought: Signal<Out, Bit>,
    /// To ack: what gets no last response of its own; registered.
    pub withdrawn: StreamTx<ReadsWithdrawn>,
    /// Duplicates that were not looked up.
    pub duplicates: Signal<Out, Bits<DUPLICATE_COUNT>>,

    /// What becomes of the oldest duplicate, decided in the cycle before `repeats`.
    action: DFF<Action>,
    finder: Finder,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    replays: Memory<Replay, QUEUE_PAIR_BITS>,
    withdrawals: Fifo<ReadsWithdrawn, 2, 3>,
}

impl Logic for ReplayTable {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.withdrawn, &mut self.withdrawals.tx);
        StreamRx::link(&mut self.duplicate, &mut self.finder.request);
        self.finder.begins.next = self.begins_search.val();
        self.finder.noted.next = self.noted.val();
        self.finder.share.next = self.life.val().share;
        self.finder.takes.next = self.repeats.val();
        self.finder.may_seek.next = self.may_seek.val();
        self.finder.slot.next = self.slot.val();
        self.replays.read(self.reads.val(), self.read_address.val());
        self.duplicates.next = self.finder.level.val();
        let replay = self.replays.read_data.val();
        let noted = self.noted.val().count;
        let life = self.life.val();
        let again = self.finder.head.val();
        let found = self.finder.found.val();
        let is_replaying = self.is_replaying.val();

        let repeats = self.repeats.val();
        let is_begun = has_begun(found.slot, noted, self.progress.val());
        let is_live = life.serves && life.generation == again.generation && !self.is_dropped.val();
        self.action.d.next = action_of(is_live, found, is_begun, replay, noted);
        let action = self.action.q.val();
        let repeated = replay_after(replay, action, found, again.msn);
        let begins = repeats && action == Action::Begin;

        let stores = self.stores.val();
        let slot = overwritten_by(noted, life.share);
        let ends_active = stores && ends_active(replay, slot);
        let ends_one = ends_active || (stores && ends_waiting(replay, slot));
        let stored = replay_after_store(replay, slot);

        let keeps = self.keeps.val();
        let kept = self.kept.val();
        let turned = replay_after_turn(replay, kept.bytes, kept.packets, self.is_last.val());
        let forgets = self.forgets.val();
        self.replays.write_enable.next = forgets || repeats || stores || keeps;
        self.replays.write_address.next = self.record_address.val();
        self.replays.write_data.next = if forgets {
            Replay { is_active: false, ..Default::default() }
        } else if repeats {
            repeated
        } else {
            select(stores, stored, turned)
        };

        let ends_answer = self.ends_answer.val();
        let withdrawn = select(repeats, withdrawn_by(action, replay), bits::<READ_COUNT_BITS>(1));
        self.withdrawals.rx.valid.next = (repeats && withdrawn.any()) || ends_one || ends_answer;
        self.withdrawals.rx.beat.next = ReadsWithdrawn {
            queue_pair: self.record_address.val(),
            generation: select(ends_answer, self.turn_generation.val(), life.generation),
            count: withdrawn,
        };
        let has_room = self.withdrawals.rx.ready.val();
        let is_idle = self.finder.is_idle.val();
        let is_done = self.finder.is_done.val();
        self.has_room.next = has_room;
        self.may_store.next = has_room && is_idle;
        self.may_repeat.next = has_room && self.finder.has_head.val() && (is_idle || is_done);
        self.is_sought.next = is_done;
        self.seeks.next = self.finder.seeks.val();
        self.seek_place.next = self.finder.seek_place.val();
        self.replay.next = replay;
        self.begins.next = begins;
        self.aborts.next = is_replaying && (begins || ends_active);
        self.remains.next = select(keeps, turned.is_active, replay.is_active);
        self.is_answered.next = repeats && found.is_found && action != Action::Ignore;
        self.is_unknown.next = repeats && !found.is_found && action != Action::Ignore;
    }
}
