//! Messages of vfio-user: what a client may ask, and what it is answered.
//!
//! ```text
//!   0        2         4            8         12        16
//!   ├────────┼─────────┼────────────┼─────────┼─────────┼── body
//!   │ id     │ command │ bytes      │ flags   │ error   │
//! ```
//!
//! Numbers have the byte order of the machine, as both sides are on one; fields of the body are those of the structures of
//! `linux/vfio.h`. `bytes` counts the whole message. A reply has the id and the command of its request. A refusal has an error number
//! of the operating system, and no body; only that of a card that another client has tells this in a text.
//!
//! Every length that a client states is checked here, before anything is done: a body that is shorter than its command needs is
//! [`Refusal::Invalid`], what follows after it is ignored, so that a client may know more fields than this server.
use rustix::io::Errno;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;
/// Maximum of bytes that one message reads or writes in a region.
pub const DATA_BYTES_MAX: usize = 4096;
/// Maximum of bytes of a body: those of an access, or a version with its text.
pub const BODY_BYTES_MAX: usize = 16 + DATA_BYTES_MAX;
/// Maximum of file descriptors of a message: one for each interrupt vector.
pub const FDS_MAX: usize = 64;
/// Most file descriptors beside one message, as clients are told: some believe no larger number.
const FDS_TOLD: usize = 16;
/// Version of the protocol.
pub const VERSION: (u16, u16) = (0, 1);

const TYPE: u32 = 0xf;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// Flag of the device: it can be reset.
const DEVICE_RESET: u32 = 1 << 0;
/// Flag of the device: it is a PCI function.
const DEVICE_PCI: u32 = 1 << 1;
/// Flags of a region: it can be read and written.
const REGION_READ_WRITE: u32 = 0b11;
/// Flags of an interrupt index: it signals eventfds, and its vectors are set up all at once.
const IRQ_EVENTFD: u32 = 1 << 0;
const IRQ_NO_RESIZE: u32 = 1 << 3;

/// Regions of a PCI function: six BARs, the ROM, the configuration space, VGA.
pub const REGIONS: usize = 9;
/// Region of the configuration space.
pub const CONFIG_REGION: u32 = 7;
/// Interrupt indices of a PCI function: INTx, MSI, MSI-X, errors, requests to release it.
pub const IRQS: u32 = 5;
/// Interrupt index of MSI-X.
pub const MSIX_IRQ: u32 = 2;

/// Commands of a client that are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Version = 1,
    Map = 2,
    Unmap = 3,
    DeviceInfo = 4,
    RegionInfo = 5,
    IrqInfo = 7,
    SetIrqs = 8,
    Read = 9,
    Write = 10,
    Reset = 13,
}

impl Command {
    const ALL: [Command; 10] = [
        Command::Version,
        Command::Map,
        Command::Unmap,
        Command::DeviceInfo,
        Command::RegionInfo,
        Command::IrqInfo,
        Command::SetIrqs,
        Command::Read,
        Command::Write,
        Command::Reset,
    ];
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request contradicts itself, or what the function is.
    Invalid,
    /// The request is legal, and this server does not implement it.
    Unsupported,
    /// Another client has the function.
    Busy,
    /// The device addresses are in use.
    Exists,
    /// The file descriptor does not allow what is asked of it.
    Denied,
    /// The client has too much of something already.
    Exhausted,
    /// The card does not answer.
    Failed,
}

impl Refusal {
    /// Error number of the operating system that says the same.
    pub fn number(self) -> u32 {
        let number = match self {
            Refusal::Invalid => Errno::INVAL,
            Refusal::Unsupported => Errno::NOTSUP,
            Refusal::Busy => Errno::BUSY,
            Refusal::Exists => Errno::EXIST,
            Refusal::Denied => Errno::ACCESS,
            Refusal::Exhausted => Errno::NOSPC,
            Refusal::Failed => Errno::IO,
        };
        number.raw_os_error().unsigned_abs()
    }
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    id: u16,
    command: u16,
    bytes: u32,
    flags: u32,
}

impl Header {
    /// Decodes a header.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Header {
        let mut fields = Fields(bytes);
        let mut parse = || {
            Some(Header {
                id: fields.u16()?,
                command: fields.u16()?,
                bytes: fields.u32()?,
                flags: fields.u32()?,
            })
        };
        parse().expect("a header has all of its fields")
    }

    /// Bytes of the body; `None` if no request is so long or so short, so that the next message cannot be found.
    pub fn body_bytes(&self) -> Option<usize> {
        (self.bytes as usize).checked_sub(HEADER_BYTES).filter(|&bytes| bytes <= BODY_BYTES_MAX)
    }

    /// Returns whether the client wants no reply, not even that of a refusal.
    pub fn is_posted(&self) -> bool {
        self.flags & NO_REPLY != 0
    }

    /// Bytes of the reply to this request.
    pub fn reply(&self, body: &[u8]) -> Vec<u8> {
        self.message(TYPE_REPLY, 0, body)
    }

    /// Bytes of the refusal of this request.
    pub fn refuse(&self, refusal: Refusal) -> Vec<u8> {
        self.message(TYPE_REPLY | ERROR, refusal.number(), &[])
    }

    /// Bytes of the refusal of this request because another client has the function, with a text that says more.
    pub fn refuse_busy(&self, text: &str) -> Vec<u8> {
        self.message(TYPE_REPLY | ERROR, Refusal::Busy.number(), text.as_bytes())
    }

    fn message(&self, flags: u32, error: u32, body: &[u8]) -> Vec<u8> {
        let mut message = Builder::default();
        message.u16(self.id).u16(self.command).u32((HEADER_BYTES + body.len()) as u32).u32(flags).u32(error);
        message.0.extend_from_slice(body);
        message.0
    }
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The client's version; must be the first request.
    Version {
        /// Version that may break clients.
        major: u16,
        /// Version that does not.
        minor: u16,
    },
    /// Lets the card access a file, which comes with the message.
    Map(Map),
    /// Ends the accesses to one mapping, or to all.
    Unmap(Unmap),
    /// What kind of device this is.
    DeviceInfo,
    /// Size of a region.
    RegionInfo {
        /// Index of the region.
        index: u32,
    },
    /// Vectors of an interrupt index.
    IrqInfo {
        /// Interrupt index.
        index: u32,
    },
    /// Sets up the vectors of an interrupt index, or raises them.
    SetIrqs(SetIrqs),
    /// Reads in a region.
    Read {
        /// Index of the region.
        region: u32,
        /// Offset in the region, in bytes.
        offset: u64,
        /// Bytes to read.
        count: usize,
    },
    /// Writes in a region.
    Write {
        /// Index of the region.
        region: u32,
        /// Offset in the region, in bytes.
        offset: u64,
        /// Bytes to write.
        data: Vec<u8>,
    },
    /// Resets the function.
    Reset,
}

/// A part of a file at device addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// The card may read.
    pub readable: bool,
    /// The card may write.
    pub writable: bool,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// First device address.
    pub address: u64,
    /// Length, in bytes.
    pub bytes: u64,
}

/// A mapping that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmap {
    /// All mappings end.
    pub is_all: bool,
    /// First device address.
    pub address: u64,
    /// Length, in bytes.
    pub bytes: u64,
}

/// What happens to interrupt vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetIrqs {
    /// Interrupt index.
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// Number of vectors.
    pub count: u32,
    /// What happens to them.
    pub change: IrqChange,
}

/// What happens to each of several interrupt vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IrqChange {
    /// It signals the eventfd that comes with the message; without any, it signals none from now on.
    Signals,
    /// It is raised if its flag is set, as if by the card.
    Raise(Vec<bool>),
}

impl Request {
    /// Decodes a request.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] for a command or a flag that this server does not know, [`Refusal::Invalid`] for a body that
    /// breaks its format.
    pub fn parse(header: &Header, body: &[u8]) -> Result<Request, Refusal> {
        if header.flags & TYPE != 0 {
            return Err(Refusal::Invalid);
        }
        let command = Command::ALL.into_iter().find(|&command| command as u16 == header.command);
        let mut fields = Fields(body);
        match command.ok_or(Refusal::Unsupported)? {
            Command::Version => fields.version(),
            Command::Map => fields.map(),
            Command::Unmap => fields.unmap(),
            Command::DeviceInfo => Some(Ok(Request::DeviceInfo)),
            Command::RegionInfo => fields.info_index().map(|index| Ok(Request::RegionInfo { index })),
            Command::IrqInfo => fields.info_index().map(|index| Ok(Request::IrqInfo { index })),
            Command::SetIrqs => fields.set_irqs(),
            Command::Read => fields.read(),
            Command::Write => fields.write(),
            Command::Reset => Some(Ok(Request::Reset)),
        }
        .unwrap_or(Err(Refusal::Invalid))
    }
}

/// Fields of a message that are not decoded yet. Each call takes one, and returns `None` if the message ends before.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// The text of the client's capabilities follows. This server uses none of them, as it sends no request.
    fn version(&mut self) -> Option<Result<Request, Refusal>> {
        Some(Ok(Request::Version { major: self.u16()?, minor: self.u16()? }))
    }

    fn map(&mut self) -> Option<Result<Request, Refusal>> {
        let (_argsz, flags) = (self.u32()?, self.u32()?);
        let map = Map {
            readable: flags & 1 != 0,
            writable: flags & 2 != 0,
            offset: self.u64()?,
            address: self.u64()?,
            bytes: self.u64()?,
        };
        Some(if flags & !0b11 != 0 { Err(Refusal::Unsupported) } else { Ok(Request::Map(map)) })
    }

    fn unmap(&mut self) -> Option<Result<Request, Refusal>> {
        let (_argsz, flags) = (self.u32()?, self.u32()?);
        // Bit 1 asks for the pages that the card has written, which is for migration.
        let is_all = flags & 1 << 2 != 0;
        let unmap = Unmap { is_all, address: self.u64()?, bytes: self.u64()? };
        Some(if flags & !(1 << 2) != 0 { Err(Refusal::Unsupported) } else { Ok(Request::Unmap(unmap)) })
    }

    /// Index of a region or of an interrupt, which the structures of both have at one place.
    fn info_index(&mut self) -> Option<u32> {
        let (_argsz, _flags) = (self.u32()?, self.u32()?);
        self.u32()
    }

    fn set_irqs(&mut self) -> Option<Result<Request, Refusal>> {
        let (_argsz, flags) = (self.u32()?, self.u32()?);
        let (index, start, count) = (self.u32()?, self.u32()?, self.u32()?);
        let count_bytes = count as usize;
        let change = match flags {
            // Data of a flag: none, a byte for each vector, an eventfd for each. Action: raise.
            0x21 => (count_bytes <= FDS_MAX).then(|| IrqChange::Raise(vec![true; count_bytes])),
            0x22 => self
                .0
                .get(..count_bytes)
                .map(|set| IrqChange::Raise(set.iter().map(|&set| set != 0).collect())),
            0x24 => Some(IrqChange::Signals),
            // Masking is done in the table of MSI-X.
            _ => return Some(Err(Refusal::Unsupported)),
        };
        Some(Ok(Request::SetIrqs(SetIrqs { index, start, count, change: change? })))
    }

    fn read(&mut self) -> Option<Result<Request, Refusal>> {
        let (offset, region, count) = (self.u64()?, self.u32()?, self.u32()? as usize);
        let is_short = count <= DATA_BYTES_MAX;
        is_short.then_some(Ok(Request::Read { region, offset, count }))
    }

    fn write(&mut self) -> Option<Result<Request, Refusal>> {
        let (offset, region, count) = (self.u64()?, self.u32()?, self.u32()? as usize);
        let data = Some(self.0).filter(|data| data.len() == count)?.to_vec();
        Some(Ok(Request::Write { region, offset, data }))
    }
}

/// Bytes of a message that is written.
#[derive(Default)]
struct Builder(Vec<u8>);

impl Builder {
    fn u16(&mut self, value: u16) -> &mut Builder {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Builder {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Builder {
        self.0.extend(value.to_ne_bytes());
        self
    }
}

/// Body of the reply to a version: the minor version that is spoken, and the limits of the server.
pub fn version_body(minor: u16) -> Vec<u8> {
    let limits =
        format!(r#"{{"capabilities":{{"max_msg_fds":{FDS_TOLD},"max_data_xfer_size":{DATA_BYTES_MAX}}}}}"#);
    let mut body = Builder::default();
    body.u16(VERSION.0).u16(minor);
    body.0.extend(limits.bytes());
    body.0.push(0);
    body.0
}

/// Body of the reply to a question about the device.
pub fn device_body() -> Vec<u8> {
    let mut body = Builder::default();
    body.u32(16).u32(DEVICE_RESET | DEVICE_PCI).u32(REGIONS as u32).u32(IRQS);
    body.0
}

/// Body of the reply to a question about a region of this many bytes; none if there is no such region.
pub fn region_body(index: u32, bytes: u64) -> Vec<u8> {
    let mut body = Builder::default();
    let flags = if bytes == 0 { 0 } else { REGION_READ_WRITE };
    // No capabilities, and no offset in a file: nothing of a region can be mapped.
    body.u32(32).u32(flags).u32(index).u32(0).u64(bytes).u64(0);
    body.0
}

/// Body of the reply to a question about an interrupt index.
pub fn irq_body(index: u32, count: u32) -> Vec<u8> {
    let mut body = Builder::default();
    let flags = if count == 0 { 0 } else { IRQ_EVENTFD | IRQ_NO_RESIZE };
    body.u32(16).u32(flags).u32(index).u32(count);
    body.0
}

/// Body of the reply to a request that ends mappings: its own fields.
pub fn unmap_body(unmap: &Unmap) -> Vec<u8> {
    let mut body = Builder::default();
    body.u32(24).u32(u32::from(unmap.is_all) << 2).u64(unmap.address).u64(unmap.bytes);
    body.0
}

/// Body of the reply to a read or write in a region.
pub fn access_body(region: u32, offset: u64, count: usize, data: &[u8]) -> Vec<u8> {
    let mut body = Builder::default();
    body.u64(offset).u32(region).u32(count as u32);
    body.0.extend_from_slice(data);
    body.0
}
