//! Files in either byte order, as small as they can be.
use super::*;

/// Writes numbers in one byte order.
#[derive(Clone, Copy)]
struct Order {
    is_big_endian: bool,
}

const LITTLE: Order = Order { is_big_endian: false };
const BIG: Order = Order { is_big_endian: true };

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(bytes.len().next_multiple_of(4), 0xee);
    all
}

/// An option without its code and length.
type Setting<'a> = (u16, &'a [u8]);

impl Order {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| self.u32(*value)).collect()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let length = self.u32(body.len() as u32 + 12);
        [&self.u32(kind)[..], &length, body, &length].concat()
    }

    /// Options without the mark of their end, which is not needed at the end of a block.
    fn options(self, settings: &[Setting]) -> Vec<u8> {
        let one = |(code, value): &Setting| {
            [&self.u16(*code)[..], &self.u16(value.len() as u16), &padded(value)].concat()
        };
        settings.iter().flat_map(one).collect()
    }

    fn section(self) -> Vec<u8> {
        self.versioned(1, 0)
    }

    fn versioned(self, major: u16, minor: u16) -> Vec<u8> {
        let version = [self.u16(major), self.u16(minor)].concat();
        self.block(SECTION_HEADER, &[&self.u32(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat())
    }

    fn interface(self, link: u16, snap_bytes: u32, settings: &[Setting]) -> Vec<u8> {
        // The reserved field may hold anything.
        let fixed = [&self.u16(link)[..], &self.u16(7), &self.u32(snap_bytes)].concat();
        self.block(INTERFACE, &[fixed, self.options(settings)].concat())
    }

    fn enhanced(self, index: u32, units: u64, on_wire: usize, data: &[u8], settings: &[Setting]) -> Vec<u8> {
        let (high, low) = ((units >> 32) as u32, units as u32);
        let fixed = self.words(&[index, high, low, data.len() as u32, on_wire as u32]);
        self.block(ENHANCED_PACKET, &[fixed, padded(data), self.options(settings)].concat())
    }

    fn obsolete(self, index: u16, units: u64, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u32;
        let fixed = self.words(&[(units >> 32) as u32, units as u32, length, length]);
        let body = [&self.u16(index)[..], &self.u16(0xffff), &fixed, &padded(data)].concat();
        self.block(OBSOLETE_PACKET, &body)
    }

    fn simple(self, on_wire: usize, data: &[u8]) -> Vec<u8> {
        self.block(SIMPLE_PACKET, &[self.u32(on_wire as u32).to_vec(), padded(data)].concat())
    }

    /// A pcap file of packets of one time.
    fn pcap(self, magic: u32, link: u32, more: &[u8], packets: &[(usize, &[u8])]) -> Vec<u8> {
        let mut file =
            [&self.u32(magic)[..], &self.u16(2), &self.u16(4), &self.words(&[0, 0, 60, link])].concat();
        for (on_wire, data) in packets {
            file.extend(self.words(&[3, 5, data.len() as u32, *on_wire as u32]));
            file.extend([more, *data].concat());
        }
        file
    }
}

const ETHERNET: u16 = 1;

fn frame(number: u8, length: usize) -> Vec<u8> {
    vec![number; length]
}

fn with_fcs(frame: &[u8]) -> Vec<u8> {
    [frame, &[0xfc; FCS_BYTES]].concat()
}

/// The packets of a file of these parts: whether each is whole, its bytes and its time.
fn read(parts: &[Vec<u8>]) -> Vec<(bool, Vec<u8>, Option<i128>)> {
    let file = parts.concat();
    let packets = packets(&file).unwrap().into_iter();
    packets.map(|packet| (packet.is_whole, packet.bytes.to_vec(), packet.time_ns)).collect()
}

/// Why a file of these parts is refused.
fn error(parts: &[Vec<u8>]) -> String {
    format!("{:#}", packets(&parts.concat()).expect_err("it is refused"))
}

#[test]
fn pcap_is_read_in_both_byte_orders_and_all_three_formats() {
    let frames = [frame(1, 60), frame(2, 61)];
    let whole = frames.each_ref().map(|frame| (frame.len(), &frame[..]));
    for order in [LITTLE, BIG] {
        for (magic, more, fraction_ns) in
            [(0xa1b2_c3d4, &[][..], 5000), (0xa1b2_3c4d, &[], 5), (0xa1b2_cd34, &[9; 8], 5000)]
        {
            let file = order.pcap(magic, 1, more, &whole);
            let time_ns = Some(3_000_000_000 + fraction_ns);
            let expected = frames.clone().map(|frame| (true, frame, time_ns));
            assert_eq!(read(&[file]), expected, "{magic:#x}");
        }
    }
    assert_eq!(error(&[b"no capture".to_vec()]), "neither pcap nor pcapng: the file begins with 6e6f2063");
    assert_eq!(error(&[vec![0xd4]]), "neither pcap nor pcapng: the file begins with d4");
    assert_eq!(error(&[]), "the file is empty");
}

#[test]
fn a_pcap_file_that_ends_early_is_refused() {
    let file = LITTLE.pcap(0xa1b2_c3d4, 1, &[], &[(60, &frame(1, 60)), (60, &frame(2, 60))]);
    for (cut, place) in
        [(23, "the file header"), (30, "packet 1"), (99, "packet 1"), (101, "packet 2"), (175, "packet 2")]
    {
        assert_eq!(error(&[file[..cut].to_vec()]), format!("{place}: {ENDS}"));
    }
    assert_eq!(read(&[file[..24].to_vec()]), []);
}

/// The length of the FCS is in words of 16 bits, if bit 26 says that it is there.
#[test]
fn the_fcs_that_a_pcap_file_has_is_cut_off() {
    let frames = [frame(1, 60), frame(2, 61)];
    for (link, has_fcs) in [
        (1, false),
        (0x2400_0001, true),
        (0x2000_0001, false),
        (0x0400_0001, false),
        (0x1400_0001, false),
        (0x4400_0001, true),
    ] {
        let sent = frames.each_ref().map(|frame| if has_fcs { with_fcs(frame) } else { frame.clone() });
        let sent = sent.each_ref().map(|frame| (frame.len(), &frame[..]));
        let found = read(&[BIG.pcap(0xa1b2_c3d4, link, &[], &sent)]);
        let expected = frames.clone().map(|frame| (true, frame, Some(3_000_005_000)));
        assert_eq!(found, expected, "{link:#x}");
    }
    for (link, named) in [(0x2400_0071, 113), (113, 113), (0x0005_0001, 0x5_0001)] {
        let told = error(&[LITTLE.pcap(0xa1b2_c3d4, link, &[], &[])]);
        assert_eq!(told, format!("not a capture of Ethernet, but of link type {named}"));
    }
}

/// A snap length that ends in the FCS has the whole frame.
#[test]
fn a_cut_frame_is_told_from_one_without_its_fcs() {
    let data = with_fcs(&frame(1, 60));
    for (captured, is_whole, bytes) in
        [(64, true, 60), (62, true, 60), (60, true, 60), (59, false, 59), (0, false, 0)]
    {
        let file = LITTLE.pcap(0xa1b2_c3d4, 0x2400_0001, &[], &[(64, &data[..captured])]);
        assert_eq!(read(&[file]), [(is_whole, frame(1, bytes), Some(3_000_005_000))], "{captured}");
    }
    // A driver that counts less than it has captured; a frame that is shorter than an FCS.
    let file = LITTLE.pcap(0xa1b2_c3d4, 1, &[], &[(40, &frame(1, 60))]);
    assert_eq!(read(&[file]), [(true, frame(1, 60), Some(3_000_005_000))]);
    let file = LITTLE.pcap(0xa1b2_c3d4, 0x2400_0001, &[], &[(3, &[1; 3])]);
    assert_eq!(read(&[file]), [(true, vec![], Some(3_000_005_000))]);
}

#[test]
fn each_section_has_its_own_byte_order_and_interfaces() {
    let found = read(&[
        LITTLE.section(),
        LITTLE.interface(ETHERNET, 0, &[]),
        LITTLE.enhanced(0, 1_000_000, 60, &frame(1, 60), &[]),
        BIG.section(),
        BIG.interface(113, 0, &[]),
        BIG.interface(ETHERNET, 0, &[(9, &[9])]),
        BIG.enhanced(1, 0x1_0000_0000, 61, &frame(2, 61), &[]),
        BIG.obsolete(1, 0x1_0000_0100, &frame(3, 62)),
        LITTLE.section(),
        LITTLE.interface(ETHERNET, 0, &[(9, &[3])]),
        LITTLE.obsolete(0, 7, &frame(4, 63)),
    ]);
    let expected =
        [(1, 60, 1_000_000_000), (2, 61, 0x1_0000_0000), (3, 62, 0x1_0000_0100), (4, 63, 7_000_000)];
    assert_eq!(found, expected.map(|(number, length, ns)| (true, frame(number, length), Some(ns))));
}

#[test]
fn a_packet_of_an_interface_that_its_section_does_not_describe_is_refused() {
    let begun =
        [LITTLE.section(), LITTLE.interface(ETHERNET, 0, &[]), LITTLE.simple(60, &frame(1, 60))].concat();
    let missing = "it is of interface 0, which its section does not describe";
    for packet in [
        LITTLE.enhanced(0, 1, 60, &frame(2, 60), &[]),
        LITTLE.obsolete(0, 1, &frame(2, 60)),
        LITTLE.simple(60, &frame(2, 60)),
    ] {
        let told = error(&[begun.clone(), LITTLE.section(), packet.clone()]);
        assert_eq!(told, format!("packet 2: {missing}"));
        // An interface that comes behind it is too late.
        let told = error(&[LITTLE.section(), packet, LITTLE.interface(ETHERNET, 0, &[])]);
        assert_eq!(told, format!("packet 1: {missing}"));
    }
}

#[test]
fn only_the_interfaces_of_packets_must_be_ethernet() {
    let begun =
        [LITTLE.section(), LITTLE.interface(113, 0, &[]), LITTLE.interface(ETHERNET, 0, &[])].concat();
    let good = LITTLE.enhanced(1, 5, 60, &frame(1, 60), &[]);
    assert_eq!(read(&[begun.clone(), good.clone()]), [(true, frame(1, 60), Some(5000))]);
    for bad in [
        LITTLE.enhanced(0, 5, 60, &frame(1, 60), &[]),
        LITTLE.obsolete(0, 5, &frame(1, 60)),
        LITTLE.simple(60, &frame(1, 60)),
    ] {
        let told = error(&[begun.clone(), good.clone(), bad]);
        assert_eq!(told, "packet 2: interface 0: not a capture of Ethernet, but of link type 113");
    }
}

#[test]
fn timestamps_are_in_the_units_of_their_interface_and_behind_its_offset() {
    for (units, resolution, offset, ns) in [
        (5, None, None, 5000),
        (5, Some(0), None, 5_000_000_000),
        (5, Some(9), None, 5),
        (5999, Some(12), None, 5),
        (3, Some(0x81), None, 1_500_000_000),
        ((1 << 20) + 1, Some(0x80 | 20), None, 1_000_000_953),
        (5, Some(0x7f), None, 0),
        (5, Some(0xff), None, 0),
        (u64::MAX, Some(0), None, u64::MAX as i128 * 1_000_000_000),
        (5, Some(3), Some(1000), 1_000_005_000_000),
        (5, None, Some(-10_i64), -9_999_995_000),
        (0, None, Some(i64::MIN), i64::MIN as i128 * 1_000_000_000),
    ] {
        for order in [LITTLE, BIG] {
            let offset = offset.map(|offset: i64| order.u64(offset as u64));
            let resolution = resolution.map(|resolution: u8| [resolution]);
            let mut settings: Vec<Setting> = vec![(2, b"eth0"), (10, &[0; 4]), (11, &[])];
            settings.extend(resolution.as_ref().map(|value| (9, &value[..])));
            settings.extend(offset.as_ref().map(|value| (14, &value[..])));
            let packet = order.enhanced(0, units, 60, &frame(1, 60), &[(1, &[0xff])]);
            let found = read(&[order.section(), order.interface(ETHERNET, 0, &settings), packet]);
            assert_eq!(
                found,
                [(true, frame(1, 60), Some(ns))],
                "{units} of {resolution:?} behind {offset:?}"
            );
        }
    }
}

#[test]
fn the_end_mark_of_options_ends_them() {
    let settings: [Setting; 3] = [(9, &[9]), (0, &[]), (9, &[3])];
    let found = read(&[
        LITTLE.section(),
        LITTLE.interface(ETHERNET, 0, &settings),
        LITTLE.enhanced(0, 7, 60, &frame(1, 60), &[]),
    ]);
    assert_eq!(found, [(true, frame(1, 60), Some(7))]);
    // A resolution of two bytes is none.
    let odd: [Setting; 1] = [(9, &[9, 9])];
    let found = read(&[
        LITTLE.section(),
        LITTLE.interface(ETHERNET, 0, &odd),
        LITTLE.enhanced(0, 7, 60, &frame(1, 60), &[]),
    ]);
    assert_eq!(found, [(true, frame(1, 60), Some(7000))]);
    let long = [&LITTLE.u16(2)[..], &LITTLE.u16(40), b"eth0"].concat();
    let interface = [&LITTLE.u16(ETHERNET)[..], &[0; 6], &long].concat();
    let told = error(&[LITTLE.section(), LITTLE.block(INTERFACE, &interface)]);
    let expected = "packet 1: the description of an interface: an option is longer than its block";
    assert_eq!(told, expected);
}

/// The flags of a packet tell more than its interface, or nothing.
#[test]
fn the_fcs_that_a_pcapng_file_has_is_cut_off() {
    for (of_interface, flags, has_fcs) in [
        (None, None, false),
        (Some(0), None, false),
        (Some(4), None, true),
        (Some(32), None, true),
        (Some(2), None, false),
        (Some(16), None, false),
        (None, Some(4 << 5), true),
        (Some(4), Some(0), true),
        (Some(4), Some(2 << 5), false),
        (None, Some(1), false),
    ] {
        let of_interface: Option<[u8; 1]> = of_interface.map(|bytes| [bytes]);
        let flags = flags.map(|flags| LITTLE.u32(flags));
        let interface: Vec<Setting> = of_interface.iter().map(|value| (13, &value[..])).collect();
        let packet: Vec<Setting> = flags.iter().map(|value| (2, &value[..])).collect();
        let sent = if has_fcs { with_fcs(&frame(1, 61)) } else { frame(1, 61) };
        let found = read(&[
            LITTLE.section(),
            LITTLE.interface(ETHERNET, 0, &interface),
            LITTLE.enhanced(0, 1, sent.len(), &sent, &packet),
        ]);
        assert_eq!(found, [(true, frame(1, 61), Some(1000))], "{of_interface:?}, {flags:?}");
    }
}

#[test]
fn a_simple_packet_is_as_long_as_its_interface_captures() {
    let found = read(&[
        LITTLE.section(),
        LITTLE.interface(ETHERNET, 61, &[]),
        LITTLE.simple(60, &frame(1, 60)),
        LITTLE.simple(61, &frame(2, 61)),
        LITTLE.simple(62, &frame(3, 61)),
        LITTLE.section(),
        LITTLE.interface(ETHERNET, 0, &[]),
        LITTLE.simple(63, &frame(4, 63)),
        LITTLE.interface(113, 0, &[]),
    ]);
    let expected = [(true, 1, 60), (true, 2, 61), (false, 3, 61), (true, 4, 63)];
    assert_eq!(found, expected.map(|(is_whole, number, length)| (is_whole, frame(number, length), None)));
    let begun = [LITTLE.section(), LITTLE.interface(ETHERNET, 61, &[])].concat();
    for (packet, why) in [
        (LITTLE.simple(100, &frame(5, 60)), "the packet is longer than its block"),
        (LITTLE.simple(100, &frame(5, 70)), "the packet is shorter than its block"),
    ] {
        assert_eq!(error(&[begun.clone(), packet]), format!("packet 1: {why}"));
    }
}

#[test]
fn lengths_that_disagree_are_refused_with_the_packet() {
    let begun =
        [LITTLE.section(), LITTLE.interface(ETHERNET, 0, &[]), LITTLE.enhanced(0, 1, 60, &frame(1, 60), &[])]
            .concat();
    let mut other = LITTLE.enhanced(0, 1, 60, &frame(2, 60), &[]);
    let end = other.len() - 4;
    other[end..].copy_from_slice(&LITTLE.u32(44));
    let expected = "packet 2: a block has the length 92 at its beginning and 44 at its end";
    assert_eq!(error(&[begun.clone(), other]), expected);
    let mut longer = LITTLE.enhanced(0, 1, 60, &frame(2, 60), &[]);
    longer[20..24].copy_from_slice(&LITTLE.u32(61));
    assert_eq!(error(&[begun.clone(), longer]), "packet 2: the packet is longer than its block");
    for length in [0, 8, 13] {
        let told = error(&[begun.clone(), LITTLE.words(&[6, length, 0, 0])]);
        assert_eq!(
            told,
            format!("packet 2: a block of {length} bytes: a length is a multiple of 4 from 12 on")
        );
    }
    let whole = [begun.clone(), LITTLE.enhanced(0, 1, 60, &frame(2, 60), &[])].concat();
    for cut in [1, 5, 80, 91] {
        let told = error(&[whole[..whole.len() - cut].to_vec()]);
        assert_eq!(told, format!("packet 2: {ENDS}"), "{cut} bytes less");
    }
}

#[test]
fn a_section_of_another_version_is_refused_and_unknown_blocks_are_skipped() {
    let told = error(&[LITTLE.versioned(2, 0)]);
    assert_eq!(told, "the section header: version 2.0 of pcapng: only 1.0 and 1.2 are known");
    let mut odd = LITTLE.section();
    odd[8] = 0;
    assert_eq!(error(&[odd]), "the section header: no byte order is written as 003c2b1a");
    let found = read(&[
        BIG.versioned(1, 2),
        BIG.block(0x0bad, b"nothing!"),
        BIG.interface(ETHERNET, 0, &[]),
        BIG.block(5, &[0xff; 20]),
        BIG.enhanced(0, 5, 60, &frame(1, 60), &[]),
    ]);
    assert_eq!(found, [(true, frame(1, 60), Some(5000))]);
}
