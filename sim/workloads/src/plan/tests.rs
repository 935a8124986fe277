use super::*;
use std::collections::BTreeSet;

#[test]
fn equal_seeds_give_equal_plans() {
    let options = PlanOptions::USUAL;
    assert_eq!(Plan::new(3, &options), Plan::new(3, &options));
    assert_ne!(Plan::new(3, &options), Plan::new(4, &options));
}

#[test]
fn plans_hold_everything_that_can_be_asked_for() {
    let plans: Vec<Plan> = (0..40).map(|seed| Plan::new(seed, &PlanOptions::USUAL)).collect();
    let pairs: Vec<&Pair> = plans.iter().flat_map(|plan| &plan.pairs).collect();
    let sends: Vec<(&Pair, &Message)> = pairs
        .iter()
        .flat_map(|pair| {
            pair.lanes.iter().flat_map(move |lane| lane.sends.iter().map(move |send| (*pair, send)))
        })
        .collect();
    let mistakes: BTreeSet<Mistake> =
        pairs.iter().filter_map(|pair| Some(pair.ending.as_ref()?.mistake)).collect();
    assert_eq!(mistakes.len(), Mistake::ALL.len());
    let shared: BTreeSet<Mistake> = pairs
        .iter()
        .filter(|pair| pair.shares.contains(&true))
        .filter_map(|pair| Some(pair.ending.as_ref()?.mistake))
        .collect();
    assert_eq!(shared.len(), Mistake::ALL.len());
    assert!(plans.iter().all(|plan| plan.shared.iter().all(|receives| receives.len() > 5)));
    for kind in Kind::MESSAGES {
        let of_kind = || sends.iter().filter(|(_, send)| send.kind == kind);
        for pmtu in Pmtu::ALL {
            let bytes = pmtu.bytes() as usize;
            let of_pmtu = || of_kind().filter(|(pair, _)| pair.pmtu == pmtu).map(|(_, send)| send.length());
            for length in [bytes, 2 * bytes - 1, 2 * bytes, 2 * bytes + 1] {
                assert!(of_pmtu().any(|found| found == length), "{kind:?} of {length} bytes");
            }
            assert!(of_pmtu().any(|length| length > 12 << 10), "a long {kind:?}, PMTU {bytes}");
        }
        assert!(of_kind().any(|(_, send)| send.length() == 0));
        let is_inline = of_kind().any(|(_, send)| matches!(send.source, Source::Inline(1..)));
        assert_eq!(is_inline, !kind.is_answered());
        assert!(of_kind().any(|(_, send)| send.fence));
        let most = if kind.is_answered() { 2 } else { 6 };
        for count in 1..=most {
            let has =
                |send: &Message| matches!(&send.source, Source::Pieces(pieces) if pieces.len() == count);
            assert!(of_kind().any(|(_, send)| has(send)), "{kind:?} of {count} pieces");
        }
    }
    for kind in Kind::ENDING {
        let of_kind = || sends.iter().map(|(_, send)| send).filter(|send| send.kind == kind);
        for is_signalled in [false, true] {
            assert!(of_kind().any(|send| send.signalled == is_signalled), "{kind:?}");
        }
        let is_long = |(pair, send): &&(&Pair, &Message)| send.length() > pair.pmtu.bytes() as usize;
        let has_long = sends.iter().filter(is_long).any(|(_, send)| send.kind == kind);
        assert_eq!(has_long, kind == Kind::SendInvalidate);
        assert!(of_kind().any(|send| send.length() == 0));
    }
    for kind in [Kind::CompareSwap, Kind::FetchAdd] {
        let of_kind = || sends.iter().map(|(_, send)| send).filter(|send| send.kind == kind);
        for is_equal in [false, true] {
            assert!(of_kind().any(|send| send.is_equal == is_equal));
        }
        assert!(of_kind().all(|send| send.length() == ATOMIC_BYTES));
        assert!(of_kind().any(|send| send.fence) && of_kind().any(|send| !send.fence));
    }
}

#[test]
fn what_a_plan_holds_is_legal_but_for_its_mistakes() {
    for seed in 0..40 {
        let plan = Plan::new(seed, &PlanOptions::USUAL);
        for pair in &plan.pairs {
            for (side, lane) in pair.lanes.iter().enumerate() {
                assert!(
                    lane.sends.last().is_some_and(|send| send.signalled),
                    "the last one frees all others"
                );
                let consuming = lane.sends.iter().filter(|send| send.kind.consumes());
                let room =
                    |receive: &Receive| -> usize { receive.pieces.iter().map(|piece| piece.length).sum() };
                for (send, receive) in consuming.clone().zip(&lane.receives) {
                    assert!(send.kind.is_write() || room(receive) >= send.length());
                }
                if pair.shares[1 - side] {
                    assert!(lane.receives.is_empty());
                    let longest = consuming.filter(|send| !send.kind.is_write()).map(Message::length).max();
                    assert!(plan.shared[1 - side].iter().all(|receive| Some(room(receive)) >= longest));
                } else {
                    assert_eq!(consuming.count(), lane.receives.len());
                }
                for kind in Kind::ENDING {
                    assert!(lane.sends.iter().filter(|send| send.kind == kind).count() <= 1);
                }
                for group in lane.sends.split_inclusive(|send| send.signalled) {
                    let bytes: usize = group.iter().map(Message::length).sum();
                    assert!(group.len() == 1 || bytes <= PlanOptions::USUAL.in_flight_bytes);
                }
                for send in &lane.sends {
                    assert!(send.length() <= PlanOptions::USUAL.message_bytes_max && send.mistake.is_none());
                    if let Place::Offset(offset) = send.target.place {
                        assert!(offset + send.length() <= WINDOW_BYTES);
                    }
                }
            }
        }
    }
}

#[test]
fn messages_differ_from_each_other_and_are_the_same_each_time() {
    let plan = Plan::new(1, &PlanOptions::faultless(1, 1));
    assert_eq!(plan.payload(0, 0, 0, 100), plan.payload(0, 0, 0, 100));
    assert_eq!(plan.payload(0, 0, 0, 100)[..33], plan.payload(0, 0, 0, 33));
    assert_ne!(plan.payload(0, 0, 0, 100), plan.payload(1, 0, 0, 100));
    assert_ne!(plan.payload(0, 0, 0, 100), plan.payload(0, 0, 1, 100));
}
