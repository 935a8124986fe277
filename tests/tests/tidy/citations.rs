//! Finds citations of the two documents that code cites, and what these documents have to be cited.
//!
//! Pure functions over text, so that a dangling citation can be shown to be found. Examples in here name a document by a
//! constant: written out they would be citations themselves.
use std::collections::BTreeSet;

/// A document that code cites: the word of its citations, and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Document {
    /// Lower-case word before the number; a sentence may begin with it.
    pub(crate) word: &'static str,
    /// Path from the root of the repository.
    pub(crate) path: &'static str,
}

/// What goes on the wire.
pub(crate) const PROTOCOL: Document = Document { word: "protocol", path: "docs/protocol.md" };
/// How the card is built.
pub(crate) const DESIGN: Document = Document { word: "design", path: "docs/design.md" };

/// One place of a document that a text names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Citation {
    /// Line of the text, counted from 1, in which the citation begins.
    pub(crate) line: usize,
    /// The document that is cited.
    pub(crate) document: Document,
    /// Section, row, trace or decision, as [`targets`] names it.
    pub(crate) target: String,
}

/// Everything in a document that can be cited: `3.6` for a heading, `3.6 row 8` and `3.12 trace C` for a row of a table in
/// that section, `decision 9` for a heading of a decision.
pub(crate) fn targets(markdown: &str) -> BTreeSet<String> {
    let mut targets = BTreeSet::new();
    let mut section = String::new();
    for (_, line) in outside_fences(markdown) {
        if let Some(title) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim_start()) {
            if let Some((number, _)) = number(title) {
                section = number;
                targets.insert(section.clone());
            } else if let Some((number, _)) = title.strip_prefix("Decision ").and_then(number) {
                targets.insert(format!("decision {number}"));
            }
        } else if let Some(cell) = line.strip_prefix("| ") {
            let first = cell.split([' ', '|']).next().unwrap_or("");
            if first.parse::<u32>().is_ok() {
                targets.insert(format!("{section} row {first}"));
            } else if first.len() == 1 && first.starts_with(|letter: char| letter.is_ascii_uppercase()) {
                targets.insert(format!("{section} trace {first}"));
            }
        }
    }
    targets
}

/// Citations of a document in a text: source, manifest, script or Markdown. A list names each of its members, and of a
/// range both ends; a citation may be broken over lines of a comment.
pub(crate) fn citations(document: Document, text: &str) -> Vec<Citation> {
    let (joined, starts) = join(text);
    let mut citations = Vec::new();
    for (index, _) in joined.match_indices(&document.word[1..]) {
        let Some((word_at, first)) = joined[..index].char_indices().next_back() else { continue };
        let before = joined[..word_at].chars().next_back().unwrap_or(' ');
        let begins = document.word.starts_with(first.to_ascii_lowercase())
            && !before.is_alphanumeric()
            && !['_', '-'].contains(&before);
        let rest = &joined[index + document.word.len() - 1..];
        if !begins || !rest.starts_with(' ') {
            continue;
        }
        let line = starts.partition_point(|&start| start <= word_at);
        let named = named(rest.trim_start());
        citations.extend(named.into_iter().map(|target| Citation { line, document, target }));
    }
    citations
}

/// Relative targets of the links of a Markdown text, each with its line, without fragments. Code is not looked at.
pub(crate) fn relative_links(markdown: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (line, text) in outside_fences(markdown) {
        let prose: String = text.split('`').step_by(2).collect();
        for piece in prose.split("](").skip(1) {
            let target = piece.split([')', ' ', '#']).next().unwrap_or("");
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                links.push((line, target.to_string()));
            }
        }
    }
    links
}

/// What a plain number means in a list.
#[derive(Clone, Copy, PartialEq)]
enum Plain {
    /// A chapter, if it comes first; later it belongs to the sentence.
    Chapter,
    Row,
    Trace,
    Decision,
}

/// Targets that a list names, read from behind the word of the document.
fn named(mut rest: &str) -> Vec<String> {
    const KINDS: [(&str, Plain); 6] = [
        ("decisions ", Plain::Decision),
        ("decision ", Plain::Decision),
        ("rows ", Plain::Row),
        ("row ", Plain::Row),
        ("traces ", Plain::Trace),
        ("trace ", Plain::Trace),
    ];
    const SEPARATORS: [&str; 7] = [", and ", ", ", " and ", " to ", " or ", "/", " "];
    let mut targets: Vec<String> = Vec::new();
    let mut section = String::new();
    let mut plain = Plain::Chapter;
    let mut separator = "";
    loop {
        let kind = KINDS.iter().find_map(|&(word, kind)| Some((kind, rest.strip_prefix(word)?)));
        // A row or a trace is one of a section; a decision is one of the document.
        let kind = kind.filter(|(kind, _)| (*kind == Plain::Decision) == targets.is_empty());
        if let Some((kind, after)) = kind {
            (plain, rest) = (kind, after);
        } else if separator == " " {
            break;
        }
        let found = if plain == Plain::Trace { letter(rest).or_else(|| number(rest)) } else { number(rest) };
        let Some((name, after)) = found else { break };
        targets.push(match plain {
            _ if name.contains('.') => {
                (plain, section) = (Plain::Chapter, name);
                section.clone()
            }
            Plain::Chapter if targets.is_empty() => {
                section = name;
                section.clone()
            }
            Plain::Chapter => break,
            Plain::Row => format!("{section} row {name}"),
            Plain::Trace => format!("{section} trace {name}"),
            Plain::Decision => format!("decision {name}"),
        });
        let Some(found) = SEPARATORS.iter().find(|separator| after.starts_with(**separator)) else { break };
        separator = found;
        rest = &after[separator.len()..];
    }
    targets
}

/// A number like `3`, `3.6` or `3.6.1` that a text begins with, and what follows it.
fn number(text: &str) -> Option<(String, &str)> {
    let mut end = 0;
    loop {
        let digits = text[end..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            break;
        }
        end += digits;
        let follows = text[end..].strip_prefix('.');
        if !follows.is_some_and(|after| after.starts_with(|next: char| next.is_ascii_digit())) {
            break;
        }
        end += 1;
    }
    let rest = &text[end..];
    let ends = !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    (end > 0 && ends).then(|| (text[..end].to_string(), rest))
}

/// A single capital letter that a text begins with, and what follows it.
fn letter(text: &str) -> Option<(String, &str)> {
    let rest = text.strip_prefix(|first: char| first.is_ascii_uppercase())?;
    let ends = !rest.starts_with(|next: char| next.is_alphanumeric());
    ends.then(|| (text[..text.len() - rest.len()].to_string(), rest))
}

/// Lines of a Markdown text that are not in a fenced block, each with its number.
fn outside_fences(markdown: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    markdown.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// A text on one line, without the marks of comments and lists, and where in it each line begins.
fn join(text: &str) -> (String, Vec<usize>) {
    let mut joined = String::with_capacity(text.len());
    let mut starts = Vec::new();
    for line in text.lines() {
        starts.push(joined.len());
        joined.push_str(line.trim_start().trim_start_matches(['/', '!', '#', '*']).trim());
        joined.push(' ');
    }
    (joined, starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: &str = PROTOCOL.word;
    const D: &str = DESIGN.word;

    fn cited(document: Document, text: &str) -> Vec<String> {
        citations(document, text).into_iter().map(|citation| citation.target).collect()
    }

    #[test]
    fn a_citation_is_a_word_and_a_number() {
        let capital = concat!("P", "rotocol");
        for (text, expected) in [
            (format!("({P} 3.4)."), vec!["3.4"]),
            (format!("{P} 2, and more"), vec!["2"]),
            (format!("{capital} 3.4; else"), vec!["3.4"]),
            (format!("by {P} 3.6.1."), vec!["3.6.1"]),
            (format!("the {P} 4 bytes"), vec!["4"]),
            (format!("a {P}, 3.4"), vec![]),
            (format!("sub{P} 3.4"), vec![]),
            (format!("{P}s 3.4"), vec![]),
            (format!("{P} 3rd"), vec![]),
        ] {
            assert_eq!(cited(PROTOCOL, &text), expected, "{text}");
            assert_eq!(cited(DESIGN, &text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_list_names_each_of_its_members() {
        for (text, expected) in [
            (format!("{P} 2.2, 2.3, 2.11, 8.3"), vec!["2.2", "2.3", "2.11", "8.3"]),
            (format!("{P} 2.11 and 4.4 say"), vec!["2.11", "4.4"]),
            (format!("{P} 1.1 to 1.8."), vec!["1.1", "1.8"]),
            (format!("{P} 2.6, and 3.1"), vec!["2.6", "3.1"]),
            (format!("{P} 2.6, 2 cycles"), vec!["2.6"]),
            (format!("{P} 2.6 3.1"), vec!["2.6"]),
            (format!("{P} 2.6, {P} 3.1"), vec!["2.6", "3.1"]),
        ] {
            assert_eq!(cited(PROTOCOL, &text), expected, "{text}");
        }
    }

    #[test]
    fn rows_and_traces_belong_to_the_section_before_them() {
        for (text, expected) in [
            (format!("{P} 3.6 row 8"), vec!["3.6", "3.6 row 8"]),
            (format!("{P} 3.6, row 13)"), vec!["3.6", "3.6 row 13"]),
            (format!("{P} 3.6 rows 8 and 9: FIRST"), vec!["3.6", "3.6 row 8", "3.6 row 9"]),
            (format!("{P} 3.6 row 1, 8.3"), vec!["3.6", "3.6 row 1", "8.3"]),
            (
                format!("{P} 3.6, rows 5, 10 to 13, and 2.11."),
                vec!["3.6", "3.6 row 5", "3.6 row 10", "3.6 row 13", "2.11"],
            ),
            (format!("{P} 3.12, trace F"), vec!["3.12", "3.12 trace F"]),
            (format!("{P} 3.12, traces A to J"), vec!["3.12", "3.12 trace A", "3.12 trace J"]),
        ] {
            assert_eq!(cited(PROTOCOL, &text), expected, "{text}");
        }
    }

    #[test]
    fn decisions_are_cited_by_number() {
        for (text, expected) in [
            (format!("{D} decision 9."), vec!["decision 9"]),
            (format!("{D} decisions 5, 12 and 14"), vec!["decision 5", "decision 12", "decision 14"]),
            (format!("{D} 3.1, {D} decision 11"), vec!["3.1", "decision 11"]),
            (format!("{D} 8 asks"), vec!["8"]),
            (format!("re{D} 8"), vec![]),
        ] {
            assert_eq!(cited(DESIGN, &text), expected, "{text}");
        }
    }

    #[test]
    fn a_citation_may_be_broken_over_lines_and_is_found_where_it_begins() {
        let text = format!("//! One.\n//! Two ({P}\n//! 3.4),\n    /// {P} 3.6,\n    /// rows 1\n# {P} 2\n");
        let found: Vec<_> =
            citations(PROTOCOL, &text).into_iter().map(|found| (found.line, found.target)).collect();
        let expected = [(2, "3.4"), (4, "3.6"), (4, "3.6 row 1"), (6, "2")];
        assert_eq!(found, expected.map(|(line, target)| (line, target.to_string())));
    }

    #[test]
    fn headings_rows_and_decisions_can_be_cited() {
        let text = "# Title\n## 3 Three\n### 3.6 Errors\n| # | What |\n|---|---|\n| 8 | a |\n| C lost | b |\n\
                    ### Decision 9: cursor\n```text\n## 7 fenced\n```\n## 4. Dotted\n";
        let expected = ["3", "3.6", "3.6 row 8", "3.6 trace C", "4", "decision 9"];
        assert_eq!(targets(text), BTreeSet::from(expected.map(str::to_string)));
    }

    #[test]
    fn a_planted_citation_that_dangles_is_reported() {
        let has = targets("## 3 Three\n### 3.6 Errors\n| 8 | a |\n### Decision 9: cursor\n");
        let text = format!("// {P} 3.6 row 8\n// {P} 3.7\n// {P} 3.6 row 9\n// {P} 3.6, 8.3\n// {P} 3\n");
        let dangling: Vec<_> =
            citations(PROTOCOL, &text).into_iter().filter(|found| !has.contains(&found.target)).collect();
        let dangling: Vec<_> = dangling.iter().map(|found| (found.line, found.target.as_str())).collect();
        assert_eq!(dangling, [(2, "3.7"), (3, "3.6 row 9"), (4, "8.3")]);
        let text = format!("{D} decisions 9 and 10");
        assert!(citations(DESIGN, &text).iter().any(|found| !has.contains(&found.target)));
    }

    #[test]
    fn links_to_files_are_found_outside_code() {
        let text = "[a](x/y.md#part) and [`b`](../z.md), [c](https://example.org), [d](#here)\n`[e](no)`\n```\n[f](no)\n```\n[g](w)\n";
        let expected = [(1, "x/y.md"), (1, "../z.md"), (6, "w")];
        assert_eq!(relative_links(text), expected.map(|(line, target)| (line, target.to_string())));
    }
}
