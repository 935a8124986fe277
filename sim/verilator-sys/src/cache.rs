//! The cache of compiled models: one folder for each content.
//!
//! ```text
//! <cache>/<key>.lock        held while <key> is checked or built
//! <cache>/<key>/            appears whole, by renaming a scratch folder
//! <cache>/<key>/MANIFEST    SHA-256 of each file, so that a damaged entry is built again
//! <cache>/scratch-*/        a build that is under way
//! ```
//!
//! An entry is never changed after it appeared. The lock lets one of several builders of the same key work
//! while the others wait for its result, across threads and processes.

use crate::Error;
use sha2::{Digest, Sha256};
use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

const MANIFEST: &str = "MANIFEST";

/// The cache folder: the caller's, else `RNIC_VERILATED_DIR`, else `verilated` in Cargo's target directory.
pub(crate) fn directory(option: Option<&Path>) -> PathBuf {
    let from_environment = || env::var_os("RNIC_VERILATED_DIR").filter(|value| !value.is_empty());
    option
        .map(Path::to_path_buf)
        .or_else(|| from_environment().map(PathBuf::from))
        .unwrap_or_else(|| target_directory().join("verilated"))
}

/// Cargo marks its target directory with a `CACHEDIR.TAG`, and the running program lies below it. A program that
/// was installed elsewhere falls back to `target` below the current directory.
fn target_directory() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    let target = program.ancestors().skip(1).find(|folder| folder.join("CACHEDIR.TAG").is_file());
    let target = target.map_or_else(|| PathBuf::from("target"), Path::to_path_buf);
    // The compiler runs in a folder below it.
    std::path::absolute(&target).unwrap_or(target)
}

/// A key from the parts that decide the content. Parts are told apart by their lengths.
pub(crate) fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut text = format!("{:x}", hash.finalize());
    text.truncate(32);
    text
}

/// Returns the folder of `key`, and whether it was there already. `build` fills a scratch folder when the entry
/// is missing or damaged, and names the files that the entry consists of.
pub(crate) fn entry(
    directory: &Path,
    key: &str,
    build: impl FnOnce(&Path) -> Result<Vec<&'static str>, Error>,
) -> Result<(PathBuf, bool), Error> {
    fs::create_dir_all(directory).map_err(Error::cache("create", directory))?;
    let lock_path = directory.join(format!("{key}.lock"));
    let lock = File::create(&lock_path).map_err(Error::cache("create", &lock_path))?;
    // The lock ends with `lock`, whichever way this function is left.
    lock.lock().map_err(Error::cache("lock", &lock_path))?;

    let entry = directory.join(key);
    if is_whole(&entry) {
        return Ok((entry, true));
    }
    let scratch = Scratch::new(directory)?;
    let files = build(scratch.path())?;
    let whole = Scratch::new(directory)?;
    let mut manifest = String::new();
    for file in files {
        let (from, to) = (scratch.path().join(file), whole.path().join(file));
        let hash = hash_of(&from).map_err(Error::cache("read", &from))?;
        writeln!(manifest, "{hash} {file}").expect("a String takes any text");
        fs::rename(&from, &to).map_err(Error::cache("move", &from))?;
    }
    let manifest_path = whole.path().join(MANIFEST);
    fs::write(&manifest_path, manifest).map_err(Error::cache("write", &manifest_path))?;
    if entry.exists() {
        fs::remove_dir_all(&entry).map_err(Error::cache("remove", &entry))?;
    }
    fs::rename(whole.path(), &entry).map_err(Error::cache("create", &entry))?;
    Ok((entry, false))
}

/// Whether every file that the manifest names has the content it had when the entry was built.
fn is_whole(entry: &Path) -> bool {
    let Ok(manifest) = fs::read_to_string(entry.join(MANIFEST)) else { return false };
    !manifest.is_empty()
        && manifest.lines().all(|line| {
            line.split_once(' ')
                .is_some_and(|(hash, file)| hash_of(&entry.join(file)).is_ok_and(|actual| actual == hash))
        })
}

fn hash_of(path: &Path) -> std::io::Result<String> {
    Ok(format!("{:x}", Sha256::digest(fs::read(path)?)))
}

/// A folder that goes away with its value, unless it has been renamed.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates a folder of its own below `directory`.
    pub(crate) fn new(directory: &Path) -> Result<Scratch, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("scratch-{}-{count}", process::id()));
        // A process with this number may have died in the middle of a build.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(Error::cache("create", &path))?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_parts_apart() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
    }

    #[test]
    fn a_failed_build_leaves_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let fail = |_: &Path| Err(Error::NotTraced { top: "x".into() });
        assert!(entry(folder.path(), "k", fail).is_err());
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["k.lock"]);
    }

    #[test]
    fn a_damaged_entry_is_built_again() {
        let folder = tempfile::tempdir().unwrap();
        let build = |path: &Path| {
            fs::write(path.join("a"), "text").unwrap();
            Ok(vec!["a"])
        };
        let (path, hit) = entry(folder.path(), "k", build).unwrap();
        assert!(!hit);
        assert!(entry(folder.path(), "k", build).unwrap().1);
        fs::write(path.join("a"), "other").unwrap();
        assert!(!entry(folder.path(), "k", build).unwrap().1);
        fs::write(path.join(MANIFEST), "").unwrap();
        assert!(!entry(folder.path(), "k", build).unwrap().1);
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "text");
    }
}
