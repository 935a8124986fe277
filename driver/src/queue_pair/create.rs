//! Creation of queue pairs.

use super::halves::{Halves, ReceiveHalf, SendHalf};
use super::life::Life;
use super::lifecycle::{QueuePair, random_psn};
use super::options::QueuePairOptions;
use super::queues::{Completing, Number};
use super::state::Reset;
use crate::completion_queue::CompletionQueue;
use crate::device::NewObject;
use crate::error::{Error, check_option};
use crate::id_allocator::RESERVED_QPNS;
use crate::mapping::Mapping;
use crate::memory::Purpose;
use crate::protection_domain::ProtectionDomain;
use crate::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueShared, SharedReceiveQueueUse};
use crate::sync::{AtomicU32, Mutex, lock};
use crate::work_queue::WorkQueue;
use rnic_layout::admin::{Body, CommandOpcode, CreateQueuePair};
use rnic_layout::limits::{
    QPN_BITS, RECEIVE_WQES_LOG2_MAX, RING_LOG2_MIN, SEND_SLOTS_LOG2_MAX, WQE_SLOT_BYTES,
};
use rnic_layout::psn::PSN_COUNT;
use rnic_layout::state::{QpState, Service};
use std::sync::Arc;

impl ProtectionDomain {
    /// Creates a reliable connected queue pair with a receive queue of its own. `send_completions` and `receive_completions`
    /// may be the same queue.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] if the card was generated without this service, [`Error::Mixed`] if a completion queue belongs
    /// to another card, [`Error::Option`] if an option is outside the card's limits, [`Error::Exhausted`] if all queue pairs
    /// are in use, [`Error::Command`] if the card refuses, or a failure of the back end.
    pub fn create_queue_pair(
        &self,
        send_completions: &CompletionQueue,
        receive_completions: &CompletionQueue,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>, Error> {
        self.create(send_completions, receive_completions, None, options)
    }

    /// Creates a reliable connected queue pair that takes its receives from an SRQ of this domain.
    /// [`QueuePairOptions::receive_wqes_log2`] has no effect. The first queue pair of the SRQ on a completion queue reserves
    /// a CQE there for every receive that the SRQ can hold.
    ///
    /// # Errors
    ///
    /// As [`Self::create_queue_pair`]; [`Error::Mixed`] also if the SRQ belongs to another protection domain,
    /// [`Error::Exhausted`] also if the completion queue has too few CQEs that are not reserved.
    pub fn create_queue_pair_with_srq(
        &self,
        send_completions: &CompletionQueue,
        receive_completions: &CompletionQueue,
        srq: &SharedReceiveQueue,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>, Error> {
        if !Arc::ptr_eq(&self.shared, &srq.shared.domain) {
            let what = "queue pair and shared receive queue";
            return Err(Error::Mixed { what, owner: "protection domains" });
        }
        let options = QueuePairOptions { receive_wqes_log2: RING_LOG2_MIN, ..options.clone() };
        self.create(send_completions, receive_completions, Some(&srq.shared), &options)
    }

    fn create(
        &self,
        send_completions: &CompletionQueue,
        receive_completions: &CompletionQueue,
        srq: Option<&Arc<SharedReceiveQueueShared>>,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>, Error> {
        let device = &self.shared.device;
        if !device.limits.features.reliable_connected {
            return Err(Error::NotSupported { feature: "reliable_connected" });
        }
        for queue in [send_completions, receive_completions] {
            if !Arc::ptr_eq(device, queue.shared.device()) {
                return Err(Error::Mixed { what: "queue pair and completion queue", owner: "cards" });
            }
        }
        let limits = &device.limits.queues;
        let check = |name, log2: u32, limit: u8, contract: u32| {
            check_option(name, log2.into(), RING_LOG2_MIN.into(), u32::from(limit).min(contract).into())
        };
        let QueuePairOptions { send_slots_log2, receive_wqes_log2, signal_all, first_psn } = *options;
        check("send_slots_log2", send_slots_log2, limits.send_slots_log2, SEND_SLOTS_LOG2_MAX)?;
        check("receive_wqes_log2", receive_wqes_log2, limits.receive_wqes_log2, RECEIVE_WQES_LOG2_MAX)?;
        if let Some(psn) = first_psn {
            check_option("first_psn", psn.into(), 0, (PSN_COUNT - 1).into())?;
        }
        let memory = |log2: u32| Mapping::new(&device.function, WQE_SLOT_BYTES << log2, Purpose::Ring);
        let (send, sends) = WorkQueue::new(memory(send_slots_log2)?, send_slots_log2);
        let (receive, receives) = WorkQueue::new(memory(receive_wqes_log2)?, receive_wqes_log2);
        let (number, first_psn) = {
            let ids = &mut *lock(&device.ids);
            let number = ids.queue_pairs.allocate_unpredictable(&mut ids.rng, QPN_BITS, RESERVED_QPNS)?;
            (number, first_psn.unwrap_or_else(|| random_psn(&mut ids.rng)))
        };
        let body = CreateQueuePair {
            service: Service::ReliableConnected,
            shared_receive: srq.is_some(),
            signal_all,
            send_slots_log2: send_slots_log2 as u8,
            receive_wqes_log2: receive_wqes_log2 as u8,
            doorbell_page: device.doorbells.page(),
            domain: self.shared.number,
            send_completion_queue: send_completions.number(),
            receive_completion_queue: receive_completions.number(),
            shared_receive_queue: srq.map_or(0, |srq| srq.number()),
            send_base: send.memory.device_address(),
            receive_base: receive.memory.device_address(),
        };
        let srq = srq.map(|srq| srq.attach(&receive_completions.shared)).transpose();
        let srq = srq.inspect_err(|_| lock(&device.ids).queue_pairs.free(number))?;
        let object = NewObject {
            opcode: CommandOpcode::CreateQueuePair,
            number,
            body: Body::CreateQueuePair(body),
            memory: &[&send.memory, &receive.memory],
        };
        self.shared.create(object, |ids| {
            let reserved = srq.as_ref().map_or(0, SharedReceiveQueueUse::release);
            receive_completions.shared.unreserve(reserved);
            ids.queue_pairs.free(number);
        })?;
        let life = Arc::new(Life {
            domain: Arc::clone(&self.shared),
            number: Number::new(device, number),
            signal_all,
            send_completions: Arc::clone(&send_completions.shared),
            receive_completions: Arc::clone(&receive_completions.shared),
            has_srq: srq.is_some(),
            last_receive: Arc::default(),
            memory: [send.memory.share(), receive.memory.share()],
            first_psn: AtomicU32::new(first_psn),
            peer: AtomicU32::new(0),
            state: Mutex::new(QpState::Reset),
        });
        if life.has_srq {
            device.routes.add_last_receive(number, &life.last_receive);
        }
        let own = |send, receive, srq| {
            let number = Arc::clone(&life.number);
            Box::new(Completing { number, send, receive, srq })
        };
        if Arc::ptr_eq(&life.send_completions, &life.receive_completions) {
            life.send_completions.attach(number, own(Some(sends), Some(receives), srq));
        } else {
            life.send_completions.attach(number, own(Some(sends), None, None));
            life.receive_completions.attach(number, own(None, Some(receives), srq));
        }
        let send = SendHalf { life: Arc::clone(&life), queue: send, read_atomic: 0 };
        let receive = ReceiveHalf { life, queue: receive };
        Ok(QueuePair::of_halves(Box::new(Halves { send, receive })))
    }
}
