//! What a card is allowed follows from its rates.
use super::*;

/// Rates of the preset `tiny`.
const SLOW: Rates = Rates { core_hertz: 62_000_000, bits_per_second: 1_000_000_000 };
/// Unit of the timers for [`long_timers`], so that T is 200 us.
const UNITS_A_SECOND: u64 = 10_000;
const US: u64 = 1_000_000;

fn long_timers(bench: &mut Bench) {
    let cycles = bench.monitor.rates.core_hertz / UNITS_A_SECOND;
    bench.monitor.register(REG_TIMER_UNIT.offset.into(), cycles);
}

fn sends(bench: &mut Bench, numbers: impl IntoIterator<Item = u32>) {
    numbers.into_iter().for_each(|number| bench.sends(&send_only(SEND_PSN.add(number), 5)));
}

fn acknowledges(bench: &mut Bench, number: u32) {
    bench.arrives(ack(SEND_PSN.add(number), ACK, number + 1));
}

/// What happens, and whether a fast card may do it, and a slow one.
type Case = (&'static str, fn(&mut Bench), [bool; 2]);

const CASES: &[Case] = &[
    (
        "a frame leaves 100 us after the end of its queue pair",
        |bench| {
            bench.command(CommandOpcode::DestroyQueuePair, NUMBER, Body::Destroy);
            bench.now_ps += 100 * US;
            sends(bench, [0]);
        },
        [false, true],
    ),
    (
        "a request is repeated 90 us after 20,000 cycles have begun",
        |bench| {
            bench.monitor.register(REG_TIMER_UNIT.offset.into(), 10_000);
            sends(bench, [0]);
            bench.now_ps += 90 * US;
            sends(bench, [0]);
        },
        [true, false],
    ),
    (
        "a request leaves 50 us after the start of its timer",
        |bench| {
            long_timers(bench);
            sends(bench, [0]);
            bench.now_ps += 150 * US;
            sends(bench, [0]);
        },
        [false, true],
    ),
    (
        "an ACK is read 50 us after it has come",
        |bench| {
            long_timers(bench);
            sends(bench, [0, 1]);
            bench.now_ps += 191 * US;
            acknowledges(bench, 0);
            bench.now_ps += 50 * US;
            sends(bench, [0]);
        },
        [false, true],
    ),
    (
        "a request that had begun leaves 200 us after the card has gone back",
        |bench| {
            sends(bench, [0]);
            bench.now_ps += 10 * US;
            acknowledges(bench, 0);
            bench.now_ps += 200 * US;
            sends(bench, [1, 0]);
        },
        [false, true],
    ),
];

#[test]
fn a_slow_card_is_allowed_the_time_that_it_needs_and_a_fast_one_is_not() {
    for (what, happens, allowed) in CASES {
        for (rates, is_allowed) in [FAST, SLOW].into_iter().zip(*allowed) {
            let mut bench = Bench::of(rates);
            happens(&mut bench);
            assert_eq!(bench.found.is_empty(), is_allowed, "{what}, at {rates:?}: {:?}", bench.found);
        }
    }
}

/// With a core of 250 MHz, the wire changes nothing from 10 Gb/s on.
#[test]
fn the_core_decides_what_a_fast_card_is_allowed() {
    for gigabits in [10, 25, 50, 100] {
        let rates = Rates { bits_per_second: gigabits * 1_000_000_000, ..FAST };
        let times = [rates.linger_ps(), rates.unread_ps(), rates.begun_ps(), rates.leaving_ps()];
        assert_eq!(times, [20 * US, 20 * US, 60 * US, 8 * US], "{gigabits} Gb/s");
    }
}
