//! What the PCI function does to its card while both directions are full: it takes away the right to be bus master and gives it
//! back, and it resets.
//!
//! Meanwhile a monitor watches that nothing begins at the host of a card that is not bus master. When the right is back, all goes
//! on, and nothing is lost. A reset is acknowledged when the host owes the card nothing; then the card is as new.
use crate::hosts::{Host, any_pmtu, connect, cut, open};
use crate::lock;
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::function::REGISTER_BAR;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Bar, ConnectOptions, Function, FunctionError, QueuePair, RemoteMemory, RemoteRights, SendRequest,
    SharedRegion,
};
use rnic_layout::pci::{COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY};
use rnic_layout::registers::{
    Control, MAGIC, REG_CONTROL, REG_MAGIC, REG_OWN_MAC, REG_SCRATCH, REG_STATUS, Register, Status,
};
use rnic_machine::function::SharedWorld;
use rnic_machine::host::Traffic;
use rnic_stimulus::chance::Seed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Calls of `idle` for which a card is not bus master, at most.
const OFF_MAX: usize = 30;
/// Calls of `idle` after which what had begun has ended.
const SETTLE: usize = 60;
/// Queue pairs of each host, and messages of each.
const PAIRS: usize = 4;
const MESSAGES: usize = 12;
/// Bytes of each, for 64 bits of the datapath: wider cards must not be done before all are posted.
const BYTES: usize = 6 << 10;
/// Resets, and how often the host must have owed an answer by then, or by the last of these.
const ROUNDS: usize = 9;
const OWED_MIN: usize = 6;
const ROUNDS_MAX: usize = 3 * ROUNDS;
/// Calls of `idle` before a reset.
const IDLE_UNTIL: usize = 120;
/// Cycles of the core clock in which a card that its host answers is reset: it ends the messages that it has begun first, and gives up
/// after 64 times this at 250 MHz.
const RESET_CYCLES_MAX: u64 = 250_000;

/// Reads a register of a card.
fn read(function: &dyn Function, register: &Register) -> Result<u64> {
    Ok(function.bar(REGISTER_BAR)?.read64(register.offset.into()))
}

fn status(function: &dyn Function) -> Result<Status> {
    Ok(Status::parse(&read(function, &REG_STATUS)?.to_le_bytes())?)
}

/// Requests and interrupts of a card so far.
fn requests(world: &SharedWorld, card: usize) -> [u64; 3] {
    let Traffic { reads, writes, interrupts, .. } = lock(world).host(card).traffic();
    [reads, writes, interrupts]
}

/// How often cards have lost their right, and how often one had requests in flight then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub(crate) all: u64,
    pub(crate) busy: u64,
}

/// The first function, whose time passes with losses of the right of both.
struct Flickering {
    functions: [Arc<dyn Function>; 2],
    world: SharedWorld,
    random: Mutex<ChaCha8Rng>,
    losses: Arc<Mutex<Losses>>,
}

impl Flickering {
    fn inner(&self) -> &dyn Function {
        &*self.functions[0]
    }

    /// Takes the right from a card that has it, for a while.
    fn lose(&self, card: usize, idles: usize) -> Result<()> {
        let function = &*self.functions[card];
        let command = u16::from(function.config_space()?[usize::from(COMMAND)]);
        if command & COMMAND_BUS_MASTER == 0 {
            return Ok(());
        }
        let in_flight = lock(&self.world).host(card).in_flight();
        function.write_config(COMMAND, &(command & !COMMAND_BUS_MASTER).to_le_bytes())?;
        (0..idles).for_each(|_| function.idle());
        ensure!(read(function, &REG_MAGIC)? == MAGIC && !status(function)?.bus_master);
        if idles == OFF_MAX {
            // What was requested has been answered.
            (0..SETTLE).for_each(|_| function.idle());
            let before = requests(&self.world, card);
            (0..SETTLE).for_each(|_| function.idle());
            ensure!(requests(&self.world, card) == before, "requests without the right to them");
            let in_flight = lock(&self.world).host(card).in_flight();
            ensure!(in_flight == (0, 0), "{in_flight:?} in flight");
        }
        function.write_config(COMMAND, &command.to_le_bytes())?;
        let mut losses = self.losses.lock().expect("nobody has panicked");
        losses.all += 1;
        losses.busy += u64::from(in_flight != (0, 0));
        Ok(())
    }
}

impl Function for Flickering {
    rnic_workloads::forward_to_inner!(config_space write_config ownership map map_scattered unmap interrupt_vectors take_interrupt reset now);

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        self.inner().bar(index)
    }

    fn idle(&self) {
        self.inner().idle();
        let mut random = self.random.lock().expect("nobody has panicked");
        if random.random_bool(0.05) {
            let idles = if random.random_bool(0.1) { OFF_MAX } else { random.random_range(0..OFF_MAX) };
            let card = random.random_range(0..2);
            self.lose(card, idles).expect("the card answers, and obeys");
        }
    }
}

/// Two functions whose cards lose their right to be bus master now and then, and how often they have.
pub(crate) fn flickering(
    world: &SharedWorld,
    functions: [Arc<dyn Function>; 2],
    seed: Seed,
) -> ([Arc<dyn Function>; 2], Arc<Mutex<Losses>>) {
    let losses = Arc::default();
    let first = Flickering {
        functions: functions.clone(),
        world: Arc::clone(world),
        random: Mutex::new(seed.stream("flickering")),
        losses: Arc::clone(&losses),
    };
    let [_, second] = functions;
    ([Arc::new(first), second], losses)
}

/// One end of a pair.
pub(crate) struct End {
    pub(crate) queue_pair: QueuePair<ReadyToSend>,
    /// Window of the peer.
    pub(crate) remote: RemoteMemory,
    /// Window for the peer.
    pub(crate) window: SharedRegion,
}

/// Bytes of a message, which each window has room for.
pub(crate) fn message_bytes(width_bits: u32) -> usize {
    BYTES * width_bits as usize / 64
}

/// Connects queue pairs of both hosts, each with a window of some bytes for its peer.
pub(crate) fn pairs(hosts: &[Host; 2], bytes: usize, random: &mut ChaCha8Rng) -> Result<Vec<[End; 2]>> {
    let rights = RemoteRights { read: true, ..RemoteRights::WRITE };
    let pair = |_| -> Result<[End; 2]> {
        let queue_pairs = [hosts[0].queue_pair(rights)?, hosts[1].queue_pair(rights)?];
        let [first, second] = connect(queue_pairs, any_pmtu(random), &ConnectOptions::default())?;
        let windows = [hosts[0].domain.share(bytes, rights)?, hosts[1].domain.share(bytes, rights)?];
        let remotes = [windows[1].remote(), windows[0].remote()];
        let [own, peer] = windows;
        Ok([
            End { queue_pair: first, remote: remotes[0], window: own },
            End { queue_pair: second, remote: remotes[1], window: peer },
        ])
    };
    (0..PAIRS).map(pair).collect()
}

/// Fills both directions with WRITEs and READs of whole windows.
pub(crate) fn fill(hosts: &[Host; 2], pairs: &mut [[End; 2]]) -> Result<()> {
    for pair in pairs {
        for (side, end) in pair.iter_mut().enumerate() {
            let bytes = end.window.len();
            let mut memory = Some(hosts[side].domain.allocate(MESSAGES * bytes)?);
            for message in 0..MESSAGES {
                let piece = cut(&mut memory, 0, bytes)?;
                let remote = RemoteMemory { bytes: bytes as u64, ..end.remote };
                let wr_id = message as u64;
                let request = if message % 3 == 0 {
                    SendRequest::read(wr_id, remote)
                } else {
                    SendRequest::write(wr_id, remote)
                };
                let request = request.sge(piece).signalled();
                end.queue_pair.post_send(request)?;
            }
        }
    }
    Ok(())
}

/// Kinds of resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By the configuration space, which also ends the right to be bus master.
    Function,
    /// By the port of the card, which keeps the right and drains.
    Port,
    /// By the register `control`, without the right to be bus master.
    Register,
}

/// Resets a card, which must be done before `end`.
fn reset(world: &SharedWorld, function: &dyn Function, card: usize, kind: Kind, end: Duration) -> Result<()> {
    match kind {
        Kind::Function => {
            function.reset()?;
            ensure!(read(function, &REG_MAGIC)? == u64::MAX, "the BARs are off");
            function.write_config(COMMAND, &COMMAND_MEMORY.to_le_bytes())?;
        }
        Kind::Port => ensure!(lock(world).reset_function(card), "no acknowledgement"),
        Kind::Register => {
            function.write_config(COMMAND, &COMMAND_MEMORY.to_le_bytes())?;
            let value = Control { reset: true, ..Control::at_reset() }.to_bytes()?;
            function.bar(REGISTER_BAR)?.write64(REG_CONTROL.offset.into(), u64::from_le_bytes(value));
            while status(function)?.resetting && function.now() < end {}
        }
    }
    Ok(())
}

/// Resets a card of two in full traffic of messages of some bytes, in each way; each next round opens both again. There are more rounds
/// if the host has seldom owed an answer: beside a slow card it seldom does.
pub(crate) fn resets(
    world: &SharedWorld,
    functions: &[Arc<dyn Function>; 2],
    bytes: usize,
    seed: Seed,
) -> Result<()> {
    let mut random = seed.stream("resets");
    let longest = lock(world).card(0).options().rates().cycles_ps(RESET_CYCLES_MAX);
    let longest = Duration::from_nanos(longest / 1_000);
    let mut owed = 0;
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && owed >= OWED_MIN {
            break;
        }
        let hosts = open(functions.clone(), Seed(seed.0 + round as u64))?;
        let mut pairs = pairs(&hosts, bytes, &mut random)?;
        fill(&hosts, &mut pairs)?;
        (0..random.random_range(0..IDLE_UNTIL)).for_each(|_| functions[0].idle());
        let kind = [Kind::Function, Kind::Port, Kind::Register][round % 3];
        let card = random.random_range(0..2);
        let function = &*functions[card];
        function.bar(REGISTER_BAR)?.write64(REG_SCRATCH.offset.into(), 5);
        owed += usize::from(lock(world).host(card).in_flight() != (0, 0));
        let (begin, since) = (function.now(), [0, 1].map(|card| lock(world).card(card).seen()));
        reset(world, function, card, kind, begin + longest)
            .with_context(|| format!("round {round}, {kind:?}"))?;
        let time = function.now() - begin;
        ensure!(time < longest, "round {round}, {kind:?}: {time:?}");
        // Nothing is in flight, nothing begins, and the registers are as new.
        let in_flight = lock(world).host(card).in_flight();
        ensure!(in_flight == (0, 0), "round {round}, {kind:?}: {in_flight:?} in flight");
        let before = requests(world, card);
        for register in [REG_CONTROL, REG_SCRATCH, REG_OWN_MAC] {
            ensure!(read(function, &register)? == 0, "round {round}, {kind:?}: `{}`", register.name);
        }
        let found = status(function)?;
        ensure!(found.ready && found.drained && !found.fatal, "round {round}, {kind:?}: {found:?}");
        (0..SETTLE).for_each(|_| function.idle());
        ensure!(requests(world, card) == before, "round {round}, {kind:?}: a card at rest reaches its host");
        // The driver finds no card, so it need not wait for answers to what it destroys.
        function.write_config(COMMAND, &[0; 2])?;
        drop((pairs, hosts));
        lock(world).excuse_resets(&since)?;
    }
    ensure!(owed >= OWED_MIN, "the host owed answers {owed} times");
    Ok(())
}
