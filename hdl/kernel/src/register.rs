//! Flip-flops that are printed inside the block that owns them.
//!
//! They remain blocks of rust-hdl with `clock`, `d` and `q`, so that its own simulation runs them too.
use crate::node::Node;
use crate::staged::{self, StagedVal};
use rnic_kernel_macros::LogicBlock;
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

/// A register, or a child block: what `hold_registers` of the block around it connects.
///
/// `#[derive(Registers)]` implements it for blocks, whose ports `clock` and `reset` are connected, if they have them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a register nor a block with `#[derive(Registers)]`",
    label = "`hold_registers` cannot connect its clock and reset",
    note = "derive `Registers` for it, or leave the field out with `#[domain(skip)]`"
)]
pub trait Clocked {
    /// Connects clock and reset; a register holds its value besides. `None` leaves the reset of a child alone.
    #[doc(hidden)]
    fn hold(&mut self, clock: Clock, reset: Option<Bit>);
    #[doc(hidden)]
    fn connect_hold(&mut self, has_reset: bool);
    #[doc(hidden)]
    fn stage_hold(&self, clock: Node<Clock>, reset: Option<Node<Bit>>);
}

impl<T: Synth> Clocked for Reg<T> {
    fn hold(&mut self, clock: Clock, reset: Option<Bit>) {
        self.clock.next = clock;
        self.reset.next = reset.unwrap_or(false);
        self.d.next = self.q.val();
    }

    fn connect_hold(&mut self, _has_reset: bool) {
        self.clock.connect();
        self.reset.connect();
        self.d.connect();
    }

    fn stage_hold(&self, clock: Node<Clock>, reset: Option<Node<Bit>>) {
        staged::assign(&self.clock, clock);
        match reset {
            Some(reset) => staged::assign(&self.reset, reset),
            None => staged::assign(&self.reset, false),
        }
        staged::assign(&self.d, self.q.staged_val());
    }
}

impl<T: Synth> Clocked for DFF<T> {
    fn hold(&mut self, clock: Clock, _reset: Option<Bit>) {
        self.clock.next = clock;
        self.d.next = self.q.val();
    }

    fn connect_hold(&mut self, _has_reset: bool) {
        self.clock.connect();
        self.d.connect();
    }

    fn stage_hold(&self, clock: Node<Clock>, _reset: Option<Node<Bit>>) {
        staged::assign(&self.clock, clock);
        staged::assign(&self.d, self.q.staged_val());
    }
}

macro_rules! collections {
    ($($collection:ty, [$($generics:tt)*];)*) => { $(
        impl<$($generics)*> Clocked for $collection {
            fn hold(&mut self, clock: Clock, reset: Option<Bit>) {
                self.iter_mut().for_each(|part| part.hold(clock, reset));
            }

            fn connect_hold(&mut self, has_reset: bool) {
                self.iter_mut().for_each(|part| part.connect_hold(has_reset));
            }

            fn stage_hold(&self, clock: Node<Clock>, reset: Option<Node<Bit>>) {
                self.iter().for_each(|part| part.stage_hold(clock, reset));
            }
        }
    )* };
}

collections! {
    [C; N], [C: Clocked, const N: usize];
    Vec<C>, [C: Clocked];
}

/// Derived for a block: `hold_registers` connects clock and reset of its registers and children, and lets every
/// register keep its value. What the kernel assigns later wins.
pub trait Registers {
    /// Must be the first statement of a kernel.
    fn hold_registers(&mut self);
    #[doc(hidden)]
    fn connect_registers(&mut self);
    #[doc(hidden)]
    fn stage_registers(&self);
    /// Shows `probe` the public fields, which are the ports of the block, and nothing that is within it.
    fn accept_ports(&self, probe: &mut dyn Probe);
}
