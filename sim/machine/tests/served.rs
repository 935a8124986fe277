//! The protocol against the client of the crate `vfio_user`, and against clients that lie.
use rnic_machine::served::connection::{Connection, ConnectionError};
use rnic_machine::served::message::{CONFIG_REGION, DATA_BYTES_MAX, FDS_MAX, Map, Refusal, Unmap};
use rnic_machine::served::session::{Device, Session};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use vfio_user::Client;

/// Time after which a test gives up, far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);
const BAR_BYTES: u64 = 4096;
const VECTORS: u32 = 40;

/// What the session has asked of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Read(u32, u64, usize),
    Write(u32, u64, Vec<u8>),
    Map(Map),
    Withhold(Map),
    Unmap(Unmap),
    Eventfds(u32, Vec<bool>),
    Raise(u32),
    Reset,
}

/// A device of one BAR and a configuration space, which reads as its offsets, and refuses the word at 64.
#[derive(Default)]
struct Toy {
    calls: Vec<Call>,
    /// Calls until a reset is done.
    rounds: u32,
    files: Vec<OwnedFd>,
}

impl Device for Toy {
    fn region_bytes(&self, region: u32) -> u64 {
        if [0, CONFIG_REGION].contains(&region) { BAR_BYTES } else { 0 }
    }

    fn read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Refusal> {
        self.calls.push(Call::Read(region, offset, data.len()));
        data.iter_mut().zip(offset..).for_each(|(byte, offset)| *byte = offset as u8);
        if offset == 64 { Err(Refusal::Failed) } else { Ok(()) }
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), Refusal> {
        self.calls.push(Call::Write(region, offset, data.to_vec()));
        if offset == 64 { Err(Refusal::Failed) } else { Ok(()) }
    }

    fn map(&mut self, map: &Map, fd: Option<OwnedFd>) -> Result<(), Refusal> {
        self.calls.push(if fd.is_some() { Call::Map(*map) } else { Call::Withhold(*map) });
        self.files.extend(fd);
        Ok(())
    }

    fn unmap(&mut self, unmap: &Unmap) -> Result<(), Refusal> {
        self.calls.push(Call::Unmap(*unmap));
        Ok(())
    }

    fn vectors(&self) -> u32 {
        VECTORS
    }

    fn set_eventfds(&mut self, first: u32, fds: Vec<Option<OwnedFd>>) -> Result<(), Refusal> {
        self.calls.push(Call::Eventfds(first, fds.iter().map(Option::is_some).collect()));
        Ok(())
    }

    fn raise(&mut self, vector: u32) {
        self.calls.push(Call::Raise(vector));
    }

    fn reset(&mut self) {
        self.calls.push(Call::Reset);
        self.rounds = 3;
    }

    fn proceed(&mut self) -> Option<Result<(), Refusal>> {
        self.rounds = self.rounds.saturating_sub(1);
        (self.rounds == 0).then_some(Ok(()))
    }
}

fn wait(fd: BorrowedFd<'_>, events: PollFlags) {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&fd, events)], Some(&patience)), Ok(1), "nothing has come");
}

/// Serves one client until it leaves or is given up. Returns the device, and whether the client has left by itself.
fn serve(stream: UnixStream) -> (Toy, bool) {
    let mut connection = Connection::new(stream).unwrap();
    let (mut session, mut toy) = (Session::default(), Toy::default());
    loop {
        if session.is_waiting() {
            session.resume(&mut toy).map_or(Ok(()), |reply| connection.send(&reply)).unwrap();
            continue;
        }
        let outcome = connection.receive().and_then(|message| match message {
            Some(message) => {
                session.answer(message, &mut toy).map_or(Ok(()), |reply| connection.send(&reply))
            }
            None if connection.is_behind() => {
                wait(connection.as_fd(), PollFlags::OUT);
                connection.flush()
            }
            None => {
                wait(connection.as_fd(), PollFlags::IN);
                Ok(())
            }
        });
        match outcome {
            Ok(()) => {}
            Err(ConnectionError::Closed) => return (toy, true),
            Err(_) => return (toy, false),
        }
    }
}

/// Runs the client of the crate against a device. Returns the calls after those of its beginning.
fn with_client(talk: impl FnOnce(&mut Client)) -> Vec<Call> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0));
    let mut client = Client::new(&path).unwrap();
    talk(&mut client);
    drop(client);
    server.join().unwrap().0.calls
}

#[test]
fn the_client_of_the_crate_finds_the_function() {
    with_client(|client| {
        let sizes: Vec<u64> = (0..9).map(|index| client.region(index).unwrap().size).collect();
        assert_eq!(sizes, [BAR_BYTES, 0, 0, 0, 0, 0, 0, BAR_BYTES, 0]);
        assert!(client.region(9).is_none() && client.region(0).unwrap().sparse_areas.is_empty());
        // The crate inverts the flag.
        assert!(!client.resettable());
        for (index, count, flags) in [(0, 0, 0), (1, 0, 0), (2, VECTORS, 9), (3, 0, 0), (4, 0, 0)] {
            let info = client.get_irq_info(index).unwrap();
            assert_eq!((info.index, info.count, info.flags), (index, count, flags));
        }
    });
}

#[test]
fn the_client_of_the_crate_reaches_each_part_of_the_function() {
    let eventfds: Vec<OwnedFd> = (0..16).map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap()).collect();
    let raw: Vec<_> = eventfds.iter().map(AsRawFd::as_raw_fd).collect();
    let memory = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
    let calls = with_client(|client| {
        let mut data = [0; 8];
        client.region_read(0, 8, &mut data).unwrap();
        assert_eq!(data, [8, 9, 10, 11, 12, 13, 14, 15]);
        client.region_write(CONFIG_REGION, 4, &[6, 0]).unwrap();
        client.dma_map(4096, 1 << 32, 8192, memory.as_raw_fd()).unwrap();
        client.dma_unmap(1 << 32, 8192).unwrap();
        // All vectors, 16 at once, as more break its connection with its own server; then none of them.
        client.set_irqs(2, 0x24, 16, 16, &raw).unwrap();
        client.set_irqs(2, 0x24, 3, 2, &[]).unwrap();
        client.set_irqs(2, 0x21, 38, 2, &[]).unwrap();
        client.set_irqs(2, 0x21, 0, 0, &[]).unwrap();
        client.reset().unwrap();
    });
    let map = Map { readable: true, writable: true, offset: 4096, address: 1 << 32, bytes: 8192 };
    let expected = [
        Call::Read(0, 8, 8),
        Call::Write(CONFIG_REGION, 4, vec![6, 0]),
        Call::Map(map),
        Call::Unmap(Unmap { is_all: false, address: 1 << 32, bytes: 8192 }),
        Call::Eventfds(16, vec![true; 16]),
        Call::Eventfds(3, vec![false; 2]),
        Call::Raise(38),
        Call::Raise(39),
        Call::Eventfds(0, vec![false; VECTORS as usize]),
        Call::Reset,
    ];
    assert_eq!(calls, expected);
}

/// A client that sends any bytes.
struct Raw {
    stream: UnixStream,
    server: Receiver<(Toy, bool)>,
}

/// What becomes of a request: the body of the reply, an error number, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Reply(Vec<u8>),
    Refused(Errno),
    Closed,
}

impl Raw {
    fn new() -> Raw {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        ours.set_write_timeout(Some(PATIENCE)).unwrap();
        let (sender, server) = channel();
        thread::spawn(move || sender.send(serve(theirs)));
        Raw { stream: ours, server }
    }

    /// A client whose version is agreed on.
    fn greeted() -> Raw {
        let mut raw = Raw::new();
        assert!(matches!(raw.ask(1, &greeting(0, 1), &[]), Told::Reply(_)));
        raw
    }

    fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2 * FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(bytes.len()));
    }

    fn ask(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> Told {
        self.send(&request(0x1234, command, 16 + body.len(), 0, body), fds);
        self.hear(0x1234, command)
    }

    fn hear(&mut self, id: u16, command: u16) -> Told {
        let mut header = [0; 16];
        if self.stream.read_exact(&mut header).is_err() {
            return Told::Closed;
        }
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(word(0), u32::from(id) | u32::from(command) << 16, "id and command");
        let mut body = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut body).unwrap();
        match (word(8), word(12)) {
            (1, 0) => Told::Reply(body),
            (0x21, error) if body.is_empty() => Told::Refused(Errno::from_raw_os_error(error as i32)),
            other => panic!("flags and error {other:?}"),
        }
    }

    /// Ends the client. Returns what the device was asked, and whether the server has given the client up before.
    fn end(self) -> (Vec<Call>, bool) {
        drop(self.stream);
        let (toy, has_left) = self.server.recv_timeout(PATIENCE).unwrap();
        (toy.calls, !has_left)
    }
}

fn request(id: u16, command: u16, bytes: usize, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(id.to_ne_bytes());
    message.extend(command.to_ne_bytes());
    message.extend((bytes as u32).to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 4]);
    message.extend_from_slice(body);
    message
}

fn greeting(major: u16, minor: u16) -> Vec<u8> {
    [&major.to_ne_bytes()[..], &minor.to_ne_bytes(), b"{}\0"].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Body of a read or write.
fn access(offset: u64, region: u32, count: u32, data: &[u8]) -> Vec<u8> {
    [&offset.to_ne_bytes()[..], &words(&[region, count]), data].concat()
}

/// Body of a mapping.
fn mapping(flags: u32) -> Vec<u8> {
    let numbers: Vec<u8> = [0_u64, 4096, 4096].iter().flat_map(|number| number.to_ne_bytes()).collect();
    [words(&[32, flags]), numbers].concat()
}

/// Each lie of a client that has agreed on the version, and the error that names it.
#[test]
fn a_lie_is_refused_changes_nothing_and_ends_nothing() {
    let (refused, unsupported) = (Errno::INVAL, Errno::NOTSUP);
    let irqs = |numbers: [u32; 5], data: &[u8]| [words(&numbers), data.to_vec()].concat();
    for (what, command, body, error) in [
        ("a second version", 1, greeting(0, 1), refused),
        ("no command", 0, vec![], unsupported),
        ("a command of the server", 11, access(0, 0, 4, &[]), unsupported),
        ("an unknown command", 99, vec![1, 2, 3], unsupported),
        ("no such region", 5, words(&[32, 0, 9, 0, 0, 0, 0, 0]), refused),
        ("half a question", 5, words(&[32, 0]), refused),
        ("no such interrupts", 7, words(&[16, 0, 5, 0]), refused),
        ("a read of no region", 9, access(0, 1, 4, &[]), refused),
        ("a read of an unknown region", 9, access(0, u32::MAX, 4, &[]), refused),
        ("a read behind the region", 9, access(BAR_BYTES - 3, 0, 4, &[]), refused),
        ("a read round the end", 9, access(u64::MAX, 0, 4, &[]), refused),
        ("a read of nothing", 9, access(0, 0, 0, &[]), refused),
        ("a read that is too long", 9, access(0, 0, DATA_BYTES_MAX as u32 + 1, &[]), refused),
        ("a read without a count", 9, words(&[0, 0, 0]), refused),
        ("a write behind the region", 10, access(BAR_BYTES, 0, 1, &[1]), refused),
        ("a write of less than it says", 10, access(0, 0, 4, &[1, 2, 3]), refused),
        ("a write of more than it says", 10, access(0, 0, 4, &[1, 2, 3, 4, 5]), refused),
        ("a mapping with unknown flags", 2, mapping(7), unsupported),
        ("half a mapping", 2, words(&[32, 3, 0, 0]), refused),
        ("an end with the dirty pages", 3, words(&[24, 2, 0, 0, 0, 0]), unsupported),
        ("half an end of a mapping", 3, words(&[24, 0]), refused),
        ("vectors of no interrupt", 8, irqs([20, 0x21, 5, 0, 1], &[]), refused),
        ("vectors that are not there", 8, irqs([20, 0x21, 2, 39, 2], &[]), refused),
        ("vectors round the end", 8, irqs([20, 0x21, 2, u32::MAX, 1], &[]), refused),
        ("vectors without number", 8, irqs([20, 0x21, 2, 0, u32::MAX], &[]), refused),
        ("fewer flags than vectors", 8, irqs([20, 0x22, 2, 0, 3], &[1, 1]), refused),
        ("vectors to mask", 8, irqs([20, 0x09, 2, 0, 1], &[]), unsupported),
    ] {
        let mut raw = Raw::greeted();
        assert_eq!(raw.ask(command, &body, &[]), Told::Refused(error), "{what}");
        assert!(matches!(raw.ask(4, &words(&[16, 0, 0, 0]), &[]), Told::Reply(_)), "after {what}");
        assert_eq!(raw.end(), (vec![], false), "{what}");
    }
}

#[test]
fn file_descriptors_that_do_not_fit_are_refused() {
    let eventfd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let many = vec![eventfd.as_fd(); 2 * FDS_MAX];
    let irqs = |count: u32| words(&[20, 0x24, 2, 0, count]);
    for (command, body, fds, error) in [
        (8, irqs(2), 1, Errno::INVAL),
        (8, irqs(2), 3, Errno::INVAL),
        (2, mapping(3), 2, Errno::INVAL),
        (8, irqs(40), FDS_MAX + 1, Errno::NOSPC),
    ] {
        let mut raw = Raw::greeted();
        assert_eq!(raw.ask(command, &body, &many[..fds]), Told::Refused(error), "{command}, {fds}");
        assert_eq!(raw.ask(8, &irqs(40), &many[..40]), Told::Reply(vec![]));
        assert_eq!(raw.end(), (vec![Call::Eventfds(0, vec![true; 40])], false));
    }
}

/// A virtual machine maps its ROM, which is in no file. No device has business there.
#[test]
fn memory_without_a_file_is_known_and_not_reached() {
    let mut raw = Raw::greeted();
    assert_eq!(raw.ask(2, &mapping(3), &[]), Told::Reply(vec![]));
    let map = Map { readable: true, writable: true, offset: 0, address: 4096, bytes: 4096 };
    assert_eq!(raw.end(), (vec![Call::Withhold(map)], false));
}

#[test]
fn the_version_comes_first_and_must_be_known() {
    for (major, minor, spoken) in
        [(0, 0, Some(0)), (0, 1, Some(1)), (0, 2, Some(1)), (1, 0, None), (1, 1, None)]
    {
        let mut raw = Raw::new();
        assert_eq!(raw.ask(4, &words(&[16, 0, 0, 0]), &[]), Told::Refused(Errno::INVAL), "not greeted yet");
        match raw.ask(1, &greeting(major, minor), &[]) {
            Told::Reply(body) => {
                let minor = spoken.expect("a known version");
                assert!(body[..4] == [0, 0, minor, 0] && body.last() == Some(&0));
                let text = std::str::from_utf8(&body[4..body.len() - 1]).unwrap();
                assert_eq!(text, r#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":4096}}"#);
            }
            told => assert_eq!((spoken, told), (None, Told::Refused(Errno::NOTSUP)), "{major}.{minor}"),
        }
    }
}

/// After a length that no message has the next message cannot be found.
#[test]
fn a_header_that_is_none_ends_the_connection() {
    for bytes in [0, 15, 16 + 16 + DATA_BYTES_MAX + 1, u32::MAX as usize] {
        let mut raw = Raw::greeted();
        raw.send(&request(1, 9, bytes, 0, &[]), &[]);
        assert_eq!(raw.hear(1, 9), Told::Closed, "{bytes}");
        assert_eq!(raw.end(), (vec![], true), "{bytes}");
    }
}

#[test]
fn a_reply_is_no_request() {
    let mut raw = Raw::greeted();
    raw.send(&request(5, 13, 16, 1, &[]), &[]);
    assert_eq!(raw.hear(5, 13), Told::Refused(Errno::INVAL));
    assert_eq!(raw.end(), (vec![], false));
}

#[test]
fn a_posted_write_has_no_answer_whatever_becomes_of_it() {
    let mut raw = Raw::greeted();
    for (offset, data) in [(0_u64, &[1_u8, 2][..]), (BAR_BYTES, &[3]), (64, &[4]), (8, &[5])] {
        let body = access(offset, 0, data.len() as u32, data);
        raw.send(&request(7, 10, 16 + body.len(), 0x10, &body), &[]);
    }
    assert_eq!(raw.ask(9, &access(64, 0, 1, &[]), &[]), Told::Refused(Errno::IO), "of the read");
    let write = |offset, data: &[u8]| Call::Write(0, offset, data.to_vec());
    let expected = vec![write(0, &[1, 2]), write(64, &[4]), write(8, &[5]), Call::Read(0, 64, 1)];
    assert_eq!(raw.end(), (expected, false));
}

#[test]
fn a_message_may_come_in_any_pieces() {
    let mut raw = Raw::greeted();
    let message = request(9, 9, 32, 0, &access(4, 0, 4, &[]));
    for byte in &message {
        raw.send(std::slice::from_ref(byte), &[]);
    }
    let two = [message.clone(), message].concat();
    raw.send(&two, &[]);
    for _ in 0..3 {
        assert_eq!(raw.hear(9, 9), Told::Reply(access(4, 0, 4, &[4, 5, 6, 7])));
    }
    assert_eq!(raw.end().0.len(), 3);
}

/// A client that takes no replies is asked to wait, loses none, and needs no more room than that of one reply.
#[test]
fn a_client_that_takes_no_replies_stops_itself() {
    let raw = Raw::greeted();
    let message = request(2, 9, 32, 0, &access(0, 0, DATA_BYTES_MAX as u32, &[]));
    let mut writer = Raw { stream: raw.stream.try_clone().unwrap(), server: channel().1 };
    // Far more than the socket holds.
    let count = 1000;
    let asker = thread::spawn(move || (0..count).for_each(|_| raw.send(&message, &[])));
    for _ in 0..count {
        assert!(matches!(writer.hear(2, 9), Told::Reply(body) if body.len() == 16 + DATA_BYTES_MAX));
    }
    asker.join().unwrap();
}

#[test]
fn half_a_message_and_the_end_is_the_end() {
    let raw = Raw::greeted();
    raw.send(&request(2, 13, 16, 0, &[])[..9], &[]);
    assert_eq!(raw.end(), (vec![], false));
}
