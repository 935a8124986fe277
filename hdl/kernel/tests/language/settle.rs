//! Quick passes over a hierarchy against those of rust-hdl.
#![allow(missing_docs, reason = "blocks of a test")]
use rnic_kernel::prelude::*;
use rnic_kernel::quick::{Since, settle};

/// Sums what it is given.
#[derive(Default, LogicBlock, Registers)]
struct Sum {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub step: Signal<In, Bits<8>>,
    pub sum: Signal<Out, Bits<8>>,
    total: Reg<Bits<8>>,
}

impl Logic for Sum {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.total.d.next = self.total.q.val() + self.step.val();
        self.sum.next = self.total.q.val();
    }
}

/// Two sums, of which each adds up what the other one has.
#[derive(Default, LogicBlock, Registers)]
struct Pair {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub step: Signal<In, Bits<8>>,
    pub sum: Signal<Out, Bits<8>>,
    mixed: Signal<Local, Bits<8>>,
    first: Sum,
    second: Sum,
}

impl Logic for Pair {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.mixed.next = self.second.sum.val() ^ self.step.val();
        self.first.step.next = self.mixed.val();
        self.second.step.next = self.first.sum.val();
        self.sum.next = self.second.sum.val() + self.mixed.val();
    }
}

/// Another level above, with a register beside.
#[derive(Default, LogicBlock, Registers)]
struct Tower {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub step: Signal<In, Bits<8>>,
    pub sum: Signal<Out, Bits<8>>,
    last: DFF<Bits<8>>,
    pair: Pair,
}

impl Logic for Tower {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.pair.step.next = self.step.val() + self.last.q.val();
        self.last.d.next = self.pair.sum.val();
        self.sum.next = self.pair.sum.val();
    }
}

/// Runs the tower, and gives its sums with the passes that it took.
fn sums(settle: impl Fn(&mut Tower, Since) -> usize) -> (Vec<Bits<8>>, usize) {
    let mut tower = Tower::default();
    tower.connect_all();
    let mut passes = 0;
    let sums = (0..200u64).map(|cycle| {
        // Every other step is that of the cycle before, so that blocks rest.
        tower.step.next = bits((cycle / 2).pow(3) & 0xff);
        tower.reset.next = cycle % 50 == 20;
        passes += settle(&mut tower, Since::Anything);
        let sum = tower.sum.val();
        for level in [true, false] {
            tower.clock.next = level.into();
            passes += settle(&mut tower, Since::Inputs);
        }
        sum
    });
    (sums.collect(), passes)
}

#[test]
fn quick_passes_give_the_values_of_rust_hdl_in_fewer_of_them() {
    let (quick, quick_passes) = sums(|tower, since| {
        let mut passes = 1;
        settle(tower, since, |_| passes += 1);
        passes
    });
    let (all, all_passes) = sums(|tower, _| {
        let mut passes = 1;
        while {
            tower.update_all();
            tower.has_changed()
        } {
            passes += 1;
        }
        passes
    });
    assert_eq!(quick, all);
    assert!(quick.iter().any(|sum| *sum != quick[0]));
    assert!(4 * quick_passes < 3 * all_passes, "{quick_passes} passes of {all_passes}");
}
