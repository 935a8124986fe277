//! Pools: a card at rest has given back every entry that work has taken.
//!
//! The levels are those that the card tells in its registers. What must be zero depends on what is left of the scenario, as the
//! table of pools says ([`PoolRest`]).
use super::{Log, Rule};
use rnic_layout::registers::{POOLS, Pool, PoolRest};

/// What is left of a scenario when its card is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The card is not enabled, or quiesces.
    pub stopped: bool,
    /// A posted message may not have completed.
    pub messages: bool,
    /// A queue pair or SRQ exists.
    pub queues: bool,
}

/// Tells whether a pool may have entries in use.
fn may_be_used(pool: &Pool, remains: Remains) -> bool {
    match pool.rest {
        PoolRest::Quiet => false,
        PoolRest::Enabled => remains.stopped,
        PoolRest::Completed => remains.messages,
        PoolRest::Unused => remains.queues,
    }
}

/// Gives the pools that have entries in use and should not, with their levels, which are in the order of their registers.
pub fn occupied(levels: &[u64], remains: Remains) -> impl Iterator<Item = (&'static Pool, u64)> {
    assert_eq!(levels.len(), POOLS.len(), "all levels are read");
    let pools = POOLS.iter().zip(levels.iter().copied());
    pools.filter(move |(pool, level)| *level != 0 && !may_be_used(pool, remains))
}

/// Checks the levels of the pools of a card at rest.
pub fn check(log: &mut Log, time_ps: u64, levels: &[u64], remains: Remains) {
    for (pool, level) in occupied(levels, remains) {
        log.report(time_ps, Rule::Pools, || {
            format!("{level} of the pool {} are in use at the end", pool.name)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pool_that_must_rest_is_seen() {
        let nothing = Remains::default();
        let stopped = Remains { stopped: true, ..nothing };
        let queues = Remains { queues: true, ..nothing };
        let all = Remains { stopped: true, messages: true, queues: true };
        for (index, pool) in POOLS.iter().enumerate() {
            for (remains, is_seen) in [
                (nothing, true),
                (stopped, pool.rest != PoolRest::Enabled),
                (queues, pool.rest != PoolRest::Unused),
                (all, pool.rest == PoolRest::Quiet),
            ] {
                let mut log = Log::new("card1");
                let mut levels = vec![0; POOLS.len()];
                check(&mut log, 5, &levels, remains);
                assert!(log.violations().is_empty(), "all is free");
                levels[index] = 3;
                check(&mut log, 5, &levels, remains);
                let text = format!("card1 at 5 ps: Pools: 3 of the pool {} are in use at the end", pool.name);
                let expected = if is_seen { vec![text] } else { Vec::new() };
                let found: Vec<String> = log.take().iter().map(ToString::to_string).collect();
                assert_eq!(found, expected, "{} {remains:?}", pool.name);
            }
        }
    }
}
