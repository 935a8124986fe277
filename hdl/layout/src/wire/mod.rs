//! Everything that goes on the wire: headers, the ICRC, whole frames, and whether the card takes them.
//!
//! A header has two forms. A `Packet` is a view: it wraps the bytes and reads or writes single fields where
//! they stand. A `Repr` is what the bytes say, as plain Rust; it is parsed from a view and emitted into one.
//! Between them nothing is lost: reserved bits are fields like any other, so that a frame can be written
//! again as it came.
//!
//! **Nothing here panics on bytes from outside.** `new_checked` proves that a buffer holds the whole header,
//! once; after it no getter, setter, `parse` or `emit` of that view can panic. `new_unchecked` leaves the
//! proof to the caller.
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
//! Every header is one table (in [`header`]'s macro), from which its constants come, with the proof at
//! compile time that fields neither overlap nor leave a gap. [`HEADERS`] lists them all for manuals and C headers.

pub mod bth;
pub mod classify;
pub mod ethernet;
pub mod extended;
pub mod grh;
pub mod header;
pub mod icrc;
pub mod ip;
pub mod packet;
pub mod pause;
pub mod udp;

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

/// Every header, from the outside of a frame to its inside, and at the end those of the link itself.
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
    fn every_field_says_what_it_is_and_where_that_is_written() {
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
