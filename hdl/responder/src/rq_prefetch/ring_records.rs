//! The records of a ring for the machine that fetches: all are read at once, each is written on its own.
//!
//! Latency 1 cycle. A record that is written in the cycle in which it is read is read as it was before.
use super::record::{
    Arrived, ArrivedWrite, ProducerWrite, Progress, ProgressWrite, RING_BITS, Ring, RingState, RingWrite,
    Taken, TakenWrite,
};
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{WORK_INDEX_BITS, sizes};

/// The records; see the module.
#[clocked]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct RingRecords {
    /// The records of `ring` are read.
    pub reads: Signal<In, Bit>,
    /// A ring.
    pub ring: Signal<In, Bits<RING_BITS>>,
    /// Records of the ring that was read last; registered.
    pub state: Signal<Out, RingState>,
    /// Write of the attributes.
    pub ring_write: Signal<In, RingWrite>,
    /// Write of the producer index.
    pub producer_write: Signal<In, ProducerWrite>,
    /// Write of the consumer side.
    pub taken_write: Signal<In, TakenWrite>,
    /// Write of the fetch side.
    pub progress_write: Signal<In, ProgressWrite>,
    /// Write of the arrival side.
    pub arrived_write: Signal<In, ArrivedWrite>,

    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    rings: Memory<Ring, RING_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    producers: Memory<Bits<WORK_INDEX_BITS>, RING_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    taken: Memory<Taken, RING_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    progress: Memory<Progress, RING_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    arrived: Memory<Arrived, RING_BITS>,
}

impl Logic for RingRecords {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let reads = self.reads.val();
        let ring = self.ring.val();
        self.rings.read(reads, ring);
        self.producers.read(reads, ring);
        self.taken.read(reads, ring);
        self.progress.read(reads, ring);
        self.arrived.read(reads, ring);
        self.state.next = RingState {
            attributes: self.rings.read_data.val(),
            producer: self.producers.read_data.val(),
            consumed: self.taken.read_data.val(),
            progress: self.progress.read_data.val(),
            here: self.arrived.read_data.val(),
        };

        self.rings.write_enable.next = self.ring_write.val().enable;
        self.rings.write_address.next = self.ring_write.val().ring;
        self.rings.write_data.next = self.ring_write.val().data;
        self.producers.write_enable.next = self.producer_write.val().enable;
        self.producers.write_address.next = self.producer_write.val().ring;
        self.producers.write_data.next = self.producer_write.val().data;
        self.taken.write_enable.next = self.taken_write.val().enable;
        self.taken.write_address.next = self.taken_write.val().ring;
        self.taken.write_data.next = self.taken_write.val().data;
        self.progress.write_enable.next = self.progress_write.val().enable;
        self.progress.write_address.next = self.progress_write.val().ring;
        self.progress.write_data.next = self.progress_write.val().data;
        self.arrived.write_enable.next = self.arrived_write.val().enable;
        self.arrived.write_address.next = self.arrived_write.val().ring;
        self.arrived.write_data.next = self.arrived_write.val().data;
    }
}
