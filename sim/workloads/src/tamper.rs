//! Access to a card with which requests can be corrupted that the driver would never post: between their store and their
//! doorbell, as a faulty or hostile application could that writes its rings itself; and a card that is pulled out.
use rnic_driver::function::DOORBELL_BAR;
use rnic_driver::memory::Purpose;
use rnic_driver::{Bar, Function, FunctionError, Memory};
use rnic_layout::limits::WQE_SLOT_BYTES;
use rnic_layout::queue::send::Sge;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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

/// A change of every slot that holds an SGE.
struct Spoil {
    sge: Sge,
    change: Box<dyn Fn(&mut Slot, usize) + Send>,
    /// Slots that it has changed; `None` before the next doorbell.
    count: Option<usize>,
}

/// What has been requested, and where the rings are.
#[derive(Default)]
struct Rings {
    memory: Vec<Weak<Memory>>,
    spoils: Vec<Spoil>,
}

impl Rings {
    /// Executes the changes that wait for a doorbell.
    fn spoil(&mut self) {
        self.memory.retain(|ring| ring.strong_count() > 0);
        let Rings { memory, spoils } = self;
        for spoil in spoils.iter_mut().filter(|spoil| spoil.count.is_none()) {
            let wanted = spoil.sge.to_bytes().expect("an SGE of whole bytes");
            let mut count = 0;
            for view in memory.iter().filter_map(|ring| Some(ring.upgrade()?.device_view())) {
                for offset in (0..view.bytes()).step_by(WQE_SLOT_BYTES) {
                    let mut slot = [0; WQE_SLOT_BYTES];
                    view.read(offset, &mut slot).expect("a ring is never on loan");
                    let place = slot.chunks_exact(wanted.len()).position(|part| part == wanted);
                    if let Some(place) = place {
                        (spoil.change)(&mut slot, place * wanted.len());
                        view.write(offset, &slot).expect("a ring is never on loan");
                        count += 1;
                    }
                }
            }
            spoil.count = Some(count);
        }
    }
}

/// State that the function shares with its doorbells.
struct Shared {
    function: Arc<dyn Function>,
    rings: Mutex<Rings>,
}

impl Shared {
    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Doorbells, before which rings are corrupted.
struct Doorbells(Arc<Shared>);

impl Doorbells {
    fn inner(&self) -> &dyn Bar {
        self.0.function.bar(DOORBELL_BAR).expect("the function has doorbells")
    }
}

impl Bar for Doorbells {
    crate::forward_to_inner!(bytes read32 read64);

    fn write32(&self, offset: u64, value: u32) {
        self.0.rings().spoil();
        self.inner().write32(offset, value);
    }

    fn write64(&self, offset: u64, value: u64) {
        self.0.rings().spoil();
        self.inner().write64(offset, value);
    }
}

/// A function that records the addresses of rings.
pub struct Tamper {
    shared: Arc<Shared>,
    doorbells: Doorbells,
    /// Hours since the card was pulled out, plus one; zero while it is present.
    hours_gone: AtomicU64,
}

impl Tamper {
    /// Wraps a function.
    pub fn new(function: Arc<dyn Function>) -> Tamper {
        let shared = Arc::new(Shared { function, rings: Mutex::default() });
        Tamper { doorbells: Doorbells(Arc::clone(&shared)), shared, hours_gone: AtomicU64::new(0) }
    }

    fn inner(&self) -> &dyn Function {
        &*self.shared.function
    }

    /// Pulls the card out. An hour passes whenever software waits for it.
    pub fn pull_out(&self) {
        self.hours_gone.fetch_max(1, Ordering::Relaxed);
    }

    fn hours_gone(&self) -> u64 {
        self.hours_gone.load(Ordering::Relaxed)
    }

    /// At the next doorbell, and before it, changes every slot in a ring that holds this SGE: `change` receives the slot, and
    /// the offset of the SGE in it. Slots of completed WQEs that hold it as well do not matter.
    pub fn spoil(&self, sge: Sge, change: impl Fn(&mut Slot, usize) + Send + 'static) {
        self.shared.rings().spoils.push(Spoil { sge, change: Box::new(change), count: None });
    }

    /// Number of slots that each change since the last call has changed, in order: zero for one that no doorbell has followed,
    /// which is discarded.
    pub fn spoiled(&self) -> Vec<usize> {
        let spoils = std::mem::take(&mut self.shared.rings().spoils);
        spoils.into_iter().map(|spoil| spoil.count.unwrap_or(0)).collect()
    }
}

impl Function for Tamper {
    crate::forward_to_inner!(config_space write_config ownership map map_scattered unmap interrupt_vectors take_interrupt wait_interrupt reset);

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        match index {
            _ if self.hours_gone() > 0 => Ok(&Gone),
            DOORBELL_BAR => Ok(&self.doorbells),
            _ => self.inner().bar(index),
        }
    }

    fn allocate(&self, bytes: usize, purpose: Purpose) -> Result<Arc<Memory>, FunctionError> {
        let memory = self.inner().allocate(bytes, purpose)?;
        if purpose == Purpose::Ring {
            self.shared.rings().memory.push(Arc::downgrade(&memory));
        }
        Ok(memory)
    }

    fn now(&self) -> Duration {
        self.inner().now() + Duration::from_secs(3600 * self.hours_gone())
    }

    fn idle(&self) {
        if self.hours_gone() > 0 {
            self.hours_gone.fetch_add(1, Ordering::Relaxed);
        } else {
            self.inner().idle();
        }
    }
}
