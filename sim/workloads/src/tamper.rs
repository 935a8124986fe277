//! Access to a card with which requests can be corrupted that the driver would never post: between the post and the fetch of
//! the card, as a faulty or hostile application could that writes its rings itself; and a card that is pulled out.
use rnic_driver::function::DmaSegment;
use rnic_driver::memory::Purpose;
use rnic_driver::{Bar, Function, FunctionError, Memory};
use rnic_layout::limits::WQE_SLOT_BYTES;
use rnic_layout::queue::send::Sge;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A slot of a send or receive queue.
pub type Slot = [u8; WQE_SLOT_BYTES];

/// A BAR of a card that is gone: reads return all ones.
struct Gone;

impl Bar for Gone {
    fn bytes(&self) -> u64 {
        u64::MAX
    }

    fn read32(&self, _: u64) -> u32 {
        u32::MAX
    }

    fn write32(&self, _: u64, _: u32) {}

    fn read64(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn write64(&self, _: u64, _: u64) {}
}

/// A function that records the addresses of rings.
pub struct Tamper {
    function: Arc<dyn Function>,
    rings: Mutex<Vec<Weak<Memory>>>,
    /// Hours since the card was pulled out, plus one; zero while it is present.
    hours_gone: AtomicU64,
}

impl Tamper {
    /// Wraps a function.
    pub fn new(function: Arc<dyn Function>) -> Tamper {
        Tamper { function, rings: Mutex::new(Vec::new()), hours_gone: AtomicU64::new(0) }
    }

    /// Pulls the card out. An hour passes whenever software waits for it.
    pub fn pull_out(&self) {
        self.hours_gone.fetch_max(1, Ordering::Relaxed);
    }

    fn hours_gone(&self) -> u64 {
        self.hours_gone.load(Ordering::Relaxed)
    }

    /// Changes every slot in a ring that holds this SGE: `change` receives the slot, and the offset of the SGE in it. Returns
    /// the number of slots. Slots of completed WQEs that hold it as well do not matter.
    pub fn spoil(&self, sge: Sge, change: impl Fn(&mut Slot, usize)) -> usize {
        let wanted = sge.to_bytes().expect("an SGE of whole bytes");
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.retain(|ring| ring.strong_count() > 0);
        let mut count = 0;
        for view in rings.iter().filter_map(|ring| Some(ring.upgrade()?.device_view())) {
            for offset in (0..view.bytes()).step_by(WQE_SLOT_BYTES) {
                let mut slot = [0; WQE_SLOT_BYTES];
                view.read(offset, &mut slot).expect("a ring is never on loan");
                let place = slot.chunks_exact(wanted.len()).position(|part| part == wanted);
                if let Some(place) = place {
                    change(&mut slot, place * wanted.len());
                    view.write(offset, &slot).expect("a ring is never on loan");
                    count += 1;
                }
            }
        }
        count
    }
}

impl Function for Tamper {
    fn config_space(&self) -> Result<Vec<u8>, FunctionError> {
        self.function.config_space()
    }

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        if self.hours_gone() > 0 { Ok(&Gone) } else { self.function.bar(index) }
    }

    fn allocate(&self, bytes: usize, purpose: Purpose) -> Result<Arc<Memory>, FunctionError> {
        let memory = self.function.allocate(bytes, purpose)?;
        if purpose == Purpose::Ring {
            self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&memory));
        }
        Ok(memory)
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        self.function.map(memory)
    }

    fn map_scattered(&self, memory: &Arc<Memory>) -> Result<Vec<DmaSegment>, FunctionError> {
        self.function.map_scattered(memory)
    }

    fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
        self.function.unmap(device_address)
    }

    fn interrupt_vectors(&self) -> u32 {
        self.function.interrupt_vectors()
    }

    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError> {
        self.function.take_interrupt(vector)
    }

    fn wait_interrupt(&self, vector: u32, until: Duration) -> Result<bool, FunctionError> {
        self.function.wait_interrupt(vector, until)
    }

    fn reset(&self) -> Result<(), FunctionError> {
        self.function.reset()
    }

    fn now(&self) -> Duration {
        self.function.now() + Duration::from_secs(3600 * self.hours_gone())
    }

    fn idle(&self) {
        if self.hours_gone() > 0 {
            self.hours_gone.fetch_add(1, Ordering::Relaxed);
        } else {
            self.function.idle();
        }
    }
}
