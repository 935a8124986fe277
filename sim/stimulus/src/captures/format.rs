//! The formats of capture files: pcap and pcapng, in either byte order.
//!
//! * **pcap**: with microseconds, nanoseconds, or the longer packet headers of the modified format.
//! * **pcapng**: any number of sections, each with its own byte order and interfaces. Packets of the Enhanced, the Simple and the
//!   obsolete Packet Block are read, other blocks skipped. Of the options, the reader takes those that change a packet: resolution
//!   and offset of the timestamps, and the length of the FCS. All others may hold anything.
//!
//! What a file says of itself is enough to read a packet, or the packet is refused: an interface that its section does not
//! describe, one that is not Ethernet, lengths that do not fit. The library `pcap-file`, which writes our captures, is of no use
//! here: it refuses options without an end mark and time zones, and does not know the modified format.
use anyhow::{Context, Result, bail, ensure};

/// What a file that ends too early looks like.
const ENDS: &str = "the file ends in the middle, or a length in it is wrong";
const LONGER: &str = "the packet is longer than its block";
/// The link type of Ethernet.
const ETHERNET: u32 = 1;
/// Length of the FCS of Ethernet, in bytes.
const FCS_BYTES: usize = 4;
/// A resolution of 10^-6 seconds, which a pcapng file need not state.
const MICROSECONDS: u8 = 6;
const NS_PER_SECOND: i128 = 1_000_000_000;

/// A packet as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// The frame without FCS, or the beginning of it.
    pub(super) bytes: &'a [u8],
    /// All of the frame is there.
    pub(super) is_whole: bool,
    /// Nanoseconds since 1970, if the file tells them.
    pub(super) time_ns: Option<i128>,
}

impl<'a> Packet<'a> {
    /// `captured` is what the file has, with the FCS if `has_fcs`; `bytes_on_wire` counts that, too. A capture may begin to cut at the
    /// FCS.
    fn new(captured: &'a [u8], bytes_on_wire: u32, has_fcs: bool, time_ns: Option<i128>) -> Packet<'a> {
        let on_wire = captured.len().max(bytes_on_wire as usize);
        let whole = on_wire.saturating_sub(if has_fcs { FCS_BYTES } else { 0 });
        let bytes = &captured[..captured.len().min(whole)];
        Packet { bytes, is_whole: bytes.len() == whole, time_ns }
    }
}

/// Reads all packets of a file.
///
/// # Errors
/// If it has another format, ends in the middle, contradicts itself, or has a packet that is not of Ethernet. The error names the
/// packet, counted from 1.
pub(super) fn packets(file: &[u8]) -> Result<Vec<Packet<'_>>> {
    let magic = &file[..file.len().min(4)];
    match magic {
        [] => bail!("the file is empty"),
        [0x0a, 0x0d, 0x0d, 0x0a] => pcapng(file),
        _ => pcap(file),
    }
}

/// Numbers of a file, one after the other.
#[derive(Clone, Copy)]
struct Fields<'a> {
    rest: &'a [u8],
    is_big_endian: bool,
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).context(ENDS)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number<const BYTES: usize>(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        let field = self.take(BYTES)?;
        if self.is_big_endian {
            bytes[8 - BYTES..].copy_from_slice(field);
            Ok(u64::from_be_bytes(bytes))
        } else {
            bytes[..BYTES].copy_from_slice(field);
            Ok(u64::from_le_bytes(bytes))
        }
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(self.number::<2>()? as u16)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.number::<4>()? as u32)
    }

    /// Takes bytes and what fills them up to a multiple of four.
    fn padded(&mut self, count: usize) -> Result<&'a [u8]> {
        Ok(&self.take(count.saturating_add(count.wrapping_neg() % 4))?[..count])
    }

    /// The value of the first option of a code that has this length.
    fn option(mut self, wanted: u16, bytes: usize) -> Result<Option<Fields<'a>>> {
        while !self.rest.is_empty() {
            let (code, length) = (self.u16()?, self.u16()?);
            if code == 0 {
                break;
            }
            let value = self.padded(length.into()).ok().context("an option is longer than its block")?;
            if code == wanted && value.len() == bytes {
                return Ok(Some(Fields { rest: value, ..self }));
            }
        }
        Ok(None)
    }
}

fn pcap(file: &[u8]) -> Result<Vec<Packet<'_>>> {
    // Nanoseconds of a unit of the timestamps, and bytes that follow the usual header of a packet.
    let (is_big_endian, unit_ns, more) = match file {
        [0xd4, 0xc3, 0xb2, 0xa1, ..] => (false, 1000, 0),
        [0xa1, 0xb2, 0xc3, 0xd4, ..] => (true, 1000, 0),
        [0x4d, 0x3c, 0xb2, 0xa1, ..] => (false, 1, 0),
        [0xa1, 0xb2, 0x3c, 0x4d, ..] => (true, 1, 0),
        [0x34, 0xcd, 0xb2, 0xa1, ..] => (false, 1000, 8),
        [0xa1, 0xb2, 0xcd, 0x34, ..] => (true, 1000, 8),
        _ => {
            let magic = hex::encode(&file[..file.len().min(4)]);
            bail!("neither pcap nor pcapng: the file begins with {magic}");
        }
    };
    let mut fields = Fields { rest: file, is_big_endian };
    let mut header = || -> Result<u32> {
        // Magic number, version, time zone, accuracy and snap length say nothing about the packets.
        fields.take(20)?;
        fields.u32()
    };
    let link = header().context("the file header")?;
    // Bits 0 to 15: the link type. Bit 26: bits 28 to 31 are the length of the FCS, in words of 16 bits.
    ensure_ethernet(link & 0x03ff_ffff)?;
    let has_fcs = link & 1 << 26 != 0 && (link >> 28) as usize * 2 >= FCS_BYTES;
    let mut packets = Vec::new();
    while !fields.rest.is_empty() {
        let mut packet = || -> Result<Packet<'_>> {
            let (seconds, fraction) = (fields.u32()?, fields.u32()?);
            let (captured, on_wire) = (fields.u32()?, fields.u32()?);
            fields.take(more)?;
            let time_ns = i128::from(seconds) * NS_PER_SECOND + i128::from(fraction) * unit_ns;
            Ok(Packet::new(fields.take(captured as usize)?, on_wire, has_fcs, Some(time_ns)))
        };
        let packet = packet().with_context(|| format!("packet {}", packets.len() + 1))?;
        packets.push(packet);
    }
    Ok(packets)
}

fn ensure_ethernet(link: u32) -> Result<()> {
    ensure!(link == ETHERNET, "not a capture of Ethernet, but of link type {link}");
    Ok(())
}

/// What a pcapng block says of an interface.
#[derive(Clone, Copy)]
struct Interface {
    link: u16,
    /// Most bytes of a packet; 0 if there is no bound.
    snap_bytes: u32,
    /// A second has 10^r units, or 2^r where the highest bit is set.
    resolution: u8,
    offset_seconds: i64,
    has_fcs: bool,
}

impl Interface {
    fn parse(mut body: Fields<'_>) -> Result<Interface> {
        let (link, _reserved, snap_bytes) = (body.u16()?, body.u16()?, body.u32()?);
        let byte = |value: Fields<'_>| value.rest[0];
        // In bits by the specification, and in bytes by its example and in files: 32 or 4.
        let fcs_bytes = |value| match byte(value) {
            bytes @ 0..8 => usize::from(bytes),
            bits => usize::from(bits) / 8,
        };
        let offset = match body.option(14, 8)? {
            Some(mut value) => value.number::<8>()?,
            None => 0,
        };
        Ok(Interface {
            link,
            snap_bytes,
            resolution: body.option(9, 1)?.map_or(MICROSECONDS, byte),
            offset_seconds: offset as i64,
            has_fcs: body.option(13, 1)?.is_some_and(|value| fcs_bytes(value) >= FCS_BYTES),
        })
    }

    fn time_ns(&self, units: u64) -> i128 {
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        let per_second = base.checked_pow(u32::from(self.resolution & 0x7f)).unwrap_or(u128::MAX);
        let since_offset_ns = u128::from(units) * NS_PER_SECOND as u128 / per_second;
        since_offset_ns as i128 + i128::from(self.offset_seconds) * NS_PER_SECOND
    }
}

/// A pcapng block: its type, and what is between its two lengths.
struct Block<'a> {
    kind: u32,
    body: Fields<'a>,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

impl<'a> Block<'a> {
    /// Takes the next block. A section header sets the byte order of what follows.
    fn take(file: &mut Fields<'a>) -> Result<Block<'a>> {
        let mut fields = *file;
        let kind = fields.u32()?;
        if kind == SECTION_HEADER {
            let mut magic = fields;
            magic.take(4)?;
            fields.is_big_endian = match magic.take(4)? {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                other => bail!("no byte order is written as {}", hex::encode(other)),
            };
        }
        let length = fields.u32()?;
        ensure!(
            length >= 12 && length % 4 == 0,
            "a block of {length} bytes: a length is a multiple of 4 from 12 on"
        );
        let body = Fields { rest: fields.take(length as usize - 12)?, ..fields };
        let again = fields.u32()?;
        ensure!(length == again, "a block has the length {length} at its beginning and {again} at its end");
        *file = fields;
        Ok(Block { kind, body })
    }
}

fn pcapng(file: &[u8]) -> Result<Vec<Packet<'_>>> {
    let mut file = Fields { rest: file, is_big_endian: false };
    let mut interfaces = Vec::new();
    let mut packets = Vec::new();
    let mut is_first = true;
    while !file.rest.is_empty() {
        let number = packets.len() + 1;
        let mut block = || -> Result<Option<Packet<'_>>> {
            let Block { kind, body } = Block::take(&mut file)?;
            match kind {
                SECTION_HEADER => {
                    section(body)?;
                    interfaces.clear();
                }
                INTERFACE => {
                    interfaces.push(Interface::parse(body).context("the description of an interface")?)
                }
                ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET => {
                    return packet(kind, body, &interfaces).map(Some);
                }
                _ => {}
            }
            Ok(None)
        };
        let found = block().with_context(|| match is_first {
            true => "the section header".to_string(),
            false => format!("packet {number}"),
        })?;
        packets.extend(found);
        is_first = false;
    }
    Ok(packets)
}

/// Checks that the blocks of a section are those that this reader knows.
fn section(mut body: Fields<'_>) -> Result<()> {
    body.take(4)?;
    let (major, minor) = (body.u16()?, body.u16()?);
    let is_known = matches!((major, minor), (1, 0 | 2));
    ensure!(is_known, "version {major}.{minor} of pcapng: only 1.0 and 1.2 are known");
    Ok(())
}

fn packet<'a>(kind: u32, mut body: Fields<'a>, interfaces: &[Interface]) -> Result<Packet<'a>> {
    let index = match kind {
        ENHANCED_PACKET => body.u32()?,
        OBSOLETE_PACKET => {
            let index = body.u16()?;
            // Packets that were lost before this one.
            body.u16()?;
            index.into()
        }
        _ => 0,
    };
    let interface = interfaces.get(index as usize);
    let interface = interface
        .with_context(|| format!("it is of interface {index}, which its section does not describe"))?;
    ensure_ethernet(interface.link.into()).with_context(|| format!("interface {index}"))?;
    if kind == SIMPLE_PACKET {
        let on_wire = body.u32()?;
        let bound = if interface.snap_bytes == 0 { on_wire } else { on_wire.min(interface.snap_bytes) };
        let captured = body.padded(bound as usize).ok().context(LONGER)?;
        ensure!(body.rest.is_empty(), "the packet is shorter than its block");
        return Ok(Packet::new(captured, on_wire, interface.has_fcs, None));
    }
    let units = u64::from(body.u32()?) << 32 | u64::from(body.u32()?);
    let (captured, on_wire) = (body.u32()?, body.u32()?);
    let captured = body.padded(captured as usize).ok().context(LONGER)?;
    let fcs_bytes = match body.option(2, 4)? {
        Some(mut flags) => flags.u32()? as usize >> 5 & 0xf,
        None => 0,
    };
    // The flags of a packet say nothing, or more than its interface.
    let has_fcs = if fcs_bytes == 0 { interface.has_fcs } else { fcs_bytes >= FCS_BYTES };
    Ok(Packet::new(captured, on_wire, has_fcs, Some(interface.time_ns(units))))
}

#[cfg(test)]
mod tests;
