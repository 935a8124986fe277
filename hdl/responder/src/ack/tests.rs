//! Ack by itself: one queue pair, its replies and the host writes and responses that they wait for.
use super::*;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use rnic_layout::state::QpState;
use rnic_messages::host::WriteOwner;
use rnic_messages::setup::SetupKind;

const QUEUE_PAIR: u64 = 5;
const ACK: u64 = 0x1f;
const NAK_ACCESS: u64 = 0x62;
const NAK_OPERATIONAL: u64 = 0x63;

struct World {
    bench: Bench<Ack>,
    random: Random,
    setup: Source<SetupEvent>,
    replies: Source<AckNotice>,
    failures: Source<WriteFailure>,
    withdrawn: Source<ReadsWithdrawn>,
    sent: Sink<TransmitRequest>,
    released: Sink<ReadRelease>,
    notices: Sink<QpNotice>,
}

impl World {
    /// A block whose records are cleared, with one queue pair in RTS.
    fn new(stalls: Stalls) -> Self {
        let mut world = World {
            bench: Bench::clocked(Ack::default(), |block| &mut block.clock).in_lock_step(),
            random: random(),
            setup: Source::of_tokens([], stalls),
            replies: Source::of_tokens([], stalls),
            failures: Source::of_tokens([], stalls),
            withdrawn: Source::of_tokens([], stalls),
            sent: Sink::new(stalls),
            released: Sink::new(stalls),
            notices: Sink::new(stalls),
        };
        world.run(1030);
        for kind in [SetupKind::Restart, SetupKind::ReceivePsn] {
            world.setup.push(SetupEvent {
                kind,
                queue_pair: bits(QUEUE_PAIR),
                state: bits(QpState::ReadyToSend as u64),
                generation: bits(3),
                psn: bits(100),
                ..SetupEvent::default()
            });
        }
        world.run(40);
        world
    }

    fn run(&mut self, cycles: usize) {
        for _ in 0..cycles {
            let World { bench, random, .. } = self;
            self.setup.drive(&mut bench.block.setup, random);
            self.replies.drive(&mut bench.block.place_reply, random);
            self.failures.drive(&mut bench.block.write_failure, random);
            self.withdrawn.drive(&mut bench.block.withdrawn, random);
            self.sent.drive(&mut bench.block.tx, random);
            self.released.drive(&mut bench.block.release, random);
            self.notices.drive(&mut bench.block.failure, random);
            bench.settle();
            self.setup.sample(&bench.block.setup);
            self.replies.sample(&bench.block.place_reply);
            self.failures.sample(&bench.block.write_failure);
            self.withdrawn.sample(&bench.block.withdrawn);
            self.sent.sample(&bench.block.tx);
            self.released.sample(&bench.block.release);
            self.notices.sample(&bench.block.failure);
            bench.tick();
            bench.block.read_closed.valid.next = false;
        }
    }

    fn reply(&mut self, syndrome: u64, psn: u64, write_count: u64) {
        self.replies.push(AckNotice {
            queue_pair: bits(QUEUE_PAIR),
            generation: bits(3),
            syndrome: bits(syndrome),
            psn: bits(psn),
            msn: bits(psn),
            write_count: bits(write_count),
            ..AckNotice::default()
        });
        self.run(30);
    }

    /// A READ whose last response has this PSN is released.
    fn read(&mut self, psn: u64) {
        let before = self.released.received.len();
        self.replies.push(AckNotice {
            queue_pair: bits(QUEUE_PAIR),
            generation: bits(3),
            psn: bits(psn),
            is_read: true,
            ..AckNotice::default()
        });
        self.run(30);
        assert_eq!(self.released.received.len(), before + 1);
        assert!(!self.released.received[before].write_failed);
    }

    /// A duplicate READ of a generation is released; returns whether it is dropped.
    fn read_again(&mut self, generation: u64) -> bool {
        let before = self.released.received.len();
        self.replies.push(AckNotice {
            queue_pair: bits(QUEUE_PAIR),
            generation: bits(generation),
            psn: bits(90),
            is_read: true,
            is_again: true,
            ..AckNotice::default()
        });
        self.run(30);
        assert_eq!(self.released.received.len(), before + 1);
        let release = self.released.received[before];
        assert!(release.is_again && !release.write_failed);
        release.is_dropped
    }

    /// Duplicates get no answer.
    fn withdraw(&mut self, generation: u64, count: u64) {
        self.withdrawn.push(ReadsWithdrawn {
            queue_pair: bits(QUEUE_PAIR),
            generation: bits(generation),
            count: bits(count),
        });
        self.run(40);
    }

    /// Times that the READ responder was told that READs end with the NAK of a failed write.
    fn ends(&self) -> usize {
        self.released.received.iter().filter(|release| release.write_failed).count()
    }

    /// The last response of a READ is on its way.
    fn close(&mut self) {
        let closed = ReadClosed { queue_pair: bits(QUEUE_PAIR), generation: bits(3) };
        self.bench.block.read_closed.value.next = closed;
        self.bench.block.read_closed.valid.next = true;
        self.run(40);
    }

    /// The host refuses a write of payload.
    fn refuse_write(&mut self) {
        self.failures.push(WriteFailure {
            owner: WriteOwner::Payload,
            queue_pair: bits(QUEUE_PAIR),
            generation: bits(3),
            ..WriteFailure::default()
        });
    }

    /// The queue pair enters ERR.
    fn end(&mut self) {
        self.setup.push(SetupEvent {
            kind: SetupKind::Life,
            queue_pair: bits(QUEUE_PAIR),
            state: bits(QpState::Error as u64),
            generation: bits(3),
            ..SetupEvent::default()
        });
        self.run(40);
    }

    fn done(&mut self, count: u64) {
        self.bench.block.done_count.next = bits(count);
        self.run(40);
    }

    /// Syndromes and PSNs that have left since the last call.
    fn sent(&mut self) -> Vec<(u64, u64)> {
        let sent = self.sent.received.drain(..);
        sent.map(|packet| (packet.extended.get_bits::<8>(0).to_u64(), packet.psn.to_u64())).collect()
    }
}

#[test]
fn replies_leave_when_their_writes_are_done_and_the_newest_covers_those_before_it() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        world.reply(ACK, 100, 2);
        world.reply(ACK, 101, 3);
        world.reply(ACK, 102, 4);
        world.done(1);
        assert_eq!(world.sent(), []);
        world.done(2);
        assert_eq!(world.sent(), [(ACK, 100)]);
        world.done(3);
        assert_eq!(world.sent(), []);
        world.done(4);
        assert_eq!(world.sent(), [(ACK, 102)]);
        assert!(world.notices.received.is_empty());
    }
}

#[test]
fn no_reply_overtakes_a_response() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        world.read(104);
        world.reply(ACK, 105, 0);
        assert_eq!(world.sent(), []);
        world.close();
        assert_eq!(world.sent(), [(ACK, 105)]);
    }
}

/// What is owed when a READ is released would have to leave before its responses: they stand for it. A NAK that ends the queue pair
/// is not among that.
#[test]
fn the_responses_of_a_read_stand_for_replies_that_have_not_left() {
    for stalls in Stalls::ALL {
        for older in [[(ACK, 100), (ACK, 101)], [(ACK, 100), (0x60, 102)], [(0x60, 101), (ACK, 101)]] {
            let mut world = World::new(stalls);
            // They wait for their turn, as behind a wire that is busy.
            for (syndrome, psn) in older {
                world.reply(syndrome, psn, 1);
            }
            world.read(104);
            world.done(1);
            world.reply(ACK, 105, 1);
            assert_eq!(world.sent(), [], "{older:x?}");
            world.close();
            assert_eq!(world.sent(), [(ACK, 105)], "{older:x?}");
            // The queue pair still has its turns.
            world.reply(ACK, 106, 2);
            world.done(2);
            assert_eq!(world.sent(), [(ACK, 106)], "{older:x?}");
        }
    }
}

/// Protocol 3.4: answers to duplicates are not overtaken either, and those that get none are not waited for.
#[test]
fn no_reply_overtakes_the_answer_to_a_duplicate() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        world.read(104);
        world.close();
        for _ in 0..4 {
            assert!(!world.read_again(3));
        }
        world.reply(ACK, 104, 0);
        world.withdraw(2, 4);
        world.withdraw(3, 2);
        assert_eq!(world.sent(), []);
        world.close();
        assert_eq!(world.sent(), []);
        world.close();
        assert_eq!(world.sent(), [(ACK, 104)]);
        // The last one closes by withdrawal; a duplicate covers no PSN.
        assert!(!world.read_again(3));
        world.reply(ACK, 105, 0);
        world.refuse_write();
        world.run(20);
        assert_eq!((world.sent(), world.ends()), (vec![], 1));
        world.withdraw(3, 1);
        assert_eq!(world.sent(), [(NAK_OPERATIONAL, 105)]);
        // Whatever becomes of the queue pair, the READ responder hears of each duplicate.
        assert!(world.read_again(3), "the queue pair has failed");
        assert!(world.read_again(2), "the generation is over");
    }
}

/// Protocol 3.4: the acknowledgement of a duplicate WRITE names the WRITE, behind the responses of a READ that came after it. The NAK
/// of a write that fails then is still for the first PSN behind those.
#[test]
fn the_acknowledgement_of_a_duplicate_takes_nothing_back() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        world.reply(ACK, 100, 0);
        world.read(104);
        world.reply(ACK, 100, 0);
        world.close();
        world.run(20);
        assert_eq!(world.sent().last(), Some(&(ACK, 100)));
        world.refuse_write();
        world.run(60);
        assert_eq!(world.sent(), [(NAK_OPERATIONAL, 105)]);
    }
}

/// A peer that asks for more than it may: responses that are made no longer count against its limit, but wait for the wire.
#[test]
fn no_reply_overtakes_any_of_many_responses() {
    let count = 40;
    let mut world = World::new(Stalls::None);
    for psn in 0..count {
        world.read(100 + psn);
    }
    world.reply(ACK, 100 + count, 0);
    for _ in 0..count {
        assert_eq!(world.sent(), []);
        world.close();
    }
    assert_eq!(world.sent(), [(ACK, 100 + count)]);
}

/// In ERR, responses that were made before are still on their way, and the others never come.
#[test]
fn no_acknowledgement_passes_a_read_that_err_leaves_open() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        world.read(104);
        world.reply(ACK, 105, 0);
        world.end();
        world.reply(ACK, 106, 0);
        world.end();
        assert_eq!(world.sent(), []);
        world.close();
        assert_eq!(world.sent(), [(ACK, 105), (ACK, 106)], "the responses were on their way");
        world.read(107);
        world.reply(ACK, 108, 0);
        assert_eq!(world.sent(), []);
    }
}

/// The host refuses a write while READs are open whose responses are under way: ERR comes at once, but the NAK follows the
/// last response.
#[test]
fn the_nak_of_a_failed_write_passes_no_response() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        world.read(104);
        world.read(105);
        world.reply(ACK, 106, 0);
        for _ in 0..2 {
            world.refuse_write();
        }
        world.run(60);
        assert_eq!(world.sent(), []);
        assert_eq!((world.notices.received.len(), world.ends()), (1, 1));
        world.end();
        assert_eq!(world.sent(), []);
        world.close();
        world.end();
        assert_eq!(world.sent(), [], "one READ is open");
        world.close();
        assert_eq!(world.sent(), [(NAK_OPERATIONAL, 106)]);
        world.reply(ACK, 107, 0);
        assert_eq!(world.sent(), []);
        assert_eq!((world.notices.received.len(), world.ends()), (1, 1));
    }
}

/// A READ that the READ responder has refused, or ended because of the write, stays open: its NAK was the last answer.
#[test]
fn a_read_that_became_a_nak_is_followed_by_no_nak_of_a_failed_write() {
    for stalls in Stalls::ALL {
        for is_in_err in [false, true] {
            let mut world = World::new(stalls);
            world.read(104);
            world.read(105);
            world.close();
            if is_in_err {
                world.end();
            }
            world.refuse_write();
            world.run(60);
            world.end();
            world.reply(ACK, 106, 0);
            world.done(1);
            assert_eq!(world.sent(), []);
            assert_eq!(world.notices.received.len(), 1, "control is told in any case");
        }
    }
}

/// Its responses would acknowledge the write before the NAK leaves.
#[test]
fn a_read_behind_a_failed_write_is_not_released() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        world.refuse_write();
        while world.notices.received.is_empty() {
            world.run(1);
        }
        world.replies.push(AckNotice {
            queue_pair: bits(QUEUE_PAIR),
            generation: bits(3),
            psn: bits(104),
            is_read: true,
            ..AckNotice::default()
        });
        world.run(60);
        assert_eq!(world.sent(), [(NAK_OPERATIONAL, 100)]);
        assert_eq!(world.released.received.len(), 0, "no READ is released, and none ends");
    }
}

/// The end of a READ cannot wait, while failed writes can: the host refuses many writes of another queue pair at once.
#[test]
fn a_burst_of_failed_writes_loses_no_end_of_a_read() {
    let mut world = World::new(Stalls::None);
    let count = 24;
    for psn in 0..count {
        world.read(100 + psn);
    }
    world.reply(ACK, 100 + count, 0);
    let other = WriteFailure {
        owner: WriteOwner::Payload,
        queue_pair: bits(QUEUE_PAIR + 1),
        generation: bits(3),
        ..WriteFailure::default()
    };
    for _ in 0..100 {
        world.failures.push(other);
    }
    for _ in 0..count {
        world.bench.block.read_closed.value.next =
            ReadClosed { queue_pair: bits(QUEUE_PAIR), generation: bits(3) };
        world.bench.block.read_closed.valid.next = true;
        world.run(3);
    }
    assert_eq!(world.sent(), []);
    world.run(300);
    assert_eq!(world.sent(), [(ACK, 100 + count)]);
    assert!(world.failures.is_done(), "all failed writes are taken");
}

#[test]
fn a_fatal_nak_fails_the_queue_pair_when_it_leaves() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        world.reply(NAK_ACCESS, 100, 1);
        assert!(world.notices.received.is_empty());
        world.done(1);
        assert_eq!(world.sent(), [(NAK_ACCESS, 100)]);
        assert_eq!(world.notices.received.len(), 1);
    }
}

#[test]
fn a_failed_write_becomes_a_nak_for_the_first_psn_that_is_not_acknowledged() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        world.reply(ACK, 100, 0);
        world.run(20);
        assert_eq!(world.sent(), [(ACK, 100)]);
        world.reply(ACK, 101, 1);
        for _ in 0..2 {
            world.refuse_write();
        }
        world.run(60);
        assert_eq!(world.sent(), [], "the turn comes with the write that the queue pair waits for");
        // A write that was refused is done, too.
        world.done(1);
        assert_eq!(world.sent(), [(NAK_OPERATIONAL, 101)]);
        world.reply(ACK, 102, 1);
        assert_eq!(world.sent(), []);
        assert_eq!(world.notices.received.len(), 1);
    }
}
