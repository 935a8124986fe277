//! The cache of compiled models: one folder for each content.
//!
//! ```text
//! <cache>/<key>.lock        held while <key> is checked or built
//! <cache>/<key>/            appears whole, by renaming a scratch folder
//! <cache>/<key>/MANIFEST    SHA-256 of each file, so that a damaged entry is built again
//! <cache>/scratch-*/        a build that is under way
//! <cache>/scratch-*.lock    held by that build
//! ```
//!
//! An entry is never changed after it appeared, so one that is whole is used without a lock: the cache may belong to somebody else,
//! or be read-only. The lock lets one of several builders of the same key work while the others wait for its result, across threads
//! and processes. A build that was killed leaves its scratch folder, which the next build removes since nobody holds its lock.

use crate::Error;
use sha2::{Digest, Sha256};
use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

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
    let entry = directory.join(key);
    if is_whole(&entry) {
        return Ok((entry, true));
    }
    fs::create_dir_all(directory).map_err(Error::cache("create", directory))?;
    let lock_path = directory.join(format!("{key}.lock"));
    let lock = File::create(&lock_path).map_err(Error::cache("create", &lock_path))?;
    // The lock ends with `lock`, whichever way this function is left.
    lock.lock().map_err(Error::cache("lock", &lock_path))?;

    // Another builder may have been faster.
    if is_whole(&entry) {
        return Ok((entry, true));
    }
    sweep(directory);
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

/// How the name of a scratch folder begins.
const SCRATCH: &str = "scratch-";
/// Age of a scratch folder without a lock, which an older version of this crate may be using, after which nobody does.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A folder that goes away with its value, unless it has been renamed.
pub(crate) struct Scratch {
    path: PathBuf,
    lock_path: PathBuf,
    /// Held as long as the folder is in use; the operating system ends it with the process.
    _lock: File,
}

impl Scratch {
    /// Creates a folder of its own below `directory`.
    pub(crate) fn new(directory: &Path) -> Result<Scratch, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(directory).map_err(Error::cache("create", directory))?;
        // A process with this number may have died in the middle of a build, so the time tells the two apart.
        let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{SCRATCH}{}-{time:x}-{count}", process::id());
        let (path, lock_path) = (directory.join(&name), directory.join(format!("{name}.lock")));
        let lock = File::create_new(&lock_path).map_err(Error::cache("create", &lock_path))?;
        lock.lock().map_err(Error::cache("lock", &lock_path))?;
        // The folder comes after its lock and goes before it, so there is none in use whose lock is free.
        let scratch = Scratch { path, lock_path, _lock: lock };
        fs::create_dir(&scratch.path).map_err(Error::cache("create", &scratch.path))?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// Removes the scratch folders of builds that were killed. What cannot be removed, since it is somebody else's, stays.
fn sweep(directory: &Path) {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|file| file.file_name());
    for name in names.filter_map(|name| name.into_string().ok()) {
        if !name.starts_with(SCRATCH) || name.ends_with(".lock") {
            continue;
        }
        let (path, lock_path) = (directory.join(&name), directory.join(format!("{name}.lock")));
        let is_abandoned = match File::open(&lock_path) {
            Ok(lock) => lock.try_lock().is_ok(),
            Err(_) => is_old(&path),
        };
        if is_abandoned {
            let _ = fs::remove_dir_all(&path);
            let _ = fs::remove_file(&lock_path);
        }
    }
}

/// Whether nothing was created in a folder for so long that nobody works in it.
fn is_old(path: &Path) -> bool {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > ABANDONED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_parts_apart() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_whole_entry_is_used_without_a_file_being_made() {
        let folder = tempfile::tempdir().unwrap();
        let build = |path: &Path| {
            fs::write(path.join("a"), "text").unwrap();
            Ok(vec!["a"])
        };
        entry(folder.path(), "k", build).unwrap();
        // As where the cache belongs to another user: its lock cannot be taken.
        fs::remove_file(folder.path().join("k.lock")).unwrap();
        fs::create_dir(folder.path().join("k.lock")).unwrap();
        assert!(entry(folder.path(), "k", build).unwrap().1);
        assert_eq!(names(folder.path()), ["k", "k.lock"]);
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_named_with_the_variable_and_its_reason_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = entry(&file, "k", |_| Ok(Vec::new())).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("RNIC_VERILATED_DIR") && text.contains(&*file.to_string_lossy()), "{text}");
        assert!(text.contains("File exists"), "{text}");
        assert!(std::error::Error::source(&error).is_none(), "the text has the reason");
    }

    #[test]
    fn a_build_removes_what_killed_ones_have_left_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let in_use = Scratch::new(folder.path()).unwrap();
        let used = in_use.path().file_name().unwrap().to_str().unwrap().to_string();
        for name in ["scratch-1-killed", "scratch-1-young", "scratch-1-old", "another"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("scratch-1-killed.lock"), "").unwrap();
        let hours_ago = SystemTime::now() - 2 * ABANDONED;
        File::open(path("scratch-1-old")).unwrap().set_modified(hours_ago).unwrap();
        let build = |scratch: &Path| {
            fs::write(scratch.join("a"), "text").unwrap();
            Ok(vec!["a"])
        };
        entry(folder.path(), "k", build).unwrap();
        let mut left =
            ["another", "k", "k.lock", "scratch-1-young", &used, &format!("{used}.lock")].map(str::to_string);
        left.sort();
        assert_eq!(names(folder.path()), left);
        drop(in_use);
        assert_eq!(names(folder.path()), ["another", "k", "k.lock", "scratch-1-young"]);
    }

    #[test]
    fn a_failed_build_leaves_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let fail = |_: &Path| Err(Error::NotTraced { top: "x".into() });
        assert!(entry(folder.path(), "k", fail).is_err());
        assert_eq!(names(folder.path()), ["k.lock"]);
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
