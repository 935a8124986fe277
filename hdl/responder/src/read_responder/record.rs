//! Records and rules of [`ReadResponder`](super::ReadResponder): the requests of a queue pair, and the
//! responses that are made of them (protocol 2.2, 3.6).
use super::replay::Replay;
use rnic_kernel::prelude::*;
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::state::QpState;
use rnic_messages::protect::AccessRequest;
use rnic_messages::read::{READ_COUNT_BITS, ReadRequest, ReadShare};
use rnic_messages::setup::{SetupEvent, SetupKind, receives};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};
use rnic_messages::transmit::{WIRE_UNIT_BITS, WIRE_UNIT_LOG2, wire_units};

/// BTH opcode of an acknowledge packet.
pub(super) const ACKNOWLEDGE: u64 = reliable(Operation::Acknowledge);
/// BTH opcode of a response that is neither first nor last.
pub(super) const RESPONSE_MIDDLE: u64 = reliable(Operation::ReadResponseMiddle);
const RESPONSE_FIRST: u64 = reliable(Operation::ReadResponseFirst);
const RESPONSE_LAST: u64 = reliable(Operation::ReadResponseLast);
const RESPONSE_ONLY: u64 = reliable(Operation::ReadResponseOnly);
const ATOMIC_ACKNOWLEDGE: u64 = reliable(Operation::AtomicAcknowledge);

/// BTH opcode of an operation of the reliable connected service.
const fn reliable(operation: Operation) -> u64 {
    (Transport::Rc.base() | operation.code()) as u64
}

/// log2 of the bytes of a turn.
const TURN_BYTES_LOG2: usize = 14;
/// log2 of the responses of a turn at a PMTU of 256 bytes.
pub(super) const TURN_LOG2: usize = TURN_BYTES_LOG2 - 8;
/// Width of units of the wire, up to those of two turns.
pub(super) const UNIT_COUNT_BITS: usize = 11;
/// `log2` of the units of a quantum.
const QUANTUM_UNITS_LOG2: usize = TURN_BYTES_LOG2 - WIRE_UNIT_LOG2;

/// Units of a response, if it `counts`.
#[kernel]
pub(super) fn units_of(counts: Bit, payload_bytes: Bits<13>) -> Bits<UNIT_COUNT_BITS> {
    let units = bit_cast::<UNIT_COUNT_BITS, WIRE_UNIT_BITS>(wire_units(payload_bytes));
    select(counts, units, bits::<UNIT_COUNT_BITS>(0))
}

/// Says whether responses are a quantum together.
#[kernel]
pub(super) fn is_quantum(units: Bits<UNIT_COUNT_BITS>) -> Bit {
    units.get_bits::<2>(QUANTUM_UNITS_LOG2).any()
}

/// Attributes of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Life {
    /// READs and atomics are answered, or the NAK of a failed host write is.
    pub serves: Bit,
    /// The host has refused a write behind the released requests: the next response is NAK 0x63.
    pub write_failed: Bit,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// A `rnic_layout::state::PathMtu`.
    pub path_mtu: Bits<3>,
    /// Protection domain of the queue pair.
    pub domain: Bits<24>,
    /// READ slots of the queue pair.
    pub share: ReadShare,
}

/// Progress of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Progress {
    /// Free-running count of requests that are answered.
    pub served: Bits<READ_COUNT_BITS>,
    /// Bytes of the oldest other request for which responses are made.
    pub bytes: Bits<32>,
    /// Those responses.
    pub packets: Bits<24>,
    /// Free-running count of atomics that are answered.
    pub atomics: Bits<READ_COUNT_BITS>,
    /// A response was made since the queue pair was created or reset.
    pub has_begun: Bit,
}

/// Requests of a queue pair that may be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Released {
    /// Free-running count of them.
    pub count: Bits<READ_COUNT_BITS>,
    /// The queue pair is in the ready queue, or has its turn.
    pub is_queued: Bit,
}

/// A READ or an atomic in its slot: the fields of [`ReadRequest`] without its queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Slot {
    /// PSN of the first response.
    pub psn: Bits<24>,
    /// PSN of the last response.
    pub last_psn: Bits<24>,
    /// MSN of the responses.
    pub msn: Bits<24>,
    /// Remote key.
    pub key: Bits<32>,
    /// Address in the region.
    pub address: Bits<64>,
    /// Bytes to read; zero for an atomic.
    pub length: Bits<32>,
    /// An atomic.
    pub is_atomic: Bit,
}

/// Result of an atomic in its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Value {
    /// Value of the word before the operation.
    pub original: Bits<64>,
    /// The host failed the atomic.
    pub has_failed: Bit,
}

/// A response whose access request is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Response {
    /// Queue pair of the response.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// The first response since the queue pair was created or reset.
    pub is_first: Bit,
    /// BTH opcode.
    pub opcode: Bits<8>,
    /// PSN of the response.
    pub psn: Bits<24>,
    /// MSN of the response.
    pub msn: Bits<24>,
    /// Bytes of payload.
    pub payload_bytes: Bits<13>,
    /// The last response to its request.
    pub ends: Bit,
    /// Original value of an atomic, else zero.
    pub original: Bits<64>,
    /// The host failed the atomic, or a write behind the request.
    pub has_failed: Bit,
}

/// Gives the attributes of a queue pair after a setup event. ERR, which follows the failed write, leaves the NAK.
#[kernel]
pub(super) fn life_after(life: Life, event: SetupEvent) -> Life {
    let goes_on = life.serves && life.generation == event.generation && event.kind != SetupKind::Restart;
    let serves = receives(event.state);
    let write_failed = life.write_failed && goes_on && (serves || event.state == QpState::Error as u64);
    Life {
        serves: serves || write_failed,
        write_failed,
        generation: event.generation,
        path_mtu: event.path.path_mtu,
        domain: event.path.domain,
        share: event.destination_read_share,
    }
}

/// Gives what is released after an event or a turn. What is forgotten has no count, though its queue pair may stay queued.
#[kernel]
pub(super) fn released_after(released: Released, forgets: Bit, releases: Bit, is_queued: Bit) -> Released {
    let count = select(releases, released.count + 1, released.count);
    Released { count: select(forgets, bits::<READ_COUNT_BITS>(0), count), is_queued }
}

/// Gives a request as it is kept in its slot.
#[kernel]
pub(super) fn slot_of(request: ReadRequest) -> Slot {
    Slot {
        psn: request.psn,
        last_psn: request.last_psn,
        msn: request.msn,
        key: request.key,
        address: request.address,
        length: request.length,
        is_atomic: request.is_atomic,
    }
}

/// Gives the responses that a turn makes at most: as many as hold 16 KiB.
#[kernel]
pub(super) fn turn_packets(path_mtu: Bits<3>) -> Bits<7> {
    bits::<7>(1 << TURN_LOG2) >> (path_mtu - 1)
}

/// Gives the result that a response carries: of a READ none.
#[kernel]
pub(super) fn value_of(slot: Slot, value: Value) -> Value {
    Value {
        original: select(slot.is_atomic, value.original, bits::<64>(0)),
        has_failed: slot.is_atomic && value.has_failed,
    }
}

/// Gives the BTH opcode of a response.
#[kernel]
pub(super) fn opcode_of(is_atomic: Bit, is_later: Bit, is_last: Bit) -> Bits<8> {
    if is_atomic {
        bits::<8>(ATOMIC_ACKNOWLEDGE)
    } else {
        match (is_later, is_last) {
            (false, true) => bits::<8>(RESPONSE_ONLY),
            (false, false) => bits::<8>(RESPONSE_FIRST),
            (true, false) => bits::<8>(RESPONSE_MIDDLE),
            (true, true) => bits::<8>(RESPONSE_LAST),
        }
    }
}

/// Gives the progress that a turn begins with: of a replay its own place in the request.
#[kernel]
pub(super) fn progress_of_turn(progress: Progress, replay: Replay) -> Progress {
    Progress {
        bytes: select(replay.is_active, replay.bytes, progress.bytes),
        packets: select(replay.is_active, replay.packets, progress.packets),
        ..progress
    }
}

/// Says whether a turn begins behind the first response to its request, or of its replay.
#[kernel]
pub(super) fn goes_on(progress: Progress, replay: Replay) -> Bit {
    select(replay.is_active, replay.goes_on, progress.packets.any())
}

/// Gives the request of a turn; a replay has an MSN of its own, and may end before the request does.
#[kernel]
pub(super) fn slot_of_turn(slot: Slot, replay: Replay) -> Slot {
    let ends_early = replay.is_active && !replay.reaches_end;
    Slot {
        msn: select(replay.is_active, replay.msn, slot.msn),
        length: select(ends_early, replay.end, slot.length),
        ..slot
    }
}

/// Place of a response among those of its READ, or of its replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Place {
    /// It is not the first.
    pub is_later: Bit,
    /// It is the last.
    pub is_last: Bit,
}

/// Makes the next response to a request.
#[kernel]
pub(super) fn response_of(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    life: Life,
    progress: Progress,
    slot: Slot,
    value: Value,
    payload_bytes: Bits<13>,
    place: Place,
) -> Response {
    Response {
        queue_pair,
        generation: life.generation,
        is_first: !progress.has_begun,
        opcode: opcode_of(slot.is_atomic, place.is_later, place.is_last),
        psn: slot.psn + progress.packets,
        msn: slot.msn,
        payload_bytes,
        ends: place.is_last,
        original: value.original,
        has_failed: value.has_failed || life.write_failed,
    }
}

/// Makes the access request of the next response.
#[kernel]
pub(super) fn access_request_of(
    life: Life,
    progress: Progress,
    slot: Slot,
    payload_bytes: Bits<13>,
) -> AccessRequest {
    AccessRequest {
        key: slot.key,
        domain: life.domain,
        address: slot.address + bit_cast::<64, 32>(progress.bytes),
        length: bit_cast::<32, 13>(payload_bytes),
        local_write: false,
        remote_write: false,
        remote_read: true,
        remote_atomic: false,
    }
}

/// Gives the progress after a turn; `is_last` says that the last response to the oldest request is made.
#[kernel]
pub(super) fn progress_after_turn(progress: Progress, is_atomic: Bit, is_last: Bit) -> Progress {
    Progress {
        served: select(is_last, progress.served + 1, progress.served),
        bytes: select(is_last, bits::<32>(0), progress.bytes),
        packets: select(is_last, bits::<24>(0), progress.packets),
        atomics: select(is_atomic, progress.atomics + 1, progress.atomics),
        has_begun: progress.has_begun,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_is_16_kib_with_a_header_for_each_packet() {
        for (packets, bytes, expected) in [
            (102, 64, false),
            (103, 64, true),
            (3, 4096, false),
            (4, 4096, true),
            (64, 256, true),
            (16, 8, false),
        ] {
            let units = packets * units_of(true, bits(bytes)).to_u64();
            assert_eq!(is_quantum(bits(units)), expected, "{packets} of {bytes}");
            assert_eq!(units_of(false, bits(bytes)).to_u64(), 0);
        }
        // Two turns: what is just less than a quantum, and a turn of the shortest packets.
        assert!(is_quantum(bits(511 + 64 * 11)));
    }

    #[test]
    fn requests_are_answered_from_rtr_to_sqe() {
        for (state, expected) in [
            (QpState::Reset, false),
            (QpState::Init, false),
            (QpState::ReadyToReceive, true),
            (QpState::ReadyToSend, true),
            (QpState::SendQueueDrain, true),
            (QpState::SendQueueError, true),
            (QpState::Error, false),
        ] {
            let event = SetupEvent { state: bits(state as u64), ..SetupEvent::default() };
            assert_eq!(life_after(Life::default(), event).serves, expected, "{state:?}");
        }
    }

    #[test]
    fn err_drops_requests_unless_a_write_has_failed_behind_them() {
        use QpState::{Error, Init, ReadyToSend, Reset, SendQueueDrain};
        use SetupKind::{Life as Changes, Restart};
        let serves = Life { serves: true, generation: bits(3), ..Life::default() };
        let failed = Life { write_failed: true, ..serves };
        let dead = Life { serves: false, ..failed };
        for (life, kind, state, generation, expected) in [
            (serves, Changes, ReadyToSend, 3, (true, false)),
            (serves, Changes, Error, 3, (false, false)),
            (failed, Changes, SendQueueDrain, 3, (true, true)),
            (failed, Changes, Error, 3, (true, true)),
            (failed, Changes, Error, 4, (false, false)),
            (failed, Changes, Reset, 3, (false, false)),
            (failed, Changes, Init, 3, (false, false)),
            (failed, Restart, Error, 3, (false, false)),
            (failed, Restart, ReadyToSend, 4, (true, false)),
            (dead, Changes, Error, 3, (false, false)),
            (dead, Changes, ReadyToSend, 3, (true, false)),
        ] {
            let event = SetupEvent {
                kind,
                state: bits(state as u64),
                generation: bits(generation),
                ..SetupEvent::default()
            };
            let after = life_after(life, event);
            assert_eq!((after.serves, after.write_failed), expected, "{life:?} {kind:?} {state:?}");
            assert_eq!(after.generation, bits(generation));
        }
    }

    #[test]
    fn released_requests_are_counted_modulo_their_bits_until_they_are_forgotten() {
        for (count, forgets, releases, expected) in [
            (3, false, false, 3),
            (3, false, true, 4),
            ((1 << READ_COUNT_BITS) - 1, false, true, 0),
            (3, true, false, 0),
            (3, true, true, 0),
        ] {
            for is_queued in [false, true] {
                let before = Released { count: bits(count), is_queued: !is_queued };
                let after = released_after(before, forgets, releases, is_queued);
                assert_eq!(
                    after,
                    Released { count: bits(expected), is_queued },
                    "{count} {forgets} {releases}"
                );
            }
        }
    }

    #[test]
    fn a_response_after_a_failed_write_has_failed() {
        for (write_failed, atomic_failed) in [(false, false), (false, true), (true, false), (true, true)] {
            let life = Life { write_failed, ..Life::default() };
            let value = Value { has_failed: atomic_failed, ..Value::default() };
            let response = response_of(
                bits(5),
                life,
                Progress::default(),
                Slot::default(),
                value,
                bits(0),
                Place { is_later: false, is_last: true },
            );
            assert_eq!(response.has_failed, write_failed || atomic_failed);
        }
    }

    #[test]
    fn a_turn_is_16_kib() {
        for (code, packets) in [(1, 64), (2, 32), (3, 16), (4, 8), (5, 4)] {
            assert_eq!(turn_packets(bits(code)), bits(packets));
        }
    }

    #[test]
    fn opcodes_tell_the_place_of_a_response() {
        for (is_atomic, is_later, is_last, opcode) in [
            (false, false, true, 0x10),
            (false, false, false, 0x0d),
            (false, true, false, 0x0e),
            (false, true, true, 0x0f),
            (true, false, true, 0x12),
        ] {
            assert_eq!(opcode_of(is_atomic, is_later, is_last), bits(opcode));
        }
    }

    #[test]
    fn only_atomics_carry_a_value() {
        let value = Value { original: bits(7), has_failed: true };
        assert_eq!(value_of(Slot { is_atomic: true, ..Slot::default() }, value), value);
        assert_eq!(value_of(Slot::default(), value), Value::default());
    }

    #[test]
    fn a_response_continues_where_the_one_before_it_ended() {
        let life = Life { generation: bits(3), domain: bits(4), ..Life::default() };
        let slot = Slot {
            psn: bits(0xff_ffff),
            msn: bits(8),
            key: bits(9),
            address: bits(0x1000),
            ..Slot::default()
        };
        let begun = Progress { bytes: bits(512), packets: bits(2), has_begun: true, ..Progress::default() };
        for (progress, is_first, psn, opcode, address) in
            [(Progress::default(), true, 0xff_ffff, 0x0d, 0x1000), (begun, false, 1, 0x0e, 0x1200)]
        {
            let response = response_of(
                bits(5),
                life,
                progress,
                slot,
                Value::default(),
                bits(256),
                Place { is_later: !is_first, is_last: false },
            );
            assert_eq!((response.queue_pair, response.generation), (bits(5), bits(3)));
            assert_eq!((response.is_first, response.ends), (is_first, false));
            assert_eq!((response.psn, response.opcode), (bits(psn), bits(opcode)));
            let access = access_request_of(life, progress, slot, bits(256));
            assert_eq!((access.address, access.length), (bits(address), bits(256)));
            assert_eq!((access.key, access.domain, access.remote_read), (bits(9), bits(4), true));
        }
    }

    #[test]
    fn a_turn_ends_within_a_request_or_with_it() {
        let progress = Progress {
            served: bits(31),
            bytes: bits(16384),
            packets: bits(4),
            atomics: bits(2),
            has_begun: true,
        };
        let next = Progress { served: bits(0), bytes: bits(0), packets: bits(0), ..progress };
        for (is_atomic, is_last, expected) in [
            (false, false, progress),
            (false, true, next),
            (true, true, Progress { atomics: bits(3), ..next }),
        ] {
            assert_eq!(progress_after_turn(progress, is_atomic, is_last), expected);
        }
    }
}
