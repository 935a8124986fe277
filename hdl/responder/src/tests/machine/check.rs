//! Checks: outputs of the responder against the model.
use super::*;

pub(super) fn is_before(psn: u32, other: u32) -> bool {
    psn.wrapping_sub(other) & 0x80_0000 != 0
}

pub(super) fn is_nak(owed: &Owed) -> bool {
    owed.syndrome >> 5 != 0
}

impl Machine {
    /// Control knows this generation, and nothing else yet.
    pub(super) fn is_current(&self, index: u16, generation: u8) -> bool {
        let life = self.lives[&index];
        life.generation == generation && life.state != QpState::Reset
    }

    /// Number of the receive ring of a queue pair, that of ring 0 if there is none.
    fn ring_of(&self, index: u16) -> u16 {
        let queue = self.model.queues.get(&index);
        let shared = queue.and_then(|queue| queue.attributes.shared);
        shared.map_or(if queue.is_some() { index } else { 0 }, |shared| FIRST_SHARED + u16::from(shared))
    }

    pub(super) fn check_placed(&mut self, command: &PlaceCommand) {
        if command.payload_bytes.any() {
            let found = PayloadReference {
                queue_pair: command.queue_pair,
                first_cell: command.first_cell,
                payload_bytes: command.payload_bytes,
            };
            let place = self.cells.iter().position(|cells| *cells == found);
            self.cells.remove(
                place.expect("all payload is taken out of its cells, once, for the queue pair that it names"),
            );
        }
        let command = command_of(command);
        let key = (command.queue_pair, command.generation);
        if let Some(completion) = &command.completion {
            for shared in self.model.shared.values_mut() {
                if let Some(index) = shared.indices.get(&completion.wr_id) {
                    let ahead = index.wrapping_add(1).wrapping_sub(shared.done);
                    shared.done = if ahead < 1 << 15 { index.wrapping_add(1) } else { shared.done };
                }
            }
        }
        if command.is_flush() {
            let is_over = !self.is_current(key.0, key.1);
            let late = self.flushes.get_mut(&key).and_then(VecDeque::pop_front);
            let expected = late.or_else(|| self.model.flush(key.0, key.1));
            assert!(
                is_over || expected.as_ref() == Some(&command),
                "{command:?} completes, not {expected:?}"
            );
            self.placed.push((self.cycle, command));
            return;
        }
        // A packet of a generation that has ended may not have failed, if its WQE did not arrive any more; then
        // later packets are answered.
        let is_ended = self.is_loose && command.payload_bytes == 0 && !self.is_current(key.0, key.1);
        if is_ended && self.expected.iter().all(|(expected, _)| *expected != command) {
            self.placed.push((self.cycle, command));
            return;
        }
        // Packets of a receive ring keep their order; they may pass those of others. What is dropped waits for none.
        let ring = self.ring_of(key.0);
        let dropped = self.expected.iter().position(|(expected, _)| {
            command.is_silent()
                && expected.is_silent()
                && expected.payload_bytes == command.payload_bytes
                && self.ring_of(expected.queue_pair) == ring
        });
        if let Some(place) = dropped {
            self.expected.remove(place);
            self.placed.push((self.cycle, command));
            return;
        }
        loop {
            let first =
                self.expected.iter().position(|(expected, _)| self.ring_of(expected.queue_pair) == ring);
            let (mut expected, is_over) = first
                .and_then(|first| self.expected.remove(first))
                .unwrap_or_else(|| panic!("{command:?} is not expected"));
            if expected.is_silent() {
                (expected.queue_pair, expected.generation) = key;
            }
            if expected == command {
                break;
            }
            assert!(is_over, "{command:#?} came instead of {expected:#?}");
            // Its WQE, or the WQE of an earlier packet, did not arrive any more; or admission had the event of the next
            // generation already, when control waited for other stages, and has dropped the packet under that.
            let is_same = (expected.queue_pair, expected.payload_bytes) == (key.0, command.payload_bytes);
            let is_next = command.is_silent() && expected.generation.wrapping_add(1) == key.1;
            if is_same && (expected.generation == key.1 || is_next) {
                break;
            }
            assert_eq!(expected.payload_bytes, 0, "payload was forgotten: {expected:#?}, {command:#?}");
        }
        self.placed.push((self.cycle, command));
    }

    pub(super) fn check_reply(&mut self, headers: &TransmitRequest) {
        assert_eq!(headers.opcode, bits(Operation::Acknowledge as u64));
        assert!(!headers.solicited && !headers.ack_request && headers.payload_bytes == bits(0));
        let bytes = BigUint::from(headers.extended).to_bytes_le();
        assert!(bytes.len() <= 4, "nothing follows the AETH");
        let byte = |index: usize| u32::from(bytes.get(index).copied().unwrap_or(0));
        let reply = Owed {
            syndrome: byte(0) as u8,
            psn: headers.psn.to_u64() as u32,
            msn: byte(1) << 16 | byte(2) << 8 | byte(3),
        };
        let (index, generation) = (headers.queue_pair.to_u64() as u16, headers.generation.to_u64() as u8);
        self.replied.push((self.cycle, index, reply));
        let name = match reply.syndrome {
            0x1f => "acknowledgements_sent",
            0x60 => "nak_sequence_sent",
            0x61 => "nak_invalid_request_sent",
            0x62 => "nak_access_sent",
            0x63 => "nak_operational_sent",
            _ => "nak_rnr_sent",
        };
        *self.expected_replies.entry(name).or_default() += 1;
        let account = self.accounts.get_mut(&(index, generation)).expect("something was owed");
        assert!(!account.has_ended, "nothing follows the NAK of a failed write");
        let last_words = Owed { syndrome: NAK_OPERATIONAL, psn: account.open_psn, msn: account.last_msn };
        let place = (account.settled..account.owed.len()).find(|&place| account.owed[place].0 == reply);
        if account.failed_write.is_some() && reply == last_words {
            account.has_ended = true;
        } else {
            let place = place.unwrap_or_else(|| panic!("{index:#x} gets {reply:x?}, which is not owed"));
            let good = account.failed_write.map_or(self.done, |failed| failed - 1);
            assert!(account.owed[place].1 <= good, "{reply:x?} left before its writes were done");
            let is_said = |&index: &usize| account.owed[index].0 == reply;
            account.told.extend((account.settled..account.owed.len()).filter(is_said));
            for skipped in account.settled..place {
                let (old, _) = account.owed[skipped];
                let covers = |&(new, _): &(Owed, u64)| is_nak(&new) || !is_before(new.psn, old.psn);
                assert!(
                    !is_nak(&old)
                        || skipped < account.covered
                        || account.told.contains(&skipped)
                        || account.owed[skipped + 1..=place].iter().any(covers),
                    "{index:#x}: {old:x?} was lost"
                );
            }
            account.settled = place + 1;
        }
        account.open_psn = if is_nak(&reply) { reply.psn } else { (reply.psn + 1) & 0xff_ffff };
        account.last_msn = reply.msn;
        account.newest = Some(reply);
    }

    pub(super) fn check_limit(&mut self, notice: &SrqLimitNotice) {
        let reached = (notice.srq.to_u64() as u8, notice.limit_generation.to_u64() as u8);
        let place = self.model.limits.iter().position(|limit| *limit == reached);
        self.model.limits.remove(place.expect("a limit is reached"));
    }

    pub(super) fn check_failure(&mut self, event: &QpNotice) {
        let (index, generation) = (event.queue_pair.to_u64() as u16, event.generation.to_u64() as u8);
        let code = event.has_event.then(|| AsyncEvent::from_number(event.event_code.to_u64()).unwrap());
        let failure: Failure = (index, generation, code);
        let place = self.model.failures.iter().position(|expected| *expected == failure);
        if code == Some(AsyncEvent::CommunicationEstablished) {
            assert_eq!(event.kind, NoticeKind::Established);
            self.model.failures.remove(place.expect("the first packet in RTR was executed"));
            return;
        }
        assert_eq!(event.kind, NoticeKind::ResponderError);
        self.accounts.entry((index, generation)).or_default().has_failed = true;
        self.failed.push((self.cycle, index));
        let is_current = self.is_current(index, generation);
        match place {
            Some(place) => _ = self.model.failures.remove(place),
            None => assert!(!is_current, "{failure:?} is not expected by the model"),
        }
        if is_current && self.failing.iter().all(|failing| failing.0 != index) {
            let delay = if self.stalls.sink() { self.random.random_range(0..80) } else { 20 };
            self.failing.push((index, generation, self.cycle + delay));
        }
    }

    /// Waits until the responder is idle, and checks what must hold then.
    pub(in crate::tests) fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..20_000 {
            self.step();
            let in_flight = self.bench.block.in_flight.val();
            let flushable = self
                .model
                .queues
                .values()
                .any(|queue| queue.attributes.state == QpState::Error && queue.left_to_flush() > 0);
            let is_quiet = in_flight.entered == in_flight.left
                && self.request.is_none()
                && self.commands.is_empty()
                && self.failing.is_empty()
                && self.placing.is_empty()
                && self.writes.is_empty()
                && self.owed_counts.is_empty()
                && !flushable;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet > 60 {
                break;
            }
        }
        assert!(quiet > 60, "the responder becomes idle");
        assert!(self.cells.is_empty(), "no payload stays in its cells");
        assert!(self.expected.iter().all(|(command, is_over)| *is_over && command.payload_bytes == 0));
        assert!(self.flushes.values().all(VecDeque::is_empty) || self.is_loose);
        for (&(index, generation), account) in &self.accounts {
            if self.reply_lives[&index].1 != generation || self.reply_lives[&index].0 == QpState::Reset {
                continue;
            }
            assert_eq!(
                account.failed_write.is_some(),
                account.has_ended,
                "{index:#x}: the last reply has left"
            );
            let settled = account.settled.max(account.covered);
            let rest = &account.owed[if account.has_ended { account.owed.len() } else { settled }..];
            for (owed, _) in rest {
                let newest = account.newest.expect("a reply has left");
                // It may have been owed more than once.
                assert!(
                    *owed == newest || (!is_nak(owed) && is_nak(&newest) && is_before(owed.psn, newest.psn)),
                    "{index:#x}: {owed:x?} never left"
                );
            }
        }
        // What a restart overtakes is stale, if it was in flight already.
        let stale = self.expected_replies.entry("stale_dropped").or_default();
        let (least, counted) = (*stale, self.counts.get("stale_dropped").copied().unwrap_or(0));
        assert!(counted >= least && (self.is_loose || counted <= least + self.model.overtaken), "{counted}");
        *stale = counted;
        for (name, &count) in &self.expected_replies {
            assert_eq!(self.count(name), count, "{name}");
        }
        // A NAK for a failed write may replace a NAK that waited.
        self.model.failures.retain(|&(index, generation, _)| {
            let account = self.accounts.get(&(index, generation));
            !account.is_some_and(|account| account.failed_write.is_some() && account.has_failed)
        });
        if !self.is_loose {
            assert!(self.model.failures.is_empty(), "{:?} were not reported", self.model.failures);
            for (name, count) in &self.counts {
                let expected = self.model.counts.get(name).or(self.expected_replies.get(name));
                assert_eq!(Some(count), expected, "{name}");
            }
            for (name, count) in &self.model.counts {
                assert_eq!(self.counts.get(name), Some(count), "{name}");
            }
        }
    }

    /// Value of a counter.
    pub(in crate::tests) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

pub(super) fn owed_of(reply: &AckNotice) -> Owed {
    Owed {
        syndrome: reply.syndrome.to_u64() as u8,
        psn: reply.psn.to_u64() as u32,
        msn: reply.msn.to_u64() as u32,
    }
}

/// A command in plain numbers, without fields that are undefined.
pub(super) fn command_of(command: &PlaceCommand) -> Command {
    let (queue_pair, generation) = (command.queue_pair.to_u64() as u16, command.generation.to_u64() as u8);
    let spans = [command.first, command.second, command.third];
    let spans = spans[..command.span_count.to_u64() as usize].iter();
    let told = command.completion;
    let completion = command.has_completion.then(|| {
        assert_eq!(told.generation, command.generation);
        let status = CompletionStatus::from_number(told.status.to_u64()).unwrap();
        Completion {
            queue: told.completion_queue.to_u64() as u16,
            wr_id: if told.is_last { 0 } else { told.wr_id.to_u64() },
            is_last: told.is_last,
            qpn: told.qp_number.to_u64() as u32,
            consumer_index: told.consumer_index.to_u64() as u16,
            outcome: if status == CompletionStatus::Success {
                Ok(Received {
                    opcode: CompletionOpcode::from_number(told.opcode.to_u64()).unwrap(),
                    length: told.length.to_u64() as u32,
                    // Immediate data is in wire order.
                    immediate: told.with_immediate.then(|| (told.immediate.to_u64() as u32).swap_bytes()),
                    // A key is a number.
                    invalidated: told.with_invalidate.then(|| told.immediate.to_u64() as u32),
                    solicited: told.solicited,
                })
            } else {
                Err((status, told.vendor_error.to_u64() as u8))
            },
        }
    });
    if command.has_notice {
        assert_eq!(
            (command.notice.queue_pair, command.notice.generation),
            (command.queue_pair, command.generation)
        );
    }
    Command {
        queue_pair,
        generation,
        payload_bytes: command.payload_bytes.to_u64() as u32,
        spans: spans.map(|span| (span.address.to_u64(), span.length.to_u64() as u32)).collect(),
        completion,
        reply: command.has_notice.then(|| owed_of(&ack_of(command.notice))),
    }
}
