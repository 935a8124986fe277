//! Which requests a card may refuse, and with which NAK (protocol 3.6).
//!
//! ```text
//!   request ──> causes that the port can see ──> noted by its PSN ──> NAK: is there a cause?
//!                    ^                                ^
//!       set-up, request before it,       settled: what was executed
//!       READs that are not served         can no longer be refused
//! ```
//!
//! 1. A request is judged by what the port knew when it arrived. A card that refuses it knows at least as much: it has sent the
//!    responses that the port has seen, and has answered the commands that were posted before.
//! 2. Where the port does not know a cause, the card may be right: receive buffers and keys are memory of the host. A SEND with payload
//!    may be too long for its receive (row 10), whatever names a key may name a wrong one (row 11).
//! 3. A card may have dropped a request that the port has seen. So the causes of all requests with one PSN count, and what follows
//!    different ones may be out of order.
use crate::requests::{Kind, kind};
use crate::rule::{Findings, Rule};
use crate::set_up::SetUp;
use rnic_layout::limits::{ATOMIC_BYTES, MESSAGE_BYTES_MAX};
use rnic_layout::opcode::{Opcode, Operation};
use rnic_layout::psn::Psn;
use rnic_layout::syndrome::{NakCode, Syndrome};
use rnic_layout::wire::bth::pad_count;
use rnic_layout::wire::extended::RethRepr;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use std::collections::VecDeque;

/// Maximum of requests that are noted. They are few, since an ACK or a response settles those before it.
const NOTED_MAX: usize = 4096;

/// NAKs for which a request has a cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Causes {
    /// NAK 0x61: rows 3 to 10.
    invalid: bool,
    /// NAK 0x62: rows 11 and 15.
    access: bool,
    /// NAK 0x63: row 13, as far as it is not the host that fails.
    receive: bool,
    /// RNR NAK: row 12.
    not_ready: bool,
}

/// Where a message stands after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// No message is open.
    Between,
    /// In a SEND.
    Send,
    /// In a WRITE of which so many bytes are left.
    Write(u64),
    /// One of several requests may have been executed.
    Unknown,
}

/// A request that has arrived, and is not known to be executed.
#[derive(Clone, Copy, Debug)]
struct Noted {
    psn: Psn,
    /// PSN of the request behind it.
    end: Psn,
    stand: Stand,
    causes: Causes,
}

/// Requests of a queue pair, by their PSNs.
#[derive(Clone, Debug)]
pub(crate) struct Refusals {
    /// The first one is executed, and tells where the message stands.
    noted: VecDeque<Noted>,
}

impl Refusals {
    /// Nothing has arrived.
    pub(crate) fn new(first: Psn) -> Refusals {
        let before =
            Noted { psn: first.sub(1), end: first, stand: Stand::Between, causes: Causes::default() };
        Refusals { noted: VecDeque::from([before]) }
    }

    /// Notes a request that arrives, up to the PSN `end`, when so many READs and atomics before it are not served. `is_again` says that
    /// its PSN has arrived before.
    pub(crate) fn note(
        &mut self,
        set_up: &SetUp,
        packet: &PacketRepr,
        row: Option<&Opcode>,
        end: Psn,
        unserved: usize,
        is_again: bool,
    ) {
        let psn = packet.bth.psn;
        let newest = self.noted.len() - 1;
        let same = match is_again {
            true => self.noted.iter().skip(1).rposition(|one| one.psn == psn).map(|place| place + 1),
            // An RNR NAK has refused the newest one.
            false => Some(newest).filter(|&place| place > 0 && self.noted[place].psn == psn),
        };
        if same.is_none() && is_again {
            return;
        }
        let before = self.noted[same.map_or(newest, |place| place - 1)];
        let stand = if before.end == psn { before.stand } else { Stand::Unknown };
        let (causes, stand) = judge(set_up, packet, row, stand, unserved);
        if let Some(one) = same.map(|place| &mut self.noted[place]) {
            one.causes.add(causes);
            if (one.end, one.stand) != (end, stand) {
                one.stand = Stand::Unknown;
            }
            return;
        }
        self.noted.push_back(Noted { psn, end, stand, causes });
        if self.noted.len() > NOTED_MAX {
            self.noted.pop_front();
        }
    }

    /// What precedes a PSN is executed.
    pub(crate) fn settle(&mut self, psn: Psn) {
        while self.noted.get(1).is_some_and(|one| one.psn.is_before(psn)) {
            self.noted.pop_front();
        }
    }

    /// An RNR NAK has refused the request of this PSN: what is behind it will arrive again.
    pub(crate) fn wait_for(&mut self, psn: Psn) {
        if let Some(place) = self.place(psn) {
            self.noted.truncate(place + 1);
        }
    }

    /// Place of a request that is not known to be executed.
    fn place(&self, psn: Psn) -> Option<usize> {
        (1..self.noted.len()).rev().find(|&place| self.noted[place].psn == psn)
    }

    /// Checks a NAK other than 0x60. `is_due` says that the next response of a READ has this PSN, and `host_has_failed` that the host
    /// has refused something that the card has asked it for.
    pub(crate) fn check(
        &self,
        psn: Psn,
        nak: Syndrome,
        is_due: bool,
        host_has_failed: bool,
        findings: &mut Findings,
    ) {
        let Some(place) = self.place(psn) else { return };
        let causes = self.noted[place].causes;
        let has_cause = match nak {
            Syndrome::Nak(NakCode::InvalidRequest) => causes.invalid,
            Syndrome::Nak(NakCode::RemoteAccessError) => causes.access || is_due,
            Syndrome::Nak(NakCode::RemoteOperationalError) => causes.receive || host_has_failed,
            Syndrome::RnrNak { .. } => causes.not_ready,
            _ => true,
        };
        findings.ensure(Rule::Refusal, has_cause, || {
            format!("{nak:?} of {psn}: no request with this PSN has a cause for it")
        });
    }
}

impl Causes {
    fn add(&mut self, other: Causes) {
        self.invalid |= other.invalid;
        self.access |= other.access;
        self.receive |= other.receive;
        self.not_ready |= other.not_ready;
    }
}

/// Returns the causes for which a request may be refused that arrives where a message stands, and where it stands after the request.
fn judge(
    set_up: &SetUp,
    packet: &PacketRepr,
    row: Option<&Opcode>,
    stand: Stand,
    unserved: usize,
) -> (Causes, Stand) {
    let known = row.and_then(|row| Some((row, kind(row.operation)?)));
    let Some((row, kind)) = known else {
        // Row 3.
        return (Causes { invalid: true, ..Causes::default() }, Stand::Unknown);
    };
    let (operation, bytes) = (row.operation, packet.payload.len() as u64);
    let (starts, ends) = (operation.starts_message(), operation.ends_message());
    // Row 4.
    let is_next = match stand {
        Stand::Between => starts,
        Stand::Send => !starts && kind == Kind::Send,
        Stand::Write(_) => !starts && kind == Kind::Write,
        Stand::Unknown => false,
    };
    // Row 5.
    let is_permitted = match kind {
        Kind::Send => true,
        Kind::Write => set_up.rights.write,
        Kind::Read => set_up.rights.read,
        Kind::Atomic => set_up.rights.atomic,
    };
    // Row 6.
    let is_aligned = atomic_address(packet).is_none_or(|address| address.is_multiple_of(ATOMIC_BYTES as u64));
    // Row 7.
    let has_slot = !matches!(kind, Kind::Read | Kind::Atomic) || unserved < usize::from(set_up.reads_taken);
    // Row 8.
    let reth = reth(packet);
    let is_formed = row.payload.admits(packet.payload.len(), set_up.pmtu_bytes as usize)
        && packet.bth.pad_count == pad_count(packet.payload.len())
        && reth.is_none_or(|reth| reth.dma_length <= MESSAGE_BYTES_MAX);
    // Row 9.
    let left = match stand {
        Stand::Write(left) => left,
        _ => reth.map_or(0, |reth| reth.dma_length.into()),
    };
    let adds_up = kind != Kind::Write || if ends { left == bytes } else { left >= bytes };
    // Row 10.
    let may_be_long = kind == Kind::Send && bytes > 0;
    let is_valid = is_next && is_permitted && is_aligned && has_slot && is_formed && adds_up;
    let names_key = match kind {
        Kind::Send => matches!(operation, Operation::SendLastInvalidate | Operation::SendOnlyInvalidate),
        Kind::Write | Kind::Read => reth.is_none_or(|reth| reth.dma_length > 0),
        Kind::Atomic => true,
    };
    let with_immediate = matches!(operation, Operation::WriteLastImmediate | Operation::WriteOnlyImmediate);
    let causes = Causes {
        invalid: !is_valid || may_be_long,
        access: names_key,
        receive: kind == Kind::Send || with_immediate,
        not_ready: (kind == Kind::Send && starts) || with_immediate,
    };
    let after = match kind {
        _ if ends => Stand::Between,
        Kind::Send => Stand::Send,
        _ => Stand::Write(left.saturating_sub(bytes)),
    };
    (causes, after)
}

fn reth(packet: &PacketRepr) -> Option<RethRepr> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::Reth(reth) => Some(reth),
        _ => None,
    })
}

fn atomic_address(packet: &PacketRepr) -> Option<u64> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::AtomicEth(atomic) => Some(atomic.virtual_address),
        _ => None,
    })
}
