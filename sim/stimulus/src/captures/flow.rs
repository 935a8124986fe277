//! What a capture says of one queue pair that answers: what it was asked, and what it answered, in order.
use super::Capture;
use rnic_layout::opcode::{self, Class, Transport};
use rnic_layout::path::Gid;
use rnic_layout::wire::{ExtendedRepr, Filter, PacketRepr, classify};

/// An answer belongs to the queue pair that was asked within so many PSNs of it.
const NEAR_PSNS: u32 = 16;

/// A packet of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    /// As it was captured.
    pub frame: &'a [u8],
    /// The same, taken apart.
    pub packet: PacketRepr<'a>,
    /// It asks; else it answers.
    pub is_request: bool,
}

/// All that was asked of one queue pair of the reliable connection service, and what it answered.
#[derive(Clone, Debug)]
pub struct Flow<'a> {
    /// The host that answers.
    pub host: Gid,
    /// Its queue pair.
    pub number: u32,
    /// The queue pair that asks, if it was ever answered.
    pub peer: Option<u32>,
    /// In the order in which they crossed; the first one is a request.
    pub crossings: Vec<Crossing<'a>>,
}

impl<'a> Flow<'a> {
    /// Sorts the packets of a capture by who answers them. Packets with a wrong ICRC are nobody's.
    ///
    /// # Panics
    ///
    /// If an answer belongs to no request: such a capture does not begin at the beginning.
    pub fn of(capture: &'a Capture) -> Vec<Flow<'a>> {
        let packets: Vec<(&[u8], PacketRepr)> = capture
            .roce_frames()
            .filter_map(|frame| Some((&frame[..], classify(frame, false, &Filter::PROMISCUOUS).ok()?)))
            .filter(|(_, packet)| Transport::of(packet.bth.opcode) == Some(Transport::Rc))
            .collect();
        let asks = |packet: &PacketRepr| opcode::class(packet.bth.opcode) == Some(Class::Request);
        let mut flows: Vec<Flow> = Vec::new();
        for (_, packet) in packets.iter().filter(|(_, packet)| asks(packet)) {
            let (host, number) = (packet.ip.destination(), packet.bth.destination_qp);
            if !flows.iter().any(|flow| (flow.host, flow.number) == (host, number)) {
                flows.push(Flow { host, number, peer: None, crossings: Vec::new() });
            }
        }
        // A flow knows all its requests before any answer looks for its own.
        let psns: Vec<Vec<_>> = flows.iter().map(|flow| flow.psns(&packets)).collect();
        for &(frame, packet) in &packets {
            let is_request = asks(&packet);
            let place = if is_request {
                flows.iter().position(|flow| flow.is_asked_by(&packet))
            } else {
                let is_near =
                    |psn: &rnic_layout::psn::Psn| packet.bth.psn.distance(*psn).unsigned_abs() < NEAR_PSNS;
                flows
                    .iter()
                    .zip(&psns)
                    .position(|(flow, psns)| flow.host == packet.ip.source() && psns.iter().any(is_near))
            };
            let flow = &mut flows[place.expect("every answer belongs to a request")];
            if !is_request {
                flow.peer = Some(packet.bth.destination_qp);
            }
            flow.crossings.push(Crossing { frame, packet, is_request });
        }
        flows
    }

    fn is_asked_by(&self, packet: &PacketRepr) -> bool {
        (self.host, self.number) == (packet.ip.destination(), packet.bth.destination_qp)
    }

    fn psns(&self, packets: &[(&[u8], PacketRepr)]) -> Vec<rnic_layout::psn::Psn> {
        let asks = |packet: &PacketRepr| {
            opcode::class(packet.bth.opcode) == Some(Class::Request) && self.is_asked_by(packet)
        };
        packets.iter().filter(|(_, packet)| asks(packet)).map(|(_, packet)| packet.bth.psn).collect()
    }

    /// What was asked.
    pub fn requests(&self) -> impl Iterator<Item = &Crossing<'a>> {
        self.crossings.iter().filter(|crossing| crossing.is_request)
    }

    /// What was answered.
    pub fn answers(&self) -> impl Iterator<Item = &Crossing<'a>> {
        self.crossings.iter().filter(|crossing| !crossing.is_request)
    }
}

/// What an answer says, but for bytes that came out of memory, and credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// BTH: operation.
    pub code: u8,
    /// BTH: PSN.
    pub psn: u32,
    /// Bytes of payload.
    pub bytes: usize,
    /// Class of the syndrome with its code, where the code is not one of credits; and the MSN.
    pub aeth: Option<(u8, u32)>,
    /// What the cell of an atomic held.
    pub original: Option<u64>,
}

impl Said {
    /// Takes an answer apart.
    pub fn of(packet: &PacketRepr) -> Self {
        let (mut aeth, mut original) = (None, None);
        for header in packet.extended_headers() {
            match header {
                ExtendedRepr::Aeth(header) => {
                    let syndrome = header.syndrome;
                    let class = if syndrome >> 5 == 0 { 0 } else { syndrome };
                    aeth = Some((class, header.msn.value()));
                }
                ExtendedRepr::AtomicAckEth(header) => original = Some(header.original),
                _ => {}
            }
        }
        let (code, psn, bytes) = (packet.bth.opcode, packet.bth.psn.value(), packet.payload.len());
        Self { code, psn, bytes, aeth, original }
    }
}
