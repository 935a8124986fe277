//! Checks the ICRC of received frames.
use super::CoveredBeat;
use super::crc;
use super::state::{IcrcState, STATE_LATENCY};
use rnic_blocks::logic::byte_mask::ByteMask;
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::ValidRx;
use rnic_kernel::prelude::*;

/// Cycles from the `end` beat at the input of [`IcrcCheck`] to its verdict.
pub const CHECK_LATENCY: usize = STATE_LATENCY + 1;

/// Checks the ICRC of each frame, without removing it from the frame.
///
/// The register processes the ICRC too, and must then hold a known constant (protocol 1.8). It also processes the rest of the last
/// beat, as zeros: that multiplies the constant by a power of the step matrix, so instead of
/// rewinding the register by up to 63 bytes, the check compares it with one constant for each end of a frame.
///
/// ```text
///                           ┌───────┐   ┌───────────┐
///  from_frame ─────────────>│ bytes ├──>│ IcrcState ├──state──> == ─reg─> verdict
///         │     end_bytes ─>│ mask  │   └───────────┘            ^
///         │                 └───────┘                            │
///         └──── end, end_bytes ──reg──reg──> constants ──reg─────┘
/// ```
///
/// A frame of two beats, and two of one beat, at 512 bits:
/// ```text
#[doc = include_str!("../waves/icrc_check.txt")]
/// ```
///
/// A beat every cycle and no back-pressure; the verdict follows the `end` beat after [`CHECK_LATENCY`] cycles.
///
/// 1. A frame with an `end` beat gets exactly one verdict; one without gets none and does not affect the next.
/// 2. Lanes from `end_bytes` on are ignored.
/// 3. Frames of one beat may follow each other in every cycle.
///
/// It does not parse headers: the masked fields are those of `vlan_present` and `is_ipv6` of the beat. Protocol 1.8.
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct IcrcCheck<const DATA: usize, const BYTES: usize> {
    /// Clock of all registers.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A beat of a frame, up to the one where the ICRC ends.
    pub from_frame: ValidRx<CoveredBeat<DATA, BYTES>>,
    /// A verdict is valid; high for one cycle. Registered.
    pub verdict_valid: Signal<Out, Bit>,
    /// The ICRC of the frame is correct; has no meaning without `verdict_valid`. Registered.
    pub verdict_ok: Signal<Out, Bit>,

    covered: ByteMask<DATA, BYTES>,
    #[init(IcrcState::new(0))]
    state: IcrcState<DATA>,
    #[init(ConstantRom::new(|end_bytes| residue(DATA / 8, end_bytes)))]
    residue: ConstantRom<BYTES, 32>,
    ends: [Reg<Bit>; STATE_LATENCY],
    end_bytes: [DFF<Bits<BYTES>>; STATE_LATENCY - 1],
    expected: DFF<Bits<32>>,
    judged: Reg<Bit>,
    ok: DFF<Bit>,
}

/// The register after a frame whose ICRC is right. `end_bytes` counts from 1 to all lanes; the table need not distinguish all
/// lanes from none.
fn residue(lanes: usize, end_bytes: usize) -> Bits<32> {
    let zeros = (lanes - end_bytes % lanes) % lanes;
    crc::advance(zeros).apply(&[crc::SEED.into()])[0].into()
}

impl<const DATA: usize, const BYTES: usize> Logic for IcrcCheck<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        let beat = self.from_frame.value.val();
        self.covered.count.next = beat.end_bytes;
        self.state.data.next = beat.data;
        self.state.covered.next = if beat.end { self.covered.mask.val() } else { !bits::<DATA>(0) };
        self.state.valid.next = self.from_frame.valid.val();
        self.state.start.next = beat.start;
        self.state.vlan_present.next = beat.vlan_present;
        self.state.is_ipv6.next = beat.is_ipv6;

        self.ends[0].d.next = self.from_frame.valid.val() && beat.end;
        self.end_bytes[0].d.next = beat.end_bytes;
        for stage in 1..STATE_LATENCY {
            self.ends[stage].d.next = self.ends[stage - 1].q.val();
        }
        for stage in 1..STATE_LATENCY - 1 {
            self.end_bytes[stage].d.next = self.end_bytes[stage - 1].q.val();
        }
        self.residue.address.next = self.end_bytes[STATE_LATENCY - 2].q.val();
        self.expected.d.next = self.residue.value.val();

        self.ok.d.next = self.state.state.val() == self.expected.q.val();
        self.judged.d.next = self.ends[STATE_LATENCY - 1].q.val();
        self.verdict_ok.next = self.ok.q.val();
        self.verdict_valid.next = self.judged.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icrc::reference;
    use crate::vectors;
    use num_bigint::BigUint;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Random, Waves, random};
    use verilator_sys::{AnyPort, Instance, Model, ModelOptions, Optimization, Port};

    /// The check in one of its two languages.
    trait Judge<const DATA: usize, const BYTES: usize> {
        /// Runs a cycle; returns the verdict at the output during it.
        fn cycle(&mut self, beat: Option<CoveredBeat<DATA, BYTES>>) -> Option<bool>;
    }

    struct Rust<const DATA: usize, const BYTES: usize>(Bench<IcrcCheck<DATA, BYTES>>);

    impl<const DATA: usize, const BYTES: usize> Rust<DATA, BYTES> {
        fn new() -> Self {
            let block = IcrcCheck::default();
            Self(Bench::clocked(block, |block| &mut block.clock))
        }
    }

    impl<const DATA: usize, const BYTES: usize> Judge<DATA, BYTES> for Rust<DATA, BYTES> {
        fn cycle(&mut self, beat: Option<CoveredBeat<DATA, BYTES>>) -> Option<bool> {
            self.0.block.from_frame.valid.next = beat.is_some();
            // Between beats the port carries what would do most harm if it were taken.
            self.0.block.from_frame.value.next = beat.unwrap_or(CoveredBeat {
                start: true,
                end: true,
                data: !Bits::default(),
                ..Default::default()
            });
            self.0.settle();
            let verdict = self.0.block.verdict_valid.val().then(|| self.0.block.verdict_ok.val());
            self.0.tick();
            verdict
        }
    }

    struct Verilog {
        model: Instance,
        clock: Port<u8>,
        beat: AnyPort,
        valid: Port<u8>,
        verdict_valid: Port<u8>,
        verdict_ok: Port<u8>,
    }

    impl Verilog {
        fn new<const DATA: usize, const BYTES: usize>() -> Self {
            let mut block = IcrcCheck::<DATA, BYTES>::default();
            let verilog =
                rnic_kernel::generate(&mut block, "icrc_check").expect("the check is valid hardware");
            let options = ModelOptions { optimization: Optimization::O0, ..ModelOptions::default() };
            let model = Model::build("icrc_check", &verilog, &options).expect("Verilator takes it");
            let port = |name| model.port(name).expect("the port is there");
            Self {
                clock: port("clock"),
                beat: model.any_port("from_frame_value").expect("the port is there"),
                valid: port("from_frame_valid"),
                verdict_valid: port("verdict_valid"),
                verdict_ok: port("verdict_ok"),
                model: model.instance(),
            }
        }
    }

    impl<const DATA: usize, const BYTES: usize> Judge<DATA, BYTES> for Verilog {
        fn cycle(&mut self, beat: Option<CoveredBeat<DATA, BYTES>>) -> Option<bool> {
            self.model.set(self.valid, beat.is_some().into());
            let beat = beat.unwrap_or(CoveredBeat { start: true, end: true, ..Default::default() });
            let flags = u64::from(beat.start)
                | u64::from(beat.end) << 1
                | beat.end_bytes.to_u64() << 2
                | u64::from(beat.vlan_present) << (BYTES + 2)
                | u64::from(beat.is_ipv6) << (BYTES + 3);
            let number = BigUint::from(beat.data) | BigUint::from(flags) << DATA;
            self.model.write_words(self.beat, &number.to_u32_digits());
            self.model.eval();
            let verdict =
                (self.model.get(self.verdict_valid) == 1).then(|| self.model.get(self.verdict_ok) == 1);
            self.model.step(self.clock);
            verdict
        }
    }

    /// A frame as the parser hands it on, up to the end of its ICRC; dead lanes are random.
    fn beats<const DATA: usize, const BYTES: usize>(
        frame: &[u8],
        random: &mut Random,
    ) -> Vec<CoveredBeat<DATA, BYTES>> {
        let (vlan_present, is_ipv6) = reference::kind(frame);
        let chunks = frame.chunks(DATA / 8);
        let count = chunks.len();
        let beat = |(index, chunk): (usize, &[u8])| {
            let is_end = index + 1 == count;
            let mut lanes = chunk.to_vec();
            lanes.resize_with(DATA / 8, || random.random());
            CoveredBeat {
                data: BigUint::from_bytes_le(&lanes).into(),
                start: index == 0,
                end: is_end,
                end_bytes: bits(if is_end { chunk.len() as u64 } else { random.random_range(0..1 << BYTES) }),
                vlan_present,
                is_ipv6,
            }
        };
        chunks.enumerate().map(beat).collect()
    }

    /// Sends frames, with gaps or without; returns the verdicts, after a check of when they came.
    fn verdicts<const DATA: usize, const BYTES: usize>(
        judge: &mut impl Judge<DATA, BYTES>,
        frames: &[Vec<u8>],
        has_gaps: bool,
        random: &mut Random,
    ) -> Vec<bool> {
        let mut due = Vec::new();
        let mut found = Vec::new();
        let mut cycle = 0;
        let mut run = |beat: Option<CoveredBeat<DATA, BYTES>>| {
            if beat.is_some_and(|beat| beat.end) {
                due.push(cycle + CHECK_LATENCY);
            }
            found.extend(judge.cycle(beat).map(|ok| (cycle, ok)));
            cycle += 1;
        };
        for frame in frames {
            for beat in beats(frame, random) {
                while has_gaps && random.random() {
                    run(None);
                }
                run(Some(beat));
            }
        }
        (0..=CHECK_LATENCY).for_each(|_| run(None));
        assert_eq!(found.iter().map(|(cycle, _)| *cycle).collect::<Vec<_>>(), due, "cycles of the verdicts");
        found.into_iter().map(|(_, ok)| ok).collect()
    }

    /// A frame of random kind and length with the right ICRC, or with one bit wrong anywhere.
    fn random_frame(random: &mut Random) -> Vec<u8> {
        let mut frame = reference::random_frame(random);
        if random.random() {
            let bit = random.random_range(8 * 12..8 * frame.len());
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        frame
    }

    fn accepts_vectors<const DATA: usize, const BYTES: usize>(judge: &mut impl Judge<DATA, BYTES>) {
        let frames = vectors::frames();
        for has_gaps in [false, true] {
            assert_eq!(verdicts(judge, &frames, has_gaps, &mut random()), vec![true; frames.len()]);
        }
    }

    fn agrees_with_reference<const DATA: usize, const BYTES: usize>(
        judge: &mut impl Judge<DATA, BYTES>,
        count: usize,
    ) {
        let mut random = random();
        let frames: Vec<_> = (0..count).map(|_| random_frame(&mut random)).collect();
        let expected: Vec<_> = frames.iter().map(|frame| reference::is_intact(frame)).collect();
        assert!(expected.contains(&true) && expected.contains(&false));
        for has_gaps in [false, true] {
            assert_eq!(verdicts(judge, &frames, has_gaps, &mut random), expected);
        }
    }

    #[test]
    fn rust_accepts_the_vectors_at_every_width() {
        accepts_vectors(&mut Rust::<64, 4>::new());
        accepts_vectors(&mut Rust::<128, 5>::new());
        accepts_vectors(&mut Rust::<256, 6>::new());
        accepts_vectors(&mut Rust::<512, 7>::new());
    }

    #[test]
    fn rust_agrees_with_the_reference_on_random_frames() {
        agrees_with_reference(&mut Rust::<64, 4>::new(), 6);
        agrees_with_reference(&mut Rust::<512, 7>::new(), 20);
    }

    #[test]
    fn verilog_agrees_with_the_reference_at_64_bits() {
        let mut judge = Verilog::new::<64, 4>();
        accepts_vectors::<64, 4>(&mut judge);
        agrees_with_reference::<64, 4>(&mut judge, 500);
    }

    #[test]
    fn verilog_agrees_with_the_reference_at_128_bits() {
        let mut judge = Verilog::new::<128, 5>();
        accepts_vectors::<128, 5>(&mut judge);
        agrees_with_reference::<128, 5>(&mut judge, 500);
    }

    #[test]
    fn verilog_agrees_with_the_reference_at_256_bits() {
        let mut judge = Verilog::new::<256, 6>();
        accepts_vectors::<256, 6>(&mut judge);
        agrees_with_reference::<256, 6>(&mut judge, 500);
    }

    #[test]
    fn verilog_agrees_with_the_reference_at_512_bits() {
        let mut judge = Verilog::new::<512, 7>();
        accepts_vectors::<512, 7>(&mut judge);
        agrees_with_reference::<512, 7>(&mut judge, 500);
    }

    /// Every bit of every vector: only the fields that protocol 1.8 masks may change unnoticed.
    #[test]
    fn one_wrong_bit_is_noticed_unless_it_is_masked() {
        let mut judge = Verilog::new::<512, 7>();
        let mut random = random();
        for frame in vectors::frames() {
            let wrong: Vec<Vec<u8>> = (0..8 * frame.len())
                .filter(|bit| !(96..112).contains(bit) && !(128..144).contains(bit))
                .map(|bit| {
                    let mut wrong = frame.clone();
                    wrong[bit / 8] ^= 1 << (bit % 8);
                    wrong
                })
                .collect();
            let expected: Vec<bool> = wrong.iter().map(|frame| reference::is_intact(frame)).collect();
            assert_eq!(verdicts::<512, 7>(&mut judge, &wrong, false, &mut random), expected);
        }
    }

    #[test]
    fn a_frame_that_never_ends_does_no_harm() {
        let mut judge = Rust::<512, 7>::new();
        let mut random = random();
        let frames = vectors::frames();
        for _ in 0..20 {
            let abandoned = beats::<512, 7>(&frames[random.random_range(0..frames.len())], &mut random);
            for beat in &abandoned[..abandoned.len() - 1] {
                assert_eq!(judge.cycle(Some(*beat)), None);
            }
            assert_eq!(verdicts(&mut judge, &frames[..1], false, &mut random), [true]);
        }
    }

    #[test]
    fn rust_and_verilog_agree_in_every_cycle() {
        fn agree<const DATA: usize, const BYTES: usize>(count: usize) {
            let Rust(bench) = Rust::<DATA, BYTES>::new();
            agrees_with_reference(&mut Rust(bench.in_lock_step()), count);
        }
        agree::<64, 4>(4);
        agree::<128, 5>(4);
        agree::<256, 6>(5);
        agree::<512, 7>(8);
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves =
            Waves::new().signal("from_frame_valid").signal("from_frame_value.start").when("from_frame_valid");
        let waves = waves.signal("from_frame_value.end").when("from_frame_valid");
        let waves = waves.signal("from_frame_value.end_bytes").when("from_frame_value.end");
        let waves = waves.signal("verdict_valid").signal("verdict_ok").when("verdict_valid");
        let mut judge = Rust::<512, 7>(Rust::new().0.recording(waves));
        let mut frames = vectors::frames();
        // One frame of two beats, and one of one beat, right and wrong.
        frames.sort_by_key(Vec::len);
        let mut wrong = frames[0].clone();
        wrong[57] ^= 1;
        let frames = [frames[10].clone(), frames[0].clone(), wrong];
        assert_eq!(verdicts(&mut judge, &frames, false, &mut random()), [true, true, false]);
        judge.0.waves().expect("waves/icrc_check.txt");
    }

    #[test]
    fn other_widths_are_refused() {
        assert!(IcrcCheck::<96, 4>::REFUSAL.is_some());
        assert!(IcrcCheck::<512, 6>::REFUSAL.is_some());
    }
}
