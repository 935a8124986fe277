//! Frames for tests: the vectors of protocol 1.8, and a builder whose every field can be spoilt.

/// A frame whose ICRC other implementations agree on, and what it is.
pub(crate) struct Vector {
    /// Name in protocol 1.8.
    pub(crate) name: &'static str,
    /// The frame without FCS, in hexadecimal.
    pub(crate) frame: &'static str,
    /// The extended headers, in hexadecimal.
    pub(crate) extended: &'static str,
    /// The payload without pad, in hexadecimal.
    pub(crate) payload: &'static str,
}

/// The vectors of protocol 1.8 that are given there in full.
pub(crate) const VECTORS: &[Vector] = &[
    Vector {
        name: "V1",
        frame: "020000000002020000000001080045000034123440004011a516c0a8010ac0a80114c00112b7002000000400ffff000000128000abcd52444d412d4e49436bc73e7c",
        extended: "",
        payload: "52444d412d4e4943",
    },
    Vector {
        name: "V2",
        frame: "0200000000020200000000010800456a0044000040004011b6d0c0a8010ac0a80114d3a712b7003000000a70ffff000000ff80ffffff00007f001122334400001a050000000568656c6c6f0000009e4eb341",
        extended: "00007f001122334400001a0500000005",
        payload: "68656c6c6f",
    },
    Vector {
        name: "V3",
        frame: "02000000000102000000000286dd66812345001c113ffd000000000000000000000000000020fd000000000000000000000000000010c00112b7001c00001100ffff000000110000abcd1f000001910f9cfb",
        extended: "1f000001",
        payload: "",
    },
    Vector {
        name: "V4",
        frame: "02000000000202000000000186dd6000000000281140fd000000000000000000000000000010fd000000000000000000000000000020f00d12b7002800000c00ffff00000012800000000000000000001000deadbe01000020001b1622c6",
        extended: "0000000000001000deadbe0100002000",
        payload: "",
    },
    Vector {
        name: "V5",
        frame: "02000000000202000000000108004500003cbeef40004011f852c0a8010ac0a80114c0de12b7002800006580ffff0000003400000007111111110000002101020304cafebabe08317876",
        extended: "111111110000002101020304",
        payload: "cafebabe",
    },
    Vector {
        name: "V6",
        frame: "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a",
        extended: "00000000000000000000000000000000",
        payload: "",
    },
    Vector {
        name: "V7",
        frame: "020000000002020000000001080045000048000140004011b735c0a8010ac0a80114c00112b7003400001300ffff00000012800000100000000000002000000002030123456789abcdeffedcba9876543210e1da1bb2",
        extended: "0000000000002000000002030123456789abcdeffedcba9876543210",
        payload: "",
    },
    Vector {
        name: "V8",
        frame: "02000000000202000000000108004500002c000240004011b750c0a8010ac0a80114c00112b7001800000400ffff00000012800000116ae02cd3",
        extended: "",
        payload: "",
    },
    Vector {
        name: "V9",
        frame: "02000000000202000000000181006064080045000034000340004011b747c0a8010ac0a80114c00112b7002000001700ffff000000128000002000001a05696e762157c466d5",
        extended: "00001a05",
        payload: "696e7621",
    },
    Vector {
        name: "V10b",
        frame: "020000000002020000000001080045000034000540004011b745c0a8010ac0a80114c00112b70020000009b0ffff0000001280000000a1b2c3d45a0000007dde158d",
        extended: "a1b2c3d4",
        payload: "5a",
    },
    Vector {
        name: "V12",
        frame: "020000000001020000000002080045000030000940004011b745c0a80114c0a8010ac00112b7001c00001000ffff00000011000000331f000003cbbdab6c",
        extended: "1f000003",
        payload: "",
    },
    Vector {
        name: "V13",
        frame: "020000000001020000000002080045000038000a40004011b73cc0a80114c0a8010ac00112b7002400001200ffff00000011000000101f00000411223344556677889b32f251",
        extended: "1f0000041122334455667788",
        payload: "",
    },
    Vector {
        name: "V17",
        frame: "020000000002020000000001080045000040000e40004011b730c0a8010ac0a80114c00112b7002c00002b00ffff000000150000000500000000000040000000077700000000deadbeef402fed36",
        extended: "00000000000040000000077700000000deadbeef",
        payload: "",
    },
    Vector {
        name: "V20",
        frame: "02000000000202000000000186dd6000000000401140fd000000000000000000000000000010fd000000000000000000000000000020c00112b7004000006400ffff000000010000010080010000000000010000000000000000000000000000000000000000000000000000000000000000caf25740",
        extended: "8001000000000001",
        payload: "0000000000000000000000000000000000000000000000000000000000000000",
    },
];

/// The card's own address in frames of the builder.
pub(crate) const OWN_MAC: u64 = 0x0200_0000_0002;

/// Reads hexadecimal.
pub(crate) fn bytes_of(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two hexadecimal digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

/// What a good frame is built from.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// Tag control information of an 802.1Q tag.
    pub(crate) vlan: Option<u16>,
    /// IPv6 instead of IPv4.
    pub(crate) is_ipv6: bool,
    /// Operation.
    pub(crate) opcode: u8,
    /// Extended headers; their length is that of the opcode in a good frame.
    pub(crate) extended: Vec<u8>,
    /// Payload without pad.
    pub(crate) payload: Vec<u8>,
}

impl Recipe {
    /// A SEND_ONLY of some bytes over untagged IPv4.
    pub(crate) fn send(payload_bytes: usize) -> Self {
        let payload = (0..payload_bytes).map(|index| (index * 7 + 1) as u8).collect();
        Recipe { vlan: None, is_ipv6: false, opcode: 0x04, extended: Vec::new(), payload }
    }

    /// Another operation, with extended headers of so many bytes.
    pub(crate) fn with_opcode(self, opcode: u8, extended_bytes: usize) -> Self {
        let extended = (0..extended_bytes).map(|index| 0xe0 ^ index as u8).collect();
        Recipe { opcode, extended, ..self }
    }

    /// Bytes before the payload.
    pub(crate) fn header_bytes(&self) -> usize {
        self.udp() + 8 + 12 + self.extended.len()
    }

    /// Offset of the IP header.
    pub(crate) fn ip(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Offset of the UDP header.
    pub(crate) fn udp(&self) -> usize {
        self.ip() + if self.is_ipv6 { 40 } else { 20 }
    }

    /// Offset of the transport header.
    pub(crate) fn bth(&self) -> usize {
        self.udp() + 8
    }

    /// Writes the frame, up to the ICRC.
    pub(crate) fn build(&self) -> Vec<u8> {
        let pad = self.payload.len().wrapping_neg() % 4;
        let udp_bytes = (8 + 12 + self.extended.len() + self.payload.len() + pad + 4) as u16;
        let mut frame = bytes_of("020000000002020000000001");
        if let Some(control) = self.vlan {
            frame.extend([0x81, 0x00]);
            frame.extend(control.to_be_bytes());
        }
        if self.is_ipv6 {
            frame.extend(bytes_of("86dd6a512345"));
            frame.extend(udp_bytes.to_be_bytes());
            frame.extend(bytes_of("113ffd0000000000000000000000000000c1fd0000000000000000000000000000c2"));
        } else {
            frame.extend(bytes_of("08004568"));
            frame.extend((20 + udp_bytes).to_be_bytes());
            frame.extend(bytes_of("1234400040110000c0a8010ac0a80114"));
        }
        frame.extend(bytes_of("c00112b7"));
        frame.extend(udp_bytes.to_be_bytes());
        frame.extend([0, 0, self.opcode, (pad as u8) << 4]);
        frame.extend(bytes_of("ffff0000001280abcdef"));
        frame.extend(&self.extended);
        frame.extend(&self.payload);
        frame.resize(frame.len() + pad + 4, 0);
        self.seal(&mut frame);
        frame
    }

    /// Makes the IPv4 checksum and the ICRC of a spoilt frame right again, where its lengths are those of the recipe.
    pub(crate) fn seal(&self, frame: &mut [u8]) {
        if !self.is_ipv6 {
            let ip = self.ip();
            frame[ip + 10..ip + 12].fill(0);
            let words = frame[ip..ip + 20].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum: u32 = words.sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
            frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        let end = frame.len() - 4;
        let icrc = self.icrc(&frame[..end]);
        frame[end..].copy_from_slice(&icrc.to_le_bytes());
    }

    /// The ICRC of a frame without it, bit by bit as protocol 1.8 says.
    fn icrc(&self, frame: &[u8]) -> u32 {
        let mut covered = frame.to_vec();
        let (ip, udp, bth) = (self.ip(), self.udp(), self.bth());
        let masked: Vec<usize> = match self.is_ipv6 {
            true => vec![ip + 1, ip + 2, ip + 3, ip + 7, udp + 6, udp + 7, bth + 4],
            false => vec![ip + 1, ip + 8, ip + 10, ip + 11, udp + 6, udp + 7, bth + 4],
        };
        masked.into_iter().for_each(|at| covered[at] = 0xff);
        if self.is_ipv6 {
            covered[ip] |= 0x0f;
        }
        let input = [0xff; 8].iter().chain(&covered[ip..]);
        let register = input.fold(u32::MAX, |register, byte| {
            (0..8).fold(register ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
            })
        });
        !register
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builder_agrees_with_the_vectors_on_the_icrc() {
        for vector in VECTORS {
            let frame = bytes_of(vector.frame);
            let is_tagged = frame[12..14] == [0x81, 0x00];
            let mut recipe = Recipe::send(0);
            recipe.vlan = is_tagged.then_some(0);
            recipe.is_ipv6 = frame[recipe.ip()] >> 4 == 6;
            let mut sealed = frame.clone();
            recipe.seal(&mut sealed);
            assert_eq!(sealed, frame, "{}", vector.name);
        }
    }
}
