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
//!    The next one of several small packets comes some cycles after the one before it; 63 are waited for it, while gather was full
//!    255 cycles ago or less, so that its buffer hides them from the wire. Where these are too few for their half, the other role
//!    has the rest.
//! 3. A failure goes to the role whose packet failed.
//!
//! Both roles wait for the wire alone, after gather, so neither waits for the other (design decision 4).
use rnic_blocks::stream::{RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::transmit::{GatherCommand, GatherFailure, WIRE_UNIT_BITS, wire_units};

/// Width of a lead, in two's complement.
const LEAD_BITS: usize = 11;
/// Most units of the wire that count: 16 KiB.
const LEAD_MAX: u64 = 512;
/// Width of the cycles that are waited for the next packet of a role.
const PATIENCE_BITS: usize = 6;
/// Width of the cycles after which gather no longer counts as full: less than what its buffer holds takes on any wire.
const FULL_BITS: usize = 8;
/// Cycles that a command waits at a full gather.
const STALLS: u64 = 3;

/// Shares one gather between requester and responder.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct GatherMux {
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
    /// Cycles that the command has waited for gather.
    stalls: Reg<Bits<2>>,
    /// Cycles until gather does not count as full.
    full: Reg<Bits<FULL_BITS>>,
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
        let full = self.full.q.val();
        let is_patient = patience.any() && full.any();
        let choice = chosen(lead, was_response, has_request, has_response, is_patient);
        let continues = self.continues.q.val();
        let is_response = select(continues, was_response, choice.is_response);
        let command = select(is_response, response, request);
        let valid = select(continues, select(is_response, has_response, has_request), choice.valid);
        let ready = self.slice.rx.ready.val();
        self.slice.rx.offer(valid, command);
        self.requester.ready.next = ready && valid && !is_response;
        self.responder.ready.next = ready && valid && is_response;
        if valid && ready {
            self.continues.d.next = command.continues;
            self.is_response.d.next = is_response;
            self.patience.d.next = bits::<PATIENCE_BITS>((1 << PATIENCE_BITS) - 1);
        } else if patience.any() {
            self.patience.d.next = patience - 1;
        }
        let is_stalled = self.slice.tx.valid.val() && !self.command.ready.val();
        let stalls = self.stalls.q.val();
        let is_full = stalls == STALLS;
        self.stalls.d.next = select(is_stalled, select(is_full, stalls, stalls + 1), bits::<2>(0));
        self.full.d.next = if is_full {
            bits::<FULL_BITS>((1 << FULL_BITS) - 1)
        } else {
            select(full.any(), full - 1, full)
        };

        // Both leads are known before the choice is.
        let after_request = lead_after(lead, false, wire_units(request.headers.payload_bytes));
        let after_response = lead_after(lead, true, wire_units(response.headers.payload_bytes));
        if valid && ready && !command.continues {
            self.lead.d.next = select(is_response, after_response, after_request);
        }
        StreamTx::link(&mut self.command, &mut self.slice.tx);

        let failure = self.failure.beat.val();
        let valid = self.failure.valid.val();
        self.requester_failure.offer(valid && !failure.is_response, failure);
        self.responder_failure.offer(valid && failure.is_response, failure);
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
        let two = |lead: i64| bits(lead as u64 & 0x7ff);
        for (lead, was_response, expected) in [
            (0, true, false),
            (0, false, true),
            (1, true, true),
            (512, true, true),
            (-1, false, false),
            (-512, false, false),
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
            (0, false, 3, 3),
            (0, true, 131, -131),
            (-131, false, 5, -126),
            (506, false, 5, 511),
            (507, false, 5, 512),
            (512, false, 131, 512),
            (-506, true, 5, -511),
            (-506, true, 131, -512),
            (-512, true, 3, -512),
            (-512, false, 131, -381),
            (512, true, 131, 381),
        ] {
            assert_eq!(lead_after(two(lead), is_response, bits(units)), two(expected), "{lead} {units}");
        }
    }

    /// What each role has of a wire of 32 bytes a cycle: small packets, one every few cycles, meet large ones, up to 16 of each wait,
    /// and gather takes a command if its buffer of 32 KiB has room. Small ones that are too few for their half leave the rest to
    /// the others.
    #[test]
    fn roles_with_packets_of_any_size_have_half_of_the_wire_each() {
        for (bytes, every, shares, name) in [
            ([64, 4096], [4, 4], [0.48..0.52, 0.48..0.52], "small requests"),
            ([4096, 64], [4, 4], [0.48..0.52, 0.48..0.52], "small responses"),
            ([0, 1024], [6, 4], [0.48..0.52, 0.48..0.52], "SENDs of no bytes"),
            ([0, 4096], [12, 4], [0.22..0.26, 0.74..0.80], "READ requests"),
            ([4096, 4096], [4, 4], [0.49..0.51, 0.49..0.51], "large packets"),
        ] {
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
            let mut queued = [0; 2];
            let (mut waiting, mut units) = (0, [0; 2]);
            for cycle in 0..60_000 {
                for role in 0..2 {
                    if queued[role] < 16 && cycle % every[role] == 0 {
                        sources[role].push(command_of(role));
                        queued[role] += 1;
                    }
                }
                let block = &mut bench.block;
                let [requests, responses] = &mut sources;
                requests.drive(&mut block.requester, &mut random);
                responses.drive(&mut block.responder, &mut random);
                bench.settle();
                let next = wire_units(bench.block.command.beat.val().headers.payload_bytes).to_u64();
                bench.block.command.ready.next = waiting + next <= 1024;
                bench.settle();
                queued[0] -= u64::from(requests.sample(&bench.block.requester));
                queued[1] -= u64::from(responses.sample(&bench.block.responder));
                let command = &bench.block.command;
                if command.valid.val() && command.ready.val() {
                    units[usize::from(command.beat.val().headers.is_response)] += next;
                    waiting += next;
                }
                assert!(waiting > 0 || cycle < 100, "{name}: the wire rests in cycle {cycle}");
                waiting = waiting.saturating_sub(1);
                bench.tick();
            }
            for (units, share) in units.iter().zip(shares) {
                let part = *units as f64 / 60_000.0;
                assert!(share.contains(&part), "{name}: {part} of the wire");
            }
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
