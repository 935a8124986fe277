//! What is not hardware, or cannot be said exactly, is refused with the block, the signal and the cause.
use crate::blocks::{EvenParity, StreamRx};
use rnic_kernel::prelude::*;
use rnic_kernel::{GenerateError, generate};

fn refusal<B: Block>(mut block: B) -> GenerateError {
    match generate(&mut block, "top") {
        Ok(verilog) => panic!("this was printed:\n{verilog}"),
        Err(error) => error,
    }
}

/// The faults as (block, signal, cause).
fn faults<B: Block>(block: B) -> Vec<(String, Option<String>, String)> {
    let faults = refusal(block).faults.into_iter();
    faults.map(|fault| (fault.block, fault.signal, fault.cause)).collect()
}

/// Insists on one fault of the block `top`.
#[track_caller]
fn assert_fault<B: Block>(block: B, signal: &str, cause: &str) {
    let found = faults(block);
    assert_eq!(found, [("top".to_owned(), Some(signal.to_owned()), cause.to_owned())]);
}

macro_rules! block {
    ($name:ident { $($(#[$meta:meta])* $field:ident: $ty:ty,)* } ($self_:ident) $body:block) => {
        #[derive(Default, LogicBlock, Registers)]
        struct $name {
            $($(#[$meta])* $field: $ty,)*
        }

        impl Logic for $name {
            #[kernel]
            fn update(&mut $self_) $body
        }
    };
}

block!(Latch { enable: Signal<In, Bit>, a: Signal<In, Bit>, x: Signal<Out, Bit>, } (self) {
    if self.enable.val() {
        self.x.next = self.a.val();
    }
});

#[test]
fn an_output_without_a_value_on_some_path() {
    assert_fault(
        Latch::default(),
        "x",
        "is not assigned on every path, which would make a latch; assign a default first",
    );
}

#[test]
fn a_fault_names_its_line() {
    let error = refusal(Latch::default());
    let location = error.faults[0].location.clone().expect("the recorder knows the line");
    assert!(location.file.ends_with("refused.rs"), "{location:?}");
    assert!(location.line > 0);
    let text = error.to_string();
    assert!(text.starts_with("the design cannot be generated:\n  top ("), "{text}");
    assert!(text.contains("::Latch): `x` is not assigned on every path"), "{text}");
    assert!(text.contains(&format!("at {}:{}", location.file, location.line)), "{text}");
}

block!(Methods { enable: Signal<In, Bit>, x: Signal<Out, Bit>, y: Signal<Out, Bit>, } (self) {
    self.copy_y(self.enable.val());
    self.y.next = false;
});

impl Methods {
    #[kernel]
    fn copy_y(&mut self, enable: Bit) {
        self.x.next = self.y.val() && enable;
    }
}

#[test]
fn a_fault_within_a_method_names_the_line_that_calls_it() {
    let error = refusal(Methods::default());
    assert_eq!(error.faults[0].signal.as_deref(), Some("y"));
    let location = error.faults[0].location.clone().expect("the recorder knows the line");
    let lines: Vec<_> = include_str!("refused.rs").lines().collect();
    assert!(lines[location.line as usize - 1].contains("self.copy_y("), "{location:?}");
}

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Pair {
    low: Bits<4>,
    high: Bits<4>,
}

block!(HalfLatch { enable: Signal<In, Bit>, a: Signal<In, Bits<4>>, x: Signal<Out, Pair>, } (self) {
    self.x.next.low = self.a.val();
    if self.enable.val() {
        self.x.next.high = self.a.val();
    }
});

#[test]
fn a_field_without_a_value_on_some_path() {
    assert_fault(
        HalfLatch::default(),
        "x",
        "in bits 7:4 is not assigned on every path, which would make a latch; assign a default first",
    );
}

block!(CaseLatch { a: Signal<In, Bits<2>>, x: Signal<Out, Bits<2>>, } (self) {
    match self.a.val().to_u64() {
        0 => self.x.next = self.a.val(),
        1 => {}
        _ => self.x.next = self.a.val(),
    }
});

#[test]
fn an_arm_of_a_match_without_a_value() {
    assert_fault(
        CaseLatch::default(),
        "x",
        "is not assigned on every path, which would make a latch; assign a default first",
    );
}

block!(NeverAssigned { a: Signal<In, Bit>, x: Signal<Out, Bit>, y: Signal<Out, Bit>, } (self) {
    self.x.next = self.a.val();
});

#[test]
fn an_output_that_is_never_assigned() {
    assert_fault(NeverAssigned::default(), "y", "is never assigned");
}

block!(OpenChild { even: Signal<Out, Bit>, parity: EvenParity, } (self) {
    self.even.next = self.parity.is_even.val();
});

#[test]
fn an_input_of_a_child_that_is_never_assigned() {
    assert_fault(OpenChild::default(), "parity.value", "is an input of a child and is never assigned");
}

block!(HalfClocked { clock: Signal<In, Clock>, q: Signal<Out, Bit>, state: DFF<Bit>, } (self) {
    self.state.d.next = !self.state.q.val();
    self.q.next = self.state.q.val();
});

#[test]
fn a_register_without_a_clock() {
    assert_fault(HalfClocked::default(), "state.clock", "is an input of a child and is never assigned");
}

block!(Loop { a: Signal<In, Bit>, x: Signal<Out, Bit>, first: EvenParity, second: Follow, } (self) {
    self.first.value.next = 0u64.into();
    self.second.a.next = self.second.b.val() && self.first.is_even.val();
    self.x.next = self.second.b.val() && self.a.val();
});

block!(Follow { a: Signal<In, Bit>, b: Signal<Out, Bit>, } (self) {
    self.b.next = !self.a.val();
});

#[test]
fn a_loop_through_a_child() {
    let found = faults(Loop::default());
    assert_eq!(found.len(), 1, "{found:?}");
    let (block, signal, cause) = &found[0];
    assert_eq!(block, "top");
    let mut loop_signals = [signal.as_deref().unwrap_or_default(), cause];
    loop_signals.sort_by_key(|text| text.len());
    assert!(cause.contains("a combinational loop"), "{cause}");
    let both = format!("{loop_signals:?}");
    assert!(both.contains("second.a") && both.contains("second.b"), "{both}");
}

block!(NoLoop { a: Signal<In, Bit>, x: Signal<Out, Bit>, y: Signal<Out, Bit>, one: Two, } (self) {
    // The second output of the child follows only its second input, which follows the first output.
    self.one.a.next = self.a.val();
    self.one.b.next = self.one.x.val();
    self.x.next = self.one.x.val();
    self.y.next = self.one.y.val();
});

block!(Two {
    a: Signal<In, Bit>,
    b: Signal<In, Bit>,
    x: Signal<Out, Bit>,
    y: Signal<Out, Bit>,
} (self) {
    self.x.next = false;
    self.y.next = false;
    if self.a.val() {
        self.x.next = true;
        self.y.next = self.b.val();
    }
});

#[test]
fn what_only_looks_like_a_loop_is_printed() {
    let verilog = generate(&mut NoLoop::default(), "top").unwrap_or_else(|error| panic!("{error}"));
    crate::lint::check("top", &verilog);
}

block!(ReservedPort { table: Signal<In, Bit>, x: Signal<Out, Bit>, } (self) {
    self.x.next = self.table.val();
});

#[test]
fn a_port_with_a_reserved_name() {
    assert_fault(
        ReservedPort::default(),
        "table",
        "would be a port called `table`, a reserved word of Verilog; rename it",
    );
}

block!(SystemPort { logic: Signal<In, Bit>, x: Signal<Out, Bit>, } (self) {
    self.x.next = self.logic.val();
});

#[test]
fn a_port_with_a_name_that_only_systemverilog_reserves() {
    assert_fault(
        SystemPort::default(),
        "logic",
        "would be a port called `logic`, a reserved word of Verilog; rename it",
    );
}

block!(TwicePort { rx: StreamRx<Bit>, rx_beat: Signal<In, Bit>, x: Signal<Out, Bit>, } (self) {
    self.rx.ready.next = self.rx.valid.val();
    self.x.next = self.rx.beat.val() && self.rx_beat.val();
});

#[test]
fn two_ports_with_one_name() {
    assert_fault(TwicePort::default(), "rx_beat", "would be a second port called `rx_beat`; rename it");
}

#[derive(Default, LogicBlock)]
struct SignedPort {
    a: Signal<In, Signed<4>>,
    x: Signal<Out, Bit>,
}

impl Logic for SignedPort {
    fn update(&mut self) {
        self.x.next = self.a.val().get_bit(0);
    }
}

#[test]
fn signed_signals() {
    assert_fault(
        SignedPort::default(),
        "a",
        "is signed; keep it in `Bits` and compare by the sign of a difference",
    );
}

#[derive(Default, LogicBlock)]
struct Bidirectional {
    pin: Signal<InOut, Bit>,
}

impl Logic for Bidirectional {
    fn update(&mut self) {}
}

#[test]
fn bidirectional_signals() {
    assert_fault(Bidirectional::default(), "pin", "is bidirectional, which only a board's own top can be");
}

#[derive(Default, LogicBlock)]
struct Stock {
    a: Signal<In, Bit>,
    x: Signal<Out, Bit>,
}

impl Logic for Stock {
    #[hdl_gen]
    fn update(&mut self) {
        self.x.next = self.a.val();
    }
}

#[derive(Default, LogicBlock)]
struct Silent {
    a: Signal<In, Bit>,
}

impl Logic for Silent {
    fn update(&mut self) {}
}

#[derive(LogicBlock)]
struct Foreign {
    a: Signal<In, Bit>,
    is_wrapper: bool_constant::Flag,
}

/// A field that rust-hdl walks over without finding a signal.
mod bool_constant {
    use rnic_kernel::prelude::*;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Flag(pub(crate) bool);

    impl Logic for Flag {
        fn update(&mut self) {}
    }

    impl Block for Flag {
        fn connect_all(&mut self) {}
        fn update_all(&mut self) {}
        fn has_changed(&self) -> bool {
            false
        }
        fn accept(&self, _name: &str, _probe: &mut dyn Probe) {}
    }
}

impl Logic for Foreign {
    fn update(&mut self) {}

    fn hdl(&self) -> Verilog {
        if self.is_wrapper.0 {
            Verilog::Wrapper(Wrapper { code: String::new(), cores: String::new() })
        } else {
            Verilog::Blackbox(BlackBox { code: String::new(), name: "core".into() })
        }
    }
}

#[test]
fn blocks_that_are_no_kernel_and_no_leaf() {
    let cause_of = |found: Vec<(String, Option<String>, String)>| {
        let [(_, None, cause)] = found.as_slice() else { panic!("{found:?}") };
        cause.clone()
    };
    assert!(cause_of(faults(Stock::default())).contains("`#[hdl_gen]`"));
    assert!(cause_of(faults(Silent::default())).contains("`#[kernel]`"));
    let foreign = |is_wrapper| Foreign { a: Default::default(), is_wrapper: bool_constant::Flag(is_wrapper) };
    assert!(cause_of(faults(foreign(true))).contains("`Wrapper`"));
    assert!(cause_of(faults(foreign(false))).contains("`BlackBox`"));
}

block!(Inner { a: Signal<In, Bit>, x: Signal<Out, Bit>, stock: Stock, } (self) {
    self.stock.a.next = self.a.val();
    self.x.next = self.stock.x.val();
});

block!(Outer { a: Signal<In, Bit>, x: Signal<Out, Bit>, lanes: [Inner; 3], } (self) {
    for i in 0..3 {
        self.lanes[i].a.next = self.a.val();
    }
    self.x.next = self.lanes[0].x.val() && self.lanes[1].x.val() && self.lanes[2].x.val();
});

#[test]
fn a_fault_deep_inside_names_the_way_to_its_block() {
    let found = faults(Outer::default());
    let blocks: Vec<_> = found.iter().map(|(block, ..)| block.as_str()).collect();
    assert_eq!(blocks, ["top.lanes[0].stock", "top.lanes[1].stock", "top.lanes[2].stock"]);
}

block!(LatchLanes { a: Signal<In, Bit>, x: Signal<Out, Bit>, lanes: [Latch; 3], } (self) {
    for i in 0..3 {
        self.lanes[i].enable.next = self.a.val();
        self.lanes[i].a.next = self.a.val();
    }
    self.x.next = self.lanes[0].x.val() && self.lanes[1].x.val() && self.lanes[2].x.val();
});

#[test]
fn a_fault_that_equal_blocks_share_is_named_once() {
    let found = faults(LatchLanes::default());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "top.lanes[0]");
}

#[test]
fn a_top_without_a_proper_name() {
    for name in ["module", "top$1", "", "2nd", "bit"] {
        let error = generate(&mut Follow::default(), name).expect_err("this is no name of a module");
        assert!(error.faults[0].cause.contains("cannot be the name of a module"), "{error}");
    }
}

#[derive(Default, LogicBlock)]
struct WrongLeaf {
    a: Signal<In, Bit>,
    x: Signal<Out, Bit>,
}

impl Logic for WrongLeaf {
    fn update(&mut self) {
        self.x.next = self.a.val();
    }

    fn connect(&mut self) {
        self.x.connect();
    }

    fn hdl(&self) -> Verilog {
        rnic_kernel::leaf(core::any::type_name::<Self>(), "", "assign x = a;".to_owned(), &["y"])
    }
}

#[test]
fn a_leaf_that_names_an_output_that_it_does_not_have() {
    assert_fault(
        WrongLeaf::default(),
        "y",
        "is said to be assigned in a procedure, but is not an output of this leaf",
    );
}

#[test]
fn a_register_alone() {
    let error = generate(&mut Reg::<Bits<8>>::default(), "top").expect_err("a register has no module");
    assert!(error.faults[0].cause.contains("only the block around it can print"), "{error}");
    let error = generate(&mut DFF::<Bits<8>>::default(), "top").expect_err("a register has no module");
    assert!(error.faults[0].cause.contains("only the block around it can print"), "{error}");
}
