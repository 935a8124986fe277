//! Sockets that listen at a path. The file is removed when the socket is not needed any more, unless another has taken its place.
//!
//! Two servers that start at once find the same file that was left behind. Each locks the folder while it replaces the file, so that
//! the second finds a socket with a listener, and not one between `bind` and `listen`.
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::fs::{File, remove_file, symlink_metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Longest path of a socket, in bytes.
const PATH_BYTES_MAX: usize = 107;
/// How often a lock is tried, and the time between: whoever else has it does not keep a server from starting.
const LOCK_TRIES: usize = 100;
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// A socket that listens at a path and does not block.
#[derive(Debug)]
pub struct Listening {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file, which the socket keeps from being used again.
    identity: (u64, u64),
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Makes a socket that does not block.
///
/// # Errors
/// If the operating system has none.
pub fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

/// The address of a socket at a path.
///
/// # Errors
/// If the path is too long.
pub fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    let bytes = path.as_os_str().len();
    if bytes > PATH_BYTES_MAX {
        let text = format!("a path of {bytes} bytes, and that of a socket has at most {PATH_BYTES_MAX}");
        return Err(io::Error::new(ErrorKind::InvalidFilename, text));
    }
    Ok(SocketAddrUnix::new(path)?)
}

/// Checks that a path is free, or has a socket that a process has left behind. Nothing is touched. Returns whether it has one.
///
/// # Errors
/// If the path is too long, its folder is not there, there is another file, or somebody listens there.
pub fn check(path: &Path, kind: SocketType) -> io::Result<bool> {
    let address = address(path)?;
    let refuse = |kind, text: String| Err(io::Error::new(kind, text));
    let found = match symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(_) if folder_of(path).is_dir() => return Ok(false),
        Err(_) => {
            return refuse(ErrorKind::NotFound, format!("there is no folder {}", folder_of(path).display()));
        }
    };
    if !found.is_socket() {
        let text = "there is another file, which is not replaced: remove it, or name another path";
        return refuse(ErrorKind::AlreadyExists, text.into());
    }
    match connect(&socket(kind)?, &address) {
        Err(Errno::CONNREFUSED) => Ok(true),
        Err(Errno::ACCESS) => Err(Errno::ACCESS.into()),
        _ => refuse(
            ErrorKind::AddrInUse,
            "another process listens there: end that, or name another path".into(),
        ),
    }
}

/// The folder that a path lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Locks the folder of a path until the handle is dropped, if it can be locked.
fn lock(path: &Path) -> Option<File> {
    let folder = File::open(folder_of(path)).ok()?;
    for _ in 0..LOCK_TRIES {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(Errno::AGAIN | Errno::INTR) => sleep(LOCK_RETRY),
            Err(_) => break,
        }
    }
    None
}

impl Listening {
    /// Listens at a path, in the place of a socket that a process has left behind.
    ///
    /// # Errors
    /// As of [`check`], and if the folder is not writable.
    pub fn at(path: &Path, kind: SocketType) -> io::Result<Listening> {
        let _lock = lock(path);
        if check(path, kind)? {
            remove_file(path)?;
        }
        let socket = socket(kind)?;
        bind(&socket, &address(path)?)?;
        let listening = Listening { socket, path: path.to_path_buf(), identity: identity(path)? };
        listen(&listening.socket, BACKLOG)?;
        Ok(listening)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_successor_stays() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("socket");
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let first = Listening::at(&path, kind)?;
            assert!(Listening::at(&path, kind).is_err(), "somebody listens");
            remove_file(&path)?;
            let second = Listening::at(&path, kind)?;
            drop(first);
            assert!(path.exists(), "the file is that of the second");
            drop(second);
            assert!(!path.exists());
        }
        Ok(())
    }

    /// Of servers that start at once, one gets the path, and its clients find it there.
    #[test]
    fn one_of_many_replaces_a_socket_that_was_left_behind() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("socket");
        for round in 0..200 {
            let left = socket(SocketType::STREAM)?;
            bind(&left, &address(&path)?)?;
            drop(left);
            let start = std::sync::Barrier::new(4);
            let listen = || {
                start.wait();
                Listening::at(&path, SocketType::STREAM)
            };
            let sockets: Vec<io::Result<Listening>> = std::thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(listen));
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let winners = sockets.iter().flatten().count();
            assert_eq!((winners, path.exists()), (1, true), "round {round}: {sockets:?}");
        }
        Ok(())
    }

    #[test]
    fn a_path_where_nothing_can_listen_is_refused_with_the_reason() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "not a socket")?;
        std::os::unix::fs::symlink("nowhere", path("link"))?;
        let _listening = Listening::at(&path("socket"), SocketType::STREAM)?;
        for (path, expected) in [
            (path("file"), "there is another file, which is not replaced"),
            (path("link"), "there is another file, which is not replaced"),
            (folder.path().to_path_buf(), "there is another file, which is not replaced"),
            (path("missing/socket"), "there is no folder "),
            (path("file/socket"), "there is no folder "),
            (path("socket"), "another process listens there"),
            ("a".repeat(108).into(), "a path of 108 bytes, and that of a socket has at most 107"),
        ] {
            for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
                let errors = [check(&path, kind).err(), Listening::at(&path, kind).err()];
                for error in errors {
                    let text = error.map(|error| error.to_string()).unwrap_or_default();
                    assert!(text.starts_with(expected), "{}: {text}", path.display());
                }
            }
        }
        assert!(!check(&path("new"), SocketType::STREAM)?);
        Ok(())
    }

    #[test]
    fn a_file_that_was_left_behind_is_replaced_and_another_is_not() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("socket");
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let left = socket(kind)?;
            bind(&left, &SocketAddrUnix::new(&path)?)?;
            drop(left);
            drop(Listening::at(&path, kind)?);
        }
        std::fs::write(&path, "not a socket")?;
        assert!(Listening::at(&path, SocketType::STREAM).is_err());
        assert_eq!(std::fs::read(&path)?, b"not a socket");
        Ok(())
    }
}
