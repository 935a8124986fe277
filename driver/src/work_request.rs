//! Requests: what an application asks a queue pair to do, and how it stands in a ring.

use crate::device::Limits;
use crate::protection_domain::ProtectionDomainShared;
use crate::region::{Region, RemoteMemory};
use rnic_layout::limits::{
    INLINE_BYTES_FIRST_SLOT, INLINE_BYTES_MAX, MESSAGE_BYTES_MAX, RECEIVE_SGES_MAX, SEND_SGES_FIRST_SLOT,
    WORK_SLOT_BYTES,
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

/// The memory of a message, in order. As many sg_list as fit the first slot of a send need no allocation.
pub type SgList = SmallVec<[Region; SEND_SGES_FIRST_SLOT]>;

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// SEND: the message goes to the peer's next receive.
    Send,
    /// SEND with four bytes that appear in the peer's completion, as they are.
    SendImmediate([u8; 4]),
    /// RDMA WRITE: the message goes to the peer's memory, and the peer learns nothing of it.
    Write(RemoteMemory),
    /// RDMA WRITE that also consumes a receive of the peer, and shows four bytes in its completion.
    WriteImmediate(RemoteMemory, [u8; 4]),
    /// RDMA READ: as many bytes as the request has memory for come from the beginning of the peer's, and the peer learns
    /// nothing of it.
    Read(RemoteMemory),
    /// Atomic compare and swap of the first eight bytes of remote memory, whose address must be a multiple of eight: if they
    /// are `compare`, they become `swap`. The original comes to the request's memory ([`Completion::original`]).
    ///
    /// [`Completion::original`]: crate::Completion::original
    CompareSwap {
        /// The peer's memory.
        remote: RemoteMemory,
        /// What it must hold.
        compare: u64,
        /// What to put there.
        swap: u64,
    },
    /// Atomic addition to the first eight bytes of remote memory, round the end; else as [`Self::CompareSwap`].
    FetchAdd {
        /// The peer's memory.
        remote: RemoteMemory,
        /// What to add.
        add: u64,
    },
    /// SEND that ends a key of the peer, of a region that was made for it
    /// ([`share_invalidatable`](crate::ProtectionDomain::share_invalidatable)): when the peer's receive completes, nobody
    /// reaches the region by that key any more. A key that may not be ended fails both queue pairs.
    SendInvalidate(u32),
    /// Ends a key of this host, of a region that was made for it, when everything before has ended; what is behind begins
    /// then. It has no memory. A key that may not be ended fails the queue pair.
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

    /// What an atomic works with, in the order of the entry.
    const fn operands(self) -> Option<[u64; 2]> {
        match self {
            Self::CompareSwap { compare, swap, .. } => Some([compare, swap]),
            Self::FetchAdd { add, .. } => Some([0, add]),
            _ => None,
        }
    }
}

/// Payload that stands in the request itself.
#[derive(Clone, Copy)]
struct Inline {
    bytes: [u8; INLINE_BYTES_MAX],
    /// What was asked for; more than there is room is refused when the request is posted.
    length: usize,
}

/// Bytes of an atomic.
const ATOMIC_BYTES: usize = 8;

/// Work for a send queue. It owns the memory of its payload until the completion gives it back.
///
/// ```
/// # use rnic_driver::{Region, SendRequest};
/// fn say(wr_id: u64, header: &[u8], rest: Region) -> [SendRequest; 2] {
///     [SendRequest::send(wr_id).inline(header), SendRequest::send(wr_id + 1).sge(rest).signalled()]
/// }
/// ```
pub struct SendRequest {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub operation: Operation,
    /// Memory of the payload, in order.
    pub sg_list: SgList,
    inline: Option<Inline>,
    signalled: bool,
    solicited: bool,
    fence: bool,
}

impl SendRequest {
    /// A request without payload.
    pub fn new(wr_id: u64, operation: Operation) -> Self {
        let sg_list = SgList::new();
        Self { wr_id, operation, sg_list, inline: None, signalled: false, solicited: false, fence: false }
    }

    /// A SEND.
    pub fn send(wr_id: u64) -> Self {
        Self::new(wr_id, Operation::Send)
    }

    /// A SEND with immediate data.
    pub fn send_immediate(wr_id: u64, immediate: [u8; 4]) -> Self {
        Self::new(wr_id, Operation::SendImmediate(immediate))
    }

    /// A SEND that ends a key of the peer.
    pub fn send_invalidate(wr_id: u64, key: u32) -> Self {
        Self::new(wr_id, Operation::SendInvalidate(key))
    }

    /// The end of a key of this host.
    pub fn local_invalidate(wr_id: u64, key: u32) -> Self {
        Self::new(wr_id, Operation::LocalInvalidate(key))
    }

    /// An RDMA WRITE to the beginning of remote memory.
    pub fn write(wr_id: u64, remote: RemoteMemory) -> Self {
        Self::new(wr_id, Operation::Write(remote))
    }

    /// An RDMA WRITE with immediate data.
    pub fn write_immediate(wr_id: u64, remote: RemoteMemory, immediate: [u8; 4]) -> Self {
        Self::new(wr_id, Operation::WriteImmediate(remote, immediate))
    }

    /// An RDMA READ from the beginning of remote memory, into the memory of the request.
    pub fn read(wr_id: u64, remote: RemoteMemory) -> Self {
        Self::new(wr_id, Operation::Read(remote))
    }

    /// An atomic compare and swap; its sge of memory has eight bytes.
    pub fn compare_swap(wr_id: u64, remote: RemoteMemory, compare: u64, swap: u64) -> Self {
        Self::new(wr_id, Operation::CompareSwap { remote, compare, swap })
    }

    /// An atomic addition; its sge of memory has eight bytes.
    pub fn fetch_add(wr_id: u64, remote: RemoteMemory, add: u64) -> Self {
        Self::new(wr_id, Operation::FetchAdd { remote, add })
    }

    /// Appends memory to the payload, up to six sg_list where the card takes so many; or to what a READ fills, two at most, or an
    /// atomic, which is one.
    pub fn sge(mut self, sge: Region) -> Self {
        self.sg_list.push(sge);
        self
    }

    /// Copies the payload into the request, at most 96 bytes. The card reads it with the request, which saves it one
    /// read of the host.
    pub fn inline(mut self, payload: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES_MAX];
        let kept = payload.len().min(bytes.len());
        bytes[..kept].copy_from_slice(&payload[..kept]);
        self.inline = Some(Inline { bytes, length: payload.len() });
        self
    }

    /// Asks the card for a completion entry of its own. Requests without one complete together with the next that has
    /// one, or when they fail. A request that takes the last room of a queue has one in any case, so that queues
    /// never come to a stand.
    pub fn signalled(mut self) -> Self {
        self.signalled = true;
        self
    }

    /// Makes the peer's completion a solicited one.
    pub fn solicited(mut self) -> Self {
        self.solicited = true;
        self
    }

    /// Starts only when all earlier READs and atomics of this queue have completed.
    pub fn fence(mut self) -> Self {
        self.fence = true;
        self
    }

    pub(crate) fn is_signalled(&self) -> bool {
        self.signalled
    }

    /// Bytes of the message.
    pub fn len(&self) -> usize {
        match &self.inline {
            Some(inline) => inline.length,
            None => length_of(&self.sg_list),
        }
    }

    /// Tells whether the message has no byte, which is legal.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the request, once; after that, nothing about it can fail. `read_atomic` READs and atomics of the queue pair may be under
    /// way. Gives the number of its slots.
    pub(crate) fn check(
        &self,
        domain: &Arc<ProtectionDomainShared>,
        limits: &Limits,
        read_atomic: u8,
    ) -> Result<u16, Refusal> {
        let length = self.len();
        let is_atomic = self.operation.operands().is_some();
        let is_read = is_atomic || matches!(self.operation, Operation::Read(_));
        if is_read && read_atomic == 0 {
            return Err(Refusal::ReadsNotAllowed);
        }
        if matches!(self.operation, Operation::LocalInvalidate(_))
            && (self.inline.is_some() || !self.sg_list.is_empty())
        {
            return Err(Refusal::InvalidateWithPayload);
        }
        if is_read && self.inline.is_some() {
            return Err(Refusal::InlineRead);
        }
        if is_atomic && (length != ATOMIC_BYTES || self.sg_list.len() != 1) {
            return Err(Refusal::AtomicMemory { count: self.sg_list.len(), length });
        }
        if let Some(remote) = self.operation.remote()
            && is_atomic
            && !remote.address.is_multiple_of(ATOMIC_BYTES as u64)
        {
            return Err(Refusal::Misaligned { address: remote.address });
        }
        let slots = if let Some(inline) = &self.inline {
            if !self.sg_list.is_empty() {
                return Err(Refusal::InlineWithSges);
            }
            let allowed = usize::from(limits.queues.inline_bytes);
            if inline.length > allowed {
                return Err(Refusal::InlineTooLong { length, allowed });
            }
            1 + u16::from(inline.length > INLINE_BYTES_FIRST_SLOT)
        } else {
            // What an answer needs fits the first slot (protocol 2.11).
            let most = if is_read { SEND_SGES_FIRST_SLOT } else { usize::MAX };
            check_sg_list(&self.sg_list, most.min(limits.queues.send_sges.into()), domain)?;
            1 + u16::from(self.sg_list.len() > SEND_SGES_FIRST_SLOT)
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

    /// Writes down a request that was checked.
    pub(crate) fn encode(&self, sequence: u64, signalled: bool) -> [[u8; WORK_SLOT_BYTES]; 2] {
        let mut data = [0; INLINE_BYTES_MAX];
        let two_slots;
        if let Some(inline) = &self.inline {
            data[..inline.length].copy_from_slice(&inline.bytes[..inline.length]);
            two_slots = inline.length > INLINE_BYTES_FIRST_SLOT;
        } else {
            for (place, sge) in data.chunks_exact_mut(size_of::<RawSge>()).zip(&self.sg_list) {
                place.copy_from_slice(element(sge).as_bytes());
            }
            two_slots = self.sg_list.len() > SEND_SGES_FIRST_SLOT;
        }
        // They stand behind the only element.
        for (place, operand) in
            data[size_of::<RawSge>()..].chunks_exact_mut(8).zip(self.operation.operands().iter().flatten())
        {
            place.copy_from_slice(&operand.to_le_bytes());
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let remote = self.operation.remote();
        let (head, tail) = data.split_at(INLINE_BYTES_FIRST_SLOT);
        let entry = RawSendWqe {
            opcode: self.operation.opcode().number(),
            flags: flag(signalled, SIGNALLED)
                | flag(self.solicited, SOLICITED)
                | flag(self.fence, FENCE)
                | flag(self.inline.is_some(), INLINE)
                | flag(two_slots, TWO_SLOTS),
            sge_count: self.sg_list.len() as u8,
            zero: 0,
            immediate: self.operation.immediate(),
            wr_id: sequence.into(),
            remote_address: remote.map_or(0, |remote| remote.address).into(),
            remote_key: remote.map_or(0, |remote| remote.key).into(),
            length: (self.len() as u32).into(),
            data: head.try_into().expect("the data of the first slot has a fixed size"),
        };
        let mut slots = [[0; WORK_SLOT_BYTES]; 2];
        slots[0].copy_from_slice(entry.as_bytes());
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

/// Memory for a message that is still to come.
#[derive(Debug)]
pub struct ReceiveRequest {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes, in order. None is legal, and takes empty messages and WRITEs with immediate.
    pub sg_list: SgList,
}

impl ReceiveRequest {
    /// A receive without memory.
    pub fn new(wr_id: u64) -> Self {
        Self { wr_id, sg_list: SgList::new() }
    }

    /// Appends memory.
    pub fn sge(mut self, sge: Region) -> Self {
        self.sg_list.push(sge);
        self
    }

    /// Bytes of the memory.
    pub fn len(&self) -> usize {
        length_of(&self.sg_list)
    }

    /// Tells whether there is no memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn check(&self, domain: &Arc<ProtectionDomainShared>, limits: &Limits) -> Result<(), Refusal> {
        let allowed = usize::from(limits.queues.receive_sges).min(RECEIVE_SGES_MAX);
        check_sg_list(&self.sg_list, allowed, domain)
    }

    pub(crate) fn encode(&self, sequence: u64) -> [u8; WORK_SLOT_BYTES] {
        let mut entry = RawReceiveWqe {
            wr_id: sequence.into(),
            sge_count: self.sg_list.len() as u8,
            ..Default::default()
        };
        for (place, sge) in entry.sges.iter_mut().zip(&self.sg_list) {
            *place = element(sge);
        }
        let mut slot = [0; WORK_SLOT_BYTES];
        slot.copy_from_slice(entry.as_bytes());
        slot
    }
}

fn length_of(sg_list: &[Region]) -> usize {
    // SgList are disjoint parts of this process's memory, so their lengths add up to less than its address space.
    sg_list.iter().map(Region::len).sum()
}

fn element(sge: &Region) -> RawSge {
    RawSge { address: sge.address().into(), local_key: sge.key().into(), length: (sge.len() as u32).into() }
}

fn check_sg_list(
    sg_list: &[Region],
    allowed: usize,
    domain: &Arc<ProtectionDomainShared>,
) -> Result<(), Refusal> {
    if sg_list.len() > allowed {
        return Err(Refusal::TooManySges { count: sg_list.len(), allowed });
    }
    for sge in sg_list {
        if !Arc::ptr_eq(sge.domain(), domain) {
            return Err(Refusal::OtherDomain);
        }
        if sge.len() > MESSAGE_BYTES_MAX as usize {
            return Err(Refusal::TooLong { length: sge.len(), allowed: MESSAGE_BYTES_MAX.into() });
        }
    }
    Ok(())
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The ring has no room.
    #[error("the queue needs {needed} free slots and has {free}; poll completions, and post again")]
    QueueFull {
        /// Slots of the request.
        needed: u16,
        /// Slots that are free.
        free: u16,
    },
    /// The completion queue could overrun if all work in flight completed at once.
    #[error("all {entries} entries of the completion queue are spoken for; poll completions, and post again")]
    CompletionQueueFull {
        /// Entries of the queue.
        entries: u32,
    },
    /// More sg_list than an entry, or this card, can name.
    #[error("the request has {count} sg_list; {allowed} are allowed")]
    TooManySges {
        /// SgList of the request.
        count: usize,
        /// How many are allowed.
        allowed: usize,
    },
    /// Too much inline payload.
    #[error("the request has {length} inline bytes; {allowed} are allowed, and more go in a region")]
    InlineTooLong {
        /// Inline bytes.
        length: usize,
        /// How many are allowed.
        allowed: usize,
    },
    /// A READ or an atomic on a queue pair that may have none under way.
    #[error(
        "no READ or atomic may be under way on this queue pair; allow it one at least when it goes to RTS"
    )]
    ReadsNotAllowed,
    /// A READ or an atomic with inline payload.
    #[error("a READ or an atomic has no payload; give it the memory that it is to fill")]
    InlineRead,
    /// The end of a key with payload.
    #[error("the end of a key has neither payload nor memory")]
    InvalidateWithPayload,
    /// An atomic whose memory is not one sge of eight bytes.
    #[error("the atomic has {count} sg_list with {length} bytes; one of 8 bytes is needed")]
    AtomicMemory {
        /// SgList of the request.
        count: usize,
        /// Their bytes.
        length: usize,
    },
    /// An atomic on an address that is no multiple of eight.
    #[error("the remote address of the atomic is {address:#x}; a multiple of 8 is needed")]
    Misaligned {
        /// Where.
        address: u64,
    },
    /// Inline payload and sg_list at once.
    #[error("the request has inline payload and sg_list; use one of them")]
    InlineWithSges,
    /// The message is too long.
    #[error("the message has {length} bytes; {allowed} are allowed, so cut it")]
    TooLong {
        /// Bytes of the message.
        length: usize,
        /// How many are allowed.
        allowed: u64,
    },
    /// The message would leave the peer's memory.
    #[error("the message has {length} bytes, and the peer's memory {remote}")]
    RemoteTooShort {
        /// Bytes of the message.
        length: usize,
        /// Bytes of the remote memory.
        remote: u64,
    },
    /// The queue pair receives from a shared receive queue.
    #[error("the queue pair receives from a shared receive queue; post to that")]
    UsesSharedReceiveQueue,
    /// A sge belongs to another protection domain than the queue pair.
    #[error("a sge belongs to another protection domain; allocate it from that of the queue pair")]
    OtherDomain,
}

/// A request that was not taken, and why. Its memory is still the caller's.
pub struct PostError<R> {
    /// Why.
    pub reason: Refusal,
    /// The request.
    pub request: R,
}

impl<R> fmt::Debug for PostError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostError").field(&self.reason).finish()
    }
}

impl<R> fmt::Display for PostError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<R> std::error::Error for PostError<R> {}
