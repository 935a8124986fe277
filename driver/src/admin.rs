//! The client of the admin queue: one command at a time, each to its answer.

use crate::error::{CommandError, Error};
use crate::function::Function;
use crate::memory::{Mapping, Purpose};
use crate::registers::Registers;
use crate::ring::{PhaseRing, WorkRing, write_slot};
use rnic_layout::admin::{
    ANSWER_BYTES, Answer, Body, COMMAND_BYTES, Command, CommandHeader, CommandOpcode, CommandStatus,
};
use rnic_layout::registers::{
    AdminAnswerBase, AdminCommandBase, AdminControl, AdminDoorbell, AdminProgress, FatalCode, Status,
};
use std::sync::Arc;
use std::time::Duration;

/// Entries of both rings, as a power of two. Commands are given one by one, so the smallest rings do.
const ENTRIES_LOG2: u32 = rnic_layout::limits::RING_LOG2_MIN;
/// Bits of the free-running indices.
const INDEX_BITS: u32 = 16;
/// So many idle calls pass between two looks at the state of the card.
const IDLES_PER_LOOK: u32 = 256;

/// Both rings, and how far they have come.
pub(crate) struct AdminQueue {
    function: Arc<dyn Function>,
    registers: Arc<Registers>,
    commands: Mapping,
    answers: Mapping,
    sent: WorkRing,
    answered: PhaseRing,
    timeout: Duration,
    /// Set when an answer did not come or was wrong: what the card has done is unknown from then on.
    stopped: Option<&'static str>,
}

impl AdminQueue {
    /// Gives the card its rings, and starts them.
    pub(crate) fn start(
        function: &Arc<dyn Function>,
        registers: &Arc<Registers>,
        timeout: Duration,
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
            sent: WorkRing::new(ENTRIES_LOG2),
            answered: PhaseRing::new(ENTRIES_LOG2, INDEX_BITS),
            timeout,
            stopped: None,
        })
    }

    /// Gives one command, and waits for its answer.
    pub(crate) fn execute(
        &mut self,
        opcode: CommandOpcode,
        object_number: u32,
        body: Body,
    ) -> Result<Answer, Error> {
        if let Some(why) = self.stopped {
            return Err(Error::AdminStopped { why });
        }
        // A value that the contract has no room for never reaches the card, and nothing was claimed for it.
        let tag = self.sent.producer_index();
        let command = Command { header: CommandHeader { opcode, tag, object_number }, body }.to_bytes()?;
        let index = self.sent.claim(1).expect("every earlier command is answered");
        write_slot(self.commands.memory(), self.sent.slot(index), &command);
        self.registers.write(AdminDoorbell { producer_index: self.sent.producer_index() })?;

        let answer = self.wait().inspect_err(|_| self.stopped = Some("an earlier command has failed"))?;
        if (answer.tag, answer.opcode) != (tag, opcode.number()) {
            let why = "an answer was not for the command";
            self.stopped = Some(why);
            return Err(Error::AdminStopped { why });
        }
        let released = self.sent.release(self.sent.producer_index());
        debug_assert!(released.is_ok(), "the producer index is always legal");
        match answer.status {
            CommandStatus::Success => Ok(answer),
            status => Err(CommandError { opcode, object_number, status, detail: answer.detail }.into()),
        }
    }

    fn wait(&mut self) -> Result<Answer, Error> {
        let deadline = self.function.now() + self.timeout;
        let mut idles = 0;
        loop {
            if let Some(entry) = self.answered.next::<ANSWER_BYTES>(self.answers.memory()) {
                return Ok(Answer::parse(&entry)?);
            }
            let late = self.function.now() >= deadline;
            if late || idles % IDLES_PER_LOOK == IDLES_PER_LOOK - 1 {
                self.look()?;
            }
            if late {
                return Err(Error::TimedOut { what: "the answer to a command", limit: self.timeout });
            }
            self.function.idle();
            idles += 1;
        }
    }

    /// Finds out whether there is anything left to wait for.
    fn look(&self) -> Result<(), Error> {
        check_alive(&self.registers)?;
        if self.registers.read::<AdminProgress>()?.failed {
            return Err(Error::AdminStopped { why: "the card could not read a command or write an answer" });
        }
        Ok(())
    }
}

/// Fails if the card has failed.
pub(crate) fn check_alive(registers: &Registers) -> Result<(), Error> {
    if !registers.read::<Status>()?.fatal {
        return Ok(());
    }
    let fatal = registers.read::<rnic_layout::registers::Fatal>()?;
    debug_assert!(fatal.code != FatalCode::None, "the card says why it failed");
    Err(Error::DeviceFailed { code: fatal.code, detail: fatal.detail })
}
