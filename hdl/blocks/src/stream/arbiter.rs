//! Frame-fair arbiter: several streams share one, whole frames in turn.
//!
//! Frames of different origin may not mix, and no origin may starve: a turn is one frame, however long.
//!
//! ```text
//!               ┌────────────────────────────────┐
//!  rx[0] ──────>│ 0 ┐                            │
//!  rx[1] ──────>│ 1 ┼── winner ──> holder ───────┼──> tx
//!   ...         │   │  (next in    (until last   │
//!  rx[N-1] ────>│   ┘   the round)  has moved)   │
//!  last[N] ────>│                                │
//!               └────────────────────────────────┘
//! ```
//!
//! Input 0 sends two frames of two beats, input 1 one of one beat; the sink stalls in cycle 2:
//! ```text
#![doc = include_str!("waves/arbiter.txt")]
//! ```
//!
//! Latency 0 cycles: all outputs are combinational, so a register slice follows where the path is long. One beat a
//! cycle; between two frames, of one input or of two, no cycle is lost. Four inputs with 512 bits of data: 1073 LUT, 8 FF,
//! depth 6.
//!
//! 1. Beats of a frame leave without beats of another input between them.
//! 2. An input that offers a frame waits for at most one frame of each other input.
//! 3. A beat that is offered stays until it is taken, whatever arrives at other inputs.
//!
//! Refuses fewer than 2 and more than 16 inputs.
use super::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;

/// Merges `N` streams, frame by frame.
#[clocked(reset = "forgets which input holds the output")]
#[derive(LogicBlock, Registers, Construct)]
#[require(2 <= N && N <= 16)]
pub struct Arbiter<T: Synth, const N: usize> {
    /// From the blocks before; `ready` is combinational.
    pub rx: [StreamRx<T>; N],
    /// Bit i: the beat at input i ends its frame. All ones where each beat is a frame, as tokens are.
    pub last: Signal<In, Bits<N>>,
    /// To the next block; combinational.
    pub tx: StreamTx<T>,
    /// Bit i: the beat at `tx` is from input i; combinational, zero while nothing is offered.
    pub origin: Signal<Out, Bits<N>>,
    /// Bit i of element i: input i offers a beat; bits below i as in the element before.
    requests: [Signal<Local, Bits<N>>; N],
    holder: Reg<Bits<N>>,
    later: Reg<Bits<N>>,
}

impl<T: Synth, const N: usize> Logic for Arbiter<T, N> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for i in 0..N {
            let request = bit_cast::<N, 1>(self.rx[i].valid.val().into()) << (i as u64);
            if i == 0 {
                self.requests[i].next = request;
            } else {
                self.requests[i].next = self.requests[i - 1].val() | request;
            }
        }
        let requests = self.requests[N - 1].val();
        // The round continues after the input that sent last, and wraps after the highest input.
        let later_requests = requests & self.later.q.val();
        let candidates = select(later_requests.any(), later_requests, requests);
        // A number and its negative share only the lowest bit that is set.
        let winner = candidates & (!candidates + 1);
        let grant = select(self.holder.q.val().any(), self.holder.q.val(), winner);
        let origin = grant & requests;
        let offers = origin.any();
        let ends = (grant & self.last.val()).any();

        self.tx.valid.next = offers;
        self.tx.beat.next = self.rx[0].beat.val();
        for i in 1..N {
            if grant.get_bit(i) {
                self.tx.beat.next = self.rx[i].beat.val();
            }
        }
        for i in 0..N {
            self.rx[i].ready.next = grant.get_bit(i) && self.tx.ready.val();
        }
        self.origin.next = origin;

        if offers && self.tx.ready.val() && ends {
            self.holder.d.next = bits(0);
            self.later.d.next = !(grant | (grant - 1));
        } else if offers {
            // Even a beat that has not moved yet binds the output to its input.
            self.holder.d.next = grant;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, Waves, random};
    use rand::Rng;

    /// A beat of the tests: input, frame and position in the frame, and above them whether it ends its frame.
    type Word = Bits<25>;
    const LAST: usize = 24;

    fn frame(input: u64, number: u64, length: u64) -> Vec<Word> {
        let word = |beat| input << 20 | number << 8 | beat | u64::from(beat + 1 == length) << LAST;
        (0..length).map(|beat| bits(word(beat))).collect()
    }

    fn frames(input: u64, count: u64, random: &mut Random) -> Vec<Word> {
        (0..count).flat_map(|number| frame(input, number, random.random_range(1..=4))).collect()
    }

    fn drive<const N: usize>(
        bench: &mut Bench<Arbiter<Word, N>>,
        sources: &mut [Source<Word>],
        sink: &mut Sink<Word>,
        random: &mut Random,
    ) {
        let mut last = Bits::<N>::default();
        for (i, source) in sources.iter_mut().enumerate() {
            let port = &mut bench.block.rx[i];
            source.drive(port, random);
            last = last.replace_bit(i, port.beat.next.get_bit(LAST));
        }
        bench.block.last.next = last;
        sink.drive(&mut bench.block.tx, random);
        bench.settle();
        for (source, port) in sources.iter_mut().zip(&bench.block.rx) {
            source.sample(port);
        }
        sink.sample(&bench.block.tx);
        bench.tick();
    }

    fn run<const N: usize>(stalls: Stalls, random: &mut Random) -> (Vec<Vec<Word>>, Vec<Word>, usize) {
        let mut bench =
            Bench::clocked(Arbiter::<Word, N>::default(), |block| &mut block.clock).in_lock_step();
        let sent: Vec<Vec<Word>> = (0..N as u64).map(|input| frames(input, 40, random)).collect();
        let mut sources: Vec<_> = sent.iter().map(|beats| Source::new(beats.clone(), stalls)).collect();
        let mut sink = Sink::new(stalls);
        let mut cycles = 0;
        while sources.iter().any(|source| !source.is_done()) {
            assert!(cycles < 5000, "the arbiter hangs with stalls {stalls:?}");
            drive(&mut bench, &mut sources, &mut sink, random);
            cycles += 1;
        }
        (sent, sink.received, cycles)
    }

    fn frames_stay_whole<const N: usize>() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let (sent, received, cycles) = run::<N>(stalls, &mut random);
            let input_of = |word: &Word| (word.to_u64() >> 20 & 0xf) as usize;
            for (input, sent) in sent.iter().enumerate() {
                let own: Vec<_> = received.iter().filter(|word| input_of(word) == input).copied().collect();
                assert_eq!(own, *sent, "input {input}, stalls {stalls:?}");
            }
            for pair in received.windows(2).filter(|pair| !pair[0].get_bit(LAST)) {
                assert_eq!(input_of(&pair[0]), input_of(&pair[1]), "a frame was interrupted");
            }
            if stalls == Stalls::None {
                assert_eq!(cycles, received.len(), "no cycle is lost");
                let turns: Vec<_> = received.iter().filter(|word| word.get_bit(LAST)).map(input_of).collect();
                let round: Vec<_> = (0..N).cycle().take(turns.len()).collect();
                assert_eq!(turns, round, "all inputs are busy, so they take turns");
            }
        }
    }

    #[test]
    fn two_inputs_take_turns_in_whole_frames() {
        frames_stay_whole::<2>();
    }

    #[test]
    fn five_inputs_take_turns_in_whole_frames() {
        frames_stay_whole::<5>();
    }

    /// Inputs that no connected block would give, and resets at any time.
    #[test]
    fn any_input_does_the_same_in_verilog() {
        let mut random = random();
        let mut bench =
            Bench::clocked(Arbiter::<Word, 5>::default(), |block| &mut block.clock).in_lock_step();
        for _ in 0..1000 {
            bench.block.reset.next = random.random_bool(0.05);
            for port in &mut bench.block.rx {
                port.beat.next = Stimulus::sample(&mut random);
                port.valid.next = random.random_bool(0.3);
            }
            bench.block.last.next = Stimulus::sample(&mut random);
            bench.block.tx.ready.next = random.random();
            bench.tick();
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(Arbiter::<Bit, 2>::REFUSAL, None);
        assert_eq!(Arbiter::<Bit, 16>::REFUSAL, None);
        assert!(Arbiter::<Bit, 17>::REFUSAL.is_some());
        assert_eq!(Arbiter::<Bit, 1>::REFUSAL, Some("Arbiter is built with 2 <= N && N <= 16 only"));
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves =
            Waves::new().signal("rx_0_valid").signal("rx_0_beat").when("rx_0_valid").signal("rx_0_ready");
        let waves = waves.signal("rx_1_valid").signal("rx_1_beat").when("rx_1_valid").signal("rx_1_ready");
        let waves =
            waves.signal("last").signal("tx_valid").signal("tx_beat").when("tx_valid").signal("tx_ready");
        let arbiter = Arbiter::<Bits<8>, 2>::default();
        let mut bench = Bench::clocked(arbiter, |block| &mut block.clock).recording(waves);
        let mut random = random();
        let mut sources = [
            Source::new([0xa1, 0xa2, 0xb1, 0xb2].map(bits), Stalls::None),
            Source::new([bits(0xc1)], Stalls::None),
        ];
        for cycle in 0..8 {
            if cycle >= 1 {
                sources.iter_mut().enumerate().for_each(|(i, source)| {
                    source.drive(&mut bench.block.rx[i], &mut random);
                });
            }
            let second_of_two = bench.block.rx[0].beat.next.to_u64() & 0xf == 2;
            bench.block.last.next = bits(2 | u64::from(second_of_two));
            bench.block.tx.ready.next = cycle != 2;
            bench.settle();
            sources.iter_mut().zip(&bench.block.rx).for_each(|(source, port)| {
                source.sample(port);
            });
            bench.tick();
        }
        bench.waves().expect("stream/waves/arbiter.txt");
    }
}
