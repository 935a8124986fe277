//! Flip-flops that are printed inside the block that owns them.
//!
//! They remain blocks of rust-hdl with `clock`, `d` and `q`, so that its own simulation runs them too.
use crate::staged::{self, StagedVal};
use rust_hdl::core::prelude::*;
use rust_hdl::widgets::prelude::DFF;

/// A register that a synchronous, active-high reset sets to its reset value. `DFF` is one without reset.
#[derive(Clone, Debug, LogicBlock)]
pub struct Reg<T: Synth> {
    /// Samples on the rising edge.
    pub clock: Signal<In, Clock>,
    /// While 1, the next value is the reset value.
    pub reset: Signal<In, Bit>,
    /// The next value.
    pub d: Signal<In, T>,
    /// The present value.
    pub q: Signal<Out, T>,
    _reset_value: T,
}

impl<T: Synth> Reg<T> {
    /// Makes a register that has `reset_value` at power-up and after reset.
    pub fn new(reset_value: T) -> Self {
        Reg {
            clock: Signal::default(),
            reset: Signal::default(),
            d: Signal::default(),
            q: Signal::new_with_default(reset_value),
            _reset_value: reset_value,
        }
    }
}

impl<T: Synth> Default for Reg<T> {
    fn default() -> Self {
        Reg::new(T::default())
    }
}

impl<T: Synth> Logic for Reg<T> {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            self.q.next = if self.reset.val() { self._reset_value } else { self.d.val() };
        }
    }

    fn connect(&mut self) {
        self.q.connect();
    }

    fn hdl(&self) -> Verilog {
        staged::register(self._reset_value, true)
    }
}

/// What `hold_registers` does with each register: it takes the clock and the reset, and holds its value.
pub trait Register {
    #[doc(hidden)]
    fn hold(&mut self, clock: Clock, reset: Bit);
    #[doc(hidden)]
    fn connect_hold(&mut self);
    #[doc(hidden)]
    fn stage_hold(&self, clock: &Signal<In, Clock>, reset: Option<&Signal<In, Bit>>);
}

impl<T: Synth> Register for Reg<T> {
    fn hold(&mut self, clock: Clock, reset: Bit) {
        self.clock.next = clock;
        self.reset.next = reset;
        self.d.next = self.q.val();
    }

    fn connect_hold(&mut self) {
        self.clock.connect();
        self.reset.connect();
        self.d.connect();
    }

    fn stage_hold(&self, clock: &Signal<In, Clock>, reset: Option<&Signal<In, Bit>>) {
        staged::assign(&self.clock, clock.staged_val());
        match reset {
            Some(reset) => staged::assign(&self.reset, reset.staged_val()),
            None => staged::assign(&self.reset, false),
        }
        staged::assign(&self.d, self.q.staged_val());
    }
}

impl<T: Synth> Register for DFF<T> {
    fn hold(&mut self, clock: Clock, _reset: Bit) {
        self.clock.next = clock;
        self.d.next = self.q.val();
    }

    fn connect_hold(&mut self) {
        self.clock.connect();
        self.d.connect();
    }

    fn stage_hold(&self, clock: &Signal<In, Clock>, _reset: Option<&Signal<In, Bit>>) {
        staged::assign(&self.clock, clock.staged_val());
        staged::assign(&self.d, self.q.staged_val());
    }
}

macro_rules! collections {
    ($($collection:ty, [$($generics:tt)*];)*) => { $(
        impl<$($generics)*> Register for $collection {
            fn hold(&mut self, clock: Clock, reset: Bit) {
                self.iter_mut().for_each(|register| register.hold(clock, reset));
            }

            fn connect_hold(&mut self) {
                self.iter_mut().for_each(Register::connect_hold);
            }

            fn stage_hold(&self, clock: &Signal<In, Clock>, reset: Option<&Signal<In, Bit>>) {
                self.iter().for_each(|register| register.stage_hold(clock, reset));
            }
        }
    )* };
}

collections! {
    [R; N], [R: Register, const N: usize];
    Vec<R>, [R: Register];
}

/// Derived for a block: `hold_registers` clocks its `Reg` and `DFF` fields and lets each keep its value, unless the
/// kernel assigns it later.
pub trait Registers {
    /// Stands first in a kernel.
    fn hold_registers(&mut self);
    #[doc(hidden)]
    fn connect_registers(&mut self);
    #[doc(hidden)]
    fn stage_registers(&self);
}
