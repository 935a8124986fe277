//! Flow control of the link itself: PFC, by class, and the plain PAUSE before it (protocol 1.11).
//!
//! Such a frame goes to the next port only and is not tagged. Its times count quanta of 512 bit times from
//! its arrival; a time of zero lets traffic go on at once.

use super::ethernet::{self, ETHERTYPE_MAC_CONTROL, EthernetRepr, MacAddress};
use super::header::{Error, header};

/// Where MAC control frames go to.
pub const DESTINATION: MacAddress = MacAddress([0x01, 0x80, 0xC2, 0x00, 0x00, 0x01]);

/// Bytes of a frame without FCS: the least that Ethernet has.
pub const FRAME_BYTES: usize = 60;

/// Bit times of one quantum; at 100 Gb/s that is 5.12 ns.
pub const QUANTUM_BIT_TIMES: u32 = 512;

/// Priority classes of a link.
pub const CLASSES: usize = 8;

/// Opcode of the plain PAUSE frame.
pub const OPCODE_PAUSE: u16 = 0x0001;

/// Opcode of priority flow control.
pub const OPCODE_PFC: u16 = 0x0101;

header! {
    /// What follows the Ethernet header of a PAUSE frame, before its pad.
    pause, PausePacket, "PAUSE", 4 bytes;
    /// 0x0001.
    OPCODE opcode set_opcode: u16 = 0, 7, 16, "code", "protocol 1.11";
    /// How long the whole link is silent.
    QUANTA quanta set_quanta: u16 = 2, 7, 16, "512 bit times", "protocol 1.11";
}

header! {
    /// What follows the Ethernet header of a PFC frame, before its pad.
    pfc, PfcPacket, "PFC", 20 bytes;
    /// 0x0101.
    OPCODE opcode set_opcode: u16 = 0, 7, 16, "code", "protocol 1.11";
    /// The upper half of the class vector: zero when sent, ignored when received.
    RESERVED reserved set_reserved: u8 = 2, 7, 8, "bits", "protocol 1.11";
    /// Bit i says that the time of class i counts.
    CLASSES classes set_classes: u8 = 3, 7, 8, "flags", "protocol 1.11";
    /// How long class 0 is silent.
    QUANTA_0 quanta_0 set_quanta_0: u16 = 4, 7, 16, "512 bit times", "protocol 1.11";
    /// How long class 1 is silent.
    QUANTA_1 quanta_1 set_quanta_1: u16 = 6, 7, 16, "512 bit times", "protocol 1.11";
    /// How long class 2 is silent.
    QUANTA_2 quanta_2 set_quanta_2: u16 = 8, 7, 16, "512 bit times", "protocol 1.11";
    /// How long class 3 is silent.
    QUANTA_3 quanta_3 set_quanta_3: u16 = 10, 7, 16, "512 bit times", "protocol 1.11";
    /// How long class 4 is silent.
    QUANTA_4 quanta_4 set_quanta_4: u16 = 12, 7, 16, "512 bit times", "protocol 1.11";
    /// How long class 5 is silent.
    QUANTA_5 quanta_5 set_quanta_5: u16 = 14, 7, 16, "512 bit times", "protocol 1.11";
    /// How long class 6 is silent.
    QUANTA_6 quanta_6 set_quanta_6: u16 = 16, 7, 16, "512 bit times", "protocol 1.11";
    /// How long class 7 is silent.
    QUANTA_7 quanta_7 set_quanta_7: u16 = 18, 7, 16, "512 bit times", "protocol 1.11";
}

/// What a flow control frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseRepr {
    /// The whole link is silent this long.
    Pause {
        /// In quanta; 0 ends the silence.
        quanta: u16,
    },
    /// Each class with a time is silent this long; classes with `None` go on as they were.
    Priority {
        /// In quanta, by class; 0 ends the silence.
        quanta: [Option<u16>; CLASSES],
    },
}

impl PauseRepr {
    /// Reads a whole frame. The source may be any; pad is ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] when the frame ends before its times do, [`Error::Field`] when it is no flow control frame.
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

    /// Writes a whole frame from `source`, zeros as its pad.
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
        fn all_times_survive(quanta: [Option<u16>; CLASSES]) {
            let repr = PauseRepr::Priority { quanta };
            let mut emitted = [0xA5; FRAME_BYTES];
            repr.emit(SOURCE, &mut emitted);
            prop_assert_eq!(PauseRepr::parse(&emitted), Ok(repr));
        }
    }
}
