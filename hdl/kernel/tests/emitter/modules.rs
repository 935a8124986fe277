//! Which modules a design has.
use crate::blocks::*;
use crate::lint;
use rnic_kernel::prelude::*;
use rnic_kernel::{Design, generate_design};

fn design<B: Block>(mut block: B) -> Design {
    generate_design(&mut block, "top").unwrap_or_else(|error| panic!("{error}"))
}

fn names(design: &Design) -> Vec<&str> {
    design.modules.iter().map(|module| module.name.as_str()).collect()
}

#[test]
fn equal_blocks_are_one_module() {
    let design = design(Chain::<32, 5>::default());
    assert_eq!(names(&design), ["skid", "top"]);
    assert_eq!(design.module("skid").unwrap().instance_count, 5);
    let children = design.top().children.iter().map(|(instance, _)| instance.as_str());
    assert_eq!(children.collect::<Vec<_>>(), ["stages_0", "stages_1", "stages_2", "stages_3", "stages_4"]);
}

#[derive(Default, LogicBlock)]
struct Mixed {
    clock: Signal<In, Clock>,
    reset: Signal<In, Bit>,
    wide_rx: StreamRx<Beat<64>>,
    wide_tx: StreamTx<Beat<64>>,
    narrow_rx: StreamRx<Beat<8>>,
    narrow_tx: StreamTx<Beat<8>>,
    wide: Skid<Beat<64>>,
    narrow: Skid<Beat<8>>,
}

impl Logic for Mixed {
    #[kernel]
    fn update(&mut self) {
        clock!(self, clock, wide, narrow);
        self.wide.reset.next = self.reset.val();
        self.narrow.reset.next = self.reset.val();
        StreamRx::link(&mut self.wide_rx, &mut self.wide.rx);
        StreamTx::link(&mut self.wide_tx, &mut self.wide.tx);
        StreamRx::link(&mut self.narrow_rx, &mut self.narrow.rx);
        StreamTx::link(&mut self.narrow_tx, &mut self.narrow.tx);
    }
}

#[test]
fn blocks_with_different_parameters_are_named_after_what_differs() {
    let design = design(Mixed::default());
    assert_eq!(names(&design), ["skid_64", "skid_8", "top"]);
    assert!(design.modules[0].type_name.ends_with("Beat<64>>"), "{}", design.modules[0].type_name);
    lint::check("top", &design.verilog());
}

#[test]
fn one_block_alone_comes_with_all_that_it_contains() {
    let design = design(LineReader::default());
    let alone = design.verilog_of("top").unwrap();
    assert_eq!(alone, design.verilog());
    let leaf = design.verilog_of("even_parity").unwrap();
    assert_eq!(leaf, design.module("even_parity").unwrap().text);
    lint::check("even_parity", &leaf);
    assert_eq!(design.verilog_of("nothing"), None);
}

#[test]
fn equal_blocks_give_equal_bytes() {
    let first = design(Chain::<64, 4>::default());
    let second = design(Chain::<64, 4>::default());
    assert_eq!(first, second);
}

/// A block whose sub-block serves its simulation only.
#[derive(Default, LogicBlock)]
struct LeafWithModel {
    value: Signal<In, Bits<16>>,
    is_even: Signal<Out, Bit>,
    model: EvenParity,
}

impl Logic for LeafWithModel {
    fn update(&mut self) {
        self.model.value.next = self.value.val();
        self.is_even.next = self.model.is_even.val();
    }

    fn connect(&mut self) {
        self.model.value.connect();
        self.is_even.connect();
    }

    fn hdl(&self) -> Verilog {
        let body = "assign is_even = ~^value;".to_owned();
        rnic_kernel::leaf(core::any::type_name::<Self>(), "As above.", body, &[])
    }
}

#[test]
fn blocks_inside_a_leaf_are_not_printed() {
    assert_eq!(names(&design(LeafWithModel::default())), ["top"]);
}

/// A memory of rust-hdl, which prints text of its own.
#[derive(LogicBlock)]
struct WithMemory {
    clock: Signal<In, Clock>,
    address: Signal<In, Bits<4>>,
    word: Signal<Out, Bits<8>>,
    memory: SyncROM<Bits<8>, 4>,
}

impl Logic for WithMemory {
    #[kernel]
    fn update(&mut self) {
        self.memory.clock.next = self.clock.val();
        self.memory.address.next = self.address.val();
        self.word.next = self.memory.data.val();
    }
}

#[test]
fn widgets_of_rust_hdl_keep_their_own_text() {
    let block = WithMemory {
        clock: Default::default(),
        address: Default::default(),
        word: Default::default(),
        memory: (0..16u64).map(|word| Bits::<8>::from(word * 3)).into(),
    };
    let design = design(block);
    assert_eq!(names(&design), ["memory", "top"]);
    lint::check("top", &design.verilog());
}
