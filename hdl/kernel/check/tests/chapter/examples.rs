//! The examples of `LANGUAGE.md`: the text between `// example` and `// end` is printed there, with its Verilog.

use rnic_kernel::prelude::*;

/// A block with some inputs, the given further fields, and the given kernel.
macro_rules! example {
    ($name:ident { $($field:tt)* } |$self:ident| $body:block) => {
        #[derive(Default, LogicBlock)]
        pub struct $name {
            pub a: Signal<In, Bits<8>>,
            pub b: Signal<In, Bits<8>>,
            pub flag: Signal<In, Bit>,
            pub wide: Signal<In, Bits<64>>,
            $($field)*
        }

        impl Logic for $name {
            #[kernel]
            fn update(&mut $self) $body
        }
    };
}

/// The same with a clock and a reset.
macro_rules! clocked_example {
    ($name:ident { $($field:tt)* } |$self:ident| $body:block) => {
        #[derive(Default, LogicBlock, Registers)]
        pub struct $name {
            pub clock: Signal<In, Clock>,
            pub reset: Signal<In, Bit>,
            pub a: Signal<In, Bits<8>>,
            pub flag: Signal<In, Bit>,
            $($field)*
        }

        impl Logic for $name {
            #[kernel]
            fn update(&mut $self) $body
        }
    };
}

example!(Arithmetic { pub x: Signal<Out, Bits<16>>, pub y: Signal<Out, Bit> } |self| {
    // example Arithmetic
    // The sum has eight bits and wraps; the cast adds zeros.
    self.x.next = bit_cast::<16, 8>(self.a.val() + self.b.val());
    self.y.next = self.a.val() - self.b.val() > 3 && self.a.val() & 1 == 0;
    // end
});

// example Bindings
const HEADER_BYTES: u64 = 58;
// end

example!(Bindings { pub x: Signal<Out, Bits<8>>, pub y: Signal<Out, Bits<8>> } |self| {
    // example Bindings
    let sum = self.a.val() + self.b.val();
    // The larger first.
    let (high, low) = if sum < HEADER_BYTES { (self.a.val(), sum) } else { (sum, self.a.val()) };
    self.x.next = high;
    self.y.next = low ^ sum;
    // end
});

example!(Slices { pub x: Signal<Out, Bits<12>>, pub y: Signal<Out, Bits<8>>, pub z: Signal<Out, Bits<64>> } |self| {
    // example Slices
    self.x.next = cat!(self.a.val().get_bits::<3>(4), self.flag.val(), self.b.val());
    self.y.next = self.wide.val().get_bits::<8>(self.a.val().get_bits::<6>(0).index());
    self.z.next = swap_bytes(self.wide.val()).replace_bit(3, self.flag.val());
    // end
});

example!(Shifts { pub x: Signal<Out, Bits<64>>, pub y: Signal<Out, Bits<8>> } |self| {
    // example Shifts
    self.x.next = self.wide.val() << self.a.val();
    self.y.next = self.a.val() >> 3;
    // end
});

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Verdict {
    /// Keep it.
    Keep,
    /// Answer that something is missing.
    Nak,
    /// Forget it.
    Drop,
}

mod opcode {
    pub const READ_FIRST: u64 = 0x0d;
    pub const READ_LAST: u64 = 0x10;
}

example!(Choices { pub x: Signal<Out, Bits<2>>, pub verdict: Signal<Out, Verdict> } |self| {
    // example Choices
    self.x.next = match self.a.val().to_u64() {
        0 | 0x80 => bits(0),
        opcode::READ_FIRST..=opcode::READ_LAST => bits(1),
        _ if self.flag.val() => bits(2),
        _ => bits(3),
    };
    self.verdict.next = if self.flag.val() { Verdict::Keep } else { Verdict::Drop };
    if self.a.val() == self.b.val() {
        self.verdict.next = Verdict::Nak;
    }
    // end
});

// example Variants
/// What a packet asks for: an enum of the contract, with numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Opcode {
    /// To write.
    Write = 0x0a,
    /// To read.
    Read = 0x0c,
    /// To add.
    Add = 0x14,
}

impl Opcode {
    /// Finds the variant for a number.
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            0x0a => Some(Opcode::Write),
            0x0c => Some(Opcode::Read),
            0x14 => Some(Opcode::Add),
            _ => None,
        }
    }
}
// end

example!(Variants { pub x: Signal<Out, Bits<8>>, pub y: Signal<Out, Bits<2>> } |self| {
    // example Variants
    self.x.next = bits(Opcode::Write as u64);
    if self.a.val() == Opcode::Read as u64 {
        self.x.next = self.b.val();
    }
    self.y.next = match Opcode::from_number(self.a.val().to_u64()) {
        Some(Opcode::Write) => bits(1),
        Some(Opcode::Read | Opcode::Add) => bits(2),
        None => bits(0),
    };
    // end
});

/// Two bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Pair {
    /// The first on the wire.
    pub high: Bits<8>,
    /// The second.
    pub low: Bits<8>,
}

example!(Structs { pub pair: Signal<Out, Pair>, pub x: Signal<Out, Bits<8>>, swapped: Signal<Local, Pair> } |self| {
    // example Structs
    self.swapped.next = Pair { high: self.b.val(), low: self.a.val() };
    self.pair.next = self.swapped.val();
    self.pair.next.low = self.a.val() + 1;
    self.x.next = self.swapped.val().high;
    // end
});

/// Three numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Position {
    /// The first.
    pub page: Bits<8>,
    /// The second.
    pub row: Bits<4>,
    /// The third.
    pub column: Bits<4>,
}

clocked_example!(Rest { pub x: Signal<Out, Position>, held: DFF<Position> } |self| {
    // example Rest
    self.hold_registers();
    let held = self.held.q.val();
    self.held.d.next = Position { row: held.row + 1, ..held };
    self.x.next = Position { page: self.a.val(), ..Default::default() };
    // end
});

// example Functions
#[kernel]
fn is_before(a: Bits<24>, b: Bits<24>) -> Bit {
    (a - b).get_bit(23)
}

#[kernel]
fn lane<const N: usize>(word: Bits<64>, index: usize) -> Bits<N> {
    word.get_bits::<N>(index * N)
}
// end

example!(Functions { pub x: Signal<Out, Bit>, pub y: Signal<Out, Bits<8>> } |self| {
    // example Functions
    self.x.next = is_before(lane::<24>(self.wide.val(), 0), lane::<24>(self.wide.val(), 1));
    self.y.next = bits(0);
    for i in 0..4 {
        if self.a.val() == i as u64 {
            self.y.next = lane::<8>(self.wide.val(), i);
        }
    }
    // end
});

clocked_example!(State {
    pub x: Signal<Out, Bits<8>>,
    verdict: Reg<Bits<2>>,
    data: DFF<Bits<8>>,
    chain: [DFF<Bits<8>>; 3],
} |self| {
    // example State
    self.hold_registers();
    if self.flag.val() {
        self.verdict.d.next = self.verdict.q.val() + 1;
        self.data.d.next = self.a.val();
    }
    for i in 0..3 {
        self.chain[i].d.next = if i == 0 { self.data.q.val() } else { self.chain[i - 1].q.val() };
    }
    self.x.next = self.chain[2].q.val() ^ bit_cast::<8, 2>(self.verdict.q.val());
    // end
});

/// Adds two numbers.
#[derive(Default, LogicBlock, Registers)]
pub struct Adder {
    /// One.
    pub left: Signal<In, Bits<8>>,
    /// The other.
    pub right: Signal<In, Bits<8>>,
    /// What they make.
    pub sum: Signal<Out, Bits<8>>,
}

impl Logic for Adder {
    #[kernel]
    fn update(&mut self) {
        self.sum.next = self.left.val() + self.right.val();
    }
}

example!(Blocks { pub x: Signal<Out, Bits<8>>, first: Adder, second: Adder } |self| {
    // example Blocks
    self.first.left.next = self.a.val();
    self.first.right.next = self.b.val();
    self.second.left.next = self.first.sum.val();
    self.second.right.next = self.a.val();
    self.x.next = self.second.sum.val();
    // end
});

// example Methods
impl Adder {
    /// Adds these two, or zero and the second one.
    #[kernel]
    pub fn add(&mut self, enable: Bit, left: Bits<8>, right: Bits<8>) {
        self.left.next = select(enable, left, bits::<8>(0));
        self.right.next = right;
    }
}
// end

example!(Methods { pub x: Signal<Out, Bits<8>>, adder: Adder } |self| {
    // example Methods
    // Twice the sum, or the second alone.
    self.adder.add(self.flag.val(), self.a.val() << 1, self.b.val());
    self.x.next = self.adder.sum.val();
    // end
});

/// Remembers a byte.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct Memo {
    /// What comes.
    pub taken: Signal<In, Bits<8>>,
    /// What came.
    pub last: Signal<Out, Bits<8>>,
    held: Reg<Bits<8>>,
}

impl Logic for Memo {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.held.d.next = self.taken.val();
        self.last.next = self.held.q.val();
    }
}

// example Domains
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct Domains {
    pub mac_clock: Signal<In, Clock>,
    pub mac_reset: Signal<In, Bit>,
    pub a: Signal<In, Bits<8>>,
    pub b: Signal<In, Bits<8>>,
    pub x: Signal<Out, Bits<8>>,
    pub y: Signal<Out, Bits<8>>,
    memos: [Memo; 2],
    #[domain(clock = mac_clock, reset = mac_reset)]
    of_mac: Memo,
}
// end

impl Logic for Domains {
    #[kernel]
    fn update(&mut self) {
        // example Domains
        self.hold_registers();
        self.memos[0].taken.next = self.a.val();
        self.memos[1].taken.next = self.memos[0].last.val();
        self.x.next = self.memos[1].last.val();
        self.of_mac.taken.next = self.b.val();
        self.y.next = self.of_mac.last.val();
        // end
    }
}

// example Parameters
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
#[require(COUNT == ADDRESS + 1)]
#[new(
    /// Makes a pointer that begins at `first`.
    first: u64,
)]
pub struct Pointer<const ADDRESS: usize, const COUNT: usize> {
    pub moves: Signal<In, Bit>,
    pub x: Signal<Out, Bits<ADDRESS>>,
    #[init(Reg::new(bits(first)))]
    count: Reg<Bits<COUNT>>,
}
// end

impl<const ADDRESS: usize, const COUNT: usize> Logic for Pointer<ADDRESS, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        if self.moves.val() {
            self.count.d.next = self.count.q.val() + 1;
        }
        self.x.next = bit_cast::<ADDRESS, COUNT>(self.count.q.val());
    }
}

// example Parameters
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct Parameters {
    pub a: Signal<In, Bits<8>>,
    pub x: Signal<Out, Bits<4>>,
    #[init(Pointer::new(3))]
    pointer: Pointer<4, 5>,
}
// end

impl Logic for Parameters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.pointer.moves.next = self.a.val().any();
        self.x.next = self.pointer.x.val();
    }
}

example!(MissingElse { pub x: Signal<Out, Bits<8>> } |self| {
    // example MissingElse
    if self.flag.val() {
        self.x.next = self.a.val();
    }
    // end
});

example!(WriteAfterRead { pub x: Signal<Out, Bits<8>>, held: Signal<Local, Bits<8>> } |self| {
    // example WriteAfterRead
    self.held.next = self.a.val();
    self.x.next = self.held.val();
    self.held.next = self.b.val();
    // end
});

example!(WideLiteral { pub x: Signal<Out, Bits<8>> } |self| {
    // example WideLiteral
    self.x.next = self.a.val() + 300;
    // end
});

example!(SliceBeyond { pub x: Signal<Out, Bits<4>> } |self| {
    // example SliceBeyond
    self.x.next = self.a.val().get_bits::<4>(6);
    // end
});

example!(Undriven { pub x: Signal<Out, Bits<8>>, adder: Adder } |self| {
    // example Undriven
    self.adder.left.next = self.a.val();
    self.x.next = self.adder.sum.val();
    // end
});

example!(Loop { pub x: Signal<Out, Bits<8>>, adder: Adder } |self| {
    // example Loop
    self.adder.left.next = self.a.val();
    self.adder.right.next = self.adder.sum.val();
    self.x.next = self.adder.sum.val();
    // end
});

example!(Keyword { pub begin: Signal<Out, Bits<8>> } |self| {
    // example Keyword
    self.begin.next = self.a.val();
    // end
});

/// Generates the Verilog of an example, or the error.
pub fn generate(name: &str) -> Result<String, String> {
    macro_rules! by_name {
        ($($block:ident),*) => {
            match name {
                $(stringify!($block) => {
                    rnic_kernel::generate(&mut $block::default(), "example").map_err(|error| error.to_string())
                })*
                other => panic!("no example is called {other}"),
            }
        };
    }
    by_name!(
        Arithmetic,
        Bindings,
        Slices,
        Shifts,
        Choices,
        Variants,
        Structs,
        Rest,
        Functions,
        State,
        Blocks,
        Methods,
        Domains,
        Parameters,
        MissingElse,
        WriteAfterRead,
        WideLiteral,
        SliceBeyond,
        Undriven,
        Loop,
        Keyword
    )
}
