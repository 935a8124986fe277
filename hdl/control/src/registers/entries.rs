//! Entry registers: source addresses and interrupt moderation, whose tables are in other parts of the card.
//!
//! ```text
//!  write ──> memories ──> read back ──> source_address_write
//!                                 └───> interrupt_moderation_write
//! ```
//!
//! Latency two cycles from `write` to the message; one write a cycle.
//!
//! 1. An entry is written as a whole: its registers are kept, and read back together when byte 7 of one of them is written.
use super::settings::RegisterWrite;
use super::{
    ABOVE, BLOCK, BLOCK_BITS, HIGH, LOW, MAC_BITS, MODERATIONS, PART, PORT, PORT_VALID, SOURCE_ADDRESS,
    SOURCE_ADDRESSES, WORD, WORD_BITS,
};
use rnic_blocks::memory::ByteMemory;
use rnic_blocks::stream::{ValidRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_layout::limits;
use rnic_messages::setup::SourceAddressWrite;
use rnic_messages::sizes::{SOURCE_ADDRESS_BITS, VECTOR_BITS};

/// Keeps source addresses and interrupt moderation.
#[clocked(reset = "drops messages, and marks all source addresses as unused")]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct EntryRegisters {
    /// A write of any register.
    pub write: ValidRx<RegisterWrite>,
    /// An entry of the table of source addresses; registered.
    pub source_address_write: ValidTx<SourceAddressWrite>,
    /// Source addresses in use, one bit each; registered.
    pub source_addresses: Signal<Out, Bits<{ limits::SOURCE_ADDRESSES }>>,
    /// A period of interrupt moderation was written; registered.
    pub interrupt_moderation_write: Signal<Out, Bit>,
    /// Vector of that period; registered.
    pub interrupt_moderation_vector: Signal<Out, Bits<VECTOR_BITS>>,
    /// The period, in units of 256 cycles of the core clock.
    pub interrupt_moderation_period: Signal<Out, Bits<16>>,

    source_high: ByteMemory<64, 8, SOURCE_ADDRESS_BITS>,
    source_low: ByteMemory<64, 8, SOURCE_ADDRESS_BITS>,
    source_port: ByteMemory<64, 8, SOURCE_ADDRESS_BITS>,
    moderations: ByteMemory<16, 2, VECTOR_BITS>,
    sources_valid: [Reg<Bit>; limits::SOURCE_ADDRESSES],
    sources_joined: [Signal<Local, Bits<{ limits::SOURCE_ADDRESSES }>>; limits::SOURCE_ADDRESSES],
    /// An entry that was written, and is read back.
    read: DFF<Bits<WORD_BITS>>,
    reads_source: Reg<Bit>,
    reads_moderation: Reg<Bit>,
    /// An entry that was read back.
    sent: DFF<Bits<WORD_BITS>>,
    sends_source: Reg<Bit>,
    sends_moderation: Reg<Bit>,
}

/// Gives the index of the source address that a register belongs to.
#[kernel]
fn source_of(word: Bits<WORD_BITS>) -> Bits<SOURCE_ADDRESS_BITS> {
    word.get_bits::<SOURCE_ADDRESS_BITS>(SOURCE_ADDRESS - WORD)
}

impl Logic for EntryRegisters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let write = self.write.value.val();
        let (data, strobe) = (write.data, write.strobe);
        let block = write.word.get_bits::<BLOCK_BITS>(BLOCK - WORD);
        let part = write.word.get_bits::<2>(PART - WORD);
        let is_source = self.write.valid.val() && block == SOURCE_ADDRESSES;
        let is_moderation = self.write.valid.val() && block == MODERATIONS;
        let acts = strobe.get_bit(7);
        let none = bits::<8>(0);

        // Entries are kept.
        self.source_high.write(select(is_source && part == HIGH, strobe, none), source_of(write.word), data);
        self.source_low.write(select(is_source && part == LOW, strobe, none), source_of(write.word), data);
        self.source_port.write(select(is_source && part == PORT, strobe, none), source_of(write.word), data);
        self.moderations.write_strobe.next = select(is_moderation, strobe.get_bits::<2>(0), bits::<2>(0));
        self.moderations.write_address.next = write.word.get_bits::<VECTOR_BITS>(0);
        self.moderations.write_data.next = data.get_bits::<16>(0);
        let has_valid = is_source && part == PORT && strobe.get_bit(PORT_VALID / 8);
        for i in 0..limits::SOURCE_ADDRESSES {
            if has_valid && source_of(write.word) == i as u64 {
                self.sources_valid[i].d.next = data.get_bit(PORT_VALID);
            }
            let mine = bit_cast::<{ limits::SOURCE_ADDRESSES }, 1>(self.sources_valid[i].q.val().into())
                << (i as u64);
            self.sources_joined[i].next = if i == 0 { mine } else { self.sources_joined[i - 1].val() | mine };
        }
        self.source_addresses.next = self.sources_joined[limits::SOURCE_ADDRESSES - 1].val();

        // Entries are read back as a whole, and sent.
        self.read.d.next = write.word;
        self.reads_source.d.next = is_source && acts && part <= PORT;
        self.reads_moderation.d.next = is_moderation && acts;
        let read = self.read.q.val();
        self.source_high.read(self.reads_source.q.val(), source_of(read));
        self.source_low.read(self.reads_source.q.val(), source_of(read));
        self.source_port.read(self.reads_source.q.val(), source_of(read));
        self.moderations.read(self.reads_moderation.q.val(), read.get_bits::<VECTOR_BITS>(0));
        self.sent.d.next = read;
        self.sends_source.d.next = self.reads_source.q.val();
        self.sends_moderation.d.next = self.reads_moderation.q.val();
        let sent = self.sent.q.val();
        let port = self.source_port.read_data.val();
        self.source_address_write.value.next = SourceAddressWrite {
            index: source_of(sent),
            valid: port.get_bit(PORT_VALID),
            address: cat!(self.source_high.read_data.val(), self.source_low.read_data.val()),
            mac: port.get_bits::<MAC_BITS>(0),
        };
        self.source_address_write.valid.next = self.sends_source.q.val();
        self.interrupt_moderation_write.next = self.sends_moderation.q.val();
        self.interrupt_moderation_vector.next = sent.get_bits::<VECTOR_BITS>(0);
        self.interrupt_moderation_period.next = self.moderations.read_data.val();
    }
}

const _: () = assert!(ABOVE == WORD + WORD_BITS, "a word is the address of a register without its low bits");
