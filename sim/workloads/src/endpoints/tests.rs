use super::super::plan::PlanOptions;
use super::super::run::run;
use super::*;

#[test]
fn endpoints_do_what_the_model_says() {
    let mistakes: Vec<Mistake> =
        Mistake::ALL.into_iter().filter(|mistake| !NO_MISTAKES.contains(mistake)).collect();
    let options = PlanOptions { mistakes: mistakes.leak(), ..PlanOptions::USUAL };
    for seed in rnic_stimulus::chance::seeds(40) {
        let plan = Plan::new(seed, &options);
        let totals = run(&plan, &mut Endpoints::new(&plan)).unwrap();
        assert_eq!(totals.messages, plan.messages() as u64);
    }
}

/// Each thing that is compared, changed by a machine that does not do quite what it was asked.
#[test]
fn what_differs_from_the_model_is_seen() {
    let plan = Plan::new(7, &PlanOptions::faultless(2, 8));
    for fault in Fault::ALL {
        let messages_left = plan.messages();
        let mut machine = Faulty { endpoints: Endpoints::new(&plan), fault, messages_left, is_done: false };
        assert!(run(&plan, &mut machine).is_err(), "{fault:?} is not seen");
        assert!(machine.is_done, "{fault:?} did not happen");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Status,
    Tag,
    Opcode,
    Length,
    Immediate,
    Solicited,
    EndedKey,
    Signalled,
    Contents,
    Lost,
    Window,
    WindowForAWhile,
    Unasked,
    Event,
    Untouched,
}

impl Fault {
    const ALL: [Fault; 15] = [
        Fault::Status,
        Fault::Tag,
        Fault::Opcode,
        Fault::Length,
        Fault::Immediate,
        Fault::Solicited,
        Fault::EndedKey,
        Fault::Signalled,
        Fault::Contents,
        Fault::Lost,
        Fault::Window,
        Fault::WindowForAWhile,
        Fault::Unasked,
        Fault::Event,
        Fault::Untouched,
    ];
}

struct Faulty {
    endpoints: Endpoints,
    fault: Fault,
    /// Messages of both hosts that have not completed.
    messages_left: usize,
    is_done: bool,
}

impl Faulty {
    fn spoil(&mut self, outcome: &mut Outcome) {
        let is_fit = match self.fault {
            Fault::Status | Fault::Tag => true,
            Fault::Opcode => !outcome.is_receive,
            Fault::Signalled => !outcome.is_receive && outcome.is_signalled,
            Fault::Contents => outcome.contents.iter().any(|piece| !piece.is_empty()),
            Fault::Length | Fault::Immediate | Fault::Solicited | Fault::EndedKey => outcome.is_receive,
            _ => false,
        };
        if self.is_done || !is_fit {
            return;
        }
        self.is_done = true;
        match self.fault {
            Fault::Status => outcome.status = CompletionStatus::General,
            Fault::Tag => outcome.wr_id += 1,
            Fault::Opcode => outcome.opcode = CompletionOpcode::Flush,
            Fault::Length => outcome.length += 1,
            Fault::Immediate => {
                outcome.immediate = Some(outcome.immediate.map_or([0; 4], |bytes| bytes.map(|byte| !byte)));
            }
            Fault::Solicited => outcome.is_solicited = !outcome.is_solicited,
            Fault::EndedKey => outcome.ends_key = !outcome.ends_key,
            Fault::Signalled => outcome.is_signalled = false,
            _ => {
                let piece = outcome.contents.iter_mut().find(|piece| !piece.is_empty());
                *piece.and_then(|piece| piece.last_mut()).unwrap() ^= 1;
            }
        }
    }
}

impl Machine for Faulty {
    fn post_sends(&mut self, side: usize, pair: usize, posts: &[Post]) -> Result<usize> {
        let posted = self.endpoints.post_sends(side, pair, posts)?;
        // One that will have a CQE counts as not signalled.
        let mut sends = self.endpoints.hosts[side].sends[pair].iter_mut();
        if self.fault == Fault::Unasked
            && !self.is_done
            && let Some(posted) = sends.find(|posted| posted.is_signalled)
        {
            posted.is_signalled = false;
            self.is_done = true;
        }
        Ok(posted)
    }

    fn post_receive(&mut self, side: usize, pair: usize, wr_id: u64, receive: &Receive) -> Result<bool> {
        self.endpoints.post_receive(side, pair, wr_id, receive)
    }

    fn post_shared_receive(&mut self, side: usize, wr_id: u64, receive: &Receive) -> Result<bool> {
        self.endpoints.post_shared_receive(side, wr_id, receive)
    }

    fn confirm(&mut self, side: usize) -> Result<()> {
        self.endpoints.confirm(side)
    }

    fn idle(&mut self) -> Result<()> {
        self.endpoints.idle()
    }

    fn poll(&mut self, side: usize, outcomes: &mut Vec<Outcome>) -> Result<()> {
        self.endpoints.poll(side, outcomes)?;
        if self.fault == Fault::Lost && !self.is_done && !outcomes.is_empty() {
            self.is_done = true;
            outcomes.remove(0);
        }
        let messages = outcomes.iter().filter(|outcome| !outcome.is_receive).count();
        self.messages_left = self.messages_left.saturating_sub(messages);
        outcomes.iter_mut().for_each(|outcome| self.spoil(outcome));
        Ok(())
    }

    fn fail(&mut self, side: usize, pair: usize) -> Result<()> {
        self.endpoints.fail(side, pair)
    }

    fn window(&mut self, side: usize, pair: usize) -> Result<Vec<u8>> {
        let mut window = self.endpoints.window(side, pair)?;
        // A wrong byte that is right again when the last message is done is seen by comparing during the run only.
        if self.fault == Fault::Window || (self.fault == Fault::WindowForAWhile && self.messages_left > 0) {
            self.is_done = true;
            window[WINDOW_BYTES - 1] ^= 1;
        }
        Ok(window)
    }

    fn event(&mut self, side: usize) -> Result<Option<(usize, AsyncEvent)>> {
        if self.fault == Fault::Event && !self.is_done {
            self.is_done = true;
            return Ok(Some((0, AsyncEvent::QueuePairFatal)));
        }
        self.endpoints.event(side)
    }

    fn check_untouched(&mut self) -> Result<()> {
        if self.fault == Fault::Untouched {
            self.is_done = true;
            self.endpoints.hosts[1].endpoint.memory().bytes[MEMORY_BYTES - 1] = 0;
        }
        self.endpoints.check_untouched()
    }
}
