//! The share of the request buffer that a queue pair has: it is the same again when all that it held has left.
use crate::asker::{Asker, FIRST_PSN};
use crate::pace::send_paced;
use crate::rig::{IPV4, Rig};
use anyhow::{Context, Result, ensure};
use rnic_driver::RemoteRights;
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_machine::host::HostOptions;

/// Bytes of a WRITE: one beat of the narrowest card, so that its payload leaves the buffer in a cycle.
const BYTES: usize = 8;
/// WRITEs that wait for the host at once: well below the share. Rounds of them: more than the buffer has room for in all.
const FEW: u32 = 140;
const ROUNDS: u32 = 40;

/// Many times, some of the smallest WRITEs wait for the host and then leave the buffer one right behind the other: nothing of their
/// room is lost, so the next ones find as much.
pub(crate) fn comes_back(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(0x1000, RemoteRights::ALL)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes1024, window.remote(), 1)?;
    let stuck = HostOptions { write_request_stall: 1.0, ..HostOptions::IDEAL };
    for round in 0..ROUNDS {
        rig.world().host_mut(0).set_options(stuck);
        let psn_of = |place: u32| (FIRST_PSN + round * FEW + place) & 0xff_ffff;
        let write = |place: u32| {
            asker.frame(Op::WriteOnly, psn_of(place), vec![asker.reth(0, BYTES)], vec![place as u8; BYTES])
        };
        send_paced(rig, &(0..FEW).map(write).collect::<Vec<_>>())?;
        rig.world().host_mut(0).set_options(HostOptions::IDEAL);
        rig.wait("the last ACK", |rig| {
            let mut is_last = false;
            for (operation, psn, _, syndrome) in asker.heard(rig)? {
                let is_ack = operation == Op::Acknowledge && syndrome.is_empty();
                ensure!(is_ack, "{operation:?} {syndrome:x?} of {psn:#x}");
                is_last = psn == psn_of(FEW - 1);
            }
            Ok(is_last.then_some(()))
        })
        .with_context(|| format!("round {round}"))?;
    }
    let moved = rig.moved()?;
    ensure!(moved.named().is_empty(), "{moved:?}");
    drop(asker);
    rig.exchange()?;
    rig.settle()
}
