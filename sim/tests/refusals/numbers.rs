//! Numbers of objects whose destruction the card has not confirmed: the driver must not use them again, because the card still
//! has the object.
//!
//! The command that destroys an object is replaced by one that the card refuses. The driver believes that the card's tables are
//! small, so that it would come back to the number at once.
use crate::interpose::Interposer;
use crate::rig::CARD_MAC;
use crate::support::card_model;
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::{Device, Error, Options, Path};
use rnic_layout::admin::{Body, COMMAND_BYTES, Command, CommandHeader, CommandOpcode, CommandStatus};
use rnic_layout::path::Gid;
use rnic_layout::registers::TableSizes;
use rnic_machine::world::{CardOptions, World};
use std::sync::{Arc, Mutex};

/// Sizes of the tables that the driver believes in.
const SIZES: TableSizes = TableSizes {
    queue_pairs_log2: 1,
    completion_queues_log2: 2,
    event_queues_log2: 1,
    shared_receive_queues_log2: 1,
    regions_log2: 1,
    address_handles_log2: 1,
    doorbell_pages_log2: 0,
    outstanding_blocks_log2: 4,
};

/// A command that the card refuses: the address handle does not exist.
fn refused() -> Result<[u8; COMMAND_BYTES]> {
    let header = CommandHeader { opcode: CommandOpcode::DestroyAddressHandle, tag: 0, object_number: 200 };
    Ok(Command { header, body: Body::Destroy }.to_bytes()?)
}

/// Creates an object that the card does not destroy, and then as many others as the driver has numbers for: `limit`, of which
/// one is kept.
fn kept<T>(interposer: &Interposer, limit: usize, create: impl Fn() -> Result<T, Error>) -> Result<()> {
    let object = create()?;
    interposer.replace_next(refused()?);
    drop(object);
    let answer = interposer.answer()?;
    ensure!(answer.status == CommandStatus::DoesNotExist, "{answer:?}");
    let mut others = Vec::new();
    while others.len() <= limit {
        match create() {
            Ok(object) => others.push(object),
            Err(Error::Exhausted { .. }) => {
                ensure!(others.len() == limit - 1, "{} others, and not {}", others.len(), limit - 1);
                return Ok(());
            }
            Err(error) => bail!("a number is used again: {error}"),
        }
    }
    bail!("more numbers than the table has")
}

/// Objects of all kinds that have numbers.
pub(crate) fn all_kinds(width_bits: u32) -> Result<()> {
    let mut world = World::new(7);
    world.add_card(&card_model(width_bits)?, CardOptions::standard(width_bits))?;
    world.leave_reset()?;
    let world = Arc::new(Mutex::new(world));
    let interposer = Arc::new(Interposer::new(Arc::clone(&world)));
    interposer.pretend_tables(SIZES);
    let opening = Options { seed: Some(7), ..Options::new(CARD_MAC) };
    let device = Device::open(interposer.clone(), opening)?;
    let events = device.events();
    let domain = device.create_protection_domain()?;
    let queue = device.create_completion_queue(&events, &Default::default())?;
    kept(&interposer, 2, || domain.create_queue_pair(&queue, &queue, &Default::default()))
        .context("queue pairs")?;
    kept(&interposer, 3, || device.create_completion_queue(&events, &Default::default()))
        .context("completion queues")?;
    kept(&interposer, 1, || device.create_event_queue(&Default::default())).context("event queues")?;
    kept(&interposer, 2, || domain.create_shared_receive_queue(&Default::default()))
        .context("shared receive queues")?;
    kept(&interposer, 2, || domain.allocate(64)).context("regions")?;
    let path = Path::new(Gid::from_mac(CARD_MAC), CARD_MAC);
    kept(&interposer, 2, || domain.create_address_handle(&path)).context("address handles")?;
    drop((queue, domain, events, device, interposer));
    world.lock().expect("nobody has panicked").finish()?;
    Ok(())
}
