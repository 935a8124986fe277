//! What a client is answered: the rules of the protocol, over any [`Device`].
//!
//! 1. The first request is the version, and it comes once. What comes before it is refused.
//! 2. Each request has one reply, unless it says that it wants none; then it has none, not even a refusal.
//! 3. What is refused has changed nothing.
//! 4. The device sees ranges inside its regions, and vectors that it has.
//! 5. The device may take longer over a request than a round of the server. The session [waits](Session::is_waiting) then, and is
//!    given no other request until the reply to this one is there.
use super::connection::Message;
use super::message::{
    Header, IrqChange, MSIX_IRQ, Map, REGIONS, Refusal, Request, SetIrqs, Unmap, VERSION, access_body,
    device_body, irq_body, region_body, unmap_body, version_body,
};
use std::os::fd::OwnedFd;

/// A PCI function behind the protocol.
pub trait Device {
    /// Bytes of a region; zero if there is none of this index.
    fn region_bytes(&self, region: u32) -> u64;

    /// Reads in a region.
    ///
    /// # Errors
    /// If the region allows no such access.
    fn read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Refusal>;

    /// Writes in a region. The write may take effect later, but before all accesses after it.
    ///
    /// # Errors
    /// If the region allows no such access.
    fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), Refusal>;

    /// Lets the device access a file. Without a file the client keeps the memory to itself: the device may know the addresses,
    /// and its accesses to them fail.
    ///
    /// # Errors
    /// If the addresses are in use, or the file is not fit for it.
    fn map(&mut self, map: &Map, fd: Option<OwnedFd>) -> Result<(), Refusal>;

    /// Begins to end the accesses to the mappings of a range, of which there may be none.
    ///
    /// # Errors
    /// If a mapping is only partly in the range.
    fn unmap(&mut self, unmap: &Unmap) -> Result<(), Refusal>;

    /// Vectors of MSI-X.
    fn vectors(&self) -> u32;

    /// Sets the eventfds that vectors signal from a first one on; `None` for a vector that signals none.
    ///
    /// # Errors
    /// If a file descriptor is no eventfd.
    fn set_eventfds(&mut self, first: u32, fds: Vec<Option<OwnedFd>>) -> Result<(), Refusal>;

    /// Raises a vector, as if the device did.
    fn raise(&mut self, vector: u32);

    /// Begins to reset the function.
    fn reset(&mut self);

    /// Goes on for a short time with what the last request has begun. Returns its outcome when it is done.
    fn proceed(&mut self) -> Option<Result<(), Refusal>>;
}

/// Dialogue with one client.
#[derive(Debug, Default)]
pub struct Session {
    has_version: bool,
    refused: u64,
    /// The request that the device has begun, and the body of the reply to it.
    waiting: Option<(Header, Vec<u8>)>,
}

impl Session {
    /// Requests that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns whether the device still executes a request.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Executes a request. Returns the reply, unless the client wants none, or the session is waiting after this.
    pub fn answer(&mut self, message: Message, device: &mut dyn Device) -> Option<Vec<u8>> {
        let Message { header, body, fds, has_lost_fds } = message;
        let request = match has_lost_fds {
            true => Err(Refusal::Exhausted),
            false => Request::parse(&header, &body),
        };
        match request.and_then(|request| self.execute(request, fds, device)) {
            Ok(body) => {
                self.waiting = Some((header, body));
                self.resume(device)
            }
            Err(refusal) => self.reply(&header, Err(refusal)),
        }
    }

    /// Goes on with the request that the device executes. Returns the reply, unless the client wants none, or the session is still
    /// waiting after this.
    pub fn resume(&mut self, device: &mut dyn Device) -> Option<Vec<u8>> {
        let outcome = device.proceed()?;
        let (header, body) = self.waiting.take()?;
        self.reply(&header, outcome.map(|()| body))
    }

    fn reply(&mut self, header: &Header, outcome: Result<Vec<u8>, Refusal>) -> Option<Vec<u8>> {
        self.refused += u64::from(outcome.is_err());
        let reply = match outcome {
            Ok(body) => header.reply(&body),
            Err(refusal) => header.refuse(refusal),
        };
        (!header.is_posted()).then_some(reply)
    }

    /// Executes a request. Returns the body of its reply.
    fn execute(
        &mut self,
        request: Request,
        fds: Vec<OwnedFd>,
        device: &mut dyn Device,
    ) -> Result<Vec<u8>, Refusal> {
        if self.has_version == matches!(request, Request::Version { .. }) {
            return Err(Refusal::Invalid);
        }
        match request {
            // The lesser of the minor versions is spoken. What version 0.1 adds to 0.0 is migration, which this server has not.
            Request::Version { major, minor } if major == VERSION.0 => {
                self.has_version = true;
                Ok(version_body(minor.min(VERSION.1)))
            }
            Request::Version { .. } => Err(Refusal::Unsupported),
            Request::DeviceInfo => Ok(device_body()),
            Request::RegionInfo { index } if (index as usize) < REGIONS => {
                Ok(region_body(index, device.region_bytes(index)))
            }
            Request::RegionInfo { .. } => Err(Refusal::Invalid),
            Request::IrqInfo { index } => irqs(index, device).map(|count| irq_body(index, count)),
            Request::SetIrqs(set) => set_irqs(&set, fds, device).map(|()| Vec::new()),
            Request::Read { region, offset, count } => {
                check_range(region, offset, count, device)?;
                let mut data = vec![0; count];
                device.read(region, offset, &mut data)?;
                Ok(access_body(region, offset, count, &data))
            }
            Request::Write { region, offset, data } => {
                check_range(region, offset, data.len(), device)?;
                device.write(region, offset, &data)?;
                Ok(access_body(region, offset, data.len(), &[]))
            }
            Request::Map(map) => {
                // Without a file the device would have to ask the client for each access, which this server does not. Virtual
                // machines map their ROM so, and no device has business there.
                let fd = only(fds)?;
                device.map(&map, fd).map(|()| Vec::new())
            }
            Request::Unmap(unmap) => device.unmap(&unmap).map(|()| unmap_body(&unmap)),
            Request::Reset => {
                device.reset();
                Ok(Vec::new())
            }
        }
    }
}

/// The only file descriptor of a message, if it has one.
fn only(mut fds: Vec<OwnedFd>) -> Result<Option<OwnedFd>, Refusal> {
    if fds.len() > 1 { Err(Refusal::Invalid) } else { Ok(fds.pop()) }
}

fn check_range(region: u32, offset: u64, count: usize, device: &dyn Device) -> Result<(), Refusal> {
    let end = offset.checked_add(count as u64).ok_or(Refusal::Invalid)?;
    if count > 0 && end <= device.region_bytes(region) { Ok(()) } else { Err(Refusal::Invalid) }
}

/// Vectors of an interrupt index.
fn irqs(index: u32, device: &dyn Device) -> Result<u32, Refusal> {
    match index {
        MSIX_IRQ => Ok(device.vectors()),
        index if index < super::message::IRQS => Ok(0),
        _ => Err(Refusal::Invalid),
    }
}

fn set_irqs(set: &SetIrqs, fds: Vec<OwnedFd>, device: &mut dyn Device) -> Result<(), Refusal> {
    let &SetIrqs { index, start, count, ref change } = set;
    let all = irqs(index, device)?;
    let end = start.checked_add(count).filter(|&end| end <= all).ok_or(Refusal::Invalid)?;
    let none = |count: u32| (0..count).map(|_| None).collect();
    match change {
        // No vectors: none of the index signals anything any more.
        _ if count == 0 => device.set_eventfds(0, none(all)),
        IrqChange::Signals if fds.is_empty() => device.set_eventfds(start, none(count)),
        IrqChange::Signals if fds.len() == count as usize => {
            device.set_eventfds(start, fds.into_iter().map(Some).collect())
        }
        IrqChange::Signals => Err(Refusal::Invalid),
        IrqChange::Raise(raised) => {
            let raised = (start..end).zip(raised).filter(|(_, is_raised)| **is_raised);
            raised.for_each(|(vector, _)| device.raise(vector));
            Ok(())
        }
    }
}
