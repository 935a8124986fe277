//! The card in the place of a requester that recovers from loss.
use crate::asking::{Message, compare_packets};
use crate::machine::{Machine, Role, retarget};
use anyhow::{Context, Result, ensure};
use rnic_driver::SendOptions;
use rnic_layout::psn::Psn;
use rnic_layout::wire::PacketRepr;
use rnic_stimulus::captures::flow::Flow;

/// Local ACK timeout of 4.096 us x 2^3, more than the card is listened to before it counts as silent.
const TIMEOUT: u8 = 3;

/// Place of the first request that Linux sent again, or again for the first time if the first one was lost.
fn back(flow: &Flow) -> Option<usize> {
    let mut furthest = flow.crossings[0].packet.bth.psn;
    flow.crossings.iter().position(|crossing| {
        let psn = crossing.packet.bth.psn;
        let is_back = crossing.is_request && psn.is_before(furthest);
        if crossing.is_request && psn.is_after(furthest) {
            furthest = psn;
        }
        is_back
    })
}

/// Posts all requests of Linux at once, and sends the responses of Linux that came before it went back. The card must then send
/// what Linux sent again, and with the responses to that it must complete all. Returns how many messages were completed.
pub(crate) fn replay(width_bits: u32, flow: &Flow) -> Result<usize> {
    let send = SendOptions { timeout: TIMEOUT, ..SendOptions::default() };
    let mut machine = Machine::new(width_bits, flow, Role::Requester, send)?;
    let own_number = machine.queue_pair.number();
    let (first_psn, captured_psn) = (machine.first_psn, flow.crossings[0].packet.bth.psn);
    let own = |psn: Psn| first_psn.add(psn.distance(captured_psn) as u32);
    let messages = Message::all(flow, machine.pmtu.bytes())?;
    let (before, after) = flow.crossings.split_at(back(flow).context("Linux did not go back")?);

    for (place, message) in messages.iter().enumerate() {
        let request = message.request(&machine, place as u64)?;
        machine.queue_pair.post_send(request)?;
    }
    let heard = machine.listen(messages.iter().map(|message| message.packets.len()).sum())?;
    let mut first = &heard[..];
    for (place, message) in messages.iter().enumerate() {
        let (own_packets, rest) =
            first.split_at_checked(message.packets.len()).context("packets are missing")?;
        message.compare(own_packets, flow, machine.vlan, own).with_context(|| format!("message {place}"))?;
        first = rest;
    }

    // What was on its way while Linux went back comes in one burst; without a response, the timer of the card expires.
    let answer = |packet: &PacketRepr| retarget(packet, own_number, own(packet.bth.psn), |header| header);
    for crossing in before.iter().filter(|crossing| !crossing.is_request) {
        machine.send(answer(&crossing.packet)?);
    }
    let again: Vec<PacketRepr> =
        after.iter().filter(|crossing| crossing.is_request).map(|crossing| crossing.packet).collect();
    let rest = first.to_vec();
    let heard = [rest, machine.listen(again.len())?].concat();
    compare_packets(&heard, &again, flow, machine.vlan, own).context("what is sent again")?;

    for crossing in after.iter().filter(|crossing| !crossing.is_request) {
        machine.send(answer(&crossing.packet)?);
    }
    let done = machine.completions(messages.len())?;
    ensure!(done.len() == messages.len(), "{} of {} messages are done", done.len(), messages.len());
    for (place, (done, message)) in done.iter().zip(&messages).enumerate() {
        ensure!(done.wr_id == place as u64, "in order: {done:?}");
        message.check_done(done, flow).with_context(|| format!("message {place}"))?;
    }
    let count = done.len();
    drop(done);
    machine.finish()?;
    Ok(count)
}
