//! Random operations of two hosts against the model, through the driver.
use anyhow::Result;
use rnic_driver::{Device, Function};
use rnic_stimulus::chance::{Seed, seeds};
use rnic_workloads::plan::Mistake;
use rnic_workloads::tamper::Tamper;
use rnic_workloads::{Cards, Plan, PlanOptions, cards, run};
use std::sync::Arc;

/// The driver's software model of a card. It connects queue pairs of one card without a wire, so both hosts share it.
#[allow(dead_code, reason = "the tests of the driver use the rest")]
#[path = "../../../driver/tests/device/fake/mod.rs"]
mod fake;

/// Mistakes that this model refuses as a card does.
const MISTAKES: &[Mistake] = &[
    Mistake::RemoteKey,
    Mistake::RemoteDomain,
    Mistake::RemoteRight,
    Mistake::RemoteEnd,
    Mistake::RemoteStart,
    Mistake::RemoteWrap,
    Mistake::LocalKey,
    Mistake::LastKey,
    Mistake::LocalRange,
    Mistake::ReceiveShort,
    Mistake::EndedKey,
    Mistake::PeerKey,
    Mistake::OwnKey,
];

#[test]
fn the_driver_does_what_the_model_says_on_a_card_without_a_wire() -> Result<()> {
    let options = PlanOptions { pairs: 8, messages: 40, mistakes: MISTAKES, ..PlanOptions::USUAL };
    for seed in seeds(20) {
        let plan = Plan::new(seed, &options);
        let function: Arc<dyn Function> = fake::FakeFunction::new(4);
        let tamper = Arc::new(Tamper::new(function));
        let device = Device::open(tamper.clone(), cards::options(Seed(seed), 0))?;
        let mut cards = Cards::connect(&plan, [device.clone(), device], [tamper.clone(), tamper])?;
        let totals = run(&plan, &mut cards)?;
        assert_eq!(totals.messages, plan.messages() as u64);
    }
    Ok(())
}
