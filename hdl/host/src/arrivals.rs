//! Arrivals: finds the chunk for every word that the host answers.
//!
//! A word has the tag of its request, but no position in the answer. Positions are kept here, by tag; words of one
//! tag may follow each other in consecutive cycles, while reading and changing the table takes two.
//!
//! ```text
//!                  ┌──────────────────────────────────────────────┐
//!  opens, tag, ───>│ places ──────┐                               │
//!  place           │  (by tag)    v                               │
//!  arrival ───────>│ lookup ──> word ──> index ──> first + index ─┼─> writes, chunk, word
//!                  │    │         ^        │                      │
//!                  │ progress ────┴────────┴──────────────────────┼─> changes, changed_tag, progress
//!                  │  (by tag)    written <┘                      │
//!                  └──────────────────────────────────────────────┘
//! ```
//!
//! Tag 1 is opened for two words, which follow each other at once; a third word is unexpected:
//! ```text
#![doc = include_str!("waves/arrivals.txt")]
//! ```
//!
//! Latency 1 cycle from `arrival` to `writes`, one word a cycle. After reset, `is_clear` is low for `2^TAG` cycles, in which
//! both tables are cleared.
//!
//! 1. A tag waits for words while its lap in `places` differs from that of its progress, or its progress is open.
//! 2. Words for other tags change nothing; `is_unexpected` reports them.
//! 3. The first word of an answer goes to the first chunk of its place, the next one to the next, round the ring.
//! 4. No word is written after `last_index`; that word ends the answer, with an error if the host marks it as not the last.
//! 5. Words of a tag in quarantine are not written, but end its answer as if they were.
//!
//! Refuses the parameters that [`ChunkBuffer`](super::chunk_buffer::ChunkBuffer) refuses.
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Beat, ValidRx};
use rnic_kernel::prelude::*;

/// A word of an answer from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadWord<const DATA: usize, const BYTES: usize, const TAG: usize> {
    /// Bytes of host memory.
    pub data: Bits<DATA>,
    /// Number of bytes that belong to the request.
    pub bytes: Bits<BYTES>,
    /// The last word of the answer.
    pub last: Bit,
    /// The host could not read the bytes; `data` has no meaning.
    pub error: Bit,
    /// Tag of the request that is answered.
    pub tag: Bits<TAG>,
}

/// The chunks that are reserved for the answer of a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Place<const WORD: usize, const CHUNK: usize> {
    /// First chunk of the answer.
    pub first: Bits<CHUNK>,
    /// Index of the last word of the answer.
    pub last_index: Bits<WORD>,
    /// Differs from that of the tag's request before.
    pub lap: Bit,
}

/// How much of the answer of a tag has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Progress<const WORD: usize> {
    /// Index of the newest word.
    pub newest: Bits<WORD>,
    /// More words of the answer follow.
    pub is_open: Bit,
    /// One of the words had an error.
    pub has_error: Bit,
    /// Lap of the place to which this belongs.
    pub lap: Bit,
}

/// Finds the chunk of each word; the parameters are those of the chunk buffer.
#[clocked(reset = "forgets all requests")]
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
#[require(WORD == 10 - BYTES)]
#[require(1 <= TAG && TAG <= 8)]
#[require(TAGS == TAG + 1)]
pub struct Arrivals<
    const DATA: usize,
    const BYTES: usize,
    const WORD: usize,
    const TAG: usize,
    const TAGS: usize,
    const CHUNK: usize,
> {
    /// The tables are cleared after reset, so that no tag waits for a word from before; a function of registers.
    pub is_clear: Signal<Out, Bit>,
    /// `opened_tag` begins to wait for an answer in this cycle; only while `is_clear`.
    pub opens: Signal<In, Bit>,
    /// Tag of the new request.
    pub opened_tag: Signal<In, Bits<TAG>>,
    /// Chunks of its answer. The lap differs from that of the tag's request before.
    pub place: Signal<In, Place<WORD, CHUNK>>,

    /// From the host: a word of an answer.
    pub arrival: ValidRx<ReadWord<DATA, BYTES, TAG>>,
    /// From the quarantine: the tag of the word of the cycle before is in it.
    pub is_quarantined: Signal<In, Bit>,
    /// The word of the cycle before ends the answer of `changed_tag`; combinational.
    pub closes: Signal<Out, Bit>,
    /// A word for a tag that does not wait arrived two cycles ago; registered.
    pub is_unexpected: Signal<Out, Bit>,

    /// To the memory of chunks: `word` is written in this cycle. Combinational, as are the outputs below.
    pub writes: Signal<Out, Bit>,
    /// Chunk that is written.
    pub chunk: Signal<Out, Bits<CHUNK>>,
    /// The word; its `last` ends the answer.
    pub word: Signal<Out, Beat<DATA, BYTES>>,
    /// To the table of progress: that of `changed_tag` becomes `progress` in this cycle.
    pub changes: Signal<Out, Bit>,
    /// Tag whose progress changes.
    pub changed_tag: Signal<Out, Bits<TAG>>,
    /// The new progress.
    pub progress: Signal<Out, Progress<WORD>>,

    #[init(Memory::new(Storage::Distributed))]
    places: Memory<Place<WORD, CHUNK>, TAG>,
    #[init(Memory::new(Storage::Distributed))]
    table: Memory<Progress<WORD>, TAG>,
    cleared: Reg<Bits<TAGS>>,
    held: DFF<ReadWord<DATA, BYTES, TAG>>,
    is_held: Reg<Bit>,
    is_same_tag: DFF<Bit>,
    was_written: Reg<Bit>,
    written: DFF<Progress<WORD>>,
    unexpected: Reg<Bit>,
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const WORD: usize,
    const TAG: usize,
    const TAGS: usize,
    const CHUNK: usize,
> Logic for Arrivals<DATA, BYTES, WORD, TAG, TAGS, CHUNK>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let cleared = self.cleared.q.val();
        let is_clear = cleared.get_bit(TAG);
        if !is_clear {
            self.cleared.d.next = cleared + 1;
        }
        self.is_clear.next = is_clear;

        // First cycle: the tag of the word is looked up.
        let arrival = self.arrival.value.val();
        let held = self.held.q.val();
        self.held.d.next = arrival;
        self.is_held.d.next = self.arrival.valid.val() && is_clear;
        self.is_same_tag.d.next = arrival.tag == held.tag;
        self.places.read(true, arrival.tag);
        self.table.read(true, arrival.tag);

        // Second cycle: the word is written. The table does not show yet what the word just before it changed.
        let place = self.places.read_data.val();
        let before = select(
            self.was_written.q.val() && self.is_same_tag.q.val(),
            self.written.q.val(),
            self.table.read_data.val(),
        );
        let is_first = before.lap != place.lap;
        let is_awaited = self.is_held.q.val() && (is_first || before.is_open);
        let index = select(is_first, bits::<WORD>(0), before.newest + 1);
        let is_full = index == place.last_index;
        let has_error = held.error || (before.has_error && !is_first) || (is_full && !held.last);
        let progress =
            Progress::<WORD> { newest: index, is_open: !held.last && !is_full, has_error, lap: place.lap };
        self.was_written.d.next = is_awaited;
        self.written.d.next = progress;
        self.unexpected.d.next = self.is_held.q.val() && !is_awaited;
        self.is_unexpected.next = self.unexpected.q.val();
        self.writes.next = is_awaited && !self.is_quarantined.val();
        self.closes.next = is_awaited && !progress.is_open;
        self.chunk.next = place.first + bit_cast::<CHUNK, WORD>(index);
        self.word.next = Beat::<DATA, BYTES> {
            data: held.data,
            bytes: held.bytes,
            last: held.last || is_full,
            error: has_error,
        };

        // After reset the laps in both tables become zero, so that no tag waits.
        let changes = is_awaited || !is_clear;
        let changed_tag = select(is_clear, held.tag, cleared.get_bits::<TAG>(0));
        let changed = Progress::<WORD> {
            newest: progress.newest,
            is_open: progress.is_open && is_clear,
            has_error,
            lap: progress.lap && is_clear,
        };
        let opened = self.place.val();
        self.places.write_enable.next = self.opens.val() || !is_clear;
        self.places.write_address.next = select(is_clear, self.opened_tag.val(), cleared.get_bits::<TAG>(0));
        self.places.write_data.next = Place::<WORD, CHUNK> {
            first: opened.first,
            last_index: opened.last_index,
            lap: opened.lap && is_clear,
        };
        self.table.write(changes, changed_tag, changed);
        self.changes.next = changes;
        self.changed_tag.next = changed_tag;
        self.progress.next = changed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Stimulus, Waves, random};

    type Small = Arrivals<64, 4, 6, 2, 3, 7>;

    fn bench() -> Bench<Small> {
        Bench::clocked(Small::default(), |block| &mut block.clock)
    }

    fn word(tag: u64, last: bool, error: bool) -> ReadWord<64, 4, 2> {
        ReadWord { data: bits(0xd0), bytes: bits(8), last, error, tag: bits(tag) }
    }

    /// What is known of a tag.
    #[derive(Clone, Copy, Default)]
    struct Model {
        place: Place<6, 7>,
        /// Index of the next word, while the tag waits for one.
        waits_for: Option<u64>,
        has_error: bool,
    }

    #[test]
    fn every_word_finds_its_place_and_no_other_is_written() {
        let mut random = random();
        let mut bench = bench().in_lock_step();
        let mut tags = [Model::default(); 4];
        // What the word of the cycle before is to do: nothing, or write a chunk with its marks.
        let mut due = None::<(u64, bool, bool)>;
        let mut was_valid = false;
        let (mut written, mut unexpected) = (0, 0);
        for cycle in 0..4000 {
            let tag = random.random_range(0..4);
            // Bursts for one tag and laps through all of them.
            let arriving = if cycle % 64 < 32 { 1 } else { random.random_range(0..4) };
            let model = &mut tags[tag as usize];
            let opens = bench.block.is_clear.val() && model.waits_for.is_none() && random.random_bool(0.3);
            let last_index =
                *[0, 1, 63].get(random.random_range(0..4)).unwrap_or(&random.random_range(0..64));
            let place = Place {
                first: Stimulus::sample(&mut random),
                last_index: bits(last_index),
                lap: !model.place.lap,
            };
            let valid = random.random_bool(0.8);
            let arrival = word(arriving, random.random_bool(0.1), random.random_bool(0.1));
            bench.block.opens.next = opens;
            bench.block.opened_tag.next = bits(tag);
            bench.block.place.next = place;
            bench.block.arrival.valid.next = valid;
            bench.block.arrival.value.next = arrival;
            bench.settle();
            let block = &bench.block;
            assert_eq!(block.writes.val(), due.is_some(), "cycle {cycle}");
            if let Some((chunk, last, error)) = due {
                assert_eq!(block.chunk.val(), bits(chunk));
                assert_eq!((block.word.val().last, block.word.val().error), (last, error));
                written += 1;
            }
            unexpected += usize::from(was_valid && due.is_none());

            let model = &mut tags[arriving as usize];
            was_valid = valid && bench.block.is_clear.val();
            due = model.waits_for.filter(|_| was_valid).map(|index| {
                let is_full = bits(index) == model.place.last_index;
                let last = arrival.last || is_full;
                model.has_error |= arrival.error || (is_full && !arrival.last);
                model.waits_for = (!last).then_some(index + 1);
                ((model.place.first.to_u64() + index) % 128, last, model.has_error)
            });
            if opens {
                tags[tag as usize] = Model { place, waits_for: Some(0), has_error: false };
            }
            bench.tick();
        }
        assert!(written > 500 && unexpected > 100, "{written} written, {unexpected} unexpected");
    }

    #[test]
    fn after_reset_no_tag_waits() {
        let mut bench = bench().in_lock_step();
        for life in 0..3 {
            bench.block.reset.next = true;
            bench.tick();
            bench.block.reset.next = false;
            (0..4).for_each(|_| bench.tick());
            bench.settle();
            assert!(bench.block.is_clear.val());
            // One tag is left open, one is closed, and words for both come after the next reset.
            for (tag, last) in [(0, false), (1, true), (2, true)] {
                bench.block.arrival.valid.next = true;
                bench.block.arrival.value.next = word(tag, last, false);
                bench.tick();
                bench.settle();
                assert!(!bench.block.writes.val(), "tag {tag} in life {life}");
                bench.block.opens.next = tag < 2;
                bench.block.opened_tag.next = bits(tag);
                bench.block.place.next = Place { first: bits(0), last_index: bits(5), lap: true };
                bench.block.arrival.valid.next = false;
                bench.tick();
                bench.block.opens.next = false;
                bench.block.arrival.valid.next = tag < 2;
                bench.tick();
                bench.settle();
                assert_eq!(bench.block.writes.val(), tag < 2);
            }
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert!(Arrivals::<512, 7, 4, 8, 9, 10>::REFUSAL.is_some_and(|refusal| refusal.contains("WORD")));
        assert!(Arrivals::<512, 6, 4, 8, 9, 10>::REFUSAL.is_some_and(|refusal| refusal.contains("BYTES")));
        assert!(Arrivals::<512, 7, 3, 9, 10, 10>::REFUSAL.is_some_and(|refusal| refusal.contains("TAG")));
        assert!(Arrivals::<512, 7, 3, 0, 1, 10>::REFUSAL.is_some_and(|refusal| refusal.contains("TAG")));
        assert!(Arrivals::<512, 7, 3, 8, 8, 10>::REFUSAL.is_some_and(|refusal| refusal.contains("TAGS")));
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new()
            .signal("opens")
            .signal("arrival_valid")
            .signal("arrival_value.tag")
            .when("arrival_valid")
            .signal("arrival_value.last")
            .when("arrival_valid")
            .signal("writes")
            .signal("chunk")
            .when("writes")
            .signal("word.last")
            .when("writes")
            .signal("is_unexpected");
        let mut bench = bench();
        (0..4).for_each(|_| bench.tick());
        let mut bench = bench.recording(waves);
        bench.block.opened_tag.next = bits(1);
        bench.block.place.next = Place { first: bits(0x20), last_index: bits(1), lap: true };
        for cycle in 0..9 {
            bench.block.opens.next = cycle == 1;
            bench.block.arrival.valid.next = (3..=5).contains(&cycle);
            bench.block.arrival.value.next = word(1, cycle == 4, false);
            bench.tick();
        }
        bench.waves().expect("waves/arrivals.txt");
    }
}
