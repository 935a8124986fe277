//! The rules as tables, from the numbered rules of the module and protocol 2.1, 2.3, 2.4 and 2.10.
use super::*;
use crate::messages::SLOT_BITS;
use crate::testing::event;
use rnic_layout::queue::send::SendWqe;

/// A first slot with an opcode, the bits of byte 1, and a length.
fn first_slot(opcode: WqeOpcode, flags: u8, length: u64) -> Bits<SLOT_BITS> {
    let offset = SendWqe::RECORD.field("length").offset as usize / 8;
    let mut bytes = [0u8; SLOT_BITS / 8];
    (bytes[0], bytes[1]) = (opcode as u8, flags);
    bytes[offset..][..4].copy_from_slice(&(length as u32).to_le_bytes());
    crate::testing::slot_bits(&bytes)
}

/// A slot that is next in its ring, and has a successor.
fn slot(opcode: WqeOpcode, flags: u8, length: u64) -> WqeSlot {
    WqeSlot {
        generation: bits(3),
        index: bits(9),
        has_second: true,
        first: first_slot(opcode, flags, length),
        ..WqeSlot::default()
    }
}

/// A queue pair in RTS that has sent eight of its slots.
fn life(state: QpState) -> Life {
    Life {
        state: bits(state as u64),
        generation: bits(3),
        path_mtu: bits(PathMtu::Bytes1024 as u64),
        read_atomic: bits(4),
        ..Life::default()
    }
}

fn send() -> Send {
    Send { slot_index: bits(9), next_psn: bits(0xff_fffe), message_count: bits(2), ..Send::default() }
}

/// Two messages have begun, and none is in flight.
fn idle() -> Retired {
    Retired { count: bits(2), una_psn: bits(0xff_fffe), ..Retired::default() }
}

/// Decides about a slot of a queue pair in RTS, where a shared block is free.
fn decided(slot: WqeSlot, send: Send, retired: Retired) -> Decision {
    decide(slot, life(QpState::ReadyToSend), send, retired, true)
}

#[test]
fn events_go_before_wakes_and_wakes_before_slots() {
    for (has_setup, has_wake, has_slot, expected) in [
        (true, true, true, Step::Setup),
        (true, false, false, Step::Setup),
        (false, true, true, Step::Wake),
        (false, false, true, Step::Decide),
        (false, false, false, Step::Idle),
    ] {
        assert_eq!(first_step(true, has_setup, has_wake, has_slot), expected);
        assert_eq!(first_step(false, has_setup, has_wake, has_slot), Step::Idle);
    }
}

#[test]
fn a_held_slot_is_looked_at_again_and_a_kept_burst_ends_with_a_question() {
    for (step, holds, ends, expected) in [
        (Step::Idle, false, false, Step::Wake),
        (Step::Idle, true, true, Step::Wake),
        (Step::Decide, true, true, Step::Act),
        (Step::Act, false, false, Step::Idle),
        (Step::Act, true, false, Step::Recheck),
        (Step::Act, false, true, Step::KeptLook),
        (Step::KeptLook, true, true, Step::KeptEnd),
        (Step::Recheck, true, true, Step::Idle),
        (Step::KeptEnd, true, true, Step::Idle),
        (Step::Setup, true, true, Step::Idle),
        (Step::Wake, true, true, Step::Idle),
    ] {
        assert_eq!(step_after(step, Step::Wake, holds, ends), expected, "{step:?}");
    }
}

#[test]
fn fetch_is_told_where_kept_slots_do_not_serve() {
    let none = KeptAnswer::default();
    let serves = KeptAnswer { serves: true, ..none };
    let refills = KeptAnswer { refills: true, ..serves };
    let nothing = Act::default();
    let begins = Act { begins: true, ..nothing };
    let jumps = Act { jumps: true, ..nothing };
    // Step, whether it was waiting for the wake, what becomes of the slot, whether it is long or kept, the answer.
    for (step, is_woken, act, is_long, is_kept, kept, expected) in [
        (Step::Wake, true, nothing, false, false, none, true),
        (Step::Wake, true, nothing, false, false, serves, false),
        (Step::Wake, true, nothing, false, false, refills, true),
        (Step::Wake, false, nothing, false, false, none, false),
        (Step::KeptEnd, false, nothing, false, true, none, true),
        (Step::KeptEnd, false, nothing, false, true, serves, false),
        (Step::KeptEnd, false, nothing, false, true, refills, true),
        (Step::Act, false, begins, false, false, none, false),
        (Step::Act, false, begins, true, true, none, true),
        (Step::Act, false, nothing, true, false, none, false),
        (Step::Act, false, jumps, false, false, none, true),
        (Step::Recheck, false, nothing, false, false, none, true),
        (Step::Recheck, false, nothing, false, true, none, false),
        (Step::Decide, true, begins, true, false, none, false),
    ] {
        let tells = tells_fetch(step, is_woken, act, is_long, is_kept, kept);
        assert_eq!(tells, expected, "{step:?} {act:?} {kept:?}");
    }
    // Where the record changes: the step, and which of the conditions make it.
    for (step, expected) in [
        (Step::Setup, [true; 5]),
        (Step::Wake, [false, true, false, false, false]),
        (Step::Act, [false, false, true, false, false]),
        (Step::Recheck, [false, false, false, true, false]),
        (Step::KeptEnd, [true, true, true, true, false]),
        (Step::KeptLook, [false; 5]),
        (Step::Idle, [false; 5]),
    ] {
        for (place, expected) in expected.into_iter().enumerate() {
            let [woken, changes, moved, serves] = [1, 2, 3, 4].map(|one| one == place);
            assert_eq!(writes_record(step, woken, changes, moved, serves), expected, "{step:?} {place}");
        }
    }
}

#[test]
fn after_a_wait_for_reads_three_bursts_are_single() {
    let careful = |send: Send| (send.careful.to_u64(), send.is_held);
    let before = Send { careful: bits(1), ..send() };
    assert_eq!(careful(after_hold(before, false)), (0, true));
    let mut held = after_hold(before, true);
    assert_eq!(careful(held), (3, true));
    for (serves, expected) in [(true, 3), (false, 2), (true, 2), (false, 1), (false, 0), (false, 0)] {
        held = after_wake(Send { is_held: true, ..held }, serves);
        assert_eq!(careful(held), (expected, false));
    }
}

#[test]
fn after_a_kept_burst_a_queue_pair_goes_on_unless_something_wakes_it() {
    let life = life(QpState::ReadyToSend);
    let last = WqeSlot { is_kept: true, ends_burst: true, generation: life.generation, ..WqeSlot::default() };
    for (name, slot, send, expected) in [
        ("the last slot", last, send(), true),
        ("not the last one", WqeSlot { ends_burst: false, ..last }, send(), false),
        ("neither kept nor single", WqeSlot { is_kept: false, ..last }, send(), false),
        ("single", WqeSlot { is_kept: false, is_single: true, ..last }, send(), true),
        ("of another generation", WqeSlot { generation: life.generation + 1, ..last }, send(), false),
        ("held", last, Send { is_held: true, ..send() }, false),
        ("waits for segment", last, Send { waits_for_long: true, ..send() }, false),
        ("ended", last, Send { has_ended: true, ..send() }, false),
        ("ended, and sent again", last, Send { has_ended: true, behind: bits(1), ..send() }, true),
    ] {
        assert_eq!(ends_kept(slot, life, send), expected, "{name}");
    }
}

#[test]
fn only_the_slot_after_the_last_wqe_is_taken_in_a_state_that_sends_or_flushes() {
    let next = slot(WqeOpcode::Send, 0, 0);
    for (state, taken) in [
        (QpState::Reset, false),
        (QpState::Init, false),
        (QpState::ReadyToReceive, false),
        (QpState::ReadyToSend, true),
        (QpState::SendQueueDrain, false),
        (QpState::SendQueueError, true),
        (QpState::Error, true),
    ] {
        assert_eq!(is_next_wqe(next, life(state), send(), idle()), taken, "{state:?}");
    }
    let at_end = WqeSlot { has_second: false, ends_queue: true, ..next };
    let overrun = WqeSlot { index: bits(0), is_overrun: true, has_second: false, ..next };
    let rows: [(&str, WqeSlot, Send, bool); 11] = [
        ("the next one", next, send(), true),
        ("the last one posted", at_end, send(), true),
        ("the end of a burst that is not the end", WqeSlot { ends_queue: false, ..at_end }, send(), false),
        ("fetched twice", WqeSlot { index: bits(8), ..next }, send(), false),
        ("after a gap", WqeSlot { index: bits(10), ..next }, send(), false),
        ("of another life", WqeSlot { generation: bits(2), ..next }, send(), false),
        ("an overrun at any index", overrun, send(), true),
        ("an overrun of another life", WqeSlot { generation: bits(2), ..overrun }, send(), false),
        ("held", next, Send { is_held: true, ..send() }, false),
        ("after a long message", next, Send { waits_for_long: true, ..send() }, false),
        ("after the end", overrun, Send { has_ended: true, ..send() }, false),
    ];
    for (name, slot, send, taken) in rows {
        assert_eq!(is_next_wqe(slot, life(QpState::ReadyToSend), send, idle()), taken, "{name}");
    }
}

#[test]
fn a_message_needs_as_many_packets_as_its_length_has_path_mtus() {
    use PathMtu::{Bytes256, Bytes512, Bytes1024, Bytes2048, Bytes4096};
    for (path_mtu, bytes) in
        [(Bytes256, 256u64), (Bytes512, 512), (Bytes1024, 1024), (Bytes2048, 2048), (Bytes4096, 4096)]
    {
        for length in [0, 1, bytes - 1, bytes, bytes + 1, 7 * bytes, 7 * bytes + 1, LENGTH_MAX] {
            let packets = length.div_ceil(bytes).max(1);
            let further = further_packets(bits(length), bits(path_mtu as u64));
            assert_eq!(further, bits(packets - 1), "{length} bytes, PMTU {bytes}");
        }
    }
}

#[test]
fn a_wqe_takes_psns_for_its_length_if_it_is_sent_from_memory_and_not_too_long() {
    use WqeOpcode::{CompareSwap, LocalInvalidate, Read, Send, Write};
    const INLINE: u8 = rnic_layout::queue::send::INLINE;
    let error = QpState::Error;
    let sent = QpState::ReadyToSend;
    for (opcode, flags, length, state, further, is_long) in [
        (Send, 0, 0, sent, 0, false),
        (Send, 0, 1025, sent, 1, false),
        (Send, 0, QUANTUM, sent, 15, false),
        (Write, 0, QUANTUM + 1, sent, 16, true),
        (Write, 0, LENGTH_MAX, sent, (1 << 21) - 1, true),
        (Write, 0, LENGTH_MAX + 1, sent, 0, false),
        (Send, INLINE, 1025, sent, 0, false),
        (Read, 0, QUANTUM + 1, sent, 16, false),
        (CompareSwap, 0, 8, sent, 0, false),
        (LocalInvalidate, 0, 5000, sent, 0xff_ffff, false),
        (Write, 0, QUANTUM + 1, error, 0, false),
        (LocalInvalidate, 0, 0, error, 0, false),
    ] {
        let decision = decide(slot(opcode, flags, length), life(state), send(), idle(), true);
        assert_eq!(decision.further_packets, bits(further), "{opcode:?} {length} {state:?}");
        assert_eq!(decision.is_long, is_long, "{opcode:?} {length} {state:?}");
        assert_eq!(decision.is_flushed, state == error);
    }
    for bad in [
        WqeSlot { is_unreadable: true, ..slot(Write, 0, QUANTUM + 1) },
        WqeSlot { is_overrun: true, ..slot(LocalInvalidate, 0, 0) },
    ] {
        let decision = decided(bad, send(), idle());
        assert_eq!((decision.further_packets, decision.is_long), (bits(0), false));
        assert!(!decision.is_local);
    }
}

#[test]
fn reads_wait_for_their_limit_and_a_fence_for_all_reads() {
    const FENCE: u8 = rnic_layout::queue::send::FENCE;
    use WqeOpcode::{FetchAdd, Read, Send as SendOpcode};
    // Opcode, flags, limit, READs that are open; whether it waits, and whether it counts.
    for (opcode, flags, limit, open, waits, counts) in [
        (Read, 0, 4, 0, false, true),
        (Read, 0, 4, 3, false, true),
        (Read, 0, 4, 4, true, true),
        (FetchAdd, 0, 4, 4, true, true),
        (Read, 0, 0, 0, false, false),
        (SendOpcode, 0, 4, 4, false, false),
        (SendOpcode, FENCE, 4, 0, false, false),
        (SendOpcode, FENCE, 4, 1, true, false),
        (Read, FENCE, 4, 1, true, true),
    ] {
        // The counts wrap.
        let life = Life { read_atomic: bits(limit), ..life(QpState::ReadyToSend) };
        let retired = Retired { reads: bits((1 << READ_COUNT_BITS) - 2), ..idle() };
        let send = Send { reads: retired.reads + open, ..send() };
        let decision = decide(slot(opcode, flags, 8), life, send, retired, true);
        assert_eq!(decision.is_blocked, waits, "{opcode:?} {flags} {limit} {open}");
        assert_eq!(decision.is_open, counts, "{opcode:?} {limit}");
        let flushed = Life { state: bits(QpState::Error as u64), ..life };
        assert!(!decide(slot(opcode, flags, 8), flushed, send, retired, true).is_blocked);
    }
}

#[test]
fn a_local_invalidate_waits_for_all_and_all_wait_for_it() {
    use WqeOpcode::{LocalInvalidate, Send as SendOpcode};
    for (opcode, follows_local, in_flight, waits) in [
        (LocalInvalidate, false, 0, false),
        (LocalInvalidate, false, 1, true),
        (SendOpcode, false, 1, false),
        (SendOpcode, true, 0, false),
        (SendOpcode, true, 1, true),
    ] {
        let send = Send { follows_local, message_count: idle().count + in_flight, ..send() };
        let decision = decided(slot(opcode, 0, 0), send, idle());
        assert_eq!(decision.is_blocked, waits, "{opcode:?} {follows_local} {in_flight}");
        assert_eq!(decision.is_alone, in_flight == 0);
        assert_eq!(decision.is_local, opcode == LocalInvalidate);
        let bad = WqeSlot { is_unreadable: true, ..slot(opcode, 0, 0) };
        assert!(!decided(bad, send, idle()).is_blocked, "what is not sent waits for nothing");
    }
}

#[test]
fn nothing_begins_after_a_message_in_error_but_what_is_flushed() {
    use QpState::{Error, ReadyToSend};
    use WqeOpcode::{LocalInvalidate, Read, Send as SendOpcode};
    const FENCE: u8 = rnic_layout::queue::send::FENCE;
    // Opcode, flags, what is before it, the state; nothing is in flight any more. It waits.
    for (opcode, flags, follows_local, state, waits) in [
        (SendOpcode, 0, true, ReadyToSend, true),
        (SendOpcode, FENCE, false, ReadyToSend, true),
        (Read, 0, false, ReadyToSend, true),
        (LocalInvalidate, 0, false, ReadyToSend, true),
        (SendOpcode, 0, true, Error, false),
        (LocalInvalidate, 0, false, Error, false),
    ] {
        let send = Send { follows_local, ..send() };
        let decide_after = |has_failed| {
            let retired = Retired { has_failed, ..idle() };
            decide(slot(opcode, flags, 0), life(state), send, retired, true)
        };
        assert_eq!(decide_after(true).is_blocked, waits, "{opcode:?} {flags} {state:?}");
        assert!(!decide_after(true).awaits_reads, "no READ wakes it");
        assert!(!decide_after(false).is_blocked, "{opcode:?} {flags} {state:?}");
        let bad = WqeSlot { is_unreadable: true, ..slot(opcode, flags, 0) };
        let retired = Retired { has_failed: true, ..idle() };
        assert!(!decided(bad, send, retired).is_blocked, "what is not sent waits for nothing");
    }
}

#[test]
fn the_window_of_messages_holds_a_queue_pair() {
    for (in_flight, waits) in [(0, false), (WINDOW - 1, false), (WINDOW, true), (WINDOW + 1, true)] {
        let send = Send { message_count: idle().count + in_flight, ..send() };
        assert_eq!(decided(slot(WqeOpcode::Send, 0, 0), send, idle()).is_blocked, waits, "{in_flight}");
    }
}

#[test]
fn psns_in_flight_hold_a_queue_pair_unless_it_is_alone_or_takes_none() {
    // PSNs in flight, packets after the first, alone, flushed.
    for (ahead, further, is_alone, is_flushed, waits) in [
        (0, 0, false, false, false),
        ((1 << 15) - 1, 0, false, false, false),
        (1 << 15, 0, false, false, true),
        (1 << 15, 0, true, false, false),
        (1 << 15, 0, false, true, false),
        (1, PSN_SPAN - 2, false, false, false),
        (1, PSN_SPAN - 1, false, false, true),
        (0, PSN_SPAN - 1, true, false, false),
    ] {
        let decision = Decision {
            ahead: bits(ahead),
            further_packets: bits(further),
            is_alone,
            is_flushed,
            ..Decision::default()
        };
        assert_eq!(is_blocked(decision), waits, "{ahead} {further} {is_alone} {is_flushed}");
        assert!(is_blocked(Decision { is_blocked: true, ..decision }));
    }
    let behind_wrap = Retired { una_psn: bits(0xff_fff0), ..idle() };
    let send = Send { next_psn: bits(5), ..send() };
    assert_eq!(decided(slot(WqeOpcode::Send, 0, 0), send, behind_wrap).ahead, bits(21));
}

#[test]
fn a_full_block_is_followed_by_the_home_or_a_free_one_or_itself() {
    let home = bits::<BLOCK_BITS>(77);
    let shared = bits::<SHARED_BITS>(5);
    let tail = bits::<BLOCK_BITS>(900);
    // Messages in the last block, the home is back, a block is free, it was used again, messages in flight;
    // whether the message waits, its block, its slot.
    for (count, has_home, has_free, is_reused, in_flight, waits, block, index) in [
        (0, false, false, false, 0, false, tail, 0),
        (7, true, true, true, 100, false, tail, 7),
        (8, true, true, false, 100, false, home, 0),
        (8, true, false, false, 100, false, home, 0),
        (8, false, true, false, 100, false, cat!(true, shared), 0),
        (8, false, false, false, 0, false, tail, 0),
        (8, false, false, false, 1, true, tail, 0),
        (8, false, true, true, 7, false, cat!(true, shared), 0),
        (8, false, true, true, 8, true, cat!(true, shared), 0),
        (8, true, false, true, 8, true, home, 0),
    ] {
        let send = Send {
            tail_from_home: tail ^ home,
            tail_count: bits(count),
            home_lap: has_home,
            is_reused,
            message_count: idle().count + in_flight,
            ..send()
        };
        let choice = choose_block(send, idle(), has_free);
        let name = format!("{count} {has_home} {has_free} {is_reused} {in_flight}");
        assert_eq!(waits_for_block(choice, is_reused, bits(in_flight)), waits, "{name}");
        let decision =
            decide(slot(WqeOpcode::Send, 0, 0), life(QpState::ReadyToSend), send, idle(), has_free);
        assert_eq!((decision.is_blocked, decision.block), (waits, choice), "{name}");
        let place = place_of(choice, send, home, shared);
        assert_eq!(place, PoolPlace { block, index: bits(index) }, "{name}");
        let after = after_wqe(send, WqeSlot::default(), decision, place, home);
        assert_eq!(after.tail_from_home ^ home, block, "{name}");
        assert_eq!(after.tail_count, bits(index + 1), "{name}");
        assert_eq!(after.home_lap != send.home_lap, count == 8 && has_home, "{name}");
        let stays = count == 8 && !has_home && !has_free;
        assert_eq!(after.is_reused, if count == 8 { stays } else { is_reused }, "{name}");
    }
}

#[test]
fn a_wqe_moves_slots_psns_and_counts() {
    const TWO: u8 = rnic_layout::queue::send::TWO_SLOTS;
    use WqeOpcode::{LocalInvalidate, Read, Write};
    let place = PoolPlace::default();
    // Slots, PSNs, whether the queue ends.
    for (slot, slots, psns, ends) in [
        (slot(Write, 0, 0), 1, 1, false),
        (slot(Write, 0, 4097), 1, 5, false),
        (slot(Write, TWO, 4097), 2, 5, false),
        (WqeSlot { has_second: false, ends_queue: true, ..slot(Write, TWO, 1) }, 1, 1, false),
        (slot(LocalInvalidate, 0, 0), 1, 0, false),
        (WqeSlot { is_unreadable: true, ..slot(Write, TWO, 4097) }, 1, 1, true),
        (WqeSlot { is_overrun: true, ..slot(Write, TWO, 4097) }, 0, 1, true),
    ] {
        let decision = decided(slot, send(), idle());
        let after = after_wqe(send(), slot, decision, place, bits(0));
        assert_eq!(after.slot_index, send().slot_index + slots, "{slot:?}");
        assert_eq!(after.next_psn, send().next_psn + psns, "{slot:?}");
        assert_eq!(after.message_count, send().message_count + 1);
        assert_eq!((after.has_ended, after.has_begun, after.is_held), (ends, true, false));
        assert_eq!(after.follows_local, decision.is_local);
        let flushed = decide(slot, life(QpState::Error), send(), idle(), true);
        assert_eq!(after_wqe(send(), slot, flushed, place, bits(0)).next_psn, send().next_psn);
    }
    let read = slot(Read, 0, 8);
    let after = after_wqe(send(), read, decided(read, send(), idle()), place, bits(0));
    assert_eq!(after.reads, send().reads + 1);
    let long = slot(Write, 0, QUANTUM + 1);
    let after = after_wqe(send(), long, decided(long, send(), idle()), place, bits(0));
    assert_eq!((after.waits_for_long, after.reads), (true, send().reads));
}

#[test]
fn an_acknowledgement_is_requested_where_nothing_may_follow() {
    const TWO: u8 = rnic_layout::queue::send::TWO_SLOTS;
    use WqeOpcode::{LocalInvalidate, Send as SendOpcode};
    let plain = slot(SendOpcode, 0, 0);
    let before_local = WqeSlot { second: first_slot(LocalInvalidate, 0, 0), ..plain };
    for (slot, index, expected) in [
        (plain, 0, false),
        (plain, 6, false),
        (plain, 7, true),
        (WqeSlot { has_second: false, ends_queue: true, ..plain }, 0, true),
        (slot(SendOpcode, TWO, 0), 0, true),
        (before_local, 0, true),
    ] {
        let decision = decided(slot, send(), idle());
        let place = PoolPlace { block: bits(12), index: bits(index) };
        let after = after_wqe(send(), slot, decision, place, bits(0));
        let life = life(QpState::ReadyToSend);
        let parsed = parsed_of(true, slot, life, send(), decision, place, after);
        assert_eq!(parsed.needs_ack, expected, "{index}");
        assert_eq!(parsed.header.pool_slot, bits(12 * 8 + index));
        assert_eq!((parsed.header.is_empty, parsed.header.is_first), (false, true));
    }
}

#[test]
fn a_wqe_that_must_not_be_read_has_a_reason() {
    let plain = WqeSlot::default();
    let unreadable = WqeSlot { is_unreadable: true, ..plain };
    for (slot, is_half, reason) in [
        (plain, false, 0),
        (plain, true, vendor_error::HALF_WQE),
        (unreadable, false, vendor_error::UNREADABLE),
        (WqeSlot { is_overrun: true, ..plain }, false, vendor_error::OVERRUN),
        (WqeSlot { is_overrun: true, ..unreadable }, true, vendor_error::OVERRUN),
    ] {
        assert_eq!(reason_of(slot, is_half), bits(reason));
    }
}

#[test]
fn events_start_anew_or_wake_what_waits() {
    let waiting = Send {
        is_held: true,
        waits_for_long: true,
        follows_local: true,
        has_ended: true,
        has_begun: true,
        tail_count: bits(3),
        ..send()
    };
    let anew = Send {
        slot_index: bits(0),
        next_psn: waiting.next_psn,
        message_count: waiting.message_count,
        tail_count: bits(3),
        ..Send::default()
    };
    let free = Send { is_held: false, waits_for_long: false, ..waiting };
    let long = Send { waits_for_long: true, ..free };
    use QpState::{Error, Init, ReadyToSend, Reset, SendQueueDrain, SendQueueError};
    use SetupKind::{Life, Path, Probe, ReceivePsn, Restart, SendPsn};
    // Kind, state, the record before; the record after, whether wqe_fetch resumes.
    for (kind, state, before, after, resumes) in [
        (Restart, Reset, waiting, anew, false),
        (Restart, ReadyToSend, waiting, anew, false),
        (Life, ReadyToSend, waiting, long, false),
        (Life, ReadyToSend, free, free, true),
        (Life, SendQueueDrain, waiting, long, false),
        (Life, SendQueueDrain, free, free, false),
        (Life, SendQueueError, waiting, free, true),
        (Life, Error, waiting, free, true),
        (Life, Init, waiting, free, false),
        (Life, Reset, waiting, free, false),
        (SendPsn, ReadyToSend, waiting, Send { next_psn: bits(0x123), ..waiting }, false),
        (ReceivePsn, ReadyToSend, waiting, waiting, false),
        (Path, ReadyToSend, waiting, waiting, false),
        (Probe, Error, waiting, waiting, false),
    ] {
        let event = SetupEvent { psn: bits(0x123), ..event(kind, 5, state, 3) };
        assert_eq!(after_setup(before, event, idle()), after, "{kind:?} {state:?}");
        assert_eq!(resumes_after_setup(before, event), resumes, "{kind:?} {state:?}");
    }
}

/// A queue pair of which five messages were begun, with slots up to 20 and PSNs up to 0x200, two of which have left.
fn begun() -> (Send, Retired) {
    let send = Send {
        slot_index: bits(20),
        next_psn: bits(0x200),
        message_count: bits(5),
        reads: bits(3),
        is_held: true,
        waits_for_long: true,
        ..Send::default()
    };
    let retired = Retired {
        count: bits(2),
        reads: bits(1),
        una_psn: bits(0x103),
        oldest_slot: bits(12),
        oldest_psn: bits(0x100),
        epoch: bits(1),
        ..Retired::default()
    };
    (send, retired)
}

#[test]
fn the_cursor_goes_back_to_the_oldest_message_and_comes_back_to_where_it_was() {
    let (send, retired) = begun();
    let back = at_oldest(send, retired);
    let expected = Send {
        slot_index: bits(12),
        next_psn: bits(0x100),
        behind: bits(3),
        high_slot: bits(20),
        high_psn: bits(0x200),
        epoch: bits(1),
        lap: bits(1),
        is_held: false,
        waits_for_long: false,
        ..send
    };
    assert_eq!(back, expected);
    // From there it goes back again, keeping the end.
    let later =
        Retired { count: bits(4), reads: bits(3), oldest_slot: bits(18), oldest_psn: bits(0x1f0), ..retired };
    let again = at_oldest(back, later);
    let found = (again.slot_index, again.next_psn, again.behind);
    assert_eq!(found, (bits(18), bits(0x1f0), bits(1)));
    assert_eq!((again.high_slot, again.high_psn), (bits(20), bits(0x200)));
    // With nothing in flight it is at the end.
    let none = at_oldest(back, Retired { count: bits(5), reads: bits(3), ..retired });
    assert_eq!((none.slot_index, none.next_psn, none.behind), (bits(20), bits(0x200), bits(0)));
    let end = at_end(back);
    assert_eq!((end.slot_index, end.next_psn, end.behind), (bits(20), bits(0x200), bits(0)));
    assert_eq!(at_end(send), send);
}

#[test]
fn the_cursor_goes_back_when_the_epoch_has_risen_and_nothing_is_waited_for() {
    let (send, retired) = begun();
    for (state, epoch, waits, expected) in [
        (QpState::ReadyToSend, 1, false, true),
        (QpState::SendQueueDrain, 1, false, true),
        (QpState::ReadyToSend, 0, false, false),
        (QpState::ReadyToSend, 1, true, false),
        (QpState::Error, 1, false, false),
    ] {
        let retired = Retired { epoch: bits(epoch), waits, ..retired };
        assert_eq!(goes_back(life(state), send, retired), expected, "{state:?} {epoch} {waits}");
    }
}

#[test]
fn messages_that_were_begun_are_taken_again_whatever_is_in_flight() {
    let (send, retired) = begun();
    let back = Send { is_held: false, ..at_oldest(send, retired) };
    let first = WqeSlot { index: bits(12), ..slot(WqeOpcode::Write, 0, 5000) };
    let overrun = WqeSlot { is_overrun: true, has_second: false, lap: back.lap, ..first };
    let ended = Send { has_ended: true, ..back };
    use QpState::{Error, ReadyToReceive, ReadyToSend, SendQueueDrain};
    // Slot, record, state, epoch of the pool; is the next WQE.
    for (name, slot, send, state, epoch, expected) in [
        ("in RTS", first, back, ReadyToSend, 1, true),
        ("in SQD", first, back, SendQueueDrain, 1, true),
        ("new in SQD", WqeSlot { index: bits(20), ..first }, at_end(back), SendQueueDrain, 1, false),
        ("in RTR", first, back, ReadyToReceive, 1, false),
        ("after the end of the queue", first, ended, ReadyToSend, 1, true),
        ("the cursor must go back", first, back, ReadyToSend, 2, false),
        ("in ERR, whatever the epoch is", WqeSlot { index: bits(20), ..first }, at_end(back), Error, 2, true),
        ("an overrun of another lap", WqeSlot { lap: bits(0), ..overrun }, back, ReadyToSend, 1, false),
    ] {
        let retired = Retired { epoch: bits(epoch), ..retired };
        assert_eq!(is_next_wqe(slot, life(state), send, retired), expected, "{name}");
    }
    // It takes its PSNs again, from the oldest unacknowledged one on, without a place in the pool.
    let decision = decide(first, life(ReadyToSend), back, retired, false);
    assert!(decision.takes && decision.is_replay && !decision.jumps);
    assert_eq!((skipped_packets(decision), is_acknowledged(decision)), (bits(3), false));
    let after = after_replay(back, decision);
    assert_eq!((after.slot_index, after.next_psn, after.behind), (bits(13), bits(0x105), bits(2)));
    let place = place_of(decision.block, back, bits(0), bits(0));
    let parsed = parsed_of(true, first, life(ReadyToSend), back, decision, place, after);
    let header = parsed.header;
    assert!(header.is_replay && !header.is_empty && parsed.needs_ack && parsed.plan.is_continued);
    assert_eq!((header.last_psn, header.message_count, header.epoch), (bits(0x104), bits(5), bits(1)));
    assert_eq!((parsed.plan.first_psn, parsed.skipped_packets), (bits(0x103), bits(3)));
    // All of it is acknowledged: nothing is sent. The oldest one has left: the cursor goes on to the next.
    let passed = Retired { una_psn: bits(0x105), ..retired };
    assert!(is_acknowledged(decide(first, life(ReadyToSend), back, passed, false)));
    for slot in [first, overrun] {
        let decision = decide(slot, life(ReadyToSend), back, Retired { count: bits(3), ..retired }, false);
        assert!(decision.jumps && !decision.takes);
    }
    // One that cannot be read again fails, also if part of it is acknowledged, and nothing after it is sent.
    let unreadable = WqeSlot { is_unreadable: true, ..first };
    for (slot, has_ended) in [(overrun, true), (unreadable, false)] {
        let decision = decide(slot, life(ReadyToSend), back, retired, false);
        assert!(decision.takes && decision.is_lost && !decision.jumps);
        let act = act_of(Step::Act, decision);
        assert!(act.replays && act.leaves && act.changes && !act.begins && !act.holds);
        let after = after_slot(back, slot, decision, place, bits(0));
        assert_eq!((after.slot_index, after.next_psn, after.behind), (bits(20), bits(0x200), bits(0)));
        assert_eq!(after.has_ended, has_ended);
        let parsed = parsed_of(true, slot, life(ReadyToSend), back, decision, place, after);
        assert_eq!(parsed.plan.first_psn, bits(0x103), "the message of the oldest unacknowledged PSN");
        assert!(parsed.reason != 0 && parsed.header.is_replay);
    }
}

#[test]
fn the_last_message_that_is_sent_again_ends_where_the_cursor_was() {
    let (send, retired) = begun();
    // Messages that are left; slot, PSN and messages after it.
    for (behind, slot, psn, left) in [(3, 13, 0x102, 2), (1, 20, 0x200, 0)] {
        let back = Send { behind: bits(behind), ..at_oldest(send, retired) };
        let decision = Decision { is_replay: true, further_packets: bits(1), ..Decision::default() };
        let after = after_replay(back, decision);
        let found = (after.slot_index, after.next_psn, after.behind);
        assert_eq!(found, (bits(slot), bits(psn), bits(left)), "{behind}");
    }
    // After a long one wqe_parse waits for segment, unless nothing of it is sent.
    for (ahead, expected) in [(0, true), (0xff_fffe, true), (0xff_fff0, false)] {
        let decision = Decision {
            is_replay: true,
            is_long: true,
            ahead: bits(ahead),
            further_packets: bits(9),
            ..Decision::default()
        };
        assert_eq!(after_replay(at_oldest(send, retired), decision).waits_for_long, expected, "{ahead:#x}");
    }
}

#[test]
fn a_message_that_was_counted_as_much_lighter_is_awaited() {
    // Weight and balance of the queue pair, weight of the message, weight of its burst; then weight after it, and whether segment
    // is waited for.
    for (weight, balance, message, counted, after, expected) in [
        (0u64, 0u64, 7, 0, 1, false),
        (1, 0, 7, 0, 2, true),
        (1, 0, 7, 1, 2, false),
        (5, 63, 6, 3, 6, true),
        (5, 0, 5, 3, 5, true),
        (5, 0, 5, 4, 5, false),
        // What has no payload is not, and changes the weight like any other.
        (5, 0, 0, 0, 5, false),
        (7, 0, 0, 0, 6, false),
    ] {
        let estimate = Estimate { weight: bits(weight), balance: bits(balance) };
        let (send, _) = begun();
        let send = Send { estimate, ..send };
        let outlook = outlook_of(estimate, bits(counted));
        let decision = Decision { weight: bits(message), outlook, ..Decision::default() };
        let slot = WqeSlot::default();
        let name = format!("weight {weight}, message {message} counted as {counted}");
        let begun = after_wqe(send, slot, decision, PoolPlace::default(), bits(0));
        assert_eq!((begun.estimate.weight.to_u64(), begun.waits_for_long), (after, expected), "{name}");
        let again = after_replay(Send { behind: bits(2), ..send }, decision);
        assert_eq!(
            (again.estimate.weight.to_u64(), again.waits_for_long),
            (after, expected),
            "{name}, again"
        );
    }
}

#[test]
fn a_life_begins_in_the_epoch_that_acknowledge_has_ended_the_last_one_with() {
    let (send, retired) = begun();
    let later = Retired { epoch: bits(2), ..retired };
    let restarted = after_setup(send, event(SetupKind::Restart, 5, QpState::Reset, 3), retired);
    assert_eq!((restarted.epoch, restarted.behind, restarted.lap), (bits(1), bits(0), bits(0)));
    // Acknowledge was about to go back when the event came.
    let psn = after_setup(restarted, event(SetupKind::SendPsn, 5, QpState::ReadyToSend, 3), later);
    assert_eq!(psn.epoch, bits(2));
    let next = WqeSlot { index: bits(0), ..slot(WqeOpcode::Send, 0, 0) };
    assert!(is_next_wqe(next, life(QpState::ReadyToSend), psn, later));
}
