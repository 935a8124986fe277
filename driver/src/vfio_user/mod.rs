//! Back end for a card that another process serves over a Unix socket, by the protocol vfio-user.
//!
//! ```text
//!   this process                                                the process of the card
//!   ────────────                                                ───────────────────────
//!   bar(0), bar(2), config space ── requests on the socket ───> regions 0, 2, 7
//!   memory of allocate() ────────── its file, by map() ───────> mapped there too
//!   wait_interrupt() <───────────── eventfds ─────────────────  MSI-X
//! ```
//!
//! 1. Each request is answered within [`ConnectOptions::timeout`], or fails. A server that stalls, lies or dies is an error that
//!    names what was found; the connection is closed then, BARs read as all ones, and [`Function::check`] says why.
//! 2. A read has the answer of the server; a write of a BAR is posted, and no more than twice
//!    [`ConnectOptions::posted_max`] are in flight. The server takes both in order, so that a read comes after all writes.
//! 3. The card reaches memory in the driver's files that is mapped, and no other memory of this process, so that a server that dies
//!    or never forgets a mapping harms nobody. Such memory is that of [`Function::allocate`], and memory of the application that
//!    lies in a file of [`UserMemory::in_file`](crate::UserMemory::in_file) or of [`Memory`]; other memory of the application is
//!    refused, unless [`ConnectOptions::shares_process`] lets the server have it.
//! 4. Sizes and counts of the server are checked before they are used.
//!
//! The specification is that of the project libvfio-user, version 0.1.

mod wire;

mod client;

mod regions;

use crate::addresses::Addresses;
use crate::eventfds::{Eventfds, Woken};
use crate::function::{Bar, DOORBELL_BAR, Function, FunctionError, Ownership, REGISTER_BAR};
use crate::memory::{FilePart, Memory, PageSize, Purpose};
use crate::server_error::ServerError;
use crate::sync::{Mutex, MutexGuard, lock};
use client::{Client, FDS_MAX};
use regions::{Described, describe};
use rnic_layout::limits::INTERRUPT_VECTORS_MAX;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{CONFIG_REGION, Command, DMA_READ_WRITE, DmaMap, DmaUnmap, IRQS_TO_EVENTFDS, MSIX_IRQS, SetIrqs};
use zerocopy::IntoBytes;

/// Longest path of a socket, in bytes.
const PATH_BYTES_MAX: usize = 107;
/// Time between two attempts to reach a server that has no room for one more client.
const RETRY: Duration = Duration::from_millis(5);

/// Parameters of [`VfioUserFunction::connect`].
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Time that the server has to answer one request.
    pub timeout: Duration,
    /// Every so many posted writes, one is answered.
    pub posted_max: u32,
    /// Device addresses that the card can use.
    pub addresses: Range<u64>,
    /// How many times longer than hardware the card takes: see [`Function::time_scale`].
    pub time_scale: u32,
    /// The card also reaches memory of the application that lies in no file: heap, stack, any mapping. The server gets a handle of
    /// all memory of this process for it (`/proc/self/mem`), so that it must be trusted as this process is. `rnic-sim serve` takes
    /// such a handle; a server that does not refuses the mapping.
    pub shares_process: bool,
}

impl Default for ConnectOptions {
    /// A timeout of 5 s, an answer for every 32nd write, addresses from 4 GiB to 256 TiB, a card that is simulated and takes
    /// up to 1000 times longer than hardware, and memory in files only.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            posted_max: 32,
            addresses: 1 << 32..1 << 48,
            time_scale: 1000,
            shares_process: false,
        }
    }
}

/// The connection of one function, and its name in messages.
struct Connection {
    client: Mutex<Client>,
    /// Another handle of the socket, to wait for its end without the lock.
    socket: OwnedFd,
    name: String,
}

impl Connection {
    fn client(&self) -> MutexGuard<'_, Client> {
        lock(&self.client)
    }

    /// Names the server in an error.
    fn named(&self, error: ServerError) -> FunctionError {
        FunctionError::Server { socket: self.name.clone(), error }
    }
}

/// A BAR behind the socket.
struct VfioUserBar {
    connection: Arc<Connection>,
    region: u32,
    bytes: u64,
}

impl VfioUserBar {
    fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0xff; N];
        if !self.has(offset, N) {
            return bytes;
        }
        let mut client = self.connection.client();
        match client.read(self.region, offset, &mut bytes) {
            Ok(()) => bytes,
            Err(error) => {
                client.note(error);
                [0xff; N]
            }
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        if !self.has(offset, bytes.len()) {
            return;
        }
        let mut client = self.connection.client();
        if let Err(error) = client.post(self.region, offset, bytes) {
            client.note(error);
        }
    }

    /// Returns whether an access lies in the BAR.
    fn has(&self, offset: u64, length: usize) -> bool {
        offset.checked_add(length as u64).is_some_and(|end| end <= self.bytes)
    }
}

impl Bar for VfioUserBar {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read32(&self, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(offset))
    }

    fn write32(&self, offset: u64, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    fn read64(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.read(offset))
    }

    fn write64(&self, offset: u64, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }
}

/// Mapped memory, and the device addresses that are free.
struct Mappings {
    addresses: Addresses,
    mapped: BTreeMap<u64, Arc<Memory>>,
}

/// A card that another process serves over a Unix socket. Dropping it closes the connection, upon which the server resets the
/// card and forgets its mappings.
pub struct VfioUserFunction {
    connection: Arc<Connection>,
    registers: VfioUserBar,
    doorbells: VfioUserBar,
    config_bytes: usize,
    is_resettable: bool,
    vectors: Eventfds,
    mappings: Mutex<Mappings>,
    /// All memory of this process, if the server may have it.
    process: Option<OwnedFd>,
    ownership: Ownership,
    began: Instant,
    time_scale: u32,
}

impl VfioUserFunction {
    /// Connects to the server at a path.
    ///
    /// # Errors
    ///
    /// [`FunctionError::Server`] if there is no server, or it does not answer as a server of a PCI function, within
    /// [`ConnectOptions::timeout`] for each request.
    pub fn connect(path: impl AsRef<Path>, options: ConnectOptions) -> Result<Self, FunctionError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let named = |error| FunctionError::Server { socket: name.clone(), error };
        let socket = reach(path, options.timeout).map_err(named)?;
        Self::over(socket, name.clone(), options)
    }

    /// Uses a socket that is connected to a server. `name` is the name of the server in messages.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`].
    pub fn over(socket: UnixStream, name: String, options: ConnectOptions) -> Result<Self, FunctionError> {
        let named = |error| FunctionError::Server { socket: name.clone(), error };
        let mut client = Client::new(socket, options.timeout, options.posted_max).map_err(named)?;
        let Described { is_resettable, bars, config_bytes, vectors } =
            describe(&mut client).map_err(named)?;
        let vectors = Eventfds::new(vectors.min(INTERRUPT_VECTORS_MAX))?;
        set_irqs(&mut client, vectors.all()).map_err(named)?;
        let socket = client.socket().try_clone_to_owned()?;
        let connection = Arc::new(Connection { client: Mutex::new(client), socket, name });
        let bar = |index: u8| {
            let bytes = bars[usize::from(index)].bytes;
            VfioUserBar { connection: Arc::clone(&connection), region: index.into(), bytes }
        };
        let (registers, doorbells) = (bar(REGISTER_BAR), bar(DOORBELL_BAR));
        let addresses = Addresses::new(Some(options.addresses));
        let process = options.shares_process.then(own_memory).transpose()?;
        Ok(Self {
            connection,
            registers,
            doorbells,
            config_bytes,
            is_resettable,
            vectors,
            mappings: Mutex::new(Mappings { addresses, mapped: BTreeMap::new() }),
            process,
            ownership: Ownership::default(),
            began: Instant::now(),
            time_scale: options.time_scale.max(1),
        })
    }
}

/// Opens the memory of this process, in which an offset is an address.
fn own_memory() -> Result<OwnedFd, FunctionError> {
    Ok(OwnedFd::from(File::options().read(true).write(true).open("/proc/self/mem")?))
}

/// Connects to a socket within a time.
fn reach(path: &Path, limit: Duration) -> Result<UnixStream, ServerError> {
    let unreachable =
        |error: Errno| ServerError::Unreachable { why: std::io::Error::from(error).to_string() };
    let address = SocketAddrUnix::new(path).map_err(|error| match error {
        Errno::NAMETOOLONG => {
            let bytes = path.as_os_str().len();
            let why =
                format!("its path has {bytes} bytes, and that of a socket has at most {PATH_BYTES_MAX}");
            ServerError::Unreachable { why }
        }
        error => unreachable(error),
    })?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(unreachable)?;
    let began = Instant::now();
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            // The queue of clients that the server has not accepted is full.
            Err(Errno::AGAIN) if began.elapsed() < limit => std::thread::sleep(RETRY),
            Err(Errno::AGAIN) => return Err(ServerError::Stalled { what: "the connection", limit }),
            Err(Errno::INTR) => {}
            Err(error) => return Err(unreachable(error)),
        }
    }
}

/// Has the device write its interrupts to eventfds, in messages of as many as the server takes.
fn set_irqs(client: &mut Client, vectors: &[OwnedFd]) -> Result<(), ServerError> {
    let most = client.fds_max.min(FDS_MAX);
    let mut start = 0;
    for part in vectors.chunks(most) {
        let count = part.len() as u32;
        let argsz = size_of::<SetIrqs>() as u32;
        let body = SetIrqs { argsz, flags: IRQS_TO_EVENTFDS, index: MSIX_IRQS, start, count };
        let fds: Vec<BorrowedFd<'_>> = part.iter().map(AsFd::as_fd).collect();
        client.tell(Command::SetIrqs, body.as_bytes(), &fds)?;
        start += count;
    }
    Ok(())
}

impl VfioUserFunction {
    /// The part of a file that the server finds memory in.
    fn part<'a>(&'a self, memory: &'a Memory) -> Option<FilePart<'a>> {
        memory.file().or_else(|| {
            let process = self.process.as_ref().filter(|_| memory.is_of_user())?;
            Some(FilePart { file: process.as_fd(), offset: memory.address() as u64 })
        })
    }
}

impl Function for VfioUserFunction {
    fn config_space(&self) -> Result<Vec<u8>, FunctionError> {
        let mut config = vec![0; self.config_bytes];
        let mut client = self.connection.client();
        let most = client.data_max;
        for (index, part) in config.chunks_mut(most).enumerate() {
            let offset = (index * most) as u64;
            client.read(CONFIG_REGION, offset, part).map_err(|error| self.connection.named(error))?;
        }
        Ok(config)
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        let written = self.connection.client().write(CONFIG_REGION, offset.into(), bytes);
        written.map_err(|error| self.connection.named(error))
    }

    fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    fn check(&self) -> Result<(), FunctionError> {
        self.connection.client().check().map_err(|error| self.connection.named(error))
    }

    fn isolates_memory(&self) -> bool {
        true
    }

    fn time_scale(&self) -> u32 {
        self.time_scale
    }

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        let bar = match index {
            REGISTER_BAR => &self.registers,
            DOORBELL_BAR => &self.doorbells,
            _ => return Err(FunctionError::NoBar { index }),
        };
        if bar.bytes == 0 { Err(FunctionError::NoBar { index }) } else { Ok(bar) }
    }

    fn allocate(&self, bytes: usize, purpose: Purpose) -> Result<Arc<Memory>, FunctionError> {
        match Memory::in_file(bytes, purpose) {
            Ok(memory) => Ok(Arc::new(memory)),
            Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => {
                Err(FunctionError::OutOfMemory { bytes })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn limit_addresses(&self, bits: u32) -> Result<(), FunctionError> {
        lock(&self.mappings).addresses.limit(bits)
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        let bytes = memory.bytes();
        let part = self.part(memory).ok_or(FunctionError::NotShared { bytes })?;
        let mut mappings = lock(&self.mappings);
        let address = mappings.addresses.allocate(bytes, memory.page_size().bytes());
        let address = address.ok_or(FunctionError::OutOfAddresses { bytes })?;
        let argsz = size_of::<DmaMap>() as u32;
        let body = DmaMap { argsz, flags: DMA_READ_WRITE, offset: part.offset, address, bytes: bytes as u64 };
        if let Err(error) = self.connection.client().tell(Command::DmaMap, body.as_bytes(), &[part.file]) {
            mappings.addresses.free(address);
            let is_refused = matches!(error, ServerError::Refused { .. });
            let error = match memory.page_size() {
                PageSize::Base => error,
                _ if is_refused => ServerError::HugePages,
                _ => error,
            };
            return Err(self.connection.named(error));
        }
        mappings.mapped.insert(address, Arc::clone(memory));
        Ok(address)
    }

    fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
        let mut mappings = lock(&self.mappings);
        let memory =
            mappings.mapped.get(&device_address).ok_or(FunctionError::NotMapped { device_address })?;
        let bytes = memory.bytes() as u64;
        let argsz = size_of::<DmaUnmap>() as u32;
        let body = DmaUnmap { argsz, flags: 0, address: device_address, bytes };
        let mut client = self.connection.client();
        let ended = client.tell(Command::DmaUnmap, body.as_bytes(), &[]);
        // A server that is gone, or not spoken to any more, has at most pages of a file that nobody else uses.
        if let Err(error) = ended
            && !client.is_lost()
        {
            return Err(self.connection.named(error));
        }
        drop(client);
        mappings.mapped.remove(&device_address);
        mappings.addresses.free(device_address);
        Ok(())
    }

    fn interrupt_vectors(&self) -> u32 {
        self.vectors.count()
    }

    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError> {
        self.vectors.take(vector)
    }

    fn wait_interrupt(&self, vector: u32, until: Duration) -> Result<bool, FunctionError> {
        loop {
            if self.vectors.take(vector)? {
                return Ok(true);
            }
            let left = until.saturating_sub(self.now());
            if left.is_zero() {
                return Ok(false);
            }
            if self.vectors.sleep(vector, left, Some(self.connection.socket.as_fd()))? == Woken::Closed {
                let error =
                    self.connection.client().fail(ServerError::Closed { what: "a wait for an interrupt" });
                return Err(self.connection.named(error));
            }
        }
    }

    fn interrupt_fd(&self, vector: u32) -> Result<Option<BorrowedFd<'_>>, FunctionError> {
        self.vectors.get(vector).map(Some)
    }

    fn reset(&self) -> Result<(), FunctionError> {
        if !self.is_resettable {
            return Err(FunctionError::Unsupported {
                what: "reset the function: its server does not offer it",
            });
        }
        let reset = self.connection.client().tell(Command::Reset, &[], &[]);
        reset.map_err(|error| self.connection.named(error))
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn idle(&self) {
        std::thread::yield_now();
    }
}

impl fmt::Debug for VfioUserFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioUserFunction").field("socket", &self.connection.name).finish_non_exhaustive()
    }
}
