//! Rules about the repository itself: who may know whom, what is never committed, that references resolve, and that each rule of
//! the protocol has its tests.
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "tidy/citations.rs"]
mod citations;
#[path = "tidy/ledger.rs"]
mod ledger;
#[path = "tidy/public_docs.rs"]
mod public_docs;
#[path = "tidy/reasons.rs"]
mod reasons;
#[path = "tidy/test_names.rs"]
mod test_names;

use citations::{DESIGN, PROTOCOL};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

/// What a part of the card may know: no other part. Only the top joins them.
const ROLE: [&str; 4] = ["rnic-blocks", "rnic-kernel", "rnic-layout", "rnic-messages"];

/// What each crate may know of the others. Knowledge flows layout -> {hdl, driver} -> sim -> tests: the hardware never
/// sees who simulates it, and the contract sees nobody. `verilator-sys` knows no part of the card, so the tests of the
/// language and of the blocks may use it. The reference endpoint and the monitor of frames see the contract alone, so that a
/// mistake in the hardware or in the driver cannot be a mistake in what they are tested against; the simulated machine sees no
/// design, the model of the protocol nobody. The driver knows no simulator; only its suite of all back ends runs on the simulated
/// machine, which is why that is a dependency of its tests. The library of programs, `rnic`, opens simulated cards too, unless it is
/// built without its feature `sim`; of this workspace only the command line uses it. The verbs library is the driver with another
/// interface. The connection manager sees that library as a program does, by its symbols.
const MAY_KNOW: [(&str, &[&str], &[&str]); 33] = [
    ("rnic-layout", &[], &[]),
    ("rnic-kernel-macros", &[], &[]),
    ("rnic-kernel", &["rnic-kernel-macros"], &["verilator-sys"]),
    ("rnic-kernel-check", &["rnic-kernel", "verilator-sys"], &[]),
    ("rnic-blocks", &["rnic-kernel", "rnic-layout", "verilator-sys"], &[]),
    ("rnic-messages", &["rnic-kernel", "rnic-layout"], &["rnic-blocks"]),
    ("rnic-packet", &ROLE, &["verilator-sys"]),
    ("rnic-host", &ROLE, &[]),
    ("rnic-protect", &ROLE, &[]),
    ("rnic-complete", &ROLE, &[]),
    ("rnic-control", &ROLE, &["verilator-sys"]),
    ("rnic-dma", &ROLE, &["rnic-host"]),
    ("rnic-requester", &ROLE, &[]),
    ("rnic-responder", &["rnic-blocks", "rnic-kernel", "rnic-layout", "rnic-messages", "rnic-protect"], &[]),
    (
        "rnic-hdl",
        &[
            "rnic-blocks",
            "rnic-complete",
            "rnic-control",
            "rnic-dma",
            "rnic-host",
            "rnic-kernel",
            "rnic-layout",
            "rnic-packet",
            "rnic-protect",
            "rnic-requester",
            "rnic-responder",
            "rnic-messages",
        ],
        &[],
    ),
    ("rnic-driver", &["rnic-layout"], &["rnic-machine", "rnic-stimulus", "rnic-suite", "verilator-sys"]),
    ("rnic-suite", &["rnic-driver", "rnic-layout"], &[]),
    ("rnic", &["rnic-driver", "rnic-hdl", "rnic-layout", "rnic-machine", "verilator-sys"], &[]),
    ("rnic-cli", &["rnic", "rnic-layout", "rnic-suite"], &["rnic-hdl", "rnic-machine", "verilator-sys"]),
    ("rnic-stand-in", &[], &[]),
    ("rnic-ibverbs", &["rnic-driver", "rnic-layout", "rnic-stand-in"], &[]),
    ("rnic-rdmacm", &["rnic-stand-in"], &[]),
    ("verilator-sys", &[], &[]),
    ("rnic-stimulus", &["rnic-layout"], &[]),
    ("rnic-endpoint", &["rnic-layout"], &["rnic-stimulus"]),
    ("rnic-monitor", &["rnic-layout"], &["rnic-stimulus"]),
    ("rnic-machine", &["rnic-driver", "rnic-layout", "rnic-monitor", "rnic-stimulus", "verilator-sys"], &[]),
    ("rnic-mutants", &[], &["rnic-hdl"]),
    ("rnic-protocol", &[], &[]),
    ("rnic-workloads", &["rnic-driver", "rnic-endpoint", "rnic-layout", "rnic-stimulus"], &[]),
    (
        "rnic-packet-path",
        &[
            "rnic-blocks",
            "rnic-control",
            "rnic-hdl",
            "rnic-kernel",
            "rnic-layout",
            "rnic-messages",
            "rnic-packet",
            "rnic-stimulus",
            "verilator-sys",
        ],
        &[],
    ),
    (
        "rnic-sim",
        &[
            "rnic-driver",
            "rnic-endpoint",
            "rnic-hdl",
            "rnic-layout",
            "rnic-machine",
            "rnic-packet-path",
            "rnic-stimulus",
            "rnic-workloads",
            "verilator-sys",
        ],
        &["rnic-messages", "rnic-mutants", "rnic-protocol"],
    ),
    (
        "rnic-tests",
        &[
            "rnic-blocks",
            "rnic-hdl",
            "rnic-host",
            "rnic-kernel",
            "rnic-packet",
            "rnic-requester",
            "rnic-responder",
        ],
        &["verilator-sys"],
    ),
];

/// Dependencies of one kind, by name, on any target.
fn dependencies(manifest: &toml::Table, kind: &str) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(|targets| targets.values().filter_map(toml::Value::as_table));
    let tables = targets.chain([manifest]).filter_map(|table| table.get(kind)?.as_table());
    tables.flat_map(|table| table.keys().cloned()).collect()
}

/// Crates of the workspace: the folder and the manifest of each.
fn members() -> Vec<(String, toml::Table)> {
    let workspace: toml::Table = read("Cargo.toml").parse().expect("the workspace manifest is TOML");
    let members = workspace["workspace"]["members"].as_array().expect("members are a list");
    let members = members.iter().map(|member| {
        let member = member.as_str().expect("a member is a path");
        let manifest = read(&format!("{member}/Cargo.toml")).parse().expect("a manifest is TOML");
        (member.to_string(), manifest)
    });
    members.collect()
}

fn package(manifest: &toml::Table) -> &str {
    manifest["package"]["name"].as_str().expect("a package has a name")
}

fn manifests() -> BTreeMap<String, toml::Table> {
    members().into_iter().map(|(_, manifest)| (package(&manifest).to_string(), manifest)).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn knowledge_flows_one_way() {
    let manifests = manifests();
    let ours: BTreeSet<&str> = manifests.keys().map(String::as_str).collect();
    let ruled: BTreeSet<&str> = MAY_KNOW.iter().map(|rule| rule.0).collect();
    assert_eq!(ours, ruled, "each crate of the workspace has a rule in MAY_KNOW");
    for (name, normal, development) in MAY_KNOW {
        let manifest = &manifests[name];
        for (kind, allowed) in
            [("dependencies", normal), ("build-dependencies", normal), ("dev-dependencies", development)]
        {
            for dependency in dependencies(manifest, kind) {
                let forbidden = ours.contains(dependency.as_str())
                    && !normal.contains(&dependency.as_str())
                    && !allowed.contains(&dependency.as_str());
                assert!(!forbidden, "{name} must not know {dependency} ({kind})");
            }
        }
    }
}

#[test]
fn the_contract_depends_on_nothing_but_zerocopy() {
    let layout = &manifests()["rnic-layout"];
    assert_eq!(dependencies(layout, "dependencies"), BTreeSet::from(["zerocopy".to_string()]));
    assert!(read("hdl/layout/src/lib.rs").contains("#![no_std]"));
}

#[test]
fn every_crate_takes_the_one_lint_table() {
    for (name, manifest) in manifests() {
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace"));
        assert_eq!(inherits, Some(&toml::Value::Boolean(true)), "{name} has `lints.workspace = true`");
    }
}

/// Files under version control.
fn tracked() -> Vec<String> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output().expect("git runs");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("paths are UTF-8").lines().map(str::to_string).collect()
}

/// Modules of the driver that share memory or a table between threads, take memory of the application, tell forked processes apart,
/// call VFIO, or access BARs that are mapped, and those of its tests that fork, and name memory by its address.
const UNSAFE_OF_DRIVER: [&str; 10] = [
    "driver/src/in_flight.rs",
    "driver/src/memory.rs",
    "driver/src/page.rs",
    "driver/src/process.rs",
    "driver/src/sge.rs",
    "driver/src/user_memory.rs",
    "driver/src/vfio/kernel.rs",
    "driver/src/vfio/window.rs",
    "driver/tests/device/user_memory.rs",
    "driver/tests/forked/mod.rs",
];

/// Crates that call C, or that C calls.
const FOREIGN: [&str; 3] = ["driver/ibverbs/src/", "driver/rdmacm/src/", "sim/verilator-sys/src/"];

#[test]
fn unsafe_is_allowed_only_where_models_are_called_and_memory_or_devices_are_shared() {
    for path in tracked().iter().filter(|path| path.ends_with(".rs")) {
        let allows = read(path).contains(concat!("unsafe", "_code"));
        let is_foreign = FOREIGN.iter().any(|folder| path.starts_with(folder));
        let may = is_foreign || UNSAFE_OF_DRIVER.contains(&path.as_str());
        assert!(!allows || may, "{path} allows unsafe code");
    }
}

/// Sources are shorter; only the register manual, which is rendered, comes near.
const LIMIT_BYTES: u64 = 150_000;

#[test]
fn products_of_the_build_are_not_tracked() {
    for path in tracked() {
        let extension = Path::new(&path).extension().and_then(|extension| extension.to_str()).unwrap_or("");
        let by_hand =
            ["hdl/formal/", "sim/machine/tests/fixtures/"].iter().any(|folder| path.starts_with(folder));
        let generated = matches!(extension, "v" | "sv") && !by_hand;
        assert!(
            !generated,
            "{path}: Verilog is generated; only properties and the card of the machine's tests are written by hand"
        );
        let size = std::fs::metadata(root().join(&path)).map_or(0, |metadata| metadata.len());
        assert!(
            path == "Cargo.lock" || size <= LIMIT_BYTES,
            "{path} has {size} bytes; the limit is {LIMIT_BYTES}"
        );
    }
}

#[test]
fn every_citation_names_what_its_document_has() {
    let documents = [PROTOCOL, DESIGN].map(|document| (document, citations::targets(&read(document.path))));
    let mut dangling = Vec::new();
    let mut count = 0;
    for path in tracked() {
        let extension = Path::new(&path).extension().and_then(|extension| extension.to_str()).unwrap_or("");
        if !["md", "py", "rs", "sh", "toml", "v"].contains(&extension) {
            continue;
        }
        let text = read(&path);
        for (document, targets) in &documents {
            for citation in citations::citations(*document, &text) {
                count += 1;
                if !targets.contains(&citation.target) {
                    let (line, target) = (citation.line, citation.target);
                    dangling.push(format!("{path}:{line}: {} has no {target}", document.path));
                }
            }
        }
    }
    assert!(dangling.is_empty(), "dangling citations:\n{}", dangling.join("\n"));
    assert!(
        count > 1000,
        "only {count} citations were found: their form has changed, or the search is broken"
    );
}

#[test]
fn links_in_documents_resolve() {
    let tracked = tracked();
    let mut broken = Vec::new();
    for path in tracked.iter().filter(|path| path.ends_with(".md")) {
        let folder = Path::new(path).parent().expect("a file has a folder");
        for (line, target) in citations::relative_links(&read(path)) {
            if !root().join(folder).join(&target).exists() {
                broken.push(format!("{path}:{line}: {target} does not exist"));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// The ledger of the protocol's rules.
const LEDGER: &str = "tests/conformance.toml";

/// Names of all tests of the workspace, as `package/target::path`.
fn all_tests() -> BTreeSet<String> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let mut names = BTreeSet::new();
    for (member, manifest) in members() {
        let folder = root().join(member);
        let mut targets = Vec::new();
        let has_tests =
            manifest.get("lib").and_then(|lib| lib.get("test")) != Some(&toml::Value::Boolean(false));
        if has_tests {
            targets.push(("lib".to_string(), folder.join("src/lib.rs")));
        }
        for entry in std::fs::read_dir(folder.join("tests")).into_iter().flatten() {
            let path = entry.expect("the folder can be read").path();
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or("").to_string();
            let is_file = path.extension().is_some_and(|extension| extension == "rs");
            targets.push((name, if is_file { path } else { path.join("main.rs") }));
        }
        for (target, path) in targets.into_iter().filter(|(_, path)| path.exists()) {
            let found = test_names::tests_of(&target, &path, &read).unwrap_or_else(|error| panic!("{error}"));
            names.extend(found.into_iter().map(|name| format!("{}/{name}", package(&manifest))));
        }
    }
    names
}

#[test]
fn every_rule_of_the_protocol_has_a_test_or_a_reason() {
    let (places, tests) = (citations::targets(&read(PROTOCOL.path)), all_tests());
    assert!(tests.len() > 1000, "only {} tests were found: the search is broken", tests.len());
    let text = read(LEDGER);
    let [shown, not_shown, not_done] = ledger::counts(&text);
    println!("{shown} rules are shown by tests, {not_shown} are done and not shown, {not_done} are not done");
    let faults = ledger::faults(&text, &places, &tests);
    assert!(faults.is_empty(), "{LEDGER}:\n{}", faults.join("\n"));
}

#[test]
fn the_readme_links_the_documents_that_code_cites() {
    let links = citations::relative_links(&read("README.md"));
    for document in [PROTOCOL, DESIGN] {
        assert!(links.iter().any(|link| link.1 == document.path), "README.md links {}", document.path);
    }
}

/// Folders whose public items all have a sentence: everything but tests.
const DOCUMENTED: [&str; 24] = [
    "driver/cli/src/",
    "driver/ibverbs/src/",
    "driver/rdmacm/src/",
    "driver/rnic/src/",
    "driver/src/",
    "driver/suite/src/",
    "driver/stand_in/src/",
    "hdl/blocks/src/",
    "hdl/complete/src/",
    "hdl/control/src/",
    "hdl/dma/src/",
    "hdl/host/src/",
    "hdl/kernel/src/",
    "hdl/kernel/check/src/",
    "hdl/kernel/macros/src/",
    "hdl/layout/src/",
    "hdl/messages/src/",
    "hdl/packet/src/",
    "hdl/protect/src/",
    "hdl/requester/src/",
    "hdl/responder/src/",
    "hdl/src/",
    "sim/",
    "tests/src/",
];

#[test]
fn public_items_are_documented_by_a_sentence() {
    let is_for_tests = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    let mut files = 0;
    let mut found = Vec::new();
    for path in tracked().iter().filter(|path| path.ends_with(".rs") && !is_for_tests(path)) {
        if !DOCUMENTED.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        files += 1;
        let items = public_docs::undocumented(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        found.extend(items.into_iter().map(|item| match item.found {
            Some(text) => format!("{path}:{}: {} says only \"{text}\"", item.line, item.item),
            None => format!("{path}:{}: {} has no documentation", item.line, item.item),
        }));
    }
    assert!(files > 200, "only {files} files were looked at");
    assert!(found.is_empty(), "{} public items lack a sentence:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_error_prints_a_reason_that_is_its_source_too() {
    let example = r#"
        enum E { #[error("a: {0}; b")] A(#[from] F), #[error("{source}")] B { source: F }, #[error("c")] C(#[from] F) }
        #[error("{}", what.x)] struct G { what: F, #[source] why: F }
        #[error("{why:?}")] struct H { #[source] why: F }
    "#;
    assert_eq!(reasons::repeated(example).unwrap(), ["A", "B", "H"]);
    let mut found = Vec::new();
    for path in tracked().iter().filter(|path| path.ends_with(".rs") && !path.contains("compile_fail")) {
        let text = read(path);
        if text.contains("#[error(") {
            let errors = reasons::repeated(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
            found.extend(errors.into_iter().map(|error| format!("{path}: {error}")));
        }
    }
    assert!(found.is_empty(), "a chain of errors prints the reason twice: {}", found.join(", "));
}

/// Lines of unit tests that may stand in the file of what they test.
const TEST_LINES_MAX: usize = 300;

/// Number of lines from the unit tests of a file to its end.
fn lines_of_tests(text: &str) -> usize {
    text.split_once("\n#[cfg(test)]\nmod tests {\n").map_or(0, |(_, tests)| tests.lines().count())
}

#[test]
fn long_unit_tests_have_a_file_of_their_own() {
    let text = "fn tested() {}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn first() {}\n}\n";
    assert_eq!([text, "#[cfg(test)]\nmod tests;\n"].map(lines_of_tests), [3, 0]);
    let sources = tracked().into_iter().filter(|path| path.ends_with(".rs"));
    let counts = sources.map(|path| (lines_of_tests(&read(&path)), path));
    let long: Vec<_> = counts.filter(|&(count, _)| count > TEST_LINES_MAX).collect();
    assert!(long.is_empty(), "more than {TEST_LINES_MAX} lines belong into a file tests.rs: {long:?}");
}
