//! Event queues: asynchronous events of the card, and the events of completion queues that threads wait for.
//!
//! Event queue 0 belongs to the device and exists from the start. Further queues serve to give the completion queues of
//! different threads different interrupt vectors. Any thread that reads an event queue delivers every event in it: to the
//! completion queue that waits for it, or to the list of asynchronous events.

use crate::device::{Device, DeviceShared, NewObject};
use crate::error::{Error, check_option};
use crate::event_ring::{AsynchronousEvent, EventRing};
use crate::sync::lock;
use rnic_layout::admin::{Body, CommandOpcode, CreateEventQueue};
use rnic_layout::limits::{EQES_LOG2_MAX, RING_LOG2_MIN};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Parameters of an event queue.
#[derive(Clone, Debug)]
pub struct EventQueueOptions {
    /// log2 of the number of EQEs, from 6 to the card's limit. While half of them are unread, further events of completion
    /// queues wait on the card.
    pub entries_log2: u32,
    /// Index of the interrupt vector. If the back end delivers fewer vectors, waiting polls.
    pub vector: u32,
}

impl Default for EventQueueOptions {
    fn default() -> Self {
        Self { entries_log2: RING_LOG2_MIN, vector: 0 }
    }
}

/// An event queue that was created by command. Dropping it destroys it on the card.
struct CreatedQueue {
    device: Arc<DeviceShared>,
    ring: EventRing,
}

impl Drop for CreatedQueue {
    fn drop(&mut self) {
        let (number, memory) = (self.ring.number(), self.ring.memory());
        if self.device.destroy(CommandOpcode::DestroyEventQueue, number, &[&memory]) {
            lock(&self.device.ids).event_queues.free(number);
        }
    }
}

#[derive(Clone)]
enum Handle {
    /// Event queue 0, which belongs to the device.
    Device(Arc<DeviceShared>),
    Created(Arc<CreatedQueue>),
}

/// Event queue. Clones are cheap and refer to the same queue, which is destroyed with the last of them; queue 0 remains.
#[derive(Clone)]
pub struct EventQueue(Handle);

impl Device {
    /// Returns event queue 0, which reports the events of the device, the port, queue pairs and SRQs.
    pub fn events(&self) -> EventQueue {
        EventQueue(Handle::Device(Arc::clone(&self.shared)))
    }

    /// Creates an event queue.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if an option is outside the card's limits, [`Error::Exhausted`] if all event queues are in use,
    /// [`Error::Command`] if the card refuses, or a failure of the back end.
    pub fn create_event_queue(&self, options: &EventQueueOptions) -> Result<EventQueue, Error> {
        let device = &self.shared;
        let limit = u32::from(device.limits.queues.eqes_log2).min(EQES_LOG2_MAX);
        let log2 = options.entries_log2;
        check_option("event_queue.entries_log2", log2.into(), RING_LOG2_MIN.into(), limit.into())?;
        let vectors = u64::from(device.limits.geometry.interrupt_vectors.max(1));
        check_option("event_queue.vector", options.vector.into(), 0, vectors - 1)?;
        let number = lock(&device.ids).event_queues.allocate_lowest()?;
        let ring = EventRing::new(
            &device.function,
            device.doorbells.clone(),
            number,
            options.vector,
            log2,
            &device.routes,
        );
        let ring = ring.inspect_err(|_| lock(&device.ids).event_queues.free(number))?;
        let memory = ring.memory();
        let body = CreateEventQueue {
            entries_log2: log2 as u8,
            vector: options.vector as u8,
            doorbell_page: device.doorbells.page(),
            base: memory.device_address(),
        };
        let object = NewObject {
            opcode: CommandOpcode::CreateEventQueue,
            number,
            body: Body::CreateEventQueue(body),
            memory: &[&memory],
        };
        device.create(object, |ids| {
            ids.event_queues.free(number);
        })?;
        let queue = CreatedQueue { device: Arc::clone(device), ring };
        Ok(EventQueue(Handle::Created(Arc::new(queue))))
    }
}

impl EventQueue {
    pub(crate) fn ring(&self) -> &EventRing {
        match &self.0 {
            Handle::Device(device) => &device.events,
            Handle::Created(queue) => &queue.ring,
        }
    }

    pub(crate) fn device(&self) -> &Arc<DeviceShared> {
        match &self.0 {
            Handle::Device(device) => device,
            Handle::Created(queue) => &queue.device,
        }
    }

    /// Number of the event queue on the card.
    pub fn number(&self) -> u32 {
        self.ring().number()
    }

    /// Takes the oldest asynchronous event, or returns `None` if there is no event. Does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::IllegalEvents`] once if the card wrote illegal EQEs, and [`Error::EventsLost`] once if it found no room for
    /// EQEs; the events of the others follow.
    pub fn poll(&self) -> Result<Option<AsynchronousEvent>, Error> {
        self.ring().collect();
        self.ring().check()?;
        self.ring().take()
    }

    /// Waits up to `limit`, in the time of the [`Function`](crate::Function), for an asynchronous event. Returns `None` if
    /// none arrives.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`], or a failure of the back end.
    pub fn wait(&self, limit: Duration) -> Result<Option<AsynchronousEvent>, Error> {
        let ring = self.ring();
        ring.wait(self.device().function.now().saturating_add(limit), || ring.is_pending())?;
        ring.take()
    }

    /// File descriptor for an event loop of the application: readable while the vector of this queue has an interrupt that
    /// nobody has taken. `None` if the back end has none, and the application polls or waits with the driver.
    ///
    /// A loop arms its completion queues ([`CompletionQueue::arm`](crate::CompletionQueue::arm)), polls them once more, arms the
    /// event queue ([`Self::arm`]), sleeps until the file descriptor is readable, calls [`Self::take_interrupt`], and reads what has
    /// arrived. Event queues that share a vector share it.
    ///
    /// # Errors
    ///
    /// A failure of the back end.
    pub fn interrupt_fd(&self) -> Result<Option<BorrowedFd<'_>>, Error> {
        let vector = self.ring().delivered_vector();
        Ok(vector.map_or(Ok(None), |vector| self.device().function.interrupt_fd(vector))?)
    }

    /// Requests one interrupt, for the next event of this queue, or at once if there is one that nobody has read.
    pub fn arm(&self) {
        self.ring().arm();
    }

    /// Takes the interrupt of the vector of this queue. Returns whether there was one since the last call.
    ///
    /// # Errors
    ///
    /// A failure of the back end.
    pub fn take_interrupt(&self) -> Result<bool, Error> {
        let vector = self.ring().delivered_vector();
        Ok(vector.map_or(Ok(false), |vector| self.device().function.take_interrupt(vector))?)
    }

    /// Number of asynchronous events that were discarded because the application did not poll them: by the driver, oldest
    /// first, and by the card, newest first.
    pub fn lost(&self) -> u64 {
        self.ring().lost()
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventQueue({})", self.number())
    }
}
