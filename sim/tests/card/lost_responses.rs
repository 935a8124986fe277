//! READs and atomics between two cards, where the wire loses a response: all complete, and no READ is refused.
//!
//! The card that asks has as many under way as its peer takes, so it sends the next READ as soon as one is complete. What answers
//! the lost part may pass the rest of the first answer, and then completes the READ before that has ended (protocol 2.3, 3.5).
use crate::hosts::{Host, TURNS_MAX, connect, cut, open};
use crate::lock;
use anyhow::{Context, Result, ensure};
use rnic_driver::{ConnectOptions, Function, RemoteMemory, RemoteRights, SendOptions, SendRequest};
use rnic_layout::opcode::Operation;
use rnic_layout::path::Pmtu;
use rnic_layout::registers::{REG_TIMER_UNIT, counter};
use rnic_machine::function::SharedWorld;
use rnic_machine::host::Bar;
use rnic_machine::wire::Fate;
use rnic_machine::wire::fault::{Effect, Fault};
use rnic_stimulus::chance::Seed;
use std::sync::Arc;

/// Cycles of the core clock in a unit of the timers, and the timeout: T is 262 us at 250 MHz.
const UNIT: u64 = 16;
const TIMEOUT: u8 = 12;
/// READs beyond those under way.
const MORE: usize = 3;
/// Bytes in front of the window: the word of the atomics.
const WORD: usize = 8;

/// Bytes of the READs behind the first.
const SHORT_BYTES: usize = 2_500;

/// A READ with short ones behind it, and the response that is lost.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Bytes of the first READ.
    bytes: usize,
    pmtu: Pmtu,
    in_flight: u8,
    /// Of these responses the one with this number, from 0.
    lost: (Operation, u64),
    /// Every third request is an atomic.
    has_atomics: bool,
}

/// A turn of the READ responder has 16 KiB: these READs have one, a little more, and so many that the rest of the first answer takes
/// longer than the next READ needs to arrive.
fn cases() -> Vec<Case> {
    use Operation::{
        AtomicAcknowledge as Atomic, ReadResponseFirst as First, ReadResponseLast as Last,
        ReadResponseMiddle as Middle,
    };
    let pmtu = Pmtu::Bytes1024;
    let case = |bytes, in_flight, lost| Case { bytes, pmtu, in_flight, lost, has_atomics: false };
    let mixed = |bytes, in_flight, lost| Case { has_atomics: true, ..case(bytes, in_flight, lost) };
    vec![
        case(12_000, 1, (Middle, 3)),
        case(20_000, 1, (First, 0)),
        case(20_000, 4, (Last, 0)),
        case(200_000, 1, (Middle, 10)),
        case(200_000, 4, (Middle, 10)),
        case(200_000, 16, (Middle, 10)),
        Case { pmtu: Pmtu::Bytes4096, ..case(200_000, 1, (Middle, 3)) },
        mixed(200_000, 1, (Middle, 10)),
        mixed(100_000, 4, (First, 0)),
        mixed(20_000, 16, (Atomic, 2)),
    ]
}

/// The byte of the window at a place, as a READ of this number asks for it.
fn byte(place: usize) -> u8 {
    (place * 37 / 11) as u8
}

/// Runs all cases one after the other, each on a new pair of queue pairs.
pub(crate) fn run(world: &SharedWorld, functions: [Arc<dyn Function>; 2]) -> Result<()> {
    let hosts = open(functions, Seed(7))?;
    for card in 0..2 {
        lock(world).write_register(card, Bar::Registers, REG_TIMER_UNIT.offset.into(), UNIT)?;
    }
    for case in cases() {
        run_case(world, &hosts, case).with_context(|| format!("{case:?}"))?;
    }
    Ok(())
}

fn run_case(world: &SharedWorld, hosts: &[Host; 2], case: Case) -> Result<()> {
    let Case { bytes, pmtu, in_flight, lost: (operation, number), has_atomics } = case;
    let count = usize::from(in_flight) + MORE;
    let window = hosts[1].domain.share(WORD + bytes + count, RemoteRights::ALL)?;
    let background: Vec<u8> = (0..bytes + count).map(byte).collect();
    window.write(0, &[0; WORD])?;
    window.write(WORD, &background)?;
    let options = ConnectOptions {
        destination_read_atomic: Some(in_flight),
        send: SendOptions { read_atomic: Some(in_flight), timeout: TIMEOUT, ..SendOptions::default() },
        ..ConnectOptions::default()
    };
    let ends = [hosts[0].queue_pair(RemoteRights::ALL)?, hosts[1].queue_pair(RemoteRights::ALL)?];
    let [mut asker, _peer] = connect(ends, pmtu, &options)?;
    let lost = Fault::new(operation.code(), Effect::Fate(Fate::Lose)).after(number);
    let hits = lock(world).direction_mut(0, 1).set_faults(vec![lost]);

    // A READ that is followed by another begins one byte later than that before.
    let is_atomic = |number: usize| has_atomics && number % 3 == 1;
    let length_of = |number: usize| if number == 0 { bytes } else { SHORT_BYTES };
    let mut memory = Some(hosts[0].domain.allocate(bytes + count * (SHORT_BYTES + 64))?);
    let mut requests = Vec::new();
    for number in 0..count {
        let remote = |place, bytes| RemoteMemory {
            address: window.remote().address + place as u64,
            bytes: bytes as u64,
            ..window.remote()
        };
        let (request, length) = if is_atomic(number) {
            (SendRequest::fetch_add(number as u64, remote(0, WORD), 1), WORD)
        } else {
            let length = length_of(number);
            (SendRequest::read(number as u64, remote(WORD + number, length)), length)
        };
        requests.push(request.sge(cut(&mut memory, 40, length)?).signalled());
    }
    asker.post_sends(&mut requests)?;
    let (mut done, mut added) = (0, 0u64);
    for _ in 0..TURNS_MAX {
        for completion in hosts[0].poll()? {
            ensure!(completion.is_success() && completion.wr_id == done as u64, "{completion:?}");
            let found = completion.sg_list[0].bytes();
            if is_atomic(done) {
                ensure!(*found == added.to_le_bytes(), "{completion:?}: the word was {found:?}, not {added}");
                added += 1;
            } else {
                let expected = &background[done..done + length_of(done)];
                ensure!(*found == *expected, "{completion:?} holds something else");
            }
            done += 1;
        }
        if done == count {
            break;
        }
        for host in hosts {
            let event = host.device.events().poll()?;
            ensure!(event.is_none(), "{event:?} after {done} of {count}");
        }
        hosts[0].function.idle();
    }
    ensure!(done == count, "{done} of {count} have completed");
    ensure!(hits.of(0) == 1, "nothing was lost");
    let refused = lock(world).counters(1)?[counter("nak_invalid_request_sent")];
    ensure!(refused == 0, "{refused} requests were refused");
    lock(world).check()?;
    Ok(())
}
