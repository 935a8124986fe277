//! Work requests: the operations that an application posts, their checks, and their encoding as WQEs.

use crate::post_error::Refusal;
use crate::protection_domain::ProtectionDomainShared;
use crate::region::Region;
use crate::remote_memory::RemoteMemory;
use crate::sge::Sge;
use crate::startup::Limits;
use rnic_layout::limits::{
    ATOMIC_BYTES, INLINE_BYTES_FIRST_SLOT, INLINE_BYTES_MAX, MESSAGE_BYTES_MAX, RECEIVE_SGES_MAX,
    SEND_SGES_FIRST_SLOT, SEND_SGES_MAX, WQE_SLOT_BYTES,
};
use rnic_layout::queue::completion::CompletionOpcode;
use rnic_layout::queue::receive::RawReceiveWqe;
use rnic_layout::queue::send::{
    FENCE, INLINE, RawSendWqe, RawSge, SIGNALLED, SOLICITED, TWO_SLOTS, WqeOpcode,
};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Scatter/gather list: the memory of a message, in order. A list that fits the first slot of a send WQE needs no heap
/// allocation.
pub type SgList = SmallVec<[Region; SEND_SGES_FIRST_SLOT]>;

/// Operation of a send request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// SEND: the payload is scattered to the next receive of the peer.
    Send,
    /// SEND with immediate data: four bytes, in wire order, that the completion of the peer's receive reports.
    SendImmediate([u8; 4]),
    /// RDMA WRITE: the payload is written to the remote memory. The peer gets no completion.
    Write(RemoteMemory),
    /// RDMA WRITE with immediate data: also consumes a receive of the peer, whose completion reports the four bytes.
    WriteImmediate(RemoteMemory, [u8; 4]),
    /// RDMA READ: fills the memory of the request from the beginning of the remote memory. The peer gets no completion.
    Read(RemoteMemory),
    /// Atomic compare-and-swap of the first eight bytes of the remote memory, whose address must be a multiple of eight: if
    /// they equal `compare`, they become `swap`. The original value is written to the memory of the request
    /// ([`Completion::original`]).
    ///
    /// [`Completion::original`]: crate::Completion::original
    CompareSwap {
        /// Memory of the peer.
        remote: RemoteMemory,
        /// Value that the memory is compared with.
        compare: u64,
        /// Value that is written if they are equal.
        swap: u64,
    },
    /// Atomic fetch-and-add to the first eight bytes of the remote memory, modulo 2^64. Address and original value as for
    /// [`Self::CompareSwap`].
    FetchAdd {
        /// Memory of the peer.
        remote: RemoteMemory,
        /// Value that is added, modulo 2^64.
        add: u64,
    },
    /// SEND with invalidate of a key of the peer, from
    /// [`share_invalidatable`](crate::ProtectionDomain::share_invalidatable): the key is invalid when the peer's receive
    /// completes. A key that must not be invalidated moves both queue pairs to the error state.
    SendInvalidate(u32),
    /// Invalidates a key of this host, from [`share_invalidatable`](crate::ProtectionDomain::share_invalidatable). It begins
    /// after all earlier requests of the queue have completed, and later requests begin after it. It has no SGEs. A key that
    /// must not be invalidated moves the queue pair to the error state.
    LocalInvalidate(u32),
}

impl Operation {
    const fn opcode(self) -> WqeOpcode {
        match self {
            Self::Send => WqeOpcode::Send,
            Self::SendImmediate(_) => WqeOpcode::SendImmediate,
            Self::Write(_) => WqeOpcode::Write,
            Self::WriteImmediate(..) => WqeOpcode::WriteImmediate,
            Self::Read(_) => WqeOpcode::Read,
            Self::CompareSwap { .. } => WqeOpcode::CompareSwap,
            Self::FetchAdd { .. } => WqeOpcode::FetchAdd,
            Self::SendInvalidate(_) => WqeOpcode::SendInvalidate,
            Self::LocalInvalidate(_) => WqeOpcode::LocalInvalidate,
        }
    }

    pub(crate) const fn completes_as(self) -> CompletionOpcode {
        match self {
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) => CompletionOpcode::Send,
            Self::Write(_) | Self::WriteImmediate(..) => CompletionOpcode::Write,
            Self::Read(_) => CompletionOpcode::Read,
            Self::CompareSwap { .. } => CompletionOpcode::CompareSwap,
            Self::FetchAdd { .. } => CompletionOpcode::FetchAdd,
            Self::LocalInvalidate(_) => CompletionOpcode::LocalInvalidate,
        }
    }

    const fn remote(self) -> Option<RemoteMemory> {
        match self {
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) | Self::LocalInvalidate(_) => None,
            Self::Write(remote)
            | Self::WriteImmediate(remote, _)
            | Self::Read(remote)
            | Self::CompareSwap { remote, .. }
            | Self::FetchAdd { remote, .. } => Some(remote),
        }
    }

    const fn immediate(self) -> [u8; 4] {
        match self {
            Self::SendImmediate(immediate) | Self::WriteImmediate(_, immediate) => immediate,
            Self::SendInvalidate(key) | Self::LocalInvalidate(key) => key.to_le_bytes(),
            _ => [0; 4],
        }
    }

    /// Operands of an atomic, in the order of its WQE.
    const fn operands(self) -> Option<[u64; 2]> {
        match self {
            Self::CompareSwap { compare, swap, .. } => Some([compare, swap]),
            Self::FetchAdd { add, .. } => Some([0, add]),
            _ => None,
        }
    }
}

/// A send as it is checked and encoded, whoever owns its memory.
pub(crate) struct SendWork<'a> {
    pub(crate) operation: Operation,
    pub(crate) sges: &'a [Sge],
    pub(crate) inline: Option<&'a [u8]>,
    /// Length of the message in bytes.
    pub(crate) length: usize,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
}

/// Inline payload.
#[derive(Clone, Copy)]
struct Inline {
    bytes: [u8; INLINE_BYTES_MAX],
    /// Length that the caller passed. If it exceeds `bytes`, the post is refused.
    length: usize,
}

/// Work request for a send queue. It owns the memory of its payload; the completion returns it.
///
/// ```
/// # use rnic_driver::{Region, SendRequest};
/// fn say(wr_id: u64, header: &[u8], rest: Region) -> [SendRequest; 2] {
///     [SendRequest::send(wr_id).inline(header), SendRequest::send(wr_id + 1).sge(rest).signalled()]
/// }
/// ```
pub struct SendRequest {
    /// Identifier that the application chooses; the completion reports it.
    pub wr_id: u64,
    /// Operation, with its parameters.
    pub operation: Operation,
    /// Memory of the payload, in order; for READs and atomics, memory that the response fills.
    pub sg_list: SgList,
    inline: Option<Inline>,
    signalled: bool,
    solicited: bool,
    fence: bool,
}

impl SendRequest {
    /// Creates an unsignalled request without payload.
    pub fn new(wr_id: u64, operation: Operation) -> Self {
        let sg_list = SgList::new();
        Self { wr_id, operation, sg_list, inline: None, signalled: false, solicited: false, fence: false }
    }

    /// Creates a SEND.
    pub fn send(wr_id: u64) -> Self {
        Self::new(wr_id, Operation::Send)
    }

    /// Creates a SEND with immediate data, in wire order.
    pub fn send_immediate(wr_id: u64, immediate: [u8; 4]) -> Self {
        Self::new(wr_id, Operation::SendImmediate(immediate))
    }

    /// Creates a SEND with invalidate of a key of the peer.
    pub fn send_invalidate(wr_id: u64, key: u32) -> Self {
        Self::new(wr_id, Operation::SendInvalidate(key))
    }

    /// Creates a local invalidate of a key of this host.
    pub fn local_invalidate(wr_id: u64, key: u32) -> Self {
        Self::new(wr_id, Operation::LocalInvalidate(key))
    }

    /// Creates an RDMA WRITE to the beginning of remote memory.
    pub fn write(wr_id: u64, remote: RemoteMemory) -> Self {
        Self::new(wr_id, Operation::Write(remote))
    }

    /// Creates an RDMA WRITE with immediate data, in wire order.
    pub fn write_immediate(wr_id: u64, remote: RemoteMemory, immediate: [u8; 4]) -> Self {
        Self::new(wr_id, Operation::WriteImmediate(remote, immediate))
    }

    /// Creates an RDMA READ from the beginning of remote memory. The SGEs determine its length.
    pub fn read(wr_id: u64, remote: RemoteMemory) -> Self {
        Self::new(wr_id, Operation::Read(remote))
    }

    /// Creates an atomic compare-and-swap. It needs one SGE of eight bytes.
    pub fn compare_swap(wr_id: u64, remote: RemoteMemory, compare: u64, swap: u64) -> Self {
        Self::new(wr_id, Operation::CompareSwap { remote, compare, swap })
    }

    /// Creates an atomic fetch-and-add. It needs one SGE of eight bytes.
    pub fn fetch_add(wr_id: u64, remote: RemoteMemory, add: u64) -> Self {
        Self::new(wr_id, Operation::FetchAdd { remote, add })
    }

    /// Appends an SGE. A SEND or WRITE has up to six, fewer if the card supports fewer; a READ has up to two, an atomic one.
    pub fn sge(mut self, region: Region) -> Self {
        self.sg_list.push(region);
        self
    }

    /// Copies the payload into the WQE, at most 96 bytes. The card then needs no separate DMA read for it.
    pub fn inline(mut self, payload: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES_MAX];
        let kept = payload.len().min(bytes.len());
        bytes[..kept].copy_from_slice(&payload[..kept]);
        self.inline = Some(Inline { bytes, length: payload.len() });
        self
    }

    /// Requests a CQE for this request. An unsignalled request completes together with the next signalled one of its queue,
    /// or when it fails. The driver signals a request that occupies the last room of a queue, so that the queue never stalls.
    pub fn signalled(mut self) -> Self {
        self.signalled = true;
        self
    }

    /// Requests a solicited event at the peer.
    pub fn solicited(mut self) -> Self {
        self.solicited = true;
        self
    }

    /// Fences the request: it begins after all earlier READs and atomics of its queue have completed.
    pub fn fence(mut self) -> Self {
        self.fence = true;
        self
    }

    pub(crate) fn is_signalled(&self) -> bool {
        self.signalled
    }

    /// Length of the message in bytes.
    pub fn len(&self) -> usize {
        match &self.inline {
            Some(inline) => inline.length,
            None => length_of(&self.sg_list),
        }
    }

    /// Returns whether the message is empty, which is legal.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that the memory of the request belongs to the domain, and is not longer than an SGE can name.
    pub(crate) fn check_memory(&self, domain: &Arc<ProtectionDomainShared>) -> Result<(), Refusal> {
        check_regions(&self.sg_list, SEND_SGES_MAX, domain)
    }

    /// Names the memory of the request, which [`Self::check_memory`] has admitted.
    pub(crate) fn sges(&self) -> [Sge; SEND_SGES_MAX] {
        let mut sges = [Sge::default(); SEND_SGES_MAX];
        sges.iter_mut().zip(&self.sg_list).for_each(|(sge, region)| *sge = sge_of(region));
        sges
    }

    /// The request as it is checked and encoded, with all places of [`Self::sges`].
    pub(crate) fn work<'a>(&'a self, sges: &'a [Sge; SEND_SGES_MAX]) -> SendWork<'a> {
        let inline = self.inline.as_ref();
        SendWork {
            operation: self.operation,
            sges: &sges[..self.sg_list.len()],
            inline: inline.map(|inline| &inline.bytes[..inline.length.min(INLINE_BYTES_MAX)]),
            length: self.len(),
            solicited: self.solicited,
            fence: self.fence,
        }
    }
}

impl SendWork<'_> {
    /// Checks the request against the limits of the card; a request that passes can be encoded. `read_atomic` is the number of
    /// READs and atomics that the queue pair may have in flight. Returns the number of slots of the WQE.
    pub(crate) fn check(&self, limits: &Limits, read_atomic: u8) -> Result<u16, Refusal> {
        let length = self.length;
        let is_atomic = self.operation.operands().is_some();
        let is_read = is_atomic || matches!(self.operation, Operation::Read(_));
        if is_read && read_atomic == 0 {
            return Err(Refusal::ReadsNotAllowed);
        }
        if matches!(self.operation, Operation::LocalInvalidate(_))
            && (self.inline.is_some() || !self.sges.is_empty())
        {
            return Err(Refusal::InvalidateWithPayload);
        }
        if is_read && self.inline.is_some() {
            return Err(Refusal::InlineRead);
        }
        if is_atomic && (length != ATOMIC_BYTES || self.sges.len() != 1) {
            return Err(Refusal::AtomicMemory { count: self.sges.len(), length });
        }
        if let Some(remote) = self.operation.remote()
            && is_atomic
            && !remote.address.is_multiple_of(ATOMIC_BYTES as u64)
        {
            return Err(Refusal::Misaligned { address: remote.address });
        }
        let slots = if self.inline.is_some() {
            if !self.sges.is_empty() {
                return Err(Refusal::InlineWithSges);
            }
            let allowed = usize::from(limits.queues.inline_bytes);
            if length > allowed.min(INLINE_BYTES_MAX) {
                return Err(Refusal::InlineTooLong { length, allowed });
            }
            1 + u16::from(length > INLINE_BYTES_FIRST_SLOT)
        } else {
            // The SGEs that a response fills must fit the first slot (protocol 2.11).
            let most = if is_read { SEND_SGES_FIRST_SLOT } else { usize::MAX };
            check_count(self.sges.len(), most.min(limits.queues.send_sges.into()).min(SEND_SGES_MAX))?;
            1 + u16::from(self.sges.len() > SEND_SGES_FIRST_SLOT)
        };
        let allowed = limits.message_bytes.min(MESSAGE_BYTES_MAX.into());
        if length as u64 > allowed {
            return Err(Refusal::TooLong { length, allowed });
        }
        if let Some(remote) = self.operation.remote()
            && length as u64 > remote.bytes
        {
            return Err(Refusal::RemoteTooShort { length, remote: remote.bytes });
        }
        Ok(slots)
    }

    /// Encodes a checked request as a WQE of up to two slots. `sequence` identifies it in the CQE.
    pub(crate) fn encode(&self, sequence: u64, signalled: bool) -> [[u8; WQE_SLOT_BYTES]; 2] {
        let mut data = [0; INLINE_BYTES_MAX];
        let two_slots;
        if let Some(inline) = self.inline {
            data[..inline.len()].copy_from_slice(inline);
            two_slots = inline.len() > INLINE_BYTES_FIRST_SLOT;
        } else {
            for (place, sge) in data.chunks_exact_mut(size_of::<RawSge>()).zip(self.sges) {
                place.copy_from_slice(sge.image().as_bytes());
            }
            two_slots = self.sges.len() > SEND_SGES_FIRST_SLOT;
        }
        if mutant!("send-sges-swapped") && self.sges.len() > 1 {
            data[..2 * size_of::<RawSge>()].rotate_left(size_of::<RawSge>());
        }
        // The operands of an atomic follow its only SGE.
        for (place, operand) in
            data[size_of::<RawSge>()..].chunks_exact_mut(8).zip(self.operation.operands().iter().flatten())
        {
            place.copy_from_slice(&operand.to_le_bytes());
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let remote = self.operation.remote();
        let (head, tail) = data.split_at(INLINE_BYTES_FIRST_SLOT);
        let mut wqe = RawSendWqe {
            opcode: self.operation.opcode().number(),
            flags: flag(signalled, SIGNALLED)
                | flag(self.solicited, SOLICITED)
                | flag(self.fence, FENCE)
                | flag(self.inline.is_some(), INLINE)
                | flag(two_slots, TWO_SLOTS),
            sge_count: self.sges.len() as u8,
            zero: 0,
            immediate: self.operation.immediate(),
            wr_id: sequence.into(),
            remote_address: remote.map_or(0, |remote| remote.address).into(),
            remote_key: remote.map_or(0, |remote| remote.key).into(),
            length: (self.length as u32).into(),
            data: head.try_into().expect("the data of the first slot has a fixed size"),
        };
        if mutant!("solicited-flag-lost") {
            wqe.flags &= !SOLICITED;
        }
        if mutant!("fence-flag-lost") {
            wqe.flags &= !FENCE;
        }
        let mut slots = [[0; WQE_SLOT_BYTES]; 2];
        slots[0].copy_from_slice(wqe.as_bytes());
        slots[1].copy_from_slice(tail);
        slots
    }
}

impl fmt::Debug for SendRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRequest")
            .field("wr_id", &self.wr_id)
            .field("operation", &self.operation)
            .field("bytes", &self.len())
            .finish_non_exhaustive()
    }
}

/// Work request for a receive queue or an SRQ: memory for an incoming message.
#[derive(Debug)]
pub struct ReceiveRequest {
    /// Identifier that the application chooses; the completion reports it.
    pub wr_id: u64,
    /// Memory that the message is scattered to, in order. An empty list is legal: it receives empty messages, and WRITEs with
    /// immediate data.
    pub sg_list: SgList,
}

impl ReceiveRequest {
    /// Creates a receive without memory.
    pub fn new(wr_id: u64) -> Self {
        Self { wr_id, sg_list: SgList::new() }
    }

    /// Appends an SGE: memory for the message. A receive has up to three, fewer if the card supports fewer.
    pub fn sge(mut self, region: Region) -> Self {
        self.sg_list.push(region);
        self
    }

    /// Length of the memory in bytes.
    pub fn len(&self) -> usize {
        length_of(&self.sg_list)
    }

    /// Returns whether the receive has no memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the request against the limits of the card; one that passes can be encoded.
    pub(crate) fn check(&self, domain: &Arc<ProtectionDomainShared>, limits: &Limits) -> Result<(), Refusal> {
        check_regions(&self.sg_list, limits.queues.receive_sges.into(), domain)?;
        check_receive(self.sg_list.len(), limits)
    }

    /// Encodes a checked request as a WQE. `sequence` identifies it in the CQE.
    pub(crate) fn encode(&self, sequence: u64) -> [u8; WQE_SLOT_BYTES] {
        encode_receive(self.sg_list.iter().map(sge_of), sequence)
    }
}

/// Checks the number of SGEs of a receive.
pub(crate) fn check_receive(count: usize, limits: &Limits) -> Result<(), Refusal> {
    check_count(count, usize::from(limits.queues.receive_sges).min(RECEIVE_SGES_MAX))
}

/// Encodes a receive, whose number of SGEs was checked, as a WQE. `sequence` identifies it in the CQE.
pub(crate) fn encode_receive(
    sges: impl ExactSizeIterator<Item = Sge>,
    sequence: u64,
) -> [u8; WQE_SLOT_BYTES] {
    let mut wqe = RawReceiveWqe { wr_id: sequence.into(), sge_count: sges.len() as u8, ..Default::default() };
    for (place, sge) in wqe.sges.iter_mut().zip(sges) {
        *place = sge.image();
    }
    let mut slot = [0; WQE_SLOT_BYTES];
    slot.copy_from_slice(wqe.as_bytes());
    slot
}

fn length_of(sg_list: &[Region]) -> usize {
    // Regions are disjoint parts of the memory of this process, so the sum of their lengths cannot overflow.
    sg_list.iter().map(Region::len).sum()
}

fn sge_of(region: &Region) -> Sge {
    Sge::new(region.address(), region.key(), region.len() as u32)
}

fn check_count(count: usize, allowed: usize) -> Result<(), Refusal> {
    if count > allowed { Err(Refusal::TooManySges { count, allowed }) } else { Ok(()) }
}

/// Checks that regions belong to the domain, and are not longer than an SGE can name.
fn check_regions(
    sg_list: &[Region],
    allowed: usize,
    domain: &Arc<ProtectionDomainShared>,
) -> Result<(), Refusal> {
    check_count(sg_list.len(), allowed)?;
    for region in sg_list {
        if !Arc::ptr_eq(region.domain(), domain) {
            return Err(Refusal::OtherDomain);
        }
        if region.len() > MESSAGE_BYTES_MAX as usize {
            return Err(Refusal::TooLong { length: region.len(), allowed: MESSAGE_BYTES_MAX.into() });
        }
    }
    Ok(())
}
