//! Flow control of the link: PFC, which pauses single classes, and PAUSE, which pauses the link (protocol 1.11).
//!
//! These frames are not forwarded and not tagged. Their times count quanta of 512 bit times from the arrival of the frame; zero
//! resumes traffic at once.

use super::ethernet::{self, ETHERTYPE_MAC_CONTROL, EthernetRepr, MacAddress};
use super::header::{Error, header};

/// Destination address of MAC control frames.
pub const DESTINATION: MacAddress = MacAddress([0x01, 0x80, 0xC2, 0x00, 0x00, 0x01]);

/// Bytes of a flow control frame without FCS: the smallest Ethernet frame.
pub const FRAME_BYTES: usize = 60;

/// Bit times of one quantum; at 100 Gb/s that is 5.12 ns.
pub const QUANTUM_BIT_TIMES: u32 = 512;

/// Priority classes of a link.
pub const CLASSES: usize = 8;

/// Opcode of PAUSE.
pub const OPCODE_PAUSE: u16 = 0x0001;

/// Opcode of PFC.
pub const OPCODE_PFC: u16 = 0x0101;

header! {
    /// Content of a PAUSE frame, between the Ethernet header and the pad.
    pause, PausePacket, "PAUSE", 4 bytes;
    /// Opcode 0x0001.
    OPCODE opcode set_opcode: u16 = 0, 7, 16, "code", "protocol 1.11";
    /// Pause time of the link.
    QUANTA quanta set_quanta: u16 = 2, 7, 16, "512 bit times", "protocol 1.11";
}

header! {
    /// Content of a PFC frame, between the Ethernet header and the pad.
    pfc, PfcPacket, "PFC", 20 bytes;
    /// Opcode 0x0101.
    OPCODE opcode set_opcode: u16 = 0, 7, 16, "code", "protocol 1.11";
    /// The upper half of the class vector: zero when sent, ignored when received.
    RESERVED reserved set_reserved: u8 = 2, 7, 8, "bits", "protocol 1.11";
    /// Class enable vector: if bit i is set, the time of class i applies.
    CLASSES classes set_classes: u8 = 3, 7, 8, "flags", "protocol 1.11";
    /// Pause time of class 0.
    QUANTA_0 quanta_0 set_quanta_0: u16 = 4, 7, 16, "512 bit times", "protocol 1.11";
    /// Pause time of class 1.
    QUANTA_1 quanta_1 set_quanta_1: u16 = 6, 7, 16, "512 bit times", "protocol 1.11";
    /// Pause time of class 2.
    QUANTA_2 quanta_2 set_quanta_2: u16 = 8, 7, 16, "512 bit times", "protocol 1.11";
    /// Pause time of class 3.
    QUANTA_3 quanta_3 set_quanta_3: u16 = 10, 7, 16, "512 bit times", "protocol 1.11";
    /// Pause time of class 4.
    QUANTA_4 quanta_4 set_quanta_4: u16 = 12, 7, 16, "512 bit times", "protocol 1.11";
    /// Pause time of class 5.
    QUANTA_5 quanta_5 set_quanta_5: u16 = 14, 7, 16, "512 bit times", "protocol 1.11";
    /// Pause time of class 6.
    QUANTA_6 quanta_6 set_quanta_6: u16 = 16, 7, 16, "512 bit times", "protocol 1.11";
    /// Pause time of class 7.
    QUANTA_7 quanta_7 set_quanta_7: u16 = 18, 7, 16, "512 bit times", "protocol 1.11";
}

/// A parsed flow control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseRepr {
    /// PAUSE: pauses the link.
    Pause {
        /// Pause time in quanta; 0 resumes.
        quanta: u16,
    },
    /// PFC: pauses each class that has a time. Classes with `None` do not change.
    Priority {
        /// Pause time of each class in quanta; 0 resumes.
        quanta: [Option<u16>; CLASSES],
    },
}

impl PauseRepr {
    /// Parses a whole frame. The source address may be any; the pad is ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the frame ends before its times, [`Error::Field`] if it is no flow control frame.
    pub fn parse(frame: &[u8]) -> Result<Self, Error> {
        let ethernet = EthernetRepr::parse(frame)?;
        let wrong = |header, field, found, allowed| Err(Error::Field { header, field, found, allowed });
        if ethernet.destination != DESTINATION {
            let found = super::header::Value::into_bits(ethernet.destination) as u64;
            return wrong("Ethernet", "destination", found, "01:80:c2:00:00:01");
        }
        if ethernet.vlan.is_some() {
            return wrong("Ethernet", "ethertype", ethernet::ETHERTYPE_VLAN.into(), "0x8808: not tagged");
        }
        if ethernet.ethertype != ETHERTYPE_MAC_CONTROL {
            return wrong("Ethernet", "ethertype", ethernet.ethertype.into(), "0x8808");
        }
        let body = &frame[ethernet.buffer_len()..];
        let pause = PausePacket::new_checked(body)?;
        match pause.opcode() {
            OPCODE_PAUSE => Ok(Self::Pause { quanta: pause.quanta() }),
            OPCODE_PFC => {
                let packet = PfcPacket::new_checked(body)?;
                let times = [
                    packet.quanta_0(),
                    packet.quanta_1(),
                    packet.quanta_2(),
                    packet.quanta_3(),
                    packet.quanta_4(),
                    packet.quanta_5(),
                    packet.quanta_6(),
                    packet.quanta_7(),
                ];
                let classes = packet.classes();
                let quanta =
                    core::array::from_fn(|class| (classes >> class & 1 != 0).then_some(times[class]));
                Ok(Self::Priority { quanta })
            }
            other => wrong("PAUSE", "opcode", other.into(), "0x0001 (PAUSE) or 0x0101 (PFC)"),
        }
    }

    /// Writes a whole frame with source address `source` and zeros as pad.
    pub fn emit(&self, source: MacAddress, frame: &mut [u8; FRAME_BYTES]) {
        frame.fill(0);
        let ethernet =
            EthernetRepr { destination: DESTINATION, source, vlan: None, ethertype: ETHERTYPE_MAC_CONTROL };
        ethernet.emit(frame);
        let body = &mut frame[ethernet.buffer_len()..];
        match *self {
            Self::Pause { quanta } => {
                let mut packet = PausePacket::new_unchecked(body);
                packet.set_opcode(OPCODE_PAUSE);
                packet.set_quanta(quanta);
            }
            Self::Priority { quanta } => {
                let mut packet = PfcPacket::new_unchecked(body);
                packet.set_opcode(OPCODE_PFC);
                let enabled = |bits, class: usize| bits | u8::from(quanta[class].is_some()) << class;
                packet.set_classes((0..CLASSES).fold(0, enabled));
                let [a, b, c, d, e, f, g, h] = quanta.map(Option::unwrap_or_default);
                packet.set_quanta_0(a);
                packet.set_quanta_1(b);
                packet.set_quanta_2(c);
                packet.set_quanta_3(d);
                packet.set_quanta_4(e);
                packet.set_quanta_5(f);
                packet.set_quanta_6(g);
                packet.set_quanta_7(h);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOURCE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    /// Frames as scapy's MAC control layer writes them, followed by zeros to 60 bytes.
    fn frame(hexadecimal: &str) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        hex::decode_to_slice(hexadecimal, &mut frame[..hexadecimal.len() / 2]).unwrap();
        frame
    }

    const PFC: &str = "0180c2000001020000000001880801010028000000000000ffff00000000000000000000";
    const PAUSE: &str = "0180c2000001020000000001880800011234";

    #[test]
    fn deconstruct_and_construct_priority_flow_control() {
        let mut quanta = [None; CLASSES];
        (quanta[3], quanta[5]) = (Some(0xFFFF), Some(0));
        let repr = PauseRepr::Priority { quanta };
        assert_eq!(PauseRepr::parse(&frame(PFC)), Ok(repr));
        let mut emitted = [0xA5; FRAME_BYTES];
        repr.emit(SOURCE, &mut emitted);
        assert_eq!(emitted, frame(PFC));
    }

    #[test]
    fn deconstruct_and_construct_pause() {
        let repr = PauseRepr::Pause { quanta: 0x1234 };
        assert_eq!(PauseRepr::parse(&frame(PAUSE)), Ok(repr));
        let mut emitted = [0xA5; FRAME_BYTES];
        repr.emit(SOURCE, &mut emitted);
        assert_eq!(emitted, frame(PAUSE));
    }

    #[test]
    fn frames_that_are_something_else_are_refused() {
        assert!(PauseRepr::parse(&frame(PFC)[..34]).is_ok());
        assert!(PauseRepr::parse(&frame(PFC)[..33]).is_err());
        assert!(PauseRepr::parse(&frame(PAUSE)[..18]).is_ok());
        assert!(PauseRepr::parse(&frame(PAUSE)[..17]).is_err());
        for byte in [5, 13, 14, 15] {
            let mut other = frame(PFC);
            other[byte] ^= 0x10;
            assert!(matches!(PauseRepr::parse(&other), Err(Error::Field { .. })), "byte {byte}");
        }
        let tagged = frame("0180c20000010200000000018100000088080101");
        assert!(matches!(PauseRepr::parse(&tagged), Err(Error::Field { .. })));
    }

    proptest! {
        #[test]
        fn pause_times_of_all_classes_read_back(quanta: [Option<u16>; CLASSES]) {
            let repr = PauseRepr::Priority { quanta };
            let mut emitted = [0xA5; FRAME_BYTES];
            repr.emit(SOURCE, &mut emitted);
            prop_assert_eq!(PauseRepr::parse(&emitted), Ok(repr));
        }
    }
}
