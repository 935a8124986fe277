//! Waveforms as text: a review shows a change of timing, and the documentation of a block stays true.
use std::fmt::LowerHex;
use std::path::Path;

/// The environment variable that makes tests write their waveforms instead of comparing them.
const BLESS: &str = "RNIC_BLESS";
/// The last digit of a value whose lowest bit is high.
const ODD: [char; 8] = ['1', '3', '5', '7', '9', 'b', 'd', 'f'];

/// Signals to record, and what they did, one sample per cycle, just before the clock rises.
#[derive(Default)]
pub struct Waves {
    signals: Vec<Recorded>,
}

struct Recorded {
    name: String,
    /// The bit that says whether the value means anything.
    condition: Option<String>,
    width: usize,
    /// Values in hexadecimal; `None` where they mean nothing.
    samples: Vec<Option<String>>,
}

impl Waves {
    /// Records nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a signal by its name.
    pub fn signal(mut self, name: &str) -> Self {
        self.signals.push(Recorded { name: name.into(), condition: None, width: 0, samples: Vec::new() });
        self
    }

    /// Shows the signal added last only in cycles in which the lowest bit of `condition` is high.
    ///
    /// # Panics
    /// When no signal has been added.
    pub fn when(mut self, condition: &str) -> Self {
        let signal = self.signals.last_mut().expect("`when` follows a signal");
        signal.condition = Some(condition.into());
        self
    }

    /// Takes one sample of every signal, whose width in bits and value `value_of` gives by its name.
    pub fn sample<V: LowerHex>(&mut self, mut value_of: impl FnMut(&str) -> (usize, V)) {
        let mut sample = |name: &str| {
            let (width, value) = value_of(name);
            (width, format!("{value:x}"))
        };
        for signal in &mut self.signals {
            let shown = signal.condition.as_ref().is_none_or(|name| sample(name).1.ends_with(ODD));
            let (width, value) = sample(&signal.name);
            signal.width = width;
            signal.samples.push(shown.then_some(value));
        }
    }

    /// Compares the drawing with the file `name` below `src` of the tested crate, which the documentation includes.
    ///
    /// # Panics
    /// When they differ; the message names the command that writes the file anew.
    pub fn expect(&self, name: &str) {
        let of_cargo = |name| std::env::var(name).expect("cargo runs the test");
        let path = Path::new(&of_cargo("CARGO_MANIFEST_DIR")).join("src").join(name);
        let drawing = self.to_string();
        if std::env::var_os(BLESS).is_some() {
            std::fs::write(&path, drawing).expect("the waveform can be written");
            return;
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            drawing == expected,
            "the waveform src/{name} is stale; if the new timing is meant, run\n    \
             {BLESS}=1 cargo test -p {}\nIt was:\n{expected}\nIt is:\n{drawing}",
            of_cargo("CARGO_PKG_NAME")
        );
    }
}

impl std::fmt::Display for Waves {
    /// Draws two lines for a bit and one for a wider signal; a value is printed in the cycle in which it begins.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let label = self.signals.iter().map(|signal| signal.name.len()).max().unwrap_or(0).max(5) + 2;
        let cycles = self.signals.iter().map(|signal| signal.samples.len()).max().unwrap_or(0);
        let digits =
            self.signals.iter().flat_map(|signal| signal.samples.iter().flatten().map(String::len)).max();
        let cell = digits.unwrap_or(1).max(2) + 2;
        let mut line = format!("{:label$}", "cycle");
        (0..cycles).for_each(|cycle| line += &format!(" {cycle:<0$}", cell - 1));
        writeln!(f, "{}", line.trim_end())?;
        for signal in &self.signals {
            for line in signal.lines(label, cell) {
                writeln!(f, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }
}

impl Recorded {
    fn lines(&self, label: usize, cell: usize) -> Vec<String> {
        if self.width == 1 {
            self.bit_lines(label, cell).to_vec()
        } else {
            vec![self.value_line(label, cell)]
        }
    }

    fn bit_lines(&self, label: usize, cell: usize) -> [String; 2] {
        let mut upper = " ".repeat(label);
        let mut lower = format!("{:label$}", self.name);
        let mut previous = None;
        for sample in &self.samples {
            let level = sample.as_ref().map(|value| value.ends_with(ODD));
            let (high, low) = match (previous.flatten(), level) {
                (Some(false), Some(true)) => ("┌", "┘"),
                (Some(true), Some(false)) => ("┐", "└"),
                (_, Some(true)) => ("─", " "),
                (_, Some(false)) => (" ", "─"),
                (_, None) => (" ", "╌"),
            };
            let (high_rest, low_rest) = match level {
                Some(true) => ("─", " "),
                Some(false) => (" ", "─"),
                None => (" ", "╌"),
            };
            upper += &(high.to_string() + &high_rest.repeat(cell - 1));
            lower += &(low.to_string() + &low_rest.repeat(cell - 1));
            previous = Some(level);
        }
        [upper, lower]
    }

    fn value_line(&self, label: usize, cell: usize) -> String {
        let mut line = format!("{:label$}", self.name);
        let mut previous: Option<&Option<String>> = None;
        for sample in &self.samples {
            let text = match sample {
                None => "╌".repeat(cell),
                Some(_) if previous == Some(sample) => " ".repeat(cell),
                Some(value) => format!("│{value:<0$}", cell - 1),
            };
            let closes = sample.is_none() && previous.is_some_and(Option::is_some);
            line += &if closes { format!("│{}", "╌".repeat(cell - 1)) } else { text };
            previous = Some(sample);
        }
        line
    }
}
