//! The card itself: identity, registers, counters, resets, and its one owner.

use crate::cards::{Card, Cards};
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::ProtectionDomain;
use rnic_layout::pci::{BARS, MSIX_BAR, REGISTER_BAR};
use rnic_layout::registers::{
    LAYOUT_MAJOR, LayoutVersion, MAGIC, REG_LAYOUT_VERSION, REG_MAGIC, REG_SCRATCH,
};

/// An offset of BAR 0 between the registers and the counters, where nothing is.
const UNMAPPED: u64 = 0x0f00;

pub(crate) fn identity(cards: &Cards) -> Result<()> {
    let card = cards.open(0)?;
    for bar in BARS.iter().filter(|bar| bar.index != MSIX_BAR) {
        let bytes = card.function.bar(bar.index)?.bytes();
        ensure!(bytes == bar.bytes, "BAR {} has {bytes:#x} bytes instead of {:#x}", bar.index, bar.bytes);
    }
    let magic = card.read(&REG_MAGIC)?;
    ensure!(magic == MAGIC, "magic is {magic:#x}");
    let version = LayoutVersion::parse(&card.read(&REG_LAYOUT_VERSION)?.to_le_bytes())?;
    ensure!(u64::from(version.major) == LAYOUT_MAJOR, "the major version of the layout is {}", version.major);
    let limits = card.device.limits();
    ensure!(limits.features.reliable_connected, "the card has no reliable connections");
    ensure!([64, 128, 256, 512].contains(&limits.geometry.datapath_bits), "{:?}", limits.geometry);
    ensure!(limits.geometry.interrupt_vectors > 0 && limits.geometry.clock_khz > 0, "{:?}", limits.geometry);
    ensure!(limits.message_bytes >= 1 << 20, "messages of at most {} bytes", limits.message_bytes);
    card.device.check().context("the card has failed")
}

pub(crate) fn registers(cards: &Cards) -> Result<()> {
    let card = cards.open(0)?;
    let values = (0..64).map(|bit| 1 << bit).chain([0, u64::MAX - 1, 0x0123_4567_89ab_cdef]);
    for value in values {
        card.write(&REG_SCRATCH, value)?;
        let found = card.read(&REG_SCRATCH)?;
        ensure!(found == value, "`scratch` is {found:#x} after {value:#x} was written");
    }
    let bar = card.function.bar(REGISTER_BAR)?;
    let offset = u64::from(REG_SCRATCH.offset);
    bar.write32(offset + 4, 0xdead_beef);
    let halves = [bar.read32(offset), bar.read32(offset + 4)];
    ensure!(halves == [0x89ab_cdef, 0xdead_beef], "accesses of 32 bits: {halves:#x?}");
    let before = card.device.counters()?;
    bar.write64(UNMAPPED, 1);
    bar.read64(UNMAPPED);
    let count = card.counted(&before, "register_unmapped")?;
    ensure!(count == 2, "{count} accesses without a register are counted instead of 2");
    Ok(())
}

pub(crate) fn counters(cards: &Cards) -> Result<()> {
    let card = cards.open(0)?;
    let before = card.device.counters()?;
    let domain = card.device.create_protection_domain()?;
    let regions = (0..5).map(|_| domain.allocate(64)).collect::<Result<Vec<_>, _>>()?;
    drop(regions);
    let count = card.counted(&before, "commands_executed")?;
    ensure!(count == 10, "{count} commands are counted instead of 5 that create and 5 that destroy");
    let refused = card.counted(&before, "commands_refused")?;
    ensure!(refused == 0, "{refused} commands were refused");
    Ok(())
}

pub(crate) fn one_owner(cards: &Cards) -> Result<()> {
    let card = cards.open(0)?;
    let domain = card.device.create_protection_domain()?;
    match cards.open(0) {
        Ok(_) => bail!("an open card was opened again"),
        Err(error) => ensure!(!error.to_string().is_empty()),
    }
    use_card(&card, &domain).context("after the attempt to open it again")
}

/// Makes and ends an object, which needs the admin queue.
fn use_card(card: &Card, domain: &ProtectionDomain) -> Result<()> {
    drop(domain.allocate(4096)?);
    Ok(card.device.check()?)
}

pub(crate) fn reset(cards: &Cards) -> Result<()> {
    for attempt in 0..3 {
        let card = cards.open(0).with_context(|| format!("opened for the {}. time", attempt + 1))?;
        let found = card.read(&REG_SCRATCH)?;
        ensure!(found == 0, "`scratch` is {found:#x} after a reset");
        card.write(&REG_SCRATCH, 0x5a)?;
        use_card(&card, &card.device.create_protection_domain()?)?;
    }
    // A function-level reset under the driver, which finds no card, or one that is as new, until it is opened again.
    let card = cards.open(0)?;
    card.write(&REG_SCRATCH, 0x5a)?;
    card.function.reset().context("function-level reset")?;
    // The kernel's VFIO restores the configuration space, so that BAR 0 answers there: with what it has after a reset.
    let is_reset = card.device.check().is_err() || card.read(&REG_SCRATCH)? == 0;
    ensure!(is_reset, "`scratch` is kept over a function-level reset");
    drop(card);
    let card = cards.open(0).context("opened after a function-level reset")?;
    use_card(&card, &card.device.create_protection_domain()?)
}
