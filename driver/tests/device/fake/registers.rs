//! Registers and doorbells of the fake card.

use super::*;

impl Card {
    pub(super) fn read_register(&mut self, offset: u32) -> u64 {
        let value = |bytes: Result<[u8; 8], _>| place(&bytes.expect("a legal value"));
        let fault = |fault: Option<u64>, value: u64| fault.unwrap_or(value);
        if offset == REG_MAGIC.offset {
            fault(self.faults.magic, MAGIC)
        } else if offset == REG_LAYOUT_VERSION.offset {
            fault(self.faults.layout_version, value(LayoutVersion::at_reset().to_bytes()))
        } else if offset == REG_FEATURES.offset {
            let features = Features {
                packet_path: true,
                reliable_connected: true,
                shared_receive_queues: true,
                ..Features::at_reset()
            };
            value(features.to_bytes())
        } else if offset == REG_GEOMETRY.offset {
            let geometry = Geometry { datapath_bits: 512, interrupt_vectors: 4, clock_khz: CLOCK_KHZ };
            value(geometry.to_bytes())
        } else if offset == REG_TABLE_SIZES.offset {
            let sizes = TableSizes {
                queue_pairs_log2: 4,
                completion_queues_log2: 3,
                event_queues_log2: 2,
                shared_receive_queues_log2: 1,
                regions_log2: 7,
                address_handles_log2: 2,
                doorbell_pages_log2: 0,
                outstanding_blocks_log2: 4,
            };
            value(sizes.to_bytes())
        } else if offset == REG_QUEUE_LIMITS.offset {
            let limits = QueueLimits {
                send_slots_log2: 8,
                receive_wqes_log2: 8,
                cqes_log2: 10,
                eqes_log2: 8,
                response_sges: 2,
                send_sges: 6,
                receive_sges: 3,
                inline_bytes: 96,
                read_atomic: 16,
                destination_read_atomic: 16,
                psn_window_log2: 8,
            };
            value(limits.to_bytes())
        } else if offset == REG_MESSAGE_LIMIT.offset {
            1 << 20
        } else if offset == REG_MEMORY_LIMITS.offset {
            let limits = MemoryLimits {
                address_bits: ADDRESS_BITS,
                smallest_page_log2: 12,
                largest_page_log2: 30,
                pages_log2: 14,
                read_slots_log2: 0,
            };
            value(limits.to_bytes())
        } else if offset == REG_PERMANENT_MAC.offset {
            0x0200_0000_0009
        } else if offset == REG_PORT_SPEED.offset {
            25_000
        } else if offset == REG_STATUS.offset {
            let enabled = self.register(REG_CONTROL.offset) & 1 == 1;
            let is_master = self.command() & COMMAND_BUS_MASTER != 0;
            let ready = enabled && is_master && self.resetting == 0 && !self.faults.never_ready;
            let status =
                Status { ready, resetting: self.resetting != 0, link_up: ready, ..Status::at_reset() };
            value(status.to_bytes())
        } else if offset == REG_HOST_LIMIT.offset {
            let written = self.written.get(&offset).copied();
            written.unwrap_or(value(HostLimit::at_reset_of(CLOCK_KHZ).to_bytes()))
        } else if offset == REG_ADMIN_PROGRESS.offset || offset == REG_COUNTER_LATCH.offset {
            0
        } else if offset == REG_HOST_MEMORY_BYTES.at(MemoryKind::Region.number().into()) {
            5000
        } else if offset >= COUNTER_BASE {
            u64::from(offset - COUNTER_BASE) / 8 + 1
        } else {
            self.register(offset)
        }
    }

    pub(super) fn write_register(&mut self, offset: u32, value: u64) {
        let bytes = value.to_le_bytes();
        let before = self.register(offset) as u16;
        self.written.insert(offset, value);
        if offset == REG_ADMIN_DOORBELL.offset {
            let control = AdminControl::parse(&self.register(REG_ADMIN_CONTROL.offset).to_le_bytes());
            let log2 = control.expect("legal").entries_log2;
            self.post(self.register(REG_ADMIN_COMMAND_BASE.offset), log2, before, value as u16);
        }
        if offset == REG_CONTROL.offset && Control::parse(&bytes).expect("a legal value").reset {
            let resetting = match &mut self.faults.resets {
                Some(0) => u32::MAX,
                left => {
                    *left = left.map(|left| left - 1);
                    self.faults.reset_steps
                }
            };
            let kept = std::mem::take(self);
            *self = Self {
                faults: kept.faults,
                config: kept.config,
                commands: kept.commands,
                function_resets: kept.function_resets,
                unmapped_in_use: kept.unmapped_in_use,
                changed: kept.changed,
                time: kept.time,
                memory: kept.memory,
                next_address: kept.next_address,
                resetting,
                ..Self::default()
            };
        } else if offset == REG_EVENT_QUEUE_CONTROL.offset {
            let control = EventQueueControl::parse(&bytes).expect("a legal value");
            let base = self.register(REG_EVENT_QUEUE_BASE.offset);
            self.create_events(0, base, control.entries_log2.into(), control.vector.into());
        }
    }

    pub(super) fn write_doorbell(&mut self, offset: u32, value: u64) {
        let bytes = value.to_le_bytes();
        if offset == doorbell::SHARED_RECEIVE.offset {
            let WorkDoorbell { object_number, producer_index } = WorkDoorbell::parse(&bytes).expect("legal");
            let ring = self.shared.get_mut(&object_number).expect("the queue exists");
            let before = std::mem::replace(&mut ring.producer, producer_index);
            let (base, log2) = (ring.create.base, ring.create.entries_log2);
            self.post(base, log2, before, producer_index);
        } else if offset == doorbell::SEND.offset || offset == doorbell::RECEIVE.offset {
            let WorkDoorbell { object_number, producer_index } = WorkDoorbell::parse(&bytes).expect("legal");
            let qp = self.queue_pairs.get_mut(&object_number).expect("the queue pair exists");
            let create = &qp.create;
            let (base, log2, producer, posting) = if offset == doorbell::SEND.offset {
                let posting = PERMISSIONS[qp.state as usize].post_send;
                (create.send_base, create.send_slots_log2, &mut qp.send_producer, posting)
            } else {
                let posting = PERMISSIONS[qp.state as usize].post_receive;
                (create.receive_base, create.receive_wqes_log2, &mut qp.receive_producer, posting)
            };
            assert_ne!(posting, Posting::Refused, "posted in {}", qp.state.name());
            let before = std::mem::replace(producer, producer_index);
            self.post(base, log2, before, producer_index);
        } else if offset == doorbell::COMPLETION.offset {
            let bell = CompletionDoorbell::parse(&bytes).expect("legal");
            let ring = self.completions.get_mut(&bell.object_number).expect("the queue exists");
            ring.consumer = bell.consumer_index;
            ring.arm = ring.arm.max(bell.arm);
            if ring.arm == Arm::Next && ring.producer != ring.consumer {
                self.raise_completion_event(bell.object_number);
            }
        } else if offset == doorbell::EVENT.offset {
            let bell = EventDoorbell::parse(&bytes).expect("legal");
            let ring = self.events.get_mut(&bell.object_number).expect("the queue exists");
            ring.consumer = bell.consumer_index;
            ring.armed |= bell.arm;
            self.interrupt(bell.object_number);
        } else {
            panic!("there is no doorbell at {offset:#x}");
        }
    }
}
