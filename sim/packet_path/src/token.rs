//! The packet token of the hardware, on the wide port that carries it.
use crate::words;
use rnic_kernel::prelude::{Synth, TypeKind};
use rnic_messages::PacketToken;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// First bit and width of each field.
static FIELDS: LazyLock<BTreeMap<String, (usize, usize)>> = LazyLock::new(|| {
    let TypeKind::Composite(fields) = PacketToken::descriptor().kind else {
        unreachable!("a token is a struct of fields");
    };
    let mut offset = 0;
    let placed = fields.into_iter().map(|field| {
        let width = bits(&field.kind.kind);
        offset += width;
        (field.fieldname, (offset - width, width))
    });
    placed.collect()
});

fn bits(kind: &TypeKind) -> usize {
    match kind {
        TypeKind::Bits(width) | TypeKind::Signed(width) => *width,
        TypeKind::Composite(fields) => fields.iter().map(|field| bits(&field.kind.kind)).sum(),
        TypeKind::Enum(variants) => (variants.len() - 1).checked_ilog2().map_or(1, |log| log as usize + 1),
    }
}

/// Width of a token, in bits.
pub const TOKEN_BITS: usize = PacketToken::BITS;

/// A packet token, with access to its fields by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(Vec<u32>);

impl Default for Token {
    fn default() -> Self {
        Token(vec![0; TOKEN_BITS.div_ceil(32)])
    }
}

impl Token {
    /// Makes a token of the value of a port.
    pub fn from_words(words: &[u32]) -> Token {
        Token(words[..TOKEN_BITS.div_ceil(32)].to_vec())
    }

    /// Value for a port, lowest word first; bits beyond [`TOKEN_BITS`] are zero.
    pub fn words(&self) -> &[u32] {
        &self.0
    }

    /// Reads a field of at most 128 bits by its name in the hardware.
    ///
    /// # Panics
    /// If the hardware has no such field.
    pub fn get(&self, field: &str) -> u128 {
        let (offset, width) = place(field);
        words::get(&self.0, offset, width)
    }

    /// Writes a field of at most 128 bits by its name in the hardware.
    ///
    /// # Panics
    /// If the hardware has no such field, or the number does not fit.
    pub fn set(&mut self, field: &str, number: impl Into<u128>) {
        let (offset, width) = place(field);
        words::set(&mut self.0, offset, width, number.into());
    }

    /// Reads the extended headers, in wire order.
    pub fn extended(&self) -> [u8; 28] {
        let mut bytes = [0; 28];
        words::get_bytes(&self.0, place("extended").0, &mut bytes);
        bytes
    }

    /// Writes the extended headers, in wire order.
    pub fn set_extended(&mut self, bytes: &[u8]) {
        words::set_bytes(&mut self.0, place("extended").0, bytes);
    }
}

fn place(field: &str) -> (usize, usize) {
    *FIELDS.get(field).unwrap_or_else(|| panic!("a packet token has no field `{field}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_fill_the_token_without_gap_or_overlap() {
        let mut places: Vec<_> = FIELDS.values().copied().collect();
        places.sort_unstable();
        let end = places.into_iter().fold(0, |end, (offset, width)| {
            assert_eq!(offset, end);
            offset + width
        });
        assert_eq!(end, TOKEN_BITS);
    }

    #[test]
    fn fields_do_not_disturb_each_other() {
        let mut token = Token::default();
        token.set("psn", 0xff_ffffu32);
        token.set_extended(&[0xa5; 28]);
        token.set("payload_bytes", 4096u32);
        assert_eq!((token.get("psn"), token.get("payload_bytes")), (0xff_ffff, 4096));
        assert_eq!((token.get("ack_request"), token.extended()), (0, [0xa5; 28]));
    }
}
