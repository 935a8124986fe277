//! The life of a queue pair on the card, which both halves share, and its end.

use super::queues::Number;
use crate::address_handle::AddressHandle;
use crate::completion_queue::CompletionQueueShared;
use crate::error::{Error, check_option};
use crate::event_ring::LastReceive;
use crate::mapping::Mapping;
use crate::memory::Purpose;
use crate::protection_domain::ProtectionDomainShared;
use crate::sync::{AtomicU32, Mutex, lock};
use rnic_layout::admin::{
    BODY_OFFSET, Body, COMMAND_BYTES, CommandOpcode, ModifyQueuePair, QUEUE_PAIR_QUERY_BYTES, Query,
};
use rnic_layout::limits::QPN_BITS;
use rnic_layout::state::{ATTRIBUTES, AttributeMask, QpState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Accesses of the host, one after the other, until a queue pair in the error state has given back its receives: a receive WQE is
/// read; then payload, its CQE, and the EQE are written.
const LAST_RECEIVE_ACCESSES: u32 = 4;

/// The part of a queue pair that both halves share. Dropping it destroys the queue pair on the card.
pub(super) struct Life {
    pub(super) domain: Arc<ProtectionDomainShared>,
    pub(super) number: Arc<Number>,
    /// Every send is signalled.
    pub(super) signal_all: bool,
    pub(super) send_completions: Arc<CompletionQueueShared>,
    pub(super) receive_completions: Arc<CompletionQueueShared>,
    /// An SRQ provides the receives.
    pub(super) has_srq: bool,
    /// Whether the queue pair has given back the receives of the SRQ.
    pub(super) last_receive: Arc<LastReceive>,
    /// Memory of send and receive queue.
    pub(super) memory: [Mapping; 2],
    /// First PSN of this end.
    pub(super) first_psn: AtomicU32,
    /// QPN of the peer, once the card knows it.
    pub(super) peer: AtomicU32,
    /// State of the last transition. The card may have moved the queue pair to the error state since.
    pub(super) state: Mutex<QpState>,
}

impl Life {
    /// Gives back the receives that the queue pair has taken from its SRQ, before a transition or its end makes the card forget
    /// them: in the error state it completes the receive of a message that has not ended, and then raises the event
    /// `last_wqe_reached` (protocol 4.5). If the card does not raise it in time, the receives are lost to the SRQ.
    pub(super) fn give_back_receives(&self) {
        let Self { domain, number, last_receive, .. } = self;
        if !self.has_srq || matches!(*lock(&self.state), QpState::Reset | QpState::Init) {
            return;
        }
        last_receive.is_ending.store(true, Ordering::Release);
        let device = &domain.device;
        let mask = AttributeMask::STATE.0;
        let body = ModifyQueuePair { mask, next_state: QpState::Error, ..ModifyQueuePair::at_reset() };
        let body = Body::ModifyQueuePair(body);
        // In the error state already, it stays there.
        if device.execute(CommandOpcode::ModifyQueuePair, number.qp_number, body).is_err() {
            return;
        }
        let deadline = device.function.now().saturating_add(device.waits.command(LAST_RECEIVE_ACCESSES));
        while !last_receive.is_reached.load(Ordering::Acquire) && device.function.now() < deadline {
            device.function.idle();
            device.events.collect();
        }
    }

    /// Executes a modify command with the attributes of `mask`, and keeps the state.
    pub(super) fn modify(&self, mask: AttributeMask, attributes: ModifyQueuePair) -> Result<(), Error> {
        let device = &self.domain.device;
        self.check(mask, &attributes)?;
        let peer = match mask.contains(AttributeMask::DESTINATION_QP) {
            true => attributes.destination_qp,
            false => self.peer.load(Ordering::Relaxed),
        };
        let own = if mask.contains(AttributeMask::ADDRESS) {
            self.own_address(attributes.address_handle, peer)?
        } else {
            None
        };
        let address_handle = own.as_ref().map_or(attributes.address_handle, AddressHandle::number);
        let body = ModifyQueuePair { mask: mask.0, address_handle, ..attributes };
        let body = Body::ModifyQueuePair(body);
        device.execute(CommandOpcode::ModifyQueuePair, self.number.qp_number, body)?;
        self.peer.store(peer, Ordering::Relaxed);
        if mask.contains(AttributeMask::STATE) {
            *lock(&self.state) = attributes.next_state;
        }
        Ok(())
    }

    /// Checks the attributes of `mask` against what the layout and the device allow.
    fn check(&self, mask: AttributeMask, attributes: &ModifyQueuePair) -> Result<(), Error> {
        let bytes = attributes.to_bytes()?;
        for attribute in ATTRIBUTES.iter().filter(|attribute| mask.contains(attribute.mask)) {
            if attribute.field.is_empty() {
                continue;
            }
            let (min, max) = match attribute.mask {
                // The card does not know what the network carries.
                AttributeMask::PATH_MTU => (1, self.domain.device.options.active_mtu.code().into()),
                // No reliable connection leads to the QPNs with a fixed meaning.
                AttributeMask::DESTINATION_QP => (2, (1 << QPN_BITS) - 2),
                _ => attribute.range,
            };
            let value = ModifyQueuePair::RECORD.field(attribute.field).get(&bytes);
            check_option(attribute.name, value, min, max)?;
        }
        Ok(())
    }

    /// An address handle of this queue pair alone, if the path of the one with this number has no flow label: it has one that is made
    /// from the QPNs.
    fn own_address(&self, number: u32, peer: u32) -> Result<Option<AddressHandle>, Error> {
        let path = lock(&self.domain.device.ids).paths.get(&number).copied();
        let Some(path) = path.filter(|path| path.flow_label == 0) else { return Ok(None) };
        let own = path.between(self.number.qp_number, peer);
        if own == path { Ok(None) } else { AddressHandle::create(&self.domain, &own).map(Some) }
    }

    /// Queries the current attributes.
    pub(super) fn query(&self) -> Result<ModifyQueuePair, Error> {
        let (device, qp_number) = (&self.domain.device, self.number.qp_number);
        let buffer = Mapping::new(&device.function, QUEUE_PAIR_QUERY_BYTES, Purpose::Ring)?;
        let query = Query { buffer: buffer.device_address(), buffer_bytes: QUEUE_PAIR_QUERY_BYTES as u16 };
        device.execute_with(CommandOpcode::QueryQueuePair, qp_number, Body::Query(query), &[&buffer])?;
        // The card writes the create command, then the modify command.
        let mut bytes = [0; ModifyQueuePair::BYTES];
        buffer.memory().read(COMMAND_BYTES + BODY_OFFSET, &mut bytes);
        Ok(ModifyQueuePair::parse(&bytes)?)
    }

    /// The completion queues of the queue pair, each once.
    pub(super) fn completion_queues(&self) -> impl Iterator<Item = &CompletionQueueShared> {
        let Self { send_completions, receive_completions, .. } = self;
        let other = (!Arc::ptr_eq(send_completions, receive_completions)).then_some(receive_completions);
        [send_completions].into_iter().chain(other).map(|queue| &**queue)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.domain.device.is_forked() {
            return;
        }
        self.give_back_receives();
        let Self { domain, number, memory, .. } = self;
        let qp_number = number.qp_number;
        if !domain.destroy(CommandOpcode::DestroyQueuePair, qp_number, &memory.each_ref()) {
            // The card may still have the queue pair, so its number, its reserved CQEs and its place in an SRQ stay in use. The
            // regions of requests that are not done are dropped, and each is kept unless the card confirms its end.
            self.completion_queues().for_each(|queue| queue.abandon(qp_number));
            return;
        }
        if self.has_srq {
            domain.device.routes.remove_last_receive(qp_number);
        }
        number.is_destroyed();
        self.completion_queues().for_each(|queue| queue.detach(qp_number));
    }
}
