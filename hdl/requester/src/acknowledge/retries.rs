//! Retries: the retries and the epoch of one queue pair, as [`Acknowledge`](super::Acknowledge) counts them.
//!
//! Acknowledge keeps the record of each queue pair in a memory, and takes several cycles for a change of it. Here the record is in
//! registers and each change takes a cycle, by the same rules, so that what they keep can be proven of all runs
//! (`hdl/formal/retries.v`). The card does not contain this block.
//!
//! ```text
//!  packet, returned ──> check, outcome, recovery ──┐
//!  expired ───────────> timeout ───────────────────┼──> record
//!  ends_turn ─────────> closing ───────────────────┘
//! ```
//!
//! Latency: a change is in the record in the next cycle.
//!
//! 1. No more retries are taken than a queue pair has, and none after progress that was taken before it.
//! 2. A loss, a timeout or an RNR NAK fails a message only when all retries are taken.
//! 3. The epoch counts up at most twice before a packet of the newest one is sent.
//!
//! Protocol 2.5 to 2.7; design decision 8.
use super::Step;
use super::record::{Peer, Progress};
use super::response::{Fault, after_response, arrival_of, check_of, outcome_of, says_lost};
use super::retry::{after_timeout, fails_in, recovery_of, timeout_of};
use super::turn::{Turn, after_turn, closing_of};
use crate::messages::{BLOCK_BITS, Begun, Expired, Issued, MESSAGE_COUNT_BITS, RETRY_BITS, Retired};
use crate::response_class::ResponseClass;
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::packet::PacketToken;
use rnic_messages::read::ResponseNotice;
use rnic_messages::sizes::EPOCH_BITS;

/// Retries of a queue pair; see the module.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct Retries {
    /// Retries that the queue pair has.
    pub retry_count: Signal<In, Bits<RETRY_BITS>>,
    /// Retries after RNR NAKs; seven is no limit.
    pub rnr_retry: Signal<In, Bits<RETRY_BITS>>,
    /// What has been issued, but the epoch.
    pub issued: Signal<In, Issued>,
    /// Epoch of the newest packet that was sent.
    pub issued_epoch: Signal<In, Bits<EPOCH_BITS>>,
    /// A response is taken.
    pub responds: Signal<In, Bit>,
    /// It comes back from the place stage.
    pub is_back: Signal<In, Bit>,
    /// A response of the peer.
    pub packet: Signal<In, PacketToken>,
    /// A response that comes back.
    pub returned: Signal<In, ResponseNotice>,
    /// The timer has expired, unless a response is taken.
    pub expires: Signal<In, Bit>,
    /// What it waited for.
    pub expired: Signal<In, Expired>,
    /// A turn ends, unless one of the others happens.
    pub ends_turn: Signal<In, Bit>,
    /// The oldest message stays after it.
    pub stays: Signal<In, Bit>,
    /// Messages that have left.
    pub left_count: Signal<In, Bits<MESSAGE_COUNT_BITS>>,
    /// The response acknowledges something; combinational, as all below.
    pub progresses: Signal<Out, Bit>,
    /// It says that something was lost, and takes effect.
    pub is_loss: Signal<Out, Bit>,
    /// It says that the peer was not ready, and takes effect.
    pub is_early: Signal<Out, Bit>,
    /// It takes a retry.
    pub rewinds: Signal<Out, Bit>,
    /// It takes a retry after an RNR NAK.
    pub waits: Signal<Out, Bit>,
    /// The expiry is a timeout.
    pub times_out: Signal<Out, Bit>,
    /// A message fails.
    pub fails: Signal<Out, Bit>,
    /// The epoch counts up.
    pub begins_epoch: Signal<Out, Bit>,
    /// Retries that are taken; registered, as all below.
    pub retries_taken: Signal<Out, Bits<RETRY_BITS>>,
    /// Retries after RNR NAKs that are taken.
    pub rnr_taken: Signal<Out, Bits<RETRY_BITS>>,
    /// The cursor is to go back.
    pub wants_rewind: Signal<Out, Bit>,
    /// The delay of an RNR NAK is not over.
    pub awaits_peer: Signal<Out, Bit>,
    /// The newest epoch of the queue pair, which all packets carry that are sent from now on.
    pub epoch: Signal<Out, Bits<EPOCH_BITS>>,

    progress: Reg<Progress>,
}

impl Logic for Retries {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let progress = self.progress.q.val();
        let peer = Peer {
            state: bits::<3>(QpState::ReadyToSend as u64),
            retry_count: self.retry_count.val(),
            rnr_retry: self.rnr_retry.val(),
            ..Default::default()
        };
        let given = self.issued.val();
        let issued = Issued { epoch: self.issued_epoch.val(), generation: peer.generation, ..given };
        let responds = self.responds.val();
        let expires = self.expires.val() && !responds;
        let ends_turn = self.ends_turn.val() && !responds && !expires;
        let step = if responds {
            Step::Response
        } else if expires {
            Step::Expired
        } else {
            Step::Store
        };

        // A response.
        let is_back = self.is_back.val();
        let packet = self.packet.val();
        let returned = self.returned.val();
        let arrival = arrival_of(is_back, packet, returned);
        let asked = if responds { Step::Check } else { Step::Timeout };
        let check = check_of(asked, bits::<24>(0), arrival, Fault::None, peer, progress, issued);
        let outcome = outcome_of(check, is_back, packet.opcode, returned.is_middle);
        let says_lost = says_lost(arrival.class, arrival.syndrome, returned);
        let recovery = recovery_of(check, outcome, says_lost, peer, progress);

        // An expiry, and the end of a turn.
        let timeout = timeout_of(self.expired.val(), peer, progress, issued);
        let fails = fails_in(step, true, check, outcome, recovery, timeout);
        let retired = Retired { count: self.left_count.val(), ..progress.retired };
        let turn = Turn { retired, stays: self.stays.val(), ..Default::default() };
        let begun = Begun { count: issued.count, ..Default::default() };
        let closing = closing_of(turn, progress, peer, issued, begun);

        // Acknowledge writes the record after these changes only.
        if responds && (outcome.joins || outcome.moves) {
            self.progress.d.next =
                after_response(progress, check, outcome, arrival, returned, recovery, fails);
        }
        if expires && (timeout.counts || timeout.ends_wait) {
            self.progress.d.next = after_timeout(progress, check, timeout, fails);
        }
        if ends_turn {
            self.progress.d.next = after_turn(progress, turn, closing, bits::<BLOCK_BITS>(0));
        }
        self.progresses.next = responds && recovery.progresses;
        self.is_loss.next = responds && outcome.refuses && says_lost;
        self.is_early.next = responds && outcome.refuses && arrival.class == ResponseClass::NotReady;
        self.rewinds.next = responds && recovery.rewinds;
        self.waits.next = responds && recovery.waits;
        self.times_out.next = expires && timeout.counts;
        self.fails.next = fails;
        self.begins_epoch.next = ends_turn && closing.rewinds;
        self.retries_taken.next = progress.retries_taken;
        self.rnr_taken.next = progress.rnr_taken;
        self.wants_rewind.next = progress.wants_rewind;
        self.awaits_peer.next = progress.awaits_peer;
        self.epoch.next = progress.retired.epoch;
    }
}
