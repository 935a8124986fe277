//! The modules of the driver import each other in one direction: a module only those that `lib.rs` lists before it.
#![cfg(not(loom))]

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Modules that a file declares, in order.
fn declared(text: &str) -> Vec<&str> {
    let declaration = |line| {
        let line = str::strip_prefix(line, "pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    };
    text.lines().filter_map(declaration).collect()
}

/// Names after `prefix` in the code of a module, without comments and unit tests.
fn imported<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names = lines.flat_map(|line| line.split(prefix).skip(1));
    names
        .map(|rest| &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())])
        .collect()
}

/// Checks the modules that `root` declares, whose files are in `folder`. Returns the number of imports.
fn check(folder: &Path, root: &Path, prefix: &str) -> usize {
    let root_text = read_to_string(root).unwrap();
    let modules = declared(&root_text);
    let mut count = 0;
    for (place, module) in modules.iter().enumerate() {
        let file = folder.join(format!("{module}.rs"));
        let files: Vec<PathBuf> = if file.exists() {
            vec![file]
        } else {
            folder.join(module).read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        for file in files {
            let text = read_to_string(&file).unwrap();
            for name in imported(&text, prefix) {
                let allowed = modules[..place].contains(&name) || !modules.contains(&name);
                assert!(allowed, "{}: imports {name}, which {} lists later", file.display(), root.display());
                count += 1;
            }
        }
    }
    count
}

#[test]
fn a_module_imports_only_modules_of_lower_layers() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    assert!(check(&src, &src.join("lib.rs"), "crate::") > 50);
    let queue_pair = src.join("queue_pair");
    assert!(check(&queue_pair, &queue_pair.join("mod.rs"), "super::") > 5);
}
