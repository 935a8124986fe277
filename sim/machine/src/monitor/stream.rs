//! Handshake: a beat that is offered stays valid and unchanged until it is taken.
use super::{Log, Rule};
use verilator_sys::{AnyPort, Instance, Port};

/// Words of the widest beat that is compared.
const WORDS_MAX: usize = 20;

/// Monitor of one stream, sampled at each edge of its clock.
#[derive(Clone, Debug)]
pub struct StreamMonitor {
    name: &'static str,
    valid: Port<u8>,
    ready: Port<u8>,
    /// Ports of the beat, which must not change.
    beat: Vec<AnyPort>,
    /// Beat that was offered and not taken at the last edge.
    held: [u32; WORDS_MAX],
    is_held: bool,
}

impl StreamMonitor {
    /// Makes a monitor.
    ///
    /// # Panics
    /// If the beat is wider than 640 bits.
    pub fn new(name: &'static str, valid: Port<u8>, ready: Port<u8>, beat: &[AnyPort]) -> StreamMonitor {
        let words: usize = beat.iter().map(|port| port.words()).sum();
        assert!(words <= WORDS_MAX, "the beat of {name} is wider than {} bits", WORDS_MAX * 32);
        StreamMonitor { name, valid, ready, beat: beat.to_vec(), held: [0; WORDS_MAX], is_held: false }
    }

    /// Samples the stream just before an edge. Returns whether a beat transfers at this edge.
    #[inline]
    pub fn sample(&mut self, instance: &Instance, time_ps: u64, log: &mut Log) -> bool {
        let is_offered = self.is_offered(instance);
        if !is_offered && !self.is_held {
            return false;
        }
        let is_taken = is_offered && instance.get(self.ready) == 1;
        if self.is_held {
            self.compare(instance, is_offered, time_ps, log);
        }
        self.is_held = is_offered && !is_taken;
        if self.is_held {
            read(&self.beat, instance, &mut self.held);
        }
        is_taken
    }

    /// A beat is offered.
    #[inline]
    pub fn is_offered(&self, instance: &Instance) -> bool {
        instance.get(self.valid) == 1
    }

    /// A beat was offered at the last edge, and not taken.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    fn compare(&self, instance: &Instance, is_offered: bool, time_ps: u64, log: &mut Log) {
        if !is_offered {
            log.report(time_ps, Rule::Handshake, || {
                format!("{} was withdrawn before it was taken", self.name)
            });
            return;
        }
        let mut now = [0; WORDS_MAX];
        read(&self.beat, instance, &mut now);
        if now != self.held {
            log.report(time_ps, Rule::Handshake, || format!("{} changed before it was taken", self.name));
        }
    }
}

fn read(beat: &[AnyPort], instance: &Instance, words: &mut [u32; WORDS_MAX]) {
    let mut first = 0;
    for &port in beat {
        let count = port.words();
        instance.read_words(port, &mut words[first..first + count]);
        first += count;
    }
}
