//! Opcode lookup: length of the extended headers, and the role that the packet is for.
//!
//! ```text
//!            ┌──────────────┐
//!  opcode ──>│ 256 x 6 bits ├──> extended_dwords, packet_class, is_supported
//!            └──────────────┘
//! ```
//!
//! Combinational: six functions of eight bits.
//!
//! 1. An unassigned RC opcode is a request without extended headers: the responder answers it with a NAK
//!    (protocol 8.3).
//! 2. An unassigned opcode of another transport is not supported, and neither is another transport.
//!
//! The table is that of [`rnic_layout::opcode`]. Protocol 1.4.
use super::parse::PacketClass;
use rnic_kernel::prelude::*;
use rnic_layout::opcode::{Class, EXTENDED_BYTES, class};

/// One output bit for each of the 256 opcodes.
fn column(bit: impl Fn(u8) -> bool) -> Constant<Bits<256>> {
    let set = (0..=u8::MAX).filter(|opcode| bit(*opcode));
    Constant::new(
        set.fold(Bits::default(), |column: Bits<256>, opcode| column.replace_bit(opcode.into(), true)),
    )
}

/// The table, one constant per output bit.
#[derive(LogicBlock, Registers, Construct)]
pub struct OpcodeTable {
    /// Opcode of the BTH.
    pub opcode: Signal<In, Bits<8>>,
    /// Length of the extended headers in units of 4 bytes, 0 to 7.
    pub extended_dwords: Signal<Out, Bits<3>>,
    /// The role that the packet is for.
    pub packet_class: Signal<Out, PacketClass>,
    /// The card supports the transport, and the opcode is assigned or belongs to RC.
    pub is_supported: Signal<Out, Bit>,
    #[init(column(|opcode| (EXTENDED_BYTES[usize::from(opcode)] / 4) & 1 != 0))]
    extended_dwords_0: Constant<Bits<256>>,
    #[init(column(|opcode| (EXTENDED_BYTES[usize::from(opcode)] / 4) & 2 != 0))]
    extended_dwords_1: Constant<Bits<256>>,
    #[init(column(|opcode| (EXTENDED_BYTES[usize::from(opcode)] / 4) & 4 != 0))]
    extended_dwords_2: Constant<Bits<256>>,
    #[init(column(|opcode| class(opcode) == Some(Class::Response)))]
    responses: Constant<Bits<256>>,
    #[init(column(|opcode| class(opcode) == Some(Class::Congestion)))]
    congestion: Constant<Bits<256>>,
    #[init(column(|opcode| class(opcode).is_some()))]
    supported: Constant<Bits<256>>,
}

impl Logic for OpcodeTable {
    #[kernel]
    fn update(&mut self) {
        let opcode = self.opcode.val();
        self.extended_dwords.next = cat!(
            self.extended_dwords_2.val().get_bit(opcode.index()),
            self.extended_dwords_1.val().get_bit(opcode.index()),
            self.extended_dwords_0.val().get_bit(opcode.index()),
        );
        self.is_supported.next = self.supported.val().get_bit(opcode.index());
        self.packet_class.next = if self.congestion.val().get_bit(opcode.index()) {
            PacketClass::Congestion
        } else if self.responses.val().get_bit(opcode.index()) {
            PacketClass::Response
        } else {
            PacketClass::Request
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;

    #[test]
    fn every_opcode_is_as_in_the_specification_and_in_verilog() {
        let mut bench = Bench::combinational(OpcodeTable::default()).in_lock_step();
        for opcode in 0..=u8::MAX {
            bench.block.opcode.next = bits(opcode.into());
            bench.settle();
            let table = &bench.block;
            let supported = matches!(opcode, 0x00..=0x1f | 0x20..=0x2b | 0x64 | 0x65 | 0x81);
            assert_eq!(table.is_supported.val(), supported, "{opcode:02x}");
            let is_response = matches!(opcode, 0x0d..=0x12);
            assert_eq!(table.packet_class.val() == PacketClass::Response, is_response, "{opcode:02x}");
            assert_eq!(table.packet_class.val() == PacketClass::Congestion, opcode == 0x81, "{opcode:02x}");
            let dwords = table.extended_dwords.val().to_u64();
            assert_eq!(dwords, u64::from(EXTENDED_BYTES[usize::from(opcode)]) / 4, "{opcode:02x}");
        }
    }
}
