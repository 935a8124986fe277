//! The rules as tables, from the numbered rules of the module.
use super::*;

#[test]
fn events_and_local_progress_go_before_responses_and_these_before_turns() {
    let all = Offers {
        setup: true,
        failure: true,
        is_mark: false,
        local: true,
        local_fails: false,
        expired: true,
        turn: true,
        returned: true,
        response: true,
    };
    let quiet = Offers { setup: false, failure: false, local: false, expired: false, ..all };
    let rows: [(Offers, u64, Step); 17] = [
        (all, 7, Step::Setup),
        (Offers { setup: false, ..all }, 7, Step::Failure),
        (Offers { is_mark: true, ..all }, 7, Step::Setup),
        (Offers { setup: false, is_mark: true, ..all }, 7, Step::Marked),
        (Offers { local: true, local_fails: true, is_mark: true, ..quiet }, 7, Step::Failure),
        (Offers { setup: false, failure: false, ..all }, 7, Step::Local),
        (Offers { setup: false, failure: false, local: false, ..all }, 7, Step::Timeout),
        (Offers { expired: true, ..Offers::default() }, 0, Step::Timeout),
        (Offers { local: true, local_fails: true, ..quiet }, 7, Step::Failure),
        (Offers { local_fails: true, ..quiet }, 0, Step::Check),
        (quiet, 6, Step::Check),
        // A turn waits for seven responses at most.
        (quiet, 7, Step::Load),
        (Offers { returned: false, ..quiet }, 6, Step::Check),
        (Offers { response: false, ..quiet }, 6, Step::Check),
        (Offers { returned: false, response: false, ..quiet }, 0, Step::Load),
        (Offers { turn: false, ..quiet }, 7, Step::Check),
        (Offers::default(), 7, Step::Idle),
    ];
    for (has, responses, expected) in rows {
        assert_eq!(first_step(has, bits(responses)), expected, "{has:?} {responses}");
    }
}

#[test]
fn responses_are_counted_from_turn_to_turn_up_to_seven() {
    for (taken, first, expected) in [
        (0, Step::Check, 1),
        (6, Step::Check, 7),
        (7, Step::Check, 7),
        (7, Step::Load, 0),
        (3, Step::Setup, 3),
        (3, Step::Failure, 3),
        (3, Step::Idle, 3),
    ] {
        assert_eq!(responses_after(bits(taken), first), bits(expected), "{taken} {first:?}");
    }
}

#[test]
fn responses_leave_a_place_to_what_a_turn_sends() {
    for (deferred, expected) in [(0, true), (6, true), (7, false), (8, false)] {
        assert_eq!(takes_response(bits(deferred)), expected, "{deferred}");
    }
}

#[test]
fn a_turn_starts_with_room_for_all_that_it_can_send() {
    // The queues hold 32 completions, four failures, four wakes and 1,024 marks; a turn adds eight, two, one and one,
    // and one more wake may be on its way.
    for (completions, failures, wakes, marks, expected) in [
        (0, 0, 0, 0, true),
        (23, 2, 2, 1023, true),
        (24, 2, 2, 1023, false),
        (23, 3, 2, 1023, false),
        (23, 2, 3, 1023, false),
        (23, 2, 2, 1024, false),
    ] {
        let room = has_room(bits(completions), bits(failures), bits(wakes), bits(marks));
        assert_eq!(room, expected, "{completions} {failures} {wakes} {marks}");
    }
}
