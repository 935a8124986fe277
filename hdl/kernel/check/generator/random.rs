//! A seeded source of choices. It is written out here because a build script should not pull in crates.

/// SplitMix64 (Steele, Lea, Flood 2014), and the widths that the program uses.
pub(crate) struct Random {
    state: u64,
    widths: Vec<usize>,
}

/// A program has few widths: its values then meet without casts, and rustc has fewer instances to compile.
const WIDTHS: usize = 5;

impl Random {
    /// The source of one program of a run.
    pub(crate) fn new(seed: u64, number: u64) -> Random {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd134_2543_de82_ef95);
        let mut random = Random { state, widths: Vec::new() };
        random.next();
        random.widths = (0..WIDTHS).map(|_| random.new_width()).collect();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.state;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// One of `0..count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// One of `low..=high`.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of all cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// One of the program's widths.
    pub(crate) fn width(&mut self) -> usize {
        let index = self.below(WIDTHS);
        self.widths[index]
    }

    /// A width of the program that is at least this.
    pub(crate) fn width_from(&mut self, low: usize) -> Option<usize> {
        let fitting: Vec<usize> = self.widths.iter().copied().filter(|width| *width >= low).collect();
        (!fitting.is_empty()).then(|| *self.pick(&fitting))
    }

    /// A width, most often one at which something changes in Rust or in Verilog.
    fn new_width(&mut self) -> usize {
        const EDGES: [usize; 18] = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 130];
        if self.chance(70) { *self.pick(&EDGES) } else { self.between(1, 130) }
    }

    /// A number of at most `width` bits that Rust can write.
    pub(crate) fn number(&mut self, width: usize) -> u64 {
        let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
        match self.below(6) {
            0 => 1 & mask,
            1 => mask,
            2 => self.next() & mask & 7,
            _ => self.next() & mask,
        }
    }
}
