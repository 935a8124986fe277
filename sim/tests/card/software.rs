//! Faults of software on the whole machine: a driver that is out of order is caught, although no simulated time passes in it.
//!
//! [`Hasty`] is a function between the driver and the card that commits one fault. The driver is as it should be, so what it
//! does through this function is what a wrong driver would do.
use crate::hosts::{Host, any_pmtu, connect, open};
use anyhow::{Context, Result, ensure};
use rnic_driver::function::{DOORBELL_BAR, REGISTER_BAR};
use rnic_driver::memory::{DeviceView, Purpose};
use rnic_driver::{
    Bar, CompletionQueueOptions, ConnectOptions, Function, FunctionError, Memory, ReceiveRequest,
    RemoteRights, SendRequest,
};
use rnic_layout::registers::REG_ADMIN_DOORBELL;
use rnic_machine::function::SharedWorld;
use rnic_machine::monitor::Rule;
use rnic_stimulus::chance::Seed;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A ring, and what it held at the last doorbell.
struct Ring {
    address: u64,
    view: DeviceView,
    before: Vec<u8>,
}

impl Ring {
    fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.view.bytes()];
        self.view.read(0, &mut bytes).expect("a ring is never on loan");
        bytes
    }
}

/// State that the function shares with its BARs.
struct Shared {
    function: Arc<dyn Function>,
    rings: Mutex<Vec<Ring>>,
    /// Doorbells and commands overtake what they post.
    is_hasty: AtomicBool,
}

impl Shared {
    fn rings(&self) -> MutexGuard<'_, Vec<Ring>> {
        self.rings.lock().expect("nobody has panicked")
    }

    /// Writes a doorbell before the stores that precede it, if the function is hasty.
    fn ring(&self, write: impl FnOnce()) {
        let mut rings = self.rings();
        let stores: Vec<Vec<u8>> = rings.iter().map(Ring::contents).collect();
        if self.is_hasty.load(Ordering::Relaxed) {
            for (ring, stored) in rings.iter().zip(&stores) {
                if ring.before != *stored {
                    ring.view.write(0, &ring.before).expect("a ring is never on loan");
                }
            }
        }
        write();
        for (ring, stored) in rings.iter_mut().zip(stores) {
            if ring.contents() != stored {
                ring.view.write(0, &stored).expect("a ring is never on loan");
            }
            ring.before = stored;
        }
    }
}

/// A BAR of the function.
struct HastyBar {
    shared: Arc<Shared>,
    index: u8,
}

impl HastyBar {
    fn inner(&self) -> &dyn Bar {
        self.shared.function.bar(self.index).expect("the function has it")
    }
}

impl Bar for HastyBar {
    rnic_workloads::forward_to_inner!(bytes read32 write32 read64);

    fn write64(&self, offset: u64, value: u64) {
        if self.index == DOORBELL_BAR || offset == u64::from(REG_ADMIN_DOORBELL.offset) {
            self.shared.ring(|| self.inner().write64(offset, value));
        } else {
            self.inner().write64(offset, value);
        }
    }
}

/// The function.
struct Hasty {
    shared: Arc<Shared>,
    bars: [HastyBar; 2],
}

impl Hasty {
    fn new(function: Arc<dyn Function>) -> Hasty {
        let shared = Shared { function, rings: Mutex::default(), is_hasty: AtomicBool::new(false) };
        let shared = Arc::new(shared);
        let bars = [REGISTER_BAR, DOORBELL_BAR].map(|index| HastyBar { shared: Arc::clone(&shared), index });
        Hasty { shared, bars }
    }

    fn inner(&self) -> &dyn Function {
        &*self.shared.function
    }

    /// From now on doorbells overtake what they post.
    fn hurry(&self, is_hasty: bool) {
        self.shared.is_hasty.store(is_hasty, Ordering::Relaxed);
    }

    /// Device address of the newest ring.
    fn newest_ring(&self) -> Result<u64> {
        Ok(self.shared.rings().last().context("there are rings")?.address)
    }
}

impl Function for Hasty {
    rnic_workloads::forward_to_inner!(config_space write_config ownership interrupt_vectors take_interrupt reset now idle);

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        let bar = self.bars.iter().find(|bar| bar.index == index);
        bar.map(|bar| bar as &dyn Bar).ok_or(FunctionError::NoBar { index })
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        let address = self.inner().map(memory)?;
        if memory.purpose() == Purpose::Ring {
            let view = memory.device_view();
            let before = vec![0; view.bytes()];
            self.shared.rings().push(Ring { address, view, before });
        }
        Ok(address)
    }

    fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
        self.shared.rings().retain(|ring| ring.address != device_address);
        self.inner().unmap(device_address)
    }
}

/// Takes the violations that the monitors of card 0 have seen.
fn violations(world: &SharedWorld) -> Vec<Rule> {
    let mut world = crate::lock(world);
    world.card_mut(0).log_mut().take().iter().map(|violation| violation.rule).collect()
}

/// A message from host 0 to host 1, and one back, of which host 0 posts the SEND and the receive.
fn exchange(hosts: &[Host; 2], seed: Seed, hurry: impl Fn(usize)) -> Result<()> {
    let pmtu = any_pmtu(&mut seed.stream("pmtu"));
    let [first, second] = hosts;
    let ends = [first.queue_pair(RemoteRights::NONE)?, second.queue_pair(RemoteRights::NONE)?];
    let [mut left, mut right] = connect(ends, pmtu, &ConnectOptions::default())?;
    let receive =
        |host: &Host| -> Result<ReceiveRequest> { Ok(ReceiveRequest::new(1).sge(host.domain.allocate(64)?)) };
    right.post_receive(receive(second)?)?;
    second.device.check()?;
    hurry(0);
    left.post_send(SendRequest::send(2).inline(b"there").signalled())?;
    hurry(1);
    left.post_receive(receive(first)?)?;
    hurry(2);
    // The doorbells arrive. No register is read, as that fails once a rule is violated.
    for _ in 0..20 {
        first.function.idle();
    }
    right.post_send(SendRequest::send(3).inline(b"back").signalled())?;
    for _ in 0..200 {
        first.function.idle();
    }
    Ok(())
}

/// A driver that writes a doorbell before the WQE, and one that writes it before a command, are caught; one that does neither
/// is not.
pub(crate) fn doorbells(world: &SharedWorld, functions: [Arc<dyn Function>; 2], seed: Seed) -> Result<()> {
    let [first, second] = functions;
    let hasty = Arc::new(Hasty::new(first));
    let hosts = open([hasty.clone(), second], seed)?;
    exchange(&hosts, seed, |_| ())?;
    ensure!(violations(world).is_empty(), "nothing is wrong yet");
    ensure!(hosts.iter().map(|host| host.poll().map(|done| done.len())).sum::<Result<usize>>()? == 4);
    for late in 0..2 {
        exchange(&hosts, seed, |step| hasty.hurry(step == late))?;
        let seen = violations(world);
        ensure!(!seen.is_empty() && seen.iter().all(|&rule| rule == Rule::Posted), "{late}: {seen:?}");
        for host in &hosts {
            host.poll()?;
        }
    }
    hasty.hurry(true);
    // The card may execute the right command, as no time passes before it is written.
    let told = hosts[0].device.create_completion_queue(&hosts[0].device.events(), &Default::default());
    hasty.hurry(false);
    let seen = violations(world);
    ensure!(seen.contains(&Rule::Posted), "{told:?}, {seen:?}");
    Ok(())
}

/// A driver that unmaps a ring before the card has destroyed its queue is caught.
pub(crate) fn unmapping(world: &SharedWorld, functions: [Arc<dyn Function>; 2], seed: Seed) -> Result<()> {
    let [first, second] = functions;
    let hasty = Arc::new(Hasty::new(first));
    let hosts = open([hasty.clone(), second], seed)?;
    let device = &hosts[0].device;
    let options = CompletionQueueOptions::default();
    drop(device.create_completion_queue(&device.events(), &options)?);
    ensure!(violations(world).is_empty(), "the driver unmaps after the destruction");
    let queue = device.create_completion_queue(&device.events(), &options)?;
    let ring = hasty.newest_ring()?;
    hasty.unmap(ring)?;
    ensure!(violations(world) == [Rule::Release], "the ring belongs to completion queue {}", queue.number());
    Ok(())
}
