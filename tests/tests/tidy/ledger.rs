//! Checks the ledger of the protocol's rules: `tests/conformance.toml`.
//!
//! Pure functions over its text, the places that the protocol can be cited by, and the names of all tests, so that each fault of
//! a ledger can be planted.
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Longest rule, in characters: one short sentence.
const RULE_MAX: usize = 200;
/// Tables of the protocol each row of which is a rule or several, by the section and the word before the row.
const TABLES: [&str; 2] = ["3.6 row ", "3.12 trace "];

/// The whole ledger.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ledger {
    /// Sections and rows that hold no rule for this card, each with the reason.
    without_rules: BTreeMap<String, String>,
    /// Rules, in the order of the protocol.
    rule: Vec<Rule>,
}

/// One rule. It is shown by tests, or says why it is not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Chapter and section, and a name: `3.6-pad`.
    id: String,
    /// Where the protocol has it: `3.6 row 8`.
    section: String,
    /// What it demands.
    rule: String,
    /// Tests that show it, as `package/target::path`.
    tests: Option<Vec<String>>,
    /// The card does not do it; what it does instead.
    not_done: Option<String>,
    /// The card does it, and no test shows it.
    not_shown: Option<String>,
}

/// How many rules of a ledger are shown, not shown, and not done.
pub(crate) fn counts(text: &str) -> [usize; 3] {
    let rules = toml::from_str::<Ledger>(text).map_or(Vec::new(), |ledger| ledger.rule);
    let count = |has: fn(&Rule) -> bool| rules.iter().filter(|rule| has(rule)).count();
    [
        count(|rule| rule.tests.is_some()),
        count(|rule| rule.not_shown.is_some()),
        count(|rule| rule.not_done.is_some()),
    ]
}

/// Everything that is wrong with a ledger. `places` are sections, rows and traces of the protocol, `tests` the names of all tests.
pub(crate) fn faults(text: &str, places: &BTreeSet<String>, tests: &BTreeSet<String>) -> Vec<String> {
    let ledger: Ledger = match toml::from_str(text) {
        Ok(ledger) => ledger,
        Err(error) => return vec![error.to_string()],
    };
    let mut faults = Vec::new();
    for rule in &ledger.rule {
        let found = faults_of(rule, places, tests);
        faults.extend(found.into_iter().map(|fault| format!("{}: {fault}", rule.id)));
    }
    let mut seen = BTreeSet::new();
    for rule in ledger.rule.iter().filter(|rule| !seen.insert(&rule.id)) {
        faults.push(format!("{}: the identifier is not unique", rule.id));
    }
    for pair in ledger.rule.windows(2).filter(|pair| order_of(&pair[0].section) > order_of(&pair[1].section))
    {
        faults.push(format!("{}: comes after {} of a later section", pair[1].id, pair[0].id));
    }
    faults.extend(faults_of_coverage(&ledger, places));
    faults
}

/// What is wrong with a rule for itself.
fn faults_of(rule: &Rule, places: &BTreeSet<String>, tests: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let name = rule.id.strip_prefix(section_of(&rule.section)).and_then(|name| name.strip_prefix('-'));
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.is_some_and(|name| !name.is_empty() && name.chars().all(is_word)) {
        faults.push("the identifier is the section, a hyphen, and words in lower case".to_string());
    }
    if !places.contains(&rule.section) {
        faults.push(format!("the protocol has no {}", rule.section));
    }
    let texts = [Some(&rule.rule), rule.not_done.as_ref(), rule.not_shown.as_ref()];
    for text in texts.into_iter().flatten() {
        if text.split_whitespace().count() < 3 || text.chars().count() > RULE_MAX || text.contains('\n') {
            faults.push(format!("`{text}` is no short sentence"));
        }
    }
    let answers = [rule.tests.is_some(), rule.not_done.is_some(), rule.not_shown.is_some()];
    if answers.iter().filter(|is_there| **is_there).count() != 1 {
        faults.push("it has either tests, or why it is not done, or why it is not shown".to_string());
    }
    let mut named = BTreeSet::new();
    for pattern in rule.tests.iter().flatten() {
        for test in expanded(pattern) {
            if !tests.contains(&test) {
                faults.push(format!("there is no test {test}"));
            }
            if !named.insert(test) {
                faults.push(format!("{pattern} is named twice"));
            }
        }
    }
    if rule.tests.as_ref().is_some_and(Vec::is_empty) {
        faults.push("its list of tests is empty".to_string());
    }
    faults
}

/// Sections without entry, and entries for sections that hold no rules.
fn faults_of_coverage(ledger: &Ledger, places: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let is_row = |place: &str| TABLES.iter().any(|table| place.starts_with(table));
    for place in places {
        let is_section = order_of(place).is_some_and(|(chapter, section, row)| {
            (1..=4).contains(&chapter) && section.is_some() && row.is_none()
        });
        let has_rule = ledger
            .rule
            .iter()
            .any(|rule| rule.section == *place || is_section && section_of(&rule.section) == place.as_str());
        match (ledger.without_rules.contains_key(place), has_rule) {
            (true, true) => faults.push(format!("{place} has rules, and is said to have none")),
            (false, false) if is_section || is_row(place) => {
                faults.push(format!("{place} has neither a rule nor a reason why it has none"));
            }
            _ => {}
        }
    }
    for (place, reason) in &ledger.without_rules {
        if !places.contains(place) {
            faults.push(format!("the protocol has no {place}"));
        }
        if reason.split_whitespace().count() < 3 {
            faults.push(format!("{place}: `{reason}` is no reason"));
        }
    }
    faults
}

/// The section without a row: `3.6` of `3.6 row 8`.
fn section_of(place: &str) -> &str {
    place.split(' ').next().unwrap_or(place)
}

/// Chapter, section and row of a place, for their order: the letter of a trace counts as a row. `None` for anything else.
fn order_of(place: &str) -> Option<(u32, Option<u32>, Option<u32>)> {
    let mut words = place.split(' ');
    let mut numbers = words.next()?.split('.').map(|number| number.parse::<u32>());
    let chapter = numbers.next()?.ok()?;
    let section = numbers.next().transpose().ok()?;
    let row = words.nth(1).and_then(|row| row.parse().ok().or_else(|| row.chars().next().map(u32::from)));
    Some((chapter, section, row))
}

/// The names that a pattern stands for: `a_{64,512}_bits` is two.
fn expanded(pattern: &str) -> Vec<String> {
    let parts = pattern.split_once('{').and_then(|(before, rest)| {
        let (choices, after) = rest.split_once('}')?;
        Some((before, choices, after))
    });
    let Some((before, choices, after)) = parts else { return vec![pattern.to_string()] };
    choices.split(',').map(|choice| format!("{before}{choice}{after}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[without_rules]
"1.2" = "a sizing aid"
"3.6 row 2" = "UD and UC only"

[[rule]]
id = "1.1-length"
section = "1.1"
rule = "A length is right."
tests = ["crate/lib::a_{64,512}", "crate/other::b"]

[[rule]]
id = "3.6-1"
section = "3.6 row 1"
rule = "A fault is dropped."
not_done = "It is not seen."

[[rule]]
id = "3.12-a"
section = "3.12 trace A"
rule = "A trace is run."
not_shown = "No test runs it."
"#;

    fn found(text: &str) -> Vec<String> {
        let places =
            ["1", "1.1", "1.1 row 0", "1.2", "3", "3.6", "3.6 row 1", "3.6 row 2", "3.12", "3.12 trace A"];
        let tests = ["crate/lib::a_64", "crate/lib::a_512", "crate/other::b"];
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        // Chapters above 4 need no rules.
        let places: BTreeSet<String> = set(&[&places[..], &["5", "5.1"]].concat());
        faults(text, &places, &set(&tests))
    }

    #[test]
    fn a_good_ledger_has_no_fault() {
        assert_eq!(found(GOOD), [""; 0]);
        assert_eq!(counts(GOOD), [1, 1, 1]);
    }

    /// Each fault is made by replacing one text of the good ledger.
    #[test]
    fn every_planted_fault_is_found() {
        for (from, to, fault) in [
            ("crate/other::b", "crate/other::c", "1.1-length: there is no test crate/other::c"),
            ("{64,512}", "{64,128}", "1.1-length: there is no test crate/lib::a_128"),
            ("{64,512}", "{64,64}", "1.1-length: crate/lib::a_{64,64} is named twice"),
            (
                "[\"crate/lib::a_{64,512}\", \"crate/other::b\"]",
                "[]",
                "1.1-length: its list of tests is empty",
            ),
            ("\"3.6 row 1\"", "\"3.6 row 9\"", "3.6-1: the protocol has no 3.6 row 9"),
            ("\"3.6 row 1\"", "\"3.6\"", "3.6 row 1 has neither a rule nor a reason why it has none"),
            ("\"1.1-length\"", "\"length\"", "length: the identifier is the section"),
            ("\"1.1-length\"", "\"1.1-\"", "1.1-: the identifier is the section"),
            ("\"1.1-length\"", "\"1.1-Length\"", "1.1-Length: the identifier is the section"),
            ("\"3.6-1\"", "\"3.61\"", "3.61: the identifier is the section"),
            ("not_done = ", "reason = ", "unknown field `reason`"),
            ("rule = \"A length is right.\"", "", "missing field `rule`"),
            ("not_done = \"It is not seen.\"", "", "3.6-1: it has either tests"),
            ("not_done = \"It", "not_shown = \"No test.\"\nnot_done = \"It", "3.6-1: it has either tests"),
            ("A fault is dropped.", "Dropped.", "3.6-1: `Dropped.` is no short sentence"),
            ("It is not seen.", "Later.", "3.6-1: `Later.` is no short sentence"),
            ("[without_rules]", "[without_rules]\n\"1.3\" = \"it has none\"", "the protocol has no 1.3"),
            (
                "[without_rules]",
                "[without_rules]\n\"1.1\" = \"it has none\"",
                "1.1 has rules, and is said to have none",
            ),
            ("a sizing aid", "none", "1.2: `none` is no reason"),
            ("\"1.2\" = \"a sizing aid\"\n", "", "1.2 has neither a rule nor a reason why it has none"),
            ("\"3.6 row 2\" = \"UD and UC only\"\n", "", "3.6 row 2 has neither a rule"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let found = found(&GOOD.replacen(from, to, 1));
            assert!(found.iter().any(|found| found.contains(fault)), "{from} to {to}: {found:?}");
        }
    }

    #[test]
    fn an_identifier_occurs_once_and_sections_come_in_order() {
        let rules: Vec<&str> = GOOD.split("[[rule]]").collect();
        let twice = [GOOD, rules[3]].join("\n[[rule]]");
        assert_eq!(found(&twice), ["3.12-a: the identifier is not unique"]);
        let swapped = [rules[0], rules[3], rules[2], rules[1]].join("[[rule]]");
        let expected = [
            "3.6-1: comes after 3.12-a of a later section",
            "1.1-length: comes after 3.6-1 of a later section",
        ];
        assert_eq!(found(&swapped), expected);
        let long = GOOD.replace("A length is right.", &"A length is right. ".repeat(12));
        assert_eq!(found(&long).len(), 1);
    }
}
