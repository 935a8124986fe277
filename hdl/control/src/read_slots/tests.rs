//! Tests of ReadSlots: against a model of units, and the time that a share takes.
use super::*;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, random};
use std::collections::HashMap;

const POOL_UNITS: u64 = 1 << READ_UNIT_BITS;
/// Cycles in which a share is found, at most.
const SEEK_CYCLES: u32 = 514;
const RESET_CYCLES: u32 = 1 << BLOCKS_BITS;

struct World {
    bench: Bench<ReadSlots>,
    random: Random,
    /// Owner of each unit in use, by pool.
    units: [HashMap<u64, u32>; 2],
    /// Shares of the owners, by pool.
    shares: [HashMap<u32, ReadShare>; 2],
}

impl World {
    fn new() -> Self {
        let mut bench = Bench::clocked(ReadSlots::default(), |block| &mut block.clock).in_lock_step();
        bench.block.begins.next = false;
        bench.block.may_end.next = false;
        bench.block.reset.next = true;
        bench.tick();
        bench.block.reset.next = false;
        (0..RESET_CYCLES).for_each(|_| bench.tick());
        Self { bench, random: random(), units: Default::default(), shares: Default::default() }
    }

    /// Has a request done; gives status, share and cycles.
    fn request(
        &mut self,
        is_destination: bool,
        gives: bool,
        count: u64,
        share: ReadShare,
    ) -> (u64, ReadShare, u32) {
        let others: u64 = self.random.random();
        let shares = shares_after(bits(others), is_destination, share);
        let detail = self.random.random_range(0..512);
        let request =
            SlotsRequest { is_destination, gives, count: bits(count), shares, detail: bits(detail) };
        self.bench.block.request.next = request;
        self.bench.block.begins.next = true;
        let mut cycles = 0;
        loop {
            self.bench.settle();
            if self.bench.block.state.val().is_done {
                break;
            }
            self.bench.tick();
            cycles += 1;
            assert!(cycles < 2000, "the request is not done: {request:?}");
        }
        // The outcome stays until it is taken.
        for _ in 0..self.random.random_range(0..3) {
            self.bench.tick();
            self.bench.settle();
            assert!(self.bench.block.state.val().is_done);
        }
        let state = self.bench.block.state.val();
        let share = share_of(state.result, is_destination);
        assert_eq!(
            share_of(state.result, !is_destination),
            share_of(shares, !is_destination),
            "the other pool"
        );
        assert_eq!(state.outcome.detail, bits(detail));
        let found = (state.outcome.status.to_u64(), share, cycles);
        self.bench.block.may_end.next = true;
        self.bench.tick();
        self.bench.block.may_end.next = false;
        self.bench.block.begins.next = false;
        self.bench.tick();
        found
    }

    fn free_units(&self, pool: usize) -> u64 {
        POOL_UNITS - self.units[pool].len() as u64
    }

    /// Says whether a share of `units` could be given.
    fn has_room(&self, pool: usize, units: u64) -> bool {
        let is_free = |unit: u64| !self.units[pool].contains_key(&unit);
        (0..POOL_UNITS).step_by(units as usize).any(|first| (first..first + units).all(is_free))
    }

    /// Owner `owner` wants `count` slots.
    fn take(&mut self, pool: usize, owner: u32, count: u64) -> Option<u32> {
        let share = self.shares[pool].get(&owner).copied().unwrap_or_default();
        let (status, found, cycles) = self.request(pool == 1, false, count, share);
        let slots = [0, 4, 8, 16][share.size.to_u64() as usize];
        let units = count.div_ceil(4).next_power_of_two();
        if count <= slots {
            assert_eq!((status, found), (0, share), "{count} of {slots}");
            assert!(cycles <= 1);
            return None;
        }
        if slots > 0 {
            assert_eq!((status, found), (CommandStatus::ValueNotAllowed as u64, share), "{count} of {slots}");
            return None;
        }
        if !self.has_room(pool, units) {
            assert_eq!((status, found), (CommandStatus::NoResources as u64, share));
            assert!(cycles <= SEEK_CYCLES, "{cycles}");
            return None;
        }
        assert_eq!(status, 0, "{count} slots of {} free units", self.free_units(pool));
        assert!(cycles <= SEEK_CYCLES, "{cycles}");
        let first = found.unit.to_u64();
        assert_eq!((share_slots(found).to_u64(), first % units), (4 * units, 0), "{count}: {found:?}");
        for unit in first..first + units {
            assert_eq!(self.units[pool].insert(unit, owner), None, "unit {unit} is in two shares");
        }
        self.shares[pool].insert(owner, found);
        Some(cycles)
    }

    fn give(&mut self, pool: usize, owner: u32) {
        let share = self.shares[pool].remove(&owner).unwrap_or_default();
        let (status, found, cycles) = self.request(pool == 1, true, 0, share);
        assert_eq!((status, found.size), (0, bits(0)));
        assert!(cycles <= 3, "{cycles}");
        self.units[pool].retain(|_, other| *other != owner);
    }

    fn check_levels(&mut self) {
        let levels = self.bench.block.levels.val();
        let found = [levels.read_slots, levels.destination_read_slots].map(|level| level.to_u64());
        assert_eq!(found, [0, 1].map(|pool| 4 * self.units[pool].len() as u64));
    }
}

#[test]
fn shares_fit_the_free_places_of_a_block() {
    for used in 0..16u64 {
        for (size, units) in [(1, 1), (2, 2), (3, 4)] {
            let place = place_in(bits(used), bits(size)).to_u64();
            let is_free = units_of(bits(size), bits(place)).to_u64() & used == 0;
            let mask = |first: u64| ((1 << units) - 1) << first;
            let first = (0..4).step_by(units).find(|&first| mask(first) & used == 0);
            assert_eq!(is_free.then_some(place), first, "{used:04b} {units}");
        }
    }
    for (count, size) in [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (16, 3)] {
        assert_eq!(size_of(bits(count)), bits(size), "{count}");
    }
}

#[test]
fn a_share_is_sought_once_kept_while_it_does_and_never_grows() {
    let success = CommandStatus::Success;
    for (gives, own, wanted, step, status, size) in [
        (true, 0, 0, Step::Done, success, 0),
        (true, 2, 0, Step::Find, success, 0),
        (false, 0, 0, Step::Done, success, 0),
        (false, 0, 1, Step::Seek, success, 0),
        (false, 2, 2, Step::Done, success, 2),
        (false, 3, 1, Step::Done, success, 3),
        (false, 1, 2, Step::Done, CommandStatus::ValueNotAllowed, 1),
    ] {
        let expected = Beginning { step, status: bits(status as u64), size: bits(size) };
        assert_eq!(begin(gives, bits(own), bits(wanted)), expected, "{gives} {own} {wanted}");
    }
}

#[test]
fn no_unit_is_in_two_shares_and_all_come_back() {
    let mut world = World::new();
    let owners: Vec<u32> = (0..40).collect();
    for _ in 0..1500 {
        let pool = world.random.random_range(0..2);
        let owner = *owners.choose(&mut world.random).expect("there are owners");
        if world.random.random_bool(0.4) {
            world.give(pool, owner);
        } else {
            let count = world.random.random_range(0..=16);
            world.take(pool, owner, count);
        }
        world.check_levels();
    }
    for pool in 0..2 {
        for &owner in &owners {
            world.give(pool, owner);
        }
    }
    world.check_levels();
    assert_eq!(world.units, [HashMap::new(), HashMap::new()]);
}

/// The last share is found, one more is refused, and what comes back is found again; the other pool has its own room.
#[test]
fn a_pool_is_used_up_to_its_last_unit() {
    let mut world = World::new();
    let blocks = (POOL_UNITS / 4) as u32;
    for owner in 0..blocks - 1 {
        world.take(0, owner, 16).expect("there is room");
    }
    // The last block: a half, and two quarters.
    world.take(0, blocks, 8).expect("there is room");
    assert_eq!(world.take(0, blocks + 1, 9), None);
    world.take(0, blocks + 2, 1).expect("there is room");
    assert_eq!(world.take(0, blocks + 3, 5), None);
    let cycles = world.take(0, blocks + 4, 4).expect("there is room");
    assert_eq!(cycles, SEEK_CYCLES, "the last block takes longest");
    assert_eq!(world.free_units(0), 0);
    assert_eq!(world.take(0, blocks + 5, 1), None);
    world.take(1, blocks + 5, 16).expect("the other pool is empty");
    world.give(0, 100);
    world.take(0, blocks + 5, 7).expect("a half of what came back");
    world.take(0, blocks + 6, 8).expect("the other half");
    assert_eq!(world.take(0, blocks + 7, 1), None);
    world.check_levels();
}

#[test]
fn a_reset_empties_both_pools() {
    let mut world = World::new();
    world.take(0, 1, 16);
    world.take(1, 1, 5);
    world.bench.block.reset.next = true;
    world.bench.tick();
    world.bench.block.reset.next = false;
    world.units = Default::default();
    world.shares = Default::default();
    world.bench.settle();
    world.check_levels();
    let blocks = (POOL_UNITS / 4) as u32;
    for owner in 0..blocks {
        let cycles = world.request(false, false, 16, ReadShare::default()).2;
        // The first request waits for the reset.
        let most = if owner == 0 { RESET_CYCLES + SEEK_CYCLES } else { SEEK_CYCLES };
        assert!(cycles <= most, "{cycles}");
    }
}
