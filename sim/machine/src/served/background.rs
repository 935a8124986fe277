//! A server in a thread of its own.
use super::server::{Server, Summary};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::thread::{Builder, JoinHandle};

/// A server that serves in the background. Dropping it ends it too, without its numbers.
pub struct Background {
    stop: UnixStream,
    thread: Option<JoinHandle<io::Result<Summary>>>,
}

impl Server {
    /// Serves in a thread of its own.
    ///
    /// # Errors
    /// If the operating system has no thread or socket.
    pub fn spawn(self) -> io::Result<Background> {
        let (stop, stopped) = UnixStream::pair()?;
        let thread = Builder::new().name("server".into()).spawn(move || self.run(stopped))?;
        Ok(Background { stop, thread: Some(thread) })
    }
}

impl Background {
    /// Ends the server, and removes its sockets.
    ///
    /// # Errors
    /// If the server has failed.
    ///
    /// # Panics
    /// If the server has panicked.
    pub fn end(mut self) -> io::Result<Summary> {
        self.stop.write_all(&[1])?;
        let thread = self.thread.take().expect("the thread is there until the end");
        thread.join().expect("the server has not panicked")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // If the server has ended before, there is nothing to do.
        let _ = self.stop.write_all(&[1]);
        let _ = thread.join();
    }
}
