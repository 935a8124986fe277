//! Small blocks that between them use what kernels are made of.
use rnic_kernel::prelude::*;

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(crate) struct Beat<const DATA: usize> {
    pub(crate) data: Bits<DATA>,
    pub(crate) last: Bit,
}

/// The consumer's end of a stream.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "StreamTx"]
pub(crate) struct StreamRx<T: Synth> {
    pub(crate) beat: Signal<In, T>,
    pub(crate) valid: Signal<In, Bit>,
    pub(crate) ready: Signal<Out, Bit>,
}

/// The producer's end of a stream.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "StreamRx"]
pub(crate) struct StreamTx<T: Synth> {
    pub(crate) beat: Signal<Out, T>,
    pub(crate) valid: Signal<Out, Bit>,
    pub(crate) ready: Signal<In, Bit>,
}

/// A register slice: registers with and without reset under the same conditions.
#[derive(Default, LogicBlock, Registers)]
pub(crate) struct Skid<T: Synth> {
    pub(crate) clock: Signal<In, Clock>,
    pub(crate) reset: Signal<In, Bit>,
    pub(crate) rx: StreamRx<T>,
    pub(crate) tx: StreamTx<T>,
    head: DFF<T>,
    head_valid: Reg<Bit>,
    spare: DFF<T>,
    spare_valid: Reg<Bit>,
}

impl<T: Synth> Logic for Skid<T> {
    /// Takes a beat whenever the spare register is free.
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let take = self.rx.valid.val() && !self.spare_valid.q.val();
        let give = self.tx.ready.val() || !self.head_valid.q.val();
        self.rx.ready.next = !self.spare_valid.q.val();
        self.tx.valid.next = self.head_valid.q.val();
        self.tx.beat.next = self.head.q.val();
        if give {
            // The spare beat, if there is one, is older than the input.
            self.head.d.next = select(self.spare_valid.q.val(), self.spare.q.val(), self.rx.beat.val());
            self.head_valid.d.next = self.spare_valid.q.val() || self.rx.valid.val();
            self.spare_valid.d.next = false;
        } else if take {
            self.spare.d.next = self.rx.beat.val();
            self.spare_valid.d.next = true;
        }
    }
}

/// `N` slices one behind the other.
#[derive(LogicBlock, Registers)]
pub(crate) struct Chain<const DATA: usize, const N: usize> {
    pub(crate) clock: Signal<In, Clock>,
    pub(crate) reset: Signal<In, Bit>,
    pub(crate) rx: StreamRx<Beat<DATA>>,
    pub(crate) tx: StreamTx<Beat<DATA>>,
    stages: [Skid<Beat<DATA>>; N],
}

impl<const DATA: usize, const N: usize> Default for Chain<DATA, N> {
    fn default() -> Self {
        Chain {
            clock: Default::default(),
            reset: Default::default(),
            rx: Default::default(),
            tx: Default::default(),
            stages: std::array::from_fn(|_| Skid::default()),
        }
    }
}

impl<const DATA: usize, const N: usize> Logic for Chain<DATA, N> {
    #[kernel]
    fn update(&mut self) {
        StreamRx::link(&mut self.rx, &mut self.stages[0].rx);
        for i in 0..N {
            self.stages[i].clock.next = self.clock.val();
            self.stages[i].reset.next = self.reset.val();
        }
        for i in 1..N {
            StreamTx::join(&mut self.stages[i - 1].tx, &mut self.stages[i].rx);
        }
        StreamTx::link(&mut self.tx, &mut self.stages[N - 1].tx);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(crate) enum Verdict {
    InOrder,
    Duplicate,
    Gap,
}

/// Compares packet sequence numbers with the one that is expected.
#[derive(Default, LogicBlock, Registers)]
pub(crate) struct PsnWindow {
    pub(crate) clock: Signal<In, Clock>,
    pub(crate) reset: Signal<In, Bit>,
    pub(crate) arrived: Signal<In, Bit>,
    pub(crate) number: Signal<In, Bits<24>>,
    pub(crate) verdict: Signal<Out, Verdict>,
    pub(crate) missing: Signal<Out, Bits<24>>,
    expected: Reg<Bits<24>>,
}

/// Serial-number arithmetic: half of all numbers lie behind.
#[kernel]
fn is_before(first: Bits<24>, second: Bits<24>) -> Bit {
    let distance = first - second;
    distance.get_bit(23)
}

impl Logic for PsnWindow {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let expected = self.expected.q.val();
        let verdict = if self.number.val() == expected {
            Verdict::InOrder
        } else if is_before(self.number.val(), expected) {
            Verdict::Duplicate
        } else {
            Verdict::Gap
        };
        self.verdict.next = verdict;
        // How many packets were lost, when there is a gap.
        self.missing.next = if verdict == Verdict::Gap { self.number.val() - expected } else { 0u64.into() };
        if self.arrived.val() && verdict == Verdict::InOrder {
            self.expected.d.next = expected + 1;
        }
    }
}

const LINE_BYTES: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(crate) enum Phase {
    Idle,
    Request,
    Wait,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(crate) struct Cursor {
    pub(crate) address: Bits<16>,
    pub(crate) bytes: Bits<12>,
}

/// A state machine that asks for a buffer line by line, with a struct in a register.
#[derive(Default, LogicBlock, Registers)]
pub(crate) struct LineReader {
    pub(crate) clock: Signal<In, Clock>,
    pub(crate) reset: Signal<In, Bit>,
    pub(crate) start: Signal<In, Bit>,
    pub(crate) buffer: Signal<In, Cursor>,
    pub(crate) request: Signal<Out, Bit>,
    pub(crate) address: Signal<Out, Bits<16>>,
    pub(crate) answered: Signal<In, Bit>,
    pub(crate) busy: Signal<Out, Bit>,
    phase: Reg<Phase>,
    cursor: DFF<Cursor>,
    parity: EvenParity,
    pub(crate) is_even: Signal<Out, Bit>,
}

impl Logic for LineReader {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let cursor = self.cursor.q.val();
        let is_last = cursor.bytes <= LINE_BYTES;
        self.request.next = false;
        self.busy.next = true;
        self.address.next = cursor.address;
        self.parity.value.next = cursor.address;
        self.is_even.next = self.parity.is_even.val();
        match self.phase.q.val() {
            Phase::Idle => {
                self.busy.next = false;
                if self.start.val() {
                    self.cursor.d.next = self.buffer.val();
                    self.phase.d.next = Phase::Request;
                }
            }
            Phase::Request => {
                self.request.next = true;
                self.phase.d.next = Phase::Wait;
            }
            Phase::Wait => {
                if self.answered.val() {
                    self.cursor.d.next.address = cursor.address + LINE_BYTES;
                    self.cursor.d.next.bytes = cursor.bytes - LINE_BYTES;
                    self.phase.d.next = if is_last { Phase::Idle } else { Phase::Request };
                }
            }
        }
    }
}

/// A leaf written by hand.
#[derive(Default, LogicBlock, Registers)]
pub(crate) struct EvenParity {
    pub(crate) value: Signal<In, Bits<16>>,
    pub(crate) is_even: Signal<Out, Bit>,
}

impl Logic for EvenParity {
    fn update(&mut self) {
        self.is_even.next = !self.value.val().xor();
    }

    fn connect(&mut self) {
        self.is_even.connect();
    }

    fn hdl(&self) -> Verilog {
        let body = "
            always @(*) begin
                is_even = ~^value;
            end
        ";
        let name = core::any::type_name::<Self>();
        rnic_kernel::leaf(name, "Says whether the number of ones is even.", body.to_owned(), &["is_even"])
    }
}

/// Names that Verilog, or the emitter, would like to use for something else.
#[derive(Default, LogicBlock, Registers)]
pub(crate) struct Clashes {
    pub(crate) clock: Signal<In, Clock>,
    pub(crate) value: Signal<In, Bits<8>>,
    pub(crate) sum: Signal<Out, Bits<8>>,
    pub(crate) unused: Signal<Out, Bits<8>>,
    table: DFF<Bits<8>>,
    initial: Signal<Local, Bits<8>>,
    is_even: EvenParity,
    is_even_value: DFF<Bit>,
}

impl Logic for Clashes {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let sum = self.value.val() + self.table.q.val();
        let reg = sum + 1;
        self.sum.next = sum;
        self.table.d.next = reg;
        self.initial.next = reg ^ sum;
        self.unused.next = self.initial.val() & 0xf0;
        self.is_even.value.next = cat!(sum, reg);
        self.is_even_value.d.next = self.is_even.is_even.val();
    }
}

/// Two clocks, a reset that is computed, a register that is looked into before the edge, and a constant.
#[derive(LogicBlock)]
pub(crate) struct Domains {
    pub(crate) fast: Signal<In, Clock>,
    pub(crate) slow: Signal<In, Clock>,
    pub(crate) reset: Signal<In, Bit>,
    pub(crate) flush: Signal<In, Bit>,
    pub(crate) value: Signal<In, Bits<8>>,
    pub(crate) next: Signal<Out, Bits<8>>,
    pub(crate) seen: Signal<Out, Bits<8>>,
    pub(crate) is_marked: Signal<Out, Bit>,
    mark: Constant<Bits<8>>,
    total: Reg<Bits<8>>,
    peak: Reg<Bits<8>>,
    sample: DFF<Bits<8>>,
}

impl Default for Domains {
    fn default() -> Self {
        Domains {
            fast: Default::default(),
            slow: Default::default(),
            reset: Default::default(),
            flush: Default::default(),
            value: Default::default(),
            next: Default::default(),
            seen: Default::default(),
            is_marked: Default::default(),
            mark: Constant::new(0xa5u64.into()),
            total: Reg::new(1u64.into()),
            peak: Reg::default(),
            sample: DFF::default(),
        }
    }
}

impl Logic for Domains {
    #[kernel]
    fn update(&mut self) {
        let clears = self.reset.val() || self.flush.val();
        self.total.clock.next = self.fast.val();
        self.total.reset.next = clears;
        self.total.d.next = self.total.q.val() + self.value.val();
        self.next.next = self.total.d.val();
        self.peak.clock.next = self.fast.val();
        self.peak.reset.next = clears;
        self.peak.d.next = self.peak.q.val();
        if self.value.val() > self.peak.q.val() {
            self.peak.d.next = self.value.val();
        }
        self.sample.clock.next = self.slow.val();
        self.sample.d.next = self.peak.q.val();
        self.seen.next = self.sample.q.val();
        self.is_marked.next = self.value.val() == self.mark.val();
    }
}
