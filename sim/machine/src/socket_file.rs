//! Sockets that listen at a path. The file is removed when the socket is not needed any more, unless another has taken its place.
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::fs::{remove_file, symlink_metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

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

impl Listening {
    /// Listens at a path, in the place of a socket that a process has left behind.
    ///
    /// # Errors
    /// If there is another file, somebody listens there, or the path is not writable.
    pub fn at(path: &Path, kind: SocketType) -> io::Result<Listening> {
        let address = SocketAddrUnix::new(path)?;
        let socket = socket(kind)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_left_behind(path, &address, kind) => {
                remove_file(path)?;
                bind(&socket, &address)?;
            }
            outcome => outcome?,
        }
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

fn is_left_behind(path: &Path, address: &SocketAddrUnix, kind: SocketType) -> bool {
    let is_socket = symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_socket && socket(kind).is_ok_and(|caller| connect(&caller, address) == Err(Errno::CONNREFUSED))
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
