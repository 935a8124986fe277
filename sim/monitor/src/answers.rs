//! Which of the requests of a queue pair are answered.
use rnic_layout::opcode::{Opcode, Operation};
use rnic_layout::psn::Psn;
use rnic_layout::syndrome::{NakCode, Syndrome};
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use std::collections::VecDeque;

/// A READ or an atomic whose response is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outstanding {
    /// PSN of the response that is due.
    pub(crate) next: Psn,
    /// PSN of its last response.
    pub(crate) last: Psn,
}

/// Returns the syndrome of a response, if it has an AETH.
fn syndrome_of(packet: &PacketRepr) -> Option<Syndrome> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::Aeth(aeth) => Some(aeth.meaning()),
        _ => None,
    })
}

/// Returns whether a response is an RNR NAK.
pub(crate) fn is_not_ready(packet: &PacketRepr) -> bool {
    matches!(syndrome_of(packet), Some(Syndrome::RnrNak { .. }))
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    /// First PSN that is not acknowledged.
    pub(crate) unacknowledged: Psn,
    /// READs and atomics that are not answered completely, in the order of their PSNs.
    pub(crate) outstanding: VecDeque<Outstanding>,
}

impl Answers {
    /// Nothing was sent, and nothing is open.
    pub(crate) fn new(first: Psn) -> Answers {
        Answers { unacknowledged: first, outstanding: VecDeque::new() }
    }

    /// A READ or an atomic, or the rest of a READ, is sent again by a card that may know none of its answers but those that are known
    /// here.
    pub(crate) fn ask_again(&mut self, one: Outstanding) {
        if one.next.is_before(self.unacknowledged) {
            return;
        }
        let place = self.outstanding.partition_point(|other| other.last.is_before(one.last));
        match self.outstanding.get_mut(place).filter(|other| other.last == one.last) {
            Some(same) if one.next.is_before(same.next) => same.next = one.next,
            Some(_) => {}
            None => self.outstanding.insert(place, one),
        }
    }

    /// Takes a response to a request that was sent. Returns whether it shows that one was lost.
    pub(crate) fn take(&mut self, packet: &PacketRepr, row: &Opcode) -> bool {
        let psn = packet.bth.psn;
        if psn.is_before(self.unacknowledged) {
            return false;
        }
        if row.operation != Operation::Acknowledge {
            // A response of a READ or an atomic; if another one was due, that is lost (protocol 2.5).
            let shows_loss = !self.take_data(psn);
            self.acknowledge(psn.add(1));
            return shows_loss;
        }
        let front = self.outstanding.front();
        match syndrome_of(packet) {
            Some(Syndrome::Nak(NakCode::PsnSequenceError) | Syndrome::RnrNak { .. }) => {
                self.acknowledge(psn);
                true
            }
            Some(Syndrome::Ack { .. }) => {
                let shows_loss = front.is_some_and(|front| !psn.is_before(front.next));
                self.acknowledge(psn.add(1));
                shows_loss
            }
            // Another NAK that passes a READ which is not answered is an implied NAK and nothing else (protocol 2.5).
            Some(Syndrome::Nak(_)) => {
                let shows_loss = front.is_some_and(|front| front.next.is_before(psn));
                self.acknowledge(psn);
                shows_loss
            }
            _ => false,
        }
    }

    /// Takes a response of a READ or an atomic. Returns whether it is the one that is due.
    fn take_data(&mut self, psn: Psn) -> bool {
        let Some(front) = self.outstanding.front_mut().filter(|front| front.next == psn) else {
            return false;
        };
        front.next = psn.add(1);
        self.outstanding.pop_front_if(|front| psn == front.last);
        true
    }

    /// Notes that everything before a PSN is acknowledged, up to the first READ or atomic that is not answered.
    fn acknowledge(&mut self, psn: Psn) {
        let first = self.outstanding.front().map_or(psn, |front| front.next);
        self.unacknowledged = if first.is_before(psn) { first } else { psn };
    }
}
