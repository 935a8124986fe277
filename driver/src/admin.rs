//! Client of the admin queue: issues one command at a time and waits for its answer.

use crate::error::{CommandError, Error};
use crate::function::Function;
use crate::mapping::Mapping;
use crate::memory::Purpose;
use crate::registers::Registers;
use crate::ring::{PhaseRing, WorkRing, write_slot};
use crate::waits::Waits;
use rnic_layout::admin::{
    ANSWER_BYTES, Answer, Body, COMMAND_BYTES, Command, CommandHeader, CommandOpcode, CommandStatus,
};
use rnic_layout::registers::{
    AdminAnswerBase, AdminCommandBase, AdminControl, AdminDoorbell, AdminProgress, Fatal, FatalCode, Status,
};
use std::sync::Arc;
use std::time::Duration;

/// log2 of the entries of both rings. One command is outstanding at a time, so the smallest rings suffice.
const ENTRIES_LOG2: u32 = rnic_layout::limits::RING_LOG2_MIN;
/// Width of the free-running indices in bits.
const INDEX_BITS: u32 = 16;
/// Number of `idle` calls between two checks of the state of the card.
const IDLES_PER_CHECK: u32 = 256;

/// Command that failed.
pub(crate) struct CommandFailure {
    /// Reason of the failure.
    pub(crate) error: Error,
    /// The card may have executed the command, or may do so yet: it has the command, and did not refuse it.
    pub(crate) is_open: bool,
}

impl CommandFailure {
    pub(crate) fn closed(error: impl Into<Error>) -> Self {
        Self { error: error.into(), is_open: false }
    }

    fn open(error: Error) -> Self {
        Self { error, is_open: true }
    }
}

impl From<CommandFailure> for Error {
    fn from(failure: CommandFailure) -> Self {
        failure.error
    }
}

/// Admin queue: the command ring and the answer ring.
pub(crate) struct AdminQueue {
    function: Arc<dyn Function>,
    registers: Arc<Registers>,
    commands: Mapping,
    answers: Mapping,
    command_ring: WorkRing,
    answer_ring: PhaseRing,
    /// Times that the card has to answer a command.
    waits: Waits,
    /// Set when an answer was missing or wrong. The state of the card is unknown from then on, so no further command is issued.
    stopped: Option<&'static str>,
}

impl AdminQueue {
    /// Allocates both rings, writes their addresses to the card, and enables the queue.
    pub(crate) fn start(
        function: &Arc<dyn Function>,
        registers: &Arc<Registers>,
        waits: Waits,
    ) -> Result<Self, Error> {
        let commands = Mapping::new(function, COMMAND_BYTES << ENTRIES_LOG2, Purpose::Ring)?;
        let answers = Mapping::new(function, ANSWER_BYTES << ENTRIES_LOG2, Purpose::Ring)?;
        registers.write(AdminCommandBase { address: commands.device_address() })?;
        registers.write(AdminAnswerBase { address: answers.device_address() })?;
        registers.write(AdminControl {
            entries_log2: ENTRIES_LOG2 as u8,
            enable: true,
            event_on_answer: false,
        })?;
        Ok(Self {
            function: Arc::clone(function),
            registers: Arc::clone(registers),
            commands,
            answers,
            command_ring: WorkRing::new(ENTRIES_LOG2),
            answer_ring: PhaseRing::new(ENTRIES_LOG2, INDEX_BITS),
            waits,
            stopped: None,
        })
    }

    /// Issues a command and waits for its answer.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] if the card refuses it; any other error stops the queue.
    pub(crate) fn execute(
        &mut self,
        opcode: CommandOpcode,
        object_number: u32,
        body: Body,
    ) -> Result<Answer, CommandFailure> {
        if let Some(why) = self.stopped {
            return Err(CommandFailure::closed(Error::AdminStopped { why }));
        }
        // A value that does not fit its field fails here, before a slot is claimed or the card is accessed.
        let tag = self.command_ring.producer_index();
        let command = Command { header: CommandHeader { opcode, tag, object_number }, body };
        let timeout = self.waits.command(command.host_accesses());
        let command = command.to_bytes().map_err(CommandFailure::closed)?;
        let index =
            self.command_ring.claim(1).expect("all earlier commands are answered, so the ring is empty");
        write_slot(&self.commands.words(), self.command_ring.slot(index), &command);
        let rung = self.registers.write(AdminDoorbell { producer_index: self.command_ring.producer_index() });
        let answer = rung.and_then(|()| self.wait_for_answer(timeout)).map_err(|error| {
            self.stopped = Some("an earlier command got no answer");
            CommandFailure::open(error)
        })?;
        if (answer.tag, answer.opcode) != (tag, opcode.number()) {
            let why = "an answer belongs to another command";
            self.stopped = Some(why);
            return Err(CommandFailure::open(Error::AdminStopped { why }));
        }
        let released = self.command_ring.release(self.command_ring.producer_index());
        debug_assert!(released.is_ok(), "the producer index is always legal");
        match answer.status {
            CommandStatus::Success => Ok(answer),
            status => {
                let error = CommandError { opcode, object_number, status, detail: answer.detail };
                Err(CommandFailure::closed(error))
            }
        }
    }

    /// Keeps the memory of both rings for ever.
    pub(crate) fn leak(&self) {
        self.commands.leak();
        self.answers.leak();
    }

    fn wait_for_answer(&mut self, timeout: Duration) -> Result<Answer, Error> {
        let deadline = self.function.now().saturating_add(timeout);
        let mut idles = 0;
        loop {
            if let Some(entry) = self.answer_ring.next::<ANSWER_BYTES>(&self.answers.words()) {
                return Ok(Answer::parse(&entry)?);
            }
            let late = self.function.now() >= deadline;
            if late || idles % IDLES_PER_CHECK == IDLES_PER_CHECK - 1 {
                self.check_progress()?;
            }
            if late {
                return Err(Error::TimedOut { what: "the answer to a command", limit: timeout });
            }
            self.function.idle();
            idles += 1;
        }
    }

    /// Fails if the card or its admin queue has failed, so that no answer can come.
    fn check_progress(&self) -> Result<(), Error> {
        check_alive(&self.registers)?;
        if self.registers.read::<AdminProgress>()?.failed {
            return Err(Error::AdminStopped { why: "the card could not read a command or write an answer" });
        }
        Ok(())
    }
}

/// Fails with [`Error::DeviceFailed`] if the card has reported a fatal failure.
pub(crate) fn check_alive(registers: &Registers) -> Result<(), Error> {
    if !registers.read::<Status>()?.fatal {
        return Ok(());
    }
    let fatal = registers.read::<Fatal>()?;
    debug_assert!(fatal.code != FatalCode::None, "a fatal failure has a code");
    Err(Error::DeviceFailed { code: fatal.code, detail: fatal.detail })
}
