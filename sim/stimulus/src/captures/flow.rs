//! Flows of a capture: the requests that one queue pair received, and its responses, in order.
use super::Capture;
use rnic_layout::opcode::{self, Class, Transport};
use rnic_layout::path::Gid;
use rnic_layout::wire::{ExtendedRepr, Filter, PacketRepr, classify};

/// A response belongs to the queue pair that received a request within this distance of its PSN.
const NEAR_PSNS: u32 = 16;

/// A packet of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    /// The frame as captured.
    pub frame: &'a [u8],
    /// The parsed packet.
    pub packet: PacketRepr<'a>,
    /// The packet is a request; otherwise it is a response.
    pub is_request: bool,
}

/// All requests to one RC queue pair, and its responses.
#[derive(Clone, Debug)]
pub struct Flow<'a> {
    /// Host of the responder.
    pub host: Gid,
    /// QPN of the responder.
    pub number: u32,
    /// QPN of the requester; `None` if no request was answered.
    pub peer: Option<u32>,
    /// Packets in the order of the capture; the first one is a request.
    pub crossings: Vec<Crossing<'a>>,
}

impl<'a> Flow<'a> {
    /// Sorts the RC packets of a capture by responder. Packets with a wrong ICRC are left out.
    ///
    /// # Panics
    ///
    /// If a response matches no request, which means that the capture began in the middle of a flow.
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
        // All requests are assigned before any response is matched to a flow.
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

    /// Requests, in order.
    pub fn requests(&self) -> impl Iterator<Item = &Crossing<'a>> {
        self.crossings.iter().filter(|crossing| crossing.is_request)
    }

    /// Responses, in order.
    pub fn answers(&self) -> impl Iterator<Item = &Crossing<'a>> {
        self.crossings.iter().filter(|crossing| !crossing.is_request)
    }
}

/// What a response says, without payload, which depends on memory contents, and without credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// BTH opcode.
    pub code: u8,
    /// BTH PSN.
    pub psn: u32,
    /// Payload, in bytes.
    pub bytes: usize,
    /// AETH: syndrome, whose value is reduced to its class if the value counts credits; and MSN.
    pub aeth: Option<(u8, u32)>,
    /// AtomicAckETH: original value of the memory cell.
    pub original: Option<u64>,
}

impl Said {
    /// Extracts the fields of a response.
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
