//! Names: what Verilog reserves, how Rust names become Verilog ones, and how clashes are avoided.
use std::collections::{BTreeMap, HashMap, HashSet};

/// Reserved words of Verilog-2005 (IEEE 1364-2005, Annex B) and those that SystemVerilog (IEEE 1800-2017,
/// Annex B) adds, since most tools read `.v` files with one parser for both.
const RESERVED: &str = "
    always and assign automatic begin buf bufif0 bufif1 case casex casez cell cmos config deassign default defparam
    design disable edge else end endcase endconfig endfunction endgenerate endmodule endprimitive endspecify endtable
    endtask event for force forever fork function generate genvar highz0 highz1 if ifnone incdir include initial inout
    input instance integer join large liblist library localparam macromodule medium module nand negedge nmos nor
    noshowcancelled not notif0 notif1 or output parameter pmos posedge primitive pull0 pull1 pulldown pullup
    pulsestyle_ondetect pulsestyle_onevent rcmos real realtime reg release repeat rnmos rpmos rtran rtranif0 rtranif1
    scalared showcancelled signed small specify specparam strong0 strong1 supply0 supply1 table task time tran tranif0
    tranif1 tri tri0 tri1 triand trior trireg unsigned use uwire vectored wait wand weak0 weak1 while wire wor xnor xor

    accept_on alias always_comb always_ff always_latch assert assume before bind bins binsof bit break byte chandle
    checker class clocking const constraint context continue cover covergroup coverpoint cross dist do endchecker
    endclass endclocking endgroup endinterface endpackage endprogram endproperty endsequence enum eventually expect
    export extends extern final first_match foreach forkjoin global iff ignore_bins illegal_bins implements implies
    import inside int interconnect interface intersect join_any join_none let local logic longint matches modport
    nettype new nexttime null package packed priority program property protected pure rand randc randcase randsequence
    ref reject_on restrict return s_always s_eventually s_nexttime s_until s_until_with sequence shortint shortreal
    soft solve static string strong struct super sync_accept_on sync_reject_on tagged this throughout timeprecision
    timeunit type typedef union unique unique0 until until_with untyped var virtual void wait_order weak wildcard with
    within";

/// Whether some Verilog or SystemVerilog tool takes the name for a keyword.
pub(crate) fn is_reserved(name: &str) -> bool {
    thread_local! {
        static WORDS: HashSet<&'static str> = RESERVED.split_whitespace().collect();
    }
    WORDS.with(|words| words.contains(name))
}

/// Whether this is a Verilog name without `$` and without escapes.
pub(crate) fn is_identifier(name: &str) -> bool {
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts_well && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// A Rust name, or one of rust-hdl's such as `lanes$2`, with what Verilog does not know replaced.
pub(crate) fn from_rust(name: &str) -> String {
    let name = name.strip_prefix("r#").unwrap_or(name);
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

/// The names of one module; each is given once.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    /// Every name that is taken, with the kind of thing that took it.
    taken: HashMap<String, &'static str>,
}

impl NameTable {
    /// Takes a name that cannot be changed.
    pub(crate) fn reserve(&mut self, name: &str, kind: &'static str) {
        self.taken.insert(name.to_owned(), kind);
    }

    /// Takes the wanted name or one like it: with its kind appended if something of another kind, or Verilog,
    /// has the name already, and with a number if something of its own kind has it.
    pub(crate) fn claim(&mut self, wanted: &str, kind: &'static str) -> String {
        let wanted = from_rust(wanted);
        let wanted = if is_identifier(&wanted) { wanted } else { format!("n{wanted}") };
        let with_kind = format!("{wanted}_{kind}");
        let base = match self.taken.get(&wanted) {
            Some(other) if *other != kind => with_kind,
            None if is_reserved(&wanted) => with_kind,
            _ => wanted,
        };
        let mut name = base.clone();
        let mut number = 2;
        while self.taken.contains_key(&name) || is_reserved(&name) {
            name = format!("{base}_{number}");
            number += 1;
        }
        self.taken.insert(name.clone(), kind);
        name
    }
}

// ---- modules ---------------------------------------------------------------------------------------------------

/// What a module is called if it is the only one of its type: the Rust type in snake case, or for blocks that do
/// not tell their type the name of the field that holds it.
pub(crate) fn module_base(type_name: &str, instance: &str) -> String {
    let base = match TypeExpression::parse(type_name) {
        Some(parsed) => snake_case(&parsed.name),
        None => instance.trim_end_matches(|last: char| last.is_ascii_digit() || last == '_').to_owned(),
    };
    let base = if is_identifier(&base) { base } else { format!("block_{base}") };
    if is_reserved(&base) { format!("{base}_block") } else { base }
}

/// Names every module, given its base name and its Rust type; the last is the top.
///
/// Modules with the same base name get what their type parameters differ in (`fifo_512` and `fifo_64`), or if
/// they differ in nothing that the type shows, a number.
pub(crate) fn name_modules(modules: &[(&str, &str)], top: &str) -> Vec<String> {
    let mut names = vec![String::new(); modules.len()];
    let mut table = NameTable::default();
    table.reserve(top, "module");
    let mut by_base: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let inner = modules.len().saturating_sub(1);
    for (id, (base, _)) in modules.iter().enumerate().take(inner) {
        by_base.entry(base).or_default().push(id);
    }
    for (base, ids) in by_base {
        let types: Vec<_> = ids.iter().map(|&id| TypeExpression::parse(modules[id].1)).collect();
        let suffixes = match types.into_iter().collect::<Option<Vec<_>>>() {
            Some(types) => differences(&types.iter().collect::<Vec<_>>()),
            None => vec![String::new(); ids.len()],
        };
        for (id, suffix) in ids.into_iter().zip(suffixes) {
            let wanted = if suffix.is_empty() { base.to_owned() } else { format!("{base}_{suffix}") };
            names[id] = table.claim(&wanted, "module");
        }
    }
    if let Some(name) = names.last_mut() {
        *name = top.to_owned();
    }
    names
}

/// A Rust type as `type_name` prints it: `a::b::Fifo<a::Beat<512, 7>, 4>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TypeExpression {
    path: String,
    /// The last segment of the path, or a number.
    name: String,
    arguments: Vec<TypeExpression>,
}

impl TypeExpression {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (path, arguments) = match text.split_once('<') {
            Some((path, rest)) => (path, split_arguments(rest.strip_suffix('>')?)),
            None => (text, Vec::new()),
        };
        let name = from_rust(path.rsplit("::").next()?);
        if name.is_empty() {
            return None;
        }
        let arguments = arguments.into_iter().map(TypeExpression::parse).collect::<Option<_>>()?;
        Some(TypeExpression { path: path.to_owned(), name, arguments })
    }

    /// All of it in one name: `beat_512_7`.
    fn flat_name(&self) -> String {
        let arguments = self.arguments.iter().map(TypeExpression::flat_name);
        std::iter::once(snake_case(&self.name)).chain(arguments).collect::<Vec<_>>().join("_")
    }
}

/// Splits at the commas outside of inner brackets.
fn split_arguments(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut start = 0;
    let mut parts = Vec::new();
    for (position, letter) in text.char_indices() {
        match letter {
            '<' | '[' | '(' => depth += 1,
            '>' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// For each type the shortest text that tells it from those of the others that are not equal to it.
fn differences(types: &[&TypeExpression]) -> Vec<String> {
    let kinds: HashSet<_> = types.iter().collect();
    if kinds.len() == 1 {
        return vec![String::new(); types.len()];
    }
    let first = types[0];
    let is_same_generic =
        types.iter().all(|other| other.path == first.path && other.arguments.len() == first.arguments.len());
    if !is_same_generic {
        return types.iter().map(|other| other.flat_name()).collect();
    }
    // As many parameters as it takes, from the first that differs.
    let mut suffixes = vec![String::new(); types.len()];
    for position in 0..first.arguments.len() {
        let arguments: Vec<_> = types.iter().map(|other| &other.arguments[position]).collect();
        let candidate: Vec<_> =
            suffixes.iter().zip(differences(&arguments)).map(|(known, more)| join(known, &more)).collect();
        if distinct(&candidate) > distinct(&suffixes) {
            suffixes = candidate;
        }
        if distinct(&suffixes) == kinds.len() {
            break;
        }
    }
    suffixes
}

fn distinct(names: &[String]) -> usize {
    names.iter().collect::<HashSet<_>>().len()
}

fn join(first: &str, second: &str) -> String {
    if first.is_empty() || second.is_empty() {
        format!("{first}{second}")
    } else {
        format!("{first}_{second}")
    }
}

fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let follows_lower =
            index > 0 && !letters[index - 1].is_ascii_uppercase() && letters[index - 1] != '_';
        let starts_word = index > 0
            && letters[index - 1].is_ascii_uppercase()
            && letters.get(index + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && (follows_lower || starts_word) {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_gets_its_kind_or_a_number() {
        let mut table = NameTable::default();
        table.reserve("verdict", "port");
        assert_eq!(table.claim("verdict", "value"), "verdict_value");
        assert_eq!(table.claim("verdict", "value"), "verdict_value_2");
        assert_eq!(table.claim("sum", "value"), "sum");
        assert_eq!(table.claim("sum", "value"), "sum_2");
        assert_eq!(table.claim("sum", "register"), "sum_register");
        assert_eq!(table.claim("sum_2", "value"), "sum_2_2");
    }

    #[test]
    fn a_reserved_name_is_never_given() {
        let mut table = NameTable::default();
        assert_eq!(table.claim("table", "register"), "table_register");
        assert_eq!(table.claim("r#type", "value"), "type_value");
        assert_eq!(table.claim("0", "value"), "n0");
    }

    #[test]
    fn words_of_both_languages_are_reserved() {
        assert!(["module", "reg", "always_ff", "logic", "unique0"].iter().all(|word| is_reserved(word)));
        assert!(["modules", "Reg", "ready", ""].iter().all(|word| !is_reserved(word)));
    }

    fn names(types: &[&str]) -> Vec<String> {
        let bases: Vec<_> = types.iter().map(|name| module_base(name, "ram_3")).collect();
        let mut modules: Vec<_> = bases.iter().map(String::as_str).zip(types.iter().copied()).collect();
        modules.push(("card", "a::Card"));
        let mut names = name_modules(&modules, "top");
        assert_eq!(names.pop().as_deref(), Some("top"));
        names
    }

    #[test]
    fn a_module_is_called_after_its_type() {
        assert_eq!(names(&["a::stream::SkidBuffer<a::Beat<512, 7>>"]), ["skid_buffer"]);
        assert_eq!(
            names(&["a::DMARead", "a::Axi4Lite", "a::Table"]),
            ["dma_read", "axi4_lite", "table_block"]
        );
        assert_eq!(names(&[""]), ["ram"]);
    }

    #[test]
    fn modules_of_one_type_are_told_apart_by_what_differs() {
        assert_eq!(
            names(&["a::Fifo<a::Beat<512, 7>, 4>", "a::Fifo<a::Beat<64, 4>, 4>"]),
            ["fifo_512", "fifo_64"]
        );
        assert_eq!(
            names(&["a::Fifo<a::Beat<64, 4>, 4>", "a::Fifo<a::Beat<64, 4>, 9>"]),
            ["fifo_4", "fifo_9"]
        );
        assert_eq!(
            names(&["a::Fifo<a::Beat<64, 4>, 4>", "a::Fifo<a::Token, 4>"]),
            ["fifo_beat_64_4", "fifo_token"]
        );
        assert_eq!(
            names(&["a::Network<32, 32>", "a::Network<32, 512>", "a::Network<512, 32>"]),
            ["network_32_32", "network_32_512", "network_512_32"]
        );
    }

    #[test]
    fn modules_that_differ_in_no_parameter_are_numbered() {
        assert_eq!(names(&["a::Rom<8>", "a::Rom<8>", "a::Rom<9>"]), ["rom_8", "rom_8_2", "rom_9"]);
        assert_eq!(names(&["a::Top"]), ["top_2"]);
    }
}
