//! Plants faults in generated Verilog, each behind a number that is chosen when a model starts.
//!
//! An expression E of which F is the fault with number 7 becomes
//!
//! ```verilog
//! (rnic_mutants::selected == 7 ? (F) : (E))
//! ```
//!
//! and the package before all modules sets `selected` from the environment, once for each instance of the model.
use crate::{Fault, Place, Site, VARIABLE};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::Range;

/// Why faults could not be planted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The design has changed where faults of the table were.
    #[error("faults of sim/mutants/src that no longer apply to the generated Verilog:\n{}", .0.join("\n"))]
    NoLongerApplies(
        /// One line for each fault.
        Vec<String>,
    ),
    /// The environment names a fault that the table does not have.
    #[error("{VARIABLE} is `{name}`, which is no mutant; `scripts/mutants.sh --list` names them")]
    Unknown {
        /// The name that was given.
        name: String,
    },
}

/// A text without white space and comments, with the place of each of its bytes in the original.
struct Compact {
    text: Vec<u8>,
    places: Vec<usize>,
}

impl Compact {
    fn new(text: &str, offset: usize) -> Compact {
        let mut compact = Compact { text: Vec::new(), places: Vec::new() };
        let mut start = offset;
        for line in text.split_inclusive('\n') {
            let code = line.split("//").next().unwrap_or_default();
            for (place, byte) in code.bytes().enumerate().filter(|(_, byte)| !byte.is_ascii_whitespace()) {
                compact.text.push(byte);
                compact.places.push(start + place);
            }
            start += line.len();
        }
        compact
    }

    /// Where a pattern begins, everywhere.
    fn find(&self, pattern: &[u8]) -> Vec<usize> {
        let windows = self.text.windows(pattern.len()).enumerate();
        windows.filter(|(_, window)| *window == pattern).map(|(index, _)| index).collect()
    }

    /// The part of the original that a part of this text comes from.
    fn original(&self, part: Range<usize>) -> Range<usize> {
        self.places[part.start]..self.places[part.end - 1] + 1
    }

    /// The expression that a signal is assigned to.
    fn assigned(&self, signal: &str) -> Result<Range<usize>, String> {
        let mut found = Vec::new();
        for start in self.find(format!("{signal}=").as_bytes()) {
            let is_compared = self.text.get(start + signal.len() + 1) == Some(&b'=');
            let before = &self.text[..start];
            // `wire` and its width, or `assign`.
            let statement = before.iter().rposition(|byte| b";)".contains(byte)).map_or(0, |place| place + 1);
            let declares = before[statement..].ends_with(b"assign")
                || before[statement..].ends_with(b"wire")
                || (before.ends_with(b"]") && contains_last(&before[statement..], b"wire["));
            if declares && !is_compared {
                found.push(start + signal.len() + 1);
            }
        }
        let [start] = found[..] else {
            return Err(format!("`{signal}` is assigned {} times", found.len()));
        };
        let end = self.text[start..].iter().position(|&byte| byte == b';').map(|length| start + length);
        Ok(start..end.ok_or("the module ends within a statement")?)
    }

    /// The part of a pattern between its marks, where the pattern occurs.
    fn marked(&self, pattern: &str) -> Result<Range<usize>, String> {
        let pattern: String = pattern.chars().filter(|letter| !letter.is_whitespace()).collect();
        let parts =
            pattern.split_once("[[").and_then(|(before, rest)| Some((before, rest.split_once("]]")?)));
        let Some((before, (within, behind))) = parts else {
            return Err("the text has no part between [[ and ]]".into());
        };
        let found = self.find(format!("{before}{within}{behind}").as_bytes());
        let [start] = found[..] else {
            return Err(format!("the text occurs {} times", found.len()));
        };
        Ok(start + before.len()..start + before.len() + within.len())
    }
}

/// Whether the last statement of a text contains a word, with nothing but a width behind it.
fn contains_last(text: &[u8], word: &[u8]) -> bool {
    let place = text.windows(word.len()).rposition(|window| window == word);
    place.is_some_and(|place| text[place..text.len() - 1].iter().all(|byte| *byte != b']'))
}

/// The text of a module with the place at which it begins.
fn module<'t>(verilog: &'t str, name: &str) -> Option<(usize, &'t str)> {
    let heading = format!("module {name} (");
    let start = match verilog.find(&format!("\n{heading}")) {
        Some(place) => place + 1,
        None if verilog.starts_with(&heading) => 0,
        None => return None,
    };
    let length = verilog[start..].find("\nendmodule")?;
    Some((start, &verilog[start..start + length]))
}

/// Where the fault is planted in the text.
fn places(verilog: &str, name: &str, site: Site) -> Result<Vec<Range<usize>>, String> {
    let (start, text) = module(verilog, name).ok_or_else(|| format!("there is no module `{name}`"))?;
    let compact = Compact::new(text, start);
    let parts = match site {
        Site::Signal(signal) => vec![compact.assigned(signal)?],
        Site::Signals(signals) => {
            signals.iter().map(|signal| compact.assigned(signal)).collect::<Result<_, _>>()?
        }
        Site::Text(pattern) => vec![compact.marked(pattern)?],
    };
    Ok(parts.into_iter().map(|part| compact.original(part)).collect())
}

/// The first name in an expression that a module does not have; numbers such as `24'h1f` are none.
fn unknown<'e>(text: &str, expression: &'e str) -> Option<&'e str> {
    let known: HashSet<&str> = words(text).collect();
    words(expression)
        .find(|word| !word.starts_with(|first: char| first.is_ascii_digit()) && !known.contains(word))
}

/// The names in a text, and its numbers with their bases.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_separator = |letter: char| !(letter.is_ascii_alphanumeric() || "_'".contains(letter));
    text.split(is_separator).filter(|word| !word.is_empty())
}

/// The package that holds the number of the fault. C++ looks it up, as Verilog has no function for the environment.
fn package(names: &[&str]) -> String {
    let list: Vec<String> = names.iter().map(|name| format!("\\\"{name}\\\"")).collect();
    format!(
        "// Number of the fault that {VARIABLE} names; 0 is the unchanged card.\n\
         package rnic_mutants;\n    \
         int selected = $c32(\"[] {{ const char* const name = std::getenv(\\\"{VARIABLE}\\\"); \
         static const char* const names[] = {{{list}}}; int number = 0; \
         for (int index = 0; name && index < {count}; index++) \
         if (!std::strcmp(name, names[index])) number = index + 1; return number; }}()\");\n\
         endpackage\n\n",
        list = list.join(", "),
        count = names.len(),
    )
}

/// Plants the faults of modules; those of crates have a number and no place.
///
/// # Errors
///
/// [`Error::NoLongerApplies`] with all faults whose place does not occur exactly once, or overlaps with another, or that name what
/// the module does not have.
pub fn plant<'f>(verilog: &str, faults: impl IntoIterator<Item = &'f Fault>) -> Result<String, Error> {
    let faults: Vec<&Fault> = faults.into_iter().collect();
    let mut wrong = Vec::new();
    let mut edits: Vec<(Range<usize>, usize, &Fault, &str)> = Vec::new();
    for (index, fault) in faults.iter().copied().enumerate() {
        let Place::Module { module: name, site, becomes } = fault.place else { continue };
        if let Some(word) = module(verilog, name).and_then(|(_, text)| unknown(text, becomes)) {
            wrong.push(format!("  {} in {name}: there is no `{word}`", fault.name));
            continue;
        }
        match places(verilog, name, site) {
            Ok(ranges) => edits.extend(ranges.into_iter().map(|range| (range, index + 1, fault, becomes))),
            Err(reason) => wrong.push(format!("  {} in {name}: {reason}", fault.name)),
        }
    }
    edits.sort_by_key(|(range, number, ..)| (range.start, range.end, *number));
    for pair in edits.windows(2) {
        let [(first, _, one, _), (second, _, other, _)] = pair else { continue };
        if first != second && second.start < first.end {
            wrong.push(format!("  {} overlaps with {}", one.name, other.name));
        }
    }
    if !wrong.is_empty() {
        return Err(Error::NoLongerApplies(wrong));
    }

    let names: Vec<&str> = faults.iter().map(|fault| fault.name).collect();
    let mut text = package(&names);
    let mut behind = 0;
    for group in edits.chunk_by(|one, other| one.0 == other.0) {
        let range = group[0].0.clone();
        let original = &verilog[range.clone()];
        text.push_str(&verilog[behind..range.start]);
        let mut expression = format!("({original})");
        for (_, number, _, becomes) in group {
            let fault = becomes.replace('@', &format!("({original})"));
            expression = format!("(rnic_mutants::selected == {number} ? ({fault}) : {expression})");
        }
        write!(text, "{expression}").expect("a String takes any text");
        behind = range.end;
    }
    text.push_str(&verilog[behind..]);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    const DESIGN: &str = "\
module other (
    input wire a
);
    wire b = a;
endmodule
module stage (
    input  wire       clock,
    input  wire       third,
    output wire [3:0] sum
);
    wire       ready_value = sum == 4'h2;
    wire       ready = first // The reason.
        && second;
    wire [3:0] total = a[3:0] + 4'h1;
    assign sum = total;
    wire       twice = sum[0] && sum[1];

    always @(posedge clock) begin
        if (ready) begin
            count <= count + 4'h1;
        end
    end
endmodule
";

    fn fault(name: &'static str, module: &'static str, site: Site, becomes: &'static str) -> Fault {
        let place = Place::Module { module, site, becomes };
        Fault { name, kind: Kind::Lost, place, means: "", judge: "" }
    }

    fn planted(faults: &[Fault]) -> String {
        let text = plant(DESIGN, faults).unwrap();
        text.split_once("endpackage\n\n").unwrap().1.to_string()
    }

    #[test]
    fn a_signal_is_replaced_as_a_whole() {
        let text = planted(&[fault("x", "stage", Site::Signal("ready"), "@ || third")]);
        let ready = "wire       ready = (rnic_mutants::selected == 1 ? ((first // The reason.\n        && second) || third) : \
                     (first // The reason.\n        && second));";
        assert!(text.contains(ready), "{text}");
        let text = planted(&[fault("x", "stage", Site::Signal("total"), "4'h0")]);
        assert!(text.contains("total = (rnic_mutants::selected == 1 ? (4'h0) : (a[3:0] + 4'h1));"), "{text}");
        let text = planted(&[fault("x", "stage", Site::Signal("sum"), "4'h0")]);
        assert!(text.contains("assign sum = (rnic_mutants::selected == 1 ? (4'h0) : (total));"), "{text}");
    }

    #[test]
    fn a_text_is_found_whatever_its_white_space_is() {
        let site = Site::Text("if (ready) begin count <= [[count + 4'h1]];");
        let text = planted(&[fault("x", "stage", site, "count")]);
        assert!(
            text.contains("count <= (rnic_mutants::selected == 1 ? (count) : (count + 4'h1));"),
            "{text}"
        );
    }

    #[test]
    fn text_outside_of_the_site_is_unchanged() {
        let text = planted(&[fault("x", "stage", Site::Signal("sum"), "4'h0")]);
        assert_eq!(text.replace("(rnic_mutants::selected == 1 ? (4'h0) : (total))", "total"), DESIGN);
        assert_eq!(planted(&[]), DESIGN);
    }

    #[test]
    fn copies_of_a_decision_change_together() {
        let text = planted(&[fault("x", "stage", Site::Signals(&["sum", "twice"]), "4'h0")]);
        assert!(text.contains("sum = (rnic_mutants::selected == 1 ? (4'h0) : (total));"), "{text}");
        assert!(
            text.contains("twice = (rnic_mutants::selected == 1 ? (4'h0) : (sum[0] && sum[1]));"),
            "{text}"
        );
    }

    #[test]
    fn faults_of_one_place_share_it() {
        let faults = [
            fault("x", "stage", Site::Signal("sum"), "4'h0"),
            fault("y", "stage", Site::Signal("sum"), "@ + 4'h1"),
        ];
        let chain = "(rnic_mutants::selected == 2 ? ((total) + 4'h1) : \
                     (rnic_mutants::selected == 1 ? (4'h0) : (total)))";
        assert!(planted(&faults).contains(chain), "{}", planted(&faults));
    }

    #[test]
    fn a_place_that_is_gone_or_ambiguous_is_an_error() {
        let wrong = [
            fault("no-module", "stages", Site::Signal("sum"), "0"),
            fault("no-signal", "stage", Site::Signal("su"), "0"),
            fault("another-module", "stage", Site::Signal("b"), "0"),
            fault("no-text", "stage", Site::Text("total = [[a]];"), "0"),
            fault("two-texts", "stage", Site::Text("[[ready]]"), "0"),
            fault("no-mark", "stage", Site::Text("total"), "0"),
            fault("whole", "stage", Site::Signal("total"), "0"),
            fault("part", "stage", Site::Text("total = [[a]][3:0]"), "0"),
            fault("no-name", "stage", Site::Signal("twice"), "@ && sum[1] && (clocks || 4'hb == sum)"),
        ];
        let Err(Error::NoLongerApplies(lines)) = plant(DESIGN, &wrong) else { panic!("it was planted") };
        let expected = [
            "  no-module in stages: there is no module `stages`",
            "  no-signal in stage: `su` is assigned 0 times",
            "  another-module in stage: `b` is assigned 0 times",
            "  no-text in stage: the text occurs 0 times",
            "  two-texts in stage: the text occurs 3 times",
            "  no-mark in stage: the text has no part between [[ and ]]",
            "  no-name in stage: there is no `clocks`",
            "  part overlaps with whole",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_package_lists_the_names_in_the_order_of_their_numbers() {
        let text = package(&["one", "two"]);
        assert!(text.contains(r#"names[] = {\"one\", \"two\"}"#), "{text}");
        assert!(text.contains(r#"getenv(\"RNIC_MUTANT\")"#) && text.contains("index < 2"), "{text}");
    }
}
