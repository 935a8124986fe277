//! Replies that wait for host writes and for responses, and newer ones that come meanwhile: a NAK that is owed is said, whatever comes
//! behind it (protocol 3.2, 3.8), and of the right packet.
use crate::asker::{Asker, FIRST_PSN, Said, shown};
use crate::rig::{IPV4, MIN_RNR_TIMER, Rig};
use anyhow::{Context, Result, ensure};
use rnic_driver::RemoteRights;
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;

/// Bytes of the card's region.
const WINDOW_BYTES: usize = 30_000;
/// Packets of a READ of them.
const READ_PACKETS: u32 = 30;

fn write(asker: &Asker, number: u32) -> Vec<u8> {
    let psn = (FIRST_PSN + number) & 0xff_ffff;
    asker.frame(Op::WriteOnly, psn, vec![asker.reth(8 * number as usize, 8)], vec![number as u8; 8])
}

fn reply(number: u32, msn: u32, syndrome: Option<u8>) -> Said {
    (Op::Acknowledge, (FIRST_PSN + number) & 0xff_ffff, Some(msn), syndrome.into_iter().collect())
}

/// Sends frames, and expects this NAK once, with ACKs of what is before it and no other.
fn owes(rig: &mut Rig, asker: &Asker, frames: &[Vec<u8>], nak: &Said) -> Result<()> {
    let said = asker.ask_until(rig, frames, nak)?;
    let is_nak = |said: &&Said| said.0 == Op::Acknowledge && !said.3.is_empty();
    let naks: Vec<&Said> = said.iter().filter(is_nak).collect();
    ensure!(naks == [nak], "{}", shown(&said));
    Ok(())
}

/// An ACK that waits for its host write, a NAK behind it, and then a duplicate whose ACK would take the NAK's place.
pub(crate) fn all_are_said(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes1024, window.remote(), 4)?;
    // Messages that are done when a packet comes, of which the READ is one.
    let before = |number: u32| number + 1 - READ_PACKETS;
    // While a READ is answered, no reply leaves: so an ACK and a NAK wait when the duplicate comes. Then gaps without a READ, each of
    // which has a NAK of its own.
    for first in [READ_PACKETS, READ_PACKETS + 10, READ_PACKETS + 20] {
        let mut gap = vec![write(&asker, first), write(&asker, first + 2), write(&asker, first)];
        if first == READ_PACKETS {
            gap.insert(0, asker.read(FIRST_PSN, 0, WINDOW_BYTES));
        }
        let nak = reply(first + 1, before(first + 1), Some(0x60));
        owes(rig, &asker, &gap, &nak).with_context(|| format!("a gap behind packet {first}"))?;
        let rest: Vec<_> = (first + 1..first + 10).map(|number| write(&asker, number)).collect();
        let said = asker.ask_until(rig, &rest, &reply(first + 9, before(first + 10), None))?;
        ensure!(said.iter().all(|said| said.3.is_empty()), "{}", shown(&said));
    }
    // No receive is posted: the NAK of the SEND is followed by no other, whatever comes behind it.
    let last = READ_PACKETS + 30;
    let send = asker.send((FIRST_PSN + last + 1) & 0xff_ffff);
    let frames = [write(&asker, last), send, write(&asker, last + 2), write(&asker, last)];
    let nak = reply(last + 1, before(last + 1), Some(0x20 | MIN_RNR_TIMER));
    owes(rig, &asker, &frames, &nak).context("no receive")?;
    drop(asker);
    rig.settle()
}

/// The host refuses the write of the packet for which a gap had a NAK: the NAK that ends the queue pair is of that packet, too.
pub(crate) fn refused_write_behind_a_nak(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let mapping = *rig.interposer.mapped().last().context("the region is mapped")?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes1024, window.remote(), 4)?;
    owes(rig, &asker, &[write(&asker, 1)], &reply(0, 0, Some(0x60)))?;
    let interposer = std::sync::Arc::clone(&rig.interposer);
    let ((), faults) = interposer.without(mapping, || {
        owes(rig, &asker, &[write(&asker, 0)], &reply(0, 0, Some(0x63)))?;
        rig.idle(100);
        Ok(())
    })?;
    ensure!(faults > 0, "nothing was written");
    drop(asker);
    rig.exchange()?;
    rig.settle()
}
