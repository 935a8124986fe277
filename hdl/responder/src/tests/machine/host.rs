//! The host and the stages after the responder: receive rings, place, host writes, and keys.
use super::check::owed_of;
use super::*;

impl Machine {
    /// Writes WQEs after those that are posted, and rings the doorbell.
    pub(in crate::tests) fn post(&mut self, index: u16, works: &[Work]) {
        let queue = self.model.queues.get_mut(&index).expect("the queue pair exists");
        let attributes = queue.attributes;
        for work in works {
            let slot = u64::from(queue.written) % (1 << attributes.entries_log2);
            let mut bytes = work.fields.to_bytes().unwrap();
            bytes[9] |= u8::from(work.is_malformed);
            self.memory.insert(attributes.ring + slot * 64, (bytes, work.is_unreadable));
            queue.works.insert(queue.written, *work);
            queue.written = queue.written.wrapping_add(1);
        }
        let written = queue.written;
        self.ring(index, written);
    }

    /// Rings the doorbell, with any index.
    pub(in crate::tests) fn ring(&mut self, index: u16, producer_index: u16) {
        self.bells.push_back((index, producer_index));
    }

    /// Writes WQEs of a shared receive queue, and rings its doorbell.
    pub(in crate::tests) fn post_shared(&mut self, number: u8, works: &[Work]) {
        let shared = self.model.shared.get_mut(&number).expect("it was made");
        for work in works {
            let slot = u64::from(shared.written) % (1 << shared.entries_log2);
            let mut bytes = work.fields.to_bytes().unwrap();
            bytes[9] |= u8::from(work.is_malformed);
            self.memory.insert(shared.ring + slot * 64, (bytes, work.is_unreadable));
            shared.works.insert(shared.written, *work);
            shared.indices.insert(work.fields.wr_id, shared.written);
            shared.written = shared.written.wrapping_add(1);
        }
        let written = shared.written;
        self.bells.push_back((FIRST_SHARED + u16::from(number), written));
    }

    /// The host answers a read of WQEs; each of them must be posted.
    pub(super) fn read(&mut self, span: &HostSpan) {
        let (address, count) = (span.address.to_u64(), span.length.to_u64() / 64);
        assert!(
            (1..=8).contains(&count) && address / 512 == (address + count * 64 - 1) / 512,
            "a line at most"
        );
        let mut error = false;
        for place in 0..count {
            let slot = self.memory.get(&(address + place * 64)).copied();
            let (bytes, is_unreadable) = slot.expect("only what was posted is read");
            error |= is_unreadable;
            let data = if is_unreadable { [0xee; 64] } else { bytes };
            let last = place + 1 == count;
            self.slots.push_back(Slot { data: BigUint::from_bytes_le(&data).into(), last, error });
        }
    }

    /// Control invalidates a key, if that is permitted; the model has done so before.
    pub(super) fn end_key(&mut self, key: &Invalidation) {
        let (number, domain) = (key.key.to_u64() as u32, key.domain.to_u64() as u32);
        let is_it = |region: &Region| region.key == number && region.domain == domain && region.invalidatable;
        assert!(!self.model.regions.iter().any(is_it), "{number:#x} must not be invalidated");
        let place = self.model.lingering.iter().position(is_it);
        let ended = place.map(|place| self.model.lingering.remove(place));
        let Invalidation { queue_pair, generation, .. } = *key;
        self.ended.push(Invalidated { queue_pair, generation, ok: ended.is_some() });
    }

    /// The place stage issues the writes of a command; its reply follows them.
    pub(super) fn place_next(&mut self) {
        let command = self.placing.pop_front().expect("there is one");
        for _ in 0..command.span_count.to_u64() {
            let fails = self.write_failure_rate > 0 && self.random.random_ratio(1, self.write_failure_rate);
            let (index, generation) = (command.queue_pair.to_u64() as u16, command.generation.to_u64() as u8);
            self.writes.push_back((index, generation, fails));
            self.issued += 1;
        }
        if command.has_notice {
            let reply = AckNotice { write_count: bits(self.issued & 0xffff), ..ack_of(command.notice) };
            self.owed.push(reply);
            self.owed_counts.push_back((reply, self.issued));
        }
    }

    /// The host writer: a failed write counts as done once its failure report is taken.
    pub(super) fn writer(&mut self, goes: bool, has_told: bool) {
        let Some(&(index, generation, fails)) = self.writes.front() else { return };
        if fails && has_told {
            let (state, current) = self.reply_lives[&index];
            let account = self.accounts.entry((index, generation)).or_default();
            if current == generation && state != QpState::Reset && account.failed_write.is_none() {
                account.failed_write = Some(self.done + 1);
                self.model.failures.push((index, generation, Some(AsyncEvent::QueuePairFatal)));
            }
        } else if fails && goes && self.write_failures.is_done() {
            self.write_failures.push(WriteFailure {
                owner: WriteOwner::Payload,
                queue_pair: bits(index.into()),
                generation: bits(generation.into()),
                write_count: bits((self.done + 1) & 0xffff),
                ..WriteFailure::default()
            });
        }
        if if fails { has_told } else { goes } {
            self.writes.pop_front();
            self.done += 1;
        }
    }

    /// Ack has taken a reply.
    pub(super) fn owe(&mut self) {
        let (reply, count) = self.owed_counts.pop_front().expect("it was offered");
        let (index, generation) = (reply.queue_pair.to_u64() as u16, reply.generation.to_u64() as u8);
        let (state, current) = self.reply_lives[&index];
        if current != generation || state == QpState::Reset {
            *self.expected_replies.entry("stale_dropped").or_default() += 1;
            return;
        }
        let account = self.accounts.entry((index, generation)).or_default();
        if reply.is_read {
            // The READ responder has a test of its own.
            if !reply.is_again && account.failed_write.is_none() {
                account.covered = account.owed.len();
            }
        } else if account.failed_write.is_none() {
            account.owed.push((owed_of(&reply), count));
        }
    }
}

pub(super) fn answer_of(regions: &[Region], request: &AccessRequest) -> AccessAnswer {
    assert!(request.length != bits(0), "no access request has length zero");
    let rights = [request.local_write, request.remote_write, request.remote_read, request.remote_atomic];
    assert_eq!(rights.iter().filter(|&&right| right).count(), 1, "one right is requested");
    let is_remote = request.remote_write || request.remote_atomic;
    let (key, domain) = (request.key.to_u64() as u32, request.domain.to_u64() as u32);
    let (address, length) = (request.address.to_u64(), request.length.to_u64() as u32);
    let device = Region::find(regions, key, domain, is_remote, address, length);
    AccessAnswer { ok: device.is_some(), device_address: bits(device.unwrap_or(0x0bad_0bad)) }
}
