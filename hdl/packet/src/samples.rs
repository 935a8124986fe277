//! Frames for tests: a builder whose every field can be corrupted.

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
    /// Destination QPN.
    pub(crate) queue_pair: u32,
    /// Operation.
    pub(crate) opcode: u8,
    /// Extended headers; their length is that of the opcode in a good frame.
    pub(crate) extended: Vec<u8>,
    /// Payload without pad.
    pub(crate) payload: Vec<u8>,
}

impl Recipe {
    /// A SEND_ONLY of some bytes to queue pair 0x12 over untagged IPv4.
    pub(crate) fn send(payload_bytes: usize) -> Self {
        let payload = (0..payload_bytes).map(|index| (index * 7 + 1) as u8).collect();
        Recipe { vlan: None, is_ipv6: false, queue_pair: 0x12, opcode: 0x04, extended: Vec::new(), payload }
    }

    /// Another opcode, with `extended_bytes` of extended headers.
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
        frame.extend(bytes_of("ffff"));
        frame.extend(self.queue_pair.to_be_bytes());
        frame.extend(bytes_of("80abcdef"));
        frame.extend(&self.extended);
        frame.extend(&self.payload);
        frame.resize(frame.len() + pad + 4, 0);
        self.seal(&mut frame);
        frame
    }

    /// Recomputes the IPv4 checksum and the ICRC of a corrupted frame, where its lengths are those of the recipe.
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
        for frame in crate::vectors::frames() {
            let is_tagged = frame[12..14] == [0x81, 0x00];
            let mut recipe = Recipe { vlan: is_tagged.then_some(0), ..Recipe::send(0) };
            recipe.is_ipv6 = frame[recipe.ip()] >> 4 == 6;
            let mut sealed = frame.clone();
            recipe.seal(&mut sealed);
            assert_eq!(sealed, frame);
        }
    }
}
