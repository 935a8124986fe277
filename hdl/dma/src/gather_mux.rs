//! Gather mux: requests and READ responses share one gather stage, and with it the wire.
//!
//! Both read payload from host memory for packets to be sent, for which there is one buffer and one rotator.
//!
//! ```text
//!              ┌────────────────────────────────────┐
//!  requester ─>│ ┌──────┐   ┌───────────────┐       │
//!              │ │ lead ├──>│ RegisterSlice ├───────┼──> command
//!  responder ─>│ └──────┘   └───────────────┘       │
//!              │                                    │
//!  requester_failure <──┬── is_response? <──────────┼─── failure
//!  responder_failure <──┘                           │
//!              └────────────────────────────────────┘
//! ```
//!
//! A command a cycle, latency 1; failures without latency.
//!
//! 1. Commands of one role keep their order, and those of one packet stay together.
//! 2. While both roles have some, that one goes which has sent less, in bytes as they are on the wire: a role of small packets
//!    beside one of large ones has half of the wire. What a role did not use while it had nothing to send counts up to 16 KiB.
//!    The next one of several small packets comes some cycles after the one before it; 7 are waited for it, which the buffer of
//!    gather hides from the wire.
//! 3. A failure goes to the role whose packet failed.
//!
//! Both roles wait for the wire alone, after gather, so neither waits for the other (design decision 4).
use rnic_blocks::stream::{RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::transmit::{GatherCommand, GatherFailure, WIRE_UNIT_BITS, wire_units};

/// Width of a lead, in two's complement.
const LEAD_BITS: usize = 10;
/// Most units of 64 bytes that count.
const LEAD_MAX: u64 = 256;
/// Width of the cycles that are waited for the next packet of a role.
const PATIENCE_BITS: usize = 3;

/// Shares one gather between requester and responder.
#[derive(Default, LogicBlock, Registers)]
pub struct GatherMux {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// From the requester: requests; `ready` is combinational.
    pub requester: StreamRx<GatherCommand>,
    /// From the responder: READ responses; `ready` is combinational.
    pub responder: StreamRx<GatherCommand>,
    /// To gather; registered.
    pub command: StreamTx<GatherCommand>,
    /// From gather: packets whose payload could not be read; `ready` is combinational.
    pub failure: StreamRx<GatherFailure>,
    /// To the requester: a request that was not sent; combinational.
    pub requester_failure: StreamTx<GatherFailure>,
    /// To the responder: a response that was not sent; combinational.
    pub responder_failure: StreamTx<GatherFailure>,
    slice: RegisterSlice<GatherCommand>,
    /// Units that requests have had more than responses.
    lead: Reg<Bits<LEAD_BITS>>,
    /// A packet has further commands, of the role that was chosen.
    continues: Reg<Bit>,
    is_response: Reg<Bit>,
    /// Cycles that the next packet of the role may take.
    patience: Reg<Bits<PATIENCE_BITS>>,
}

/// The role whose command goes next, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Choice {
    is_response: Bit,
    valid: Bit,
}

/// Says whether a response is chosen, while both have a packet: if requests have had more, or as much and the last packet.
#[kernel]
fn prefers_response(lead: Bits<LEAD_BITS>, was_response: Bit) -> Bit {
    let is_behind = lead.get_bit(LEAD_BITS - 1);
    !is_behind && (lead.any() || !was_response)
}

/// Chooses a packet: of the role that has sent less, if it has one. Else of the other role, unless the first has just sent one, and
/// is patiently waited for.
#[kernel]
fn chosen(
    lead: Bits<LEAD_BITS>,
    was_response: Bit,
    has_request: Bit,
    has_response: Bit,
    is_patient: Bit,
) -> Choice {
    let prefers_response = prefers_response(lead, was_response);
    let has_preferred = select(prefers_response, has_response, has_request);
    let has_other = select(prefers_response, has_request, has_response);
    let is_same = prefers_response == was_response;
    Choice {
        is_response: select(has_preferred, prefers_response, !prefers_response),
        valid: has_preferred || (has_other && !(is_patient && is_same)),
    }
}

/// The lead after a packet.
#[kernel]
fn lead_after(lead: Bits<LEAD_BITS>, is_response: Bit, units: Bits<WIRE_UNIT_BITS>) -> Bits<LEAD_BITS> {
    let change = bit_cast::<LEAD_BITS, WIRE_UNIT_BITS>(units);
    let after = select(is_response, lead - change, lead + change);
    let is_behind = after.get_bit(LEAD_BITS - 1);
    let size = select(is_behind, bits::<LEAD_BITS>(0) - after, after);
    let most = select(is_behind, bits::<LEAD_BITS>((1 << LEAD_BITS) - LEAD_MAX), bits::<LEAD_BITS>(LEAD_MAX));
    select(size.get_bit(LEAD_MAX.trailing_zeros() as usize), most, after)
}

impl Logic for GatherMux {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let request = self.requester.beat.val();
        let response = self.responder.beat.val();
        let was_response = self.is_response.q.val();
        let lead = self.lead.q.val();
        let has_request = self.requester.valid.val();
        let has_response = self.responder.valid.val();
        let patience = self.patience.q.val();
        let choice = chosen(lead, was_response, has_request, has_response, patience.any());
        let continues = self.continues.q.val();
        let is_response = select(continues, was_response, choice.is_response);
        let command = select(is_response, response, request);
        let valid = select(continues, select(is_response, has_response, has_request), choice.valid);
        let ready = self.slice.rx.ready.val();
        self.slice.rx.beat.next = command;
        self.slice.rx.valid.next = valid;
        self.requester.ready.next = ready && valid && !is_response;
        self.responder.ready.next = ready && valid && is_response;
        if valid && ready {
            self.continues.d.next = command.continues;
            self.is_response.d.next = is_response;
            self.patience.d.next = bits::<PATIENCE_BITS>((1 << PATIENCE_BITS) - 1);
        } else if patience.any() {
            self.patience.d.next = patience - 1;
        }
        // Both leads are known before the choice is.
        let after_request = lead_after(lead, false, wire_units(request.headers.payload_bytes));
        let after_response = lead_after(lead, true, wire_units(response.headers.payload_bytes));
        if valid && ready && !command.continues {
            self.lead.d.next = select(is_response, after_response, after_request);
        }
        StreamTx::<GatherCommand>::link(&mut self.command, &mut self.slice.tx);

        let failure = self.failure.beat.val();
        let valid = self.failure.valid.val();
        self.requester_failure.beat.next = failure;
        self.requester_failure.valid.next = valid && !failure.is_response;
        self.responder_failure.beat.next = failure;
        self.responder_failure.valid.next = valid && failure.is_response;
        self.failure.ready.next = select(
            failure.is_response,
            self.responder_failure.ready.val(),
            self.requester_failure.ready.val(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
    use rnic_messages::transmit::TransmitRequest;

    #[test]
    fn the_role_that_has_sent_less_is_chosen() {
        let two = |lead: i64| bits(lead as u64 & 0x3ff);
        for (lead, was_response, expected) in [
            (0, true, false),
            (0, false, true),
            (1, true, true),
            (256, true, true),
            (-1, false, false),
            (-256, false, false),
        ] {
            assert_eq!(prefers_response(two(lead), was_response), expected, "{lead}");
            let chosen = |has_request, has_response, is_patient| {
                let choice = chosen(two(lead), was_response, has_request, has_response, is_patient);
                choice.valid.then_some(choice.is_response)
            };
            for is_patient in [false, true] {
                assert_eq!(chosen(true, true, is_patient), Some(expected), "{lead}");
                assert_eq!(chosen(!expected, expected, is_patient), Some(expected), "{lead}");
                assert_eq!(chosen(false, false, is_patient), None, "{lead}");
                // The role that has sent less is waited for if it has sent the last packet.
                let waits = is_patient && expected == was_response;
                assert_eq!(chosen(expected, !expected, is_patient), (!waits).then_some(!expected), "{lead}");
            }
        }
        for (lead, is_response, units, expected) in [
            (0, false, 1, 1),
            (0, true, 65, -65),
            (-65, false, 2, -63),
            (250, false, 5, 255),
            (250, false, 6, 256),
            (256, false, 65, 256),
            (-250, true, 5, -255),
            (-250, true, 65, -256),
            (-256, true, 1, -256),
            (-256, false, 65, -191),
            (256, true, 65, 191),
        ] {
            assert_eq!(lead_after(two(lead), is_response, bits(units)), two(expected), "{lead} {units}");
        }
    }

    /// What each role has of the wire, where small packets, one every four cycles, meet large ones, and gather takes a command as
    /// its payload leaves.
    #[test]
    fn roles_with_packets_of_any_size_have_half_of_the_wire_each() {
        for (bytes, name) in
            [([64, 4096], "small requests"), ([4096, 64], "small responses"), ([0, 1024], "READs")]
        {
            let command_of = |role: usize| GatherCommand {
                headers: TransmitRequest {
                    payload_bytes: bits(bytes[role]),
                    is_response: role == 1,
                    ..TransmitRequest::default()
                },
                ..GatherCommand::default()
            };
            let mut random = random();
            let mut bench = Bench::clocked(GatherMux::default(), |block| &mut block.clock).in_lock_step();
            let mut sources = [0, 1].map(|_| Source::of_tokens([], Stalls::None));
            let mut last = [0; 2];
            let (mut busy, mut units) = (0, [0i64; 2]);
            for cycle in 0..100_000 {
                for role in 0..2 {
                    if sources[role].is_done() && cycle >= last[role] + 4 {
                        sources[role].push(command_of(role));
                        last[role] = cycle;
                    }
                }
                let block = &mut bench.block;
                let [requests, responses] = &mut sources;
                requests.drive(&mut block.requester, &mut random);
                responses.drive(&mut block.responder, &mut random);
                block.command.ready.next = busy == 0;
                bench.settle();
                requests.sample(&bench.block.requester);
                responses.sample(&bench.block.responder);
                busy = u64::max(busy, 1) - 1;
                let command = &bench.block.command;
                if command.valid.val() && command.ready.val() {
                    let role = usize::from(command.beat.val().headers.is_response);
                    let taken = bytes[role] / 64 + 1;
                    units[role] += taken as i64;
                    busy = 2 * taken;
                    assert!((units[0] - units[1]).abs() <= 2 * 65 + 2, "{name}: {units:?}");
                }
                bench.tick();
            }
            assert!(units[0] + units[1] > 43_000, "{name}: {units:?} of 50,000");
        }
    }

    #[test]
    fn commands_take_turns_and_failures_go_back() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let commands = |is_response| {
                // Every third packet takes another command.
                (0..200).map(move |number| GatherCommand {
                    continues: number % 3 == 0,
                    headers: TransmitRequest { psn: bits(number), is_response, ..TransmitRequest::default() },
                    ..GatherCommand::default()
                })
            };
            let failures: Vec<_> = (0..200)
                .map(|number| GatherFailure {
                    psn: bits(number),
                    is_response: random.random(),
                    ..GatherFailure::default()
                })
                .collect();
            let mut bench = Bench::clocked(GatherMux::default(), |block| &mut block.clock).in_lock_step();
            let mut requests = Source::of_tokens(commands(false), stalls);
            let mut responses = Source::of_tokens(commands(true), stalls);
            let mut lost = Source::of_tokens(failures.clone(), stalls);
            let mut command = Sink::new(stalls);
            let mut failed = [Sink::new(stalls), Sink::new(stalls)];
            while command.received.len() < 400 || !lost.is_done() {
                let block = &mut bench.block;
                requests.drive(&mut block.requester, &mut random);
                responses.drive(&mut block.responder, &mut random);
                lost.drive(&mut block.failure, &mut random);
                command.drive(&mut block.command, &mut random);
                failed[0].drive(&mut block.requester_failure, &mut random);
                failed[1].drive(&mut block.responder_failure, &mut random);
                bench.settle();
                let block = &bench.block;
                requests.sample(&block.requester);
                responses.sample(&block.responder);
                lost.sample(&block.failure);
                command.sample(&block.command);
                failed[0].sample(&block.requester_failure);
                failed[1].sample(&block.responder_failure);
                bench.tick();
            }
            for is_response in [false, true] {
                let mine = command.received.iter().filter(|found| found.headers.is_response == is_response);
                assert!(mine.copied().eq(commands(is_response)));
                let lost = failures.iter().filter(|failure| failure.is_response == is_response);
                assert!(failed[usize::from(is_response)].received.iter().eq(lost));
            }
            let changes = |two: &[GatherCommand]| two[0].headers.is_response != two[1].headers.is_response;
            assert!(command.received.windows(2).all(|two| !two[0].continues || !changes(two)));
            if stalls == Stalls::None {
                assert!(command.received.windows(2).take(390).all(|two| two[0].continues || changes(two)));
            }
        }
    }
}
