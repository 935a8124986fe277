//! A function that replaces the next command on its way from the driver to the card, so that any command can be sent while the
//! driver runs. The driver receives the answer as if it were that of its own command.
//!
//! It also records the driver's mappings, so that a test can unmap memory that the card uses.
use anyhow::{Context, Result};
use rnic_driver::function::REGISTER_BAR;
use rnic_driver::{Bar, Function, FunctionError, Memory};
use rnic_layout::admin::{ANSWER_BYTES, Answer, COMMAND_BYTES};
use rnic_layout::limits::RING_LOG2_MIN;
use rnic_layout::registers::{
    REG_ADMIN_ANSWER_BASE, REG_ADMIN_COMMAND_BASE, REG_ADMIN_DOORBELL, REG_TABLE_SIZES, TableSizes,
};
use rnic_machine::function::{SharedWorld, SimulatedFunction};
use rnic_machine::host::Access;
use std::sync::{Arc, Mutex, MutexGuard};

/// Offset of the tag of a command, which the driver chooses.
const TAG: std::ops::Range<usize> = 2..4;
/// Offset of the opcode, in a command and in an answer.
const COMMAND_OPCODE: usize = 0;
const ANSWER_OPCODE: usize = 2;
/// Entries of the driver's admin rings.
const ENTRIES: u64 = 1 << RING_LOG2_MIN;

#[derive(Default)]
struct State {
    commands: u64,
    answers: u64,
    /// Replacement of the next command.
    pending: Option<[u8; COMMAND_BYTES]>,
    /// Address of the answer, previous contents of its slot, and the opcode that the driver expects.
    awaited: Option<(u64, [u8; ANSWER_BYTES], u8)>,
    answer: Option<Answer>,
    /// Sizes of the card's tables as the driver reads them, if they are not the right ones.
    table_sizes: Option<TableSizes>,
    /// Address and length of all mappings, in order.
    mapped: Vec<(u64, usize)>,
}

/// Shared state.
struct Shared {
    function: SimulatedFunction,
    world: SharedWorld,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody has panicked")
    }

    fn read<const BYTES: usize>(&self, address: u64) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let world = self.world.lock().expect("nobody has panicked");
        world.host(0).memory().read_bytes(address, &mut bytes).expect("the rings are mapped");
        bytes
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        let mut world = self.world.lock().expect("nobody has panicked");
        world.host_mut(0).memory_mut().write_bytes(address, bytes).expect("the rings are mapped");
    }

    /// Software writes a register.
    fn hears(&self, offset: u64, value: u64) {
        let mut state = self.state();
        if offset == u64::from(REG_ADMIN_COMMAND_BASE.offset) {
            state.commands = value;
        } else if offset == u64::from(REG_ADMIN_ANSWER_BASE.offset) {
            state.answers = value;
        } else if offset == u64::from(REG_ADMIN_DOORBELL.offset)
            && let Some(mut command) = state.pending.take()
        {
            let slot = (value & 0xffff).wrapping_sub(1) & (ENTRIES - 1);
            let address = state.commands + slot * COMMAND_BYTES as u64;
            let asked: [u8; COMMAND_BYTES] = self.read(address);
            command[TAG].copy_from_slice(&asked[TAG]);
            self.write(address, &command);
            let answer = state.answers + slot * ANSWER_BYTES as u64;
            state.awaited = Some((answer, self.read(answer), asked[COMMAND_OPCODE]));
        }
    }

    /// Time has advanced.
    fn look(&self) {
        let mut state = self.state();
        let Some((address, before, opcode)) = state.awaited else { return };
        let mut answer: [u8; ANSWER_BYTES] = self.read(address);
        if answer != before {
            state.awaited = None;
            state.answer = Some(Answer::parse(&answer).expect("the card answers as it should"));
            answer[ANSWER_OPCODE] = opcode;
            self.write(address, &answer);
        }
    }
}

struct Registers(Arc<Shared>);

impl Registers {
    fn inner(&self) -> &dyn Bar {
        self.0.function.bar(REGISTER_BAR).expect("there is one")
    }
}

impl Bar for Registers {
    rnic_workloads::forward_to_inner!(bytes read32 write32);

    fn read64(&self, offset: u64) -> u64 {
        match self.0.state().table_sizes {
            Some(sizes) if offset == u64::from(REG_TABLE_SIZES.offset) => {
                u64::from_le_bytes(sizes.to_bytes().expect("a legal value"))
            }
            _ => self.inner().read64(offset),
        }
    }

    fn write64(&self, offset: u64, value: u64) {
        self.0.hears(offset, value);
        self.inner().write64(offset, value);
    }
}

/// The function.
pub(crate) struct Interposer {
    shared: Arc<Shared>,
    registers: Registers,
}

impl Interposer {
    pub(crate) fn new(world: SharedWorld) -> Interposer {
        let function = SimulatedFunction::new(Arc::clone(&world), 0);
        let shared = Arc::new(Shared { function, world, state: Mutex::default() });
        Interposer { registers: Registers(Arc::clone(&shared)), shared }
    }

    fn inner(&self) -> &SimulatedFunction {
        &self.shared.function
    }

    /// Makes the driver believe in tables of these sizes, from its start on.
    pub(crate) fn pretend_tables(&self, sizes: TableSizes) {
        self.shared.state().table_sizes = Some(sizes);
    }

    /// Replaces the next command, except for its tag.
    pub(crate) fn replace_next(&self, command: [u8; COMMAND_BYTES]) {
        self.shared.state().pending = Some(command);
    }

    /// Answer of the card to the replacement.
    pub(crate) fn answer(&self) -> Result<Answer> {
        self.shared.state().answer.take().context("no command was exchanged")
    }

    /// Address and length of the driver's mappings; the last one is the newest.
    pub(crate) fn mapped(&self) -> Vec<(u64, usize)> {
        self.shared.state().mapped.clone()
    }

    /// Unmaps memory while a function runs. Returns how many accesses of the card were refused, all of which must be in that
    /// memory.
    pub(crate) fn without<T>(
        &self,
        (address, bytes): (u64, usize),
        during: impl FnOnce() -> Result<T>,
    ) -> Result<(T, usize)> {
        let world = || self.shared.world.lock().expect("nobody has panicked");
        let buffer = world().host_mut(0).memory_mut().unmap(address)?;
        let result = during();
        let mut world = world();
        let memory = world.host_mut(0).memory_mut();
        memory.map(address, buffer, 0, bytes, Access::ReadWrite)?;
        let faults = memory.take_faults();
        let range = address..address + bytes as u64;
        anyhow::ensure!(faults.iter().all(|fault| range.contains(&fault.address)), "{faults:x?}");
        Ok((result?, faults.len()))
    }
}

impl Function for Interposer {
    rnic_workloads::forward_to_inner!(config_space write_config ownership unmap interrupt_vectors take_interrupt reset now);

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        if index == REGISTER_BAR { Ok(&self.registers) } else { self.inner().bar(index) }
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        let address = self.inner().map(memory)?;
        self.shared.state().mapped.push((address, memory.device_view().bytes()));
        Ok(address)
    }

    fn idle(&self) {
        self.inner().idle();
        self.shared.look();
    }
}
