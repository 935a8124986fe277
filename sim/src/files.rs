//! Files of a command line, which are checked before one of them is touched.
//!
//! 1. What is written can be written.
//! 2. No file is written that is read as well, or that is written or listened at for another purpose. Two names are one file if they
//!    have the same device and inode; of a file that is not there yet, the folder and the name are compared.
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Access, access};
use std::ffi::OsString;
use std::fs::{Metadata, metadata, read_link, symlink_metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Symbolic links that are followed.
const LINKS_MAX: usize = 40;

/// A file, and what it is for.
pub type Named<'a> = (&'a str, &'a Path);

/// What makes a file one and the same.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode.
    There(u64, u64),
    /// Those of its folder, and its name.
    New(u64, u64, OsString),
}

/// The folder that a path lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Follows a symbolic link whose end may be missing.
fn follow(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            Err(_) => break,
        }
    }
    path
}

/// Identity of a file; `None` for what keeps nothing, as `/dev/null` and pipes, and for what cannot be there.
fn identity(path: &Path) -> Option<Identity> {
    let keeps = |found: &Metadata| !found.file_type().is_char_device() && !found.file_type().is_fifo();
    match metadata(path) {
        Ok(found) => keeps(&found).then(|| Identity::There(found.dev(), found.ino())),
        Err(_) => {
            let path = follow(path);
            let folder = metadata(folder_of(&path)).ok()?;
            Some(Identity::New(folder.dev(), folder.ino(), path.file_name()?.to_os_string()))
        }
    }
}

/// Checks that a file can be written, without making or changing it.
fn check_writable(path: &Path) -> Result<()> {
    match metadata(path) {
        Ok(found) => {
            ensure!(!found.is_dir(), "it is a folder");
            access(path, Access::WRITE_OK)?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let path = follow(path);
            ensure!(symlink_metadata(&path).is_err(), "its symbolic links have no end");
            let folder = folder_of(&path);
            ensure!(metadata(folder).with_context(|| folder.display().to_string())?.is_dir(), "no folder");
            access(folder, Access::WRITE_OK | Access::EXEC_OK)
                .with_context(|| folder.display().to_string())?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Checks the files of a command line: those that are read, those that are written, and those that are made in another way, such as
/// sockets.
///
/// # Errors
/// If a file cannot be written, or two are one; the error names both.
pub fn check(read: &[Named<'_>], written: &[Named<'_>], made: &[Named<'_>]) -> Result<()> {
    for (what, path) in written {
        check_writable(path).with_context(|| format!("cannot write {what}, {}", path.display()))?;
    }
    let made: Vec<&Named<'_>> = written.iter().chain(made).collect();
    for (index, (what, path)) in made.iter().enumerate() {
        let Some(own) = identity(path) else { continue };
        let mut others = read.iter().chain(made[index + 1..].iter().copied());
        if let Some((other, its_path)) = others.find(|(_, other)| identity(other).as_ref() == Some(&own)) {
            let (path, its_path) = (path.display(), its_path.display());
            bail!("{what}, {path}, and {other}, {its_path}, are one file: name two");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_has_one_purpose_under_all_of_its_names() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            std::fs::write(path(name), name)?;
        }
        symlink("a", path("link"))?;
        symlink("new", path("dangling"))?;
        symlink("circle", path("circle"))?;
        std::fs::hard_link(path("a"), path("hard"))?;
        std::fs::create_dir(path("sub"))?;
        for (read, written, expected) in [
            ("a", "b", ""),
            ("a", "new", ""),
            ("a", "a", "are one file"),
            ("a", "./a", "are one file"),
            ("a", "sub/../a", "are one file"),
            ("a", "link", "are one file"),
            ("link", "hard", "are one file"),
            ("new", "dangling", "are one file"),
            ("b", "sub", "it is a folder"),
            ("b", "missing/a", "No such file"),
            ("b", "a/a", "Not a directory"),
            ("b", "circle", "cannot write the output"),
        ] {
            let (from, to) = (path(read), path(written));
            let text =
                |outcome: Result<()>| outcome.err().map_or(String::new(), |error| format!("{error:#}"));
            let read_too = text(check(&[("the input", &from)], &[("the output", &to)], &[]));
            let is_right =
                if expected.is_empty() { read_too.is_empty() } else { read_too.contains(expected) };
            assert!(is_right, "{read} {written}: {read_too}");
            if expected == "are one file" {
                let twice = text(check(&[], &[("the input", &from), ("the output", &to)], &[]));
                let socket = text(check(&[], &[("the output", &to)], &[("the socket", &from)]));
                assert!(twice.contains(expected) && socket.contains(expected), "{read} {written}: {twice}");
            }
        }
        assert!(!path("new").exists() && std::fs::read(path("a"))? == b"a", "nothing was touched");
        let null = Path::new("/dev/null");
        check(&[], &[("one", null), ("another", null)], &[])
    }
}
