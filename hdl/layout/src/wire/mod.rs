//! The wire: headers, the ICRC, whole frames, and the checks by which the card accepts a frame.
//!
//! A header has two forms. A `Packet` is a view: it wraps a buffer and reads or writes single fields in place. A `Repr` is a plain
//! struct of the fields; it is parsed from a view and emitted into one. Both are lossless: reserved bits are fields too, so that a
//! received frame can be emitted unchanged.
//!
//! **No input bytes cause a panic.** `new_checked` verifies once that a buffer holds the whole header; after it no getter, setter,
//! `parse` or `emit` of that view panics. After `new_unchecked` the caller is responsible for the length.
//!
//! ```
//! use rnic_layout::wire::{DropReason, Filter, classify};
//!
//! // A SEND of eight bytes over RC and IPv4: vector V1 of protocol 1.8.
//! let mut frame = hex::decode(
//!     "020000000002020000000001080045000034123440004011a516c0a8010ac0a80114c00112b7002000000400ffff\
//!      000000128000abcd52444d412d4e49436bc73e7c",
//! )?;
//! let packet = classify(&frame, false, &Filter::PROMISCUOUS)?;
//! assert_eq!((packet.bth.destination_qp, packet.payload), (0x12, &b"RDMA-NIC"[..]));
//!
//! let mut again = vec![0; packet.buffer_len()];
//! packet.emit(&mut again)?; assert_eq!(again, frame);
//!
//! frame[60] ^= 1;
//! assert_eq!(classify(&frame, false, &Filter::PROMISCUOUS), Err(DropReason::Icrc));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! Every header is declared as one table (by the macro of [`header`]). A proof at compile time shows that its fields neither overlap
//! nor leave a gap. [`HEADERS`] lists all headers.

pub mod header;
pub mod ethernet;
pub mod ip;
pub mod udp;
pub mod bth;
pub mod extended;
pub mod icrc;
pub mod packet;
pub mod classify;
pub mod grh;
pub mod pause;

pub use bth::{BthPacket, BthRepr};
pub use classify::{DropReason, Filter, Refusal, classify, explain};
pub use ethernet::{EthernetPacket, EthernetRepr, MacAddress, VlanPacket, VlanTag};
pub use extended::{Extended, ExtendedRepr};
pub use grh::{GrhKind, grh_area, grh_kind};
pub use header::{Error, Field, Header};
pub use ip::{IpRepr, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr};
pub use packet::PacketRepr;
pub use pause::PauseRepr;
pub use udp::{UdpPacket, UdpRepr};

/// Every header, from the outermost to the innermost, then the flow control frames of the link.
pub const HEADERS: [Header; 17] = [
    ethernet::fields::HEADER,
    ethernet::vlan::HEADER,
    ip::ipv4::HEADER,
    ip::ipv6::HEADER,
    udp::fields::HEADER,
    bth::fields::HEADER,
    extended::deth::HEADER,
    extended::feth::HEADER,
    extended::reth::HEADER,
    extended::atomic_eth::HEADER,
    extended::aeth::HEADER,
    extended::atomic_ack_eth::HEADER,
    extended::immediate::HEADER,
    extended::ieth::HEADER,
    extended::cnp::HEADER,
    pause::pause::HEADER,
    pause::pfc::HEADER,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_meaning_a_unit_and_a_citation() {
        for header in HEADERS {
            for (index, field) in header.fields.iter().enumerate() {
                let place = (header.name, field.name);
                assert!(field.meaning.ends_with('.') && !field.meaning.starts_with(' '), "{place:?}");
                assert!(field.section.starts_with("protocol 1."), "{place:?}");
                assert!(!field.unit.is_empty(), "{place:?}");
                let earlier = &header.fields[..index];
                assert!(earlier.iter().all(|other| other.name != field.name), "{place:?}");
            }
        }
    }
}
