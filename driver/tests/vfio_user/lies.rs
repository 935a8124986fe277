//! A server that answers as it should up to one message, about which it lies.

use crate::{impatient, options};
use rnic_driver::function::{DOORBELL_BAR, REGISTER_BAR};
use rnic_driver::vfio_user::{ConnectOptions, VfioUserFunction};
use rnic_driver::{Function, FunctionError, Purpose, ServerError};
use rnic_layout::pci::{CONFIG_BYTES, DOORBELL_BAR_BYTES, REGISTER_BAR_BYTES};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const VERSION: u16 = 1;
const MAP: u16 = 2;
const UNMAP: u16 = 3;
const DEVICE: u16 = 4;
const REGION: u16 = 5;
const IRQ: u16 = 7;
const SET_IRQS: u16 = 8;
const READ: u16 = 9;
const WRITE: u16 = 10;
pub(crate) const RESET: u16 = 13;

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is sent.
    Send,
    /// It is not sent, and the next request is read.
    Swallow,
    /// It is sent in part: so many bytes, and nothing after that.
    Part(usize),
    /// The connection is closed.
    Close,
}

fn set<const N: usize>(answer: &mut [u8], offset: usize, value: [u8; N]) {
    answer[offset..offset + N].copy_from_slice(&value);
}

fn get(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

/// The right answer to a request.
fn honest(request: &[u8]) -> Vec<u8> {
    let command = u16::from_ne_bytes([request[2], request[3]]);
    let body = &request[16..];
    let body = match command {
        VERSION => {
            let text = b"{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":1024}}\0";
            [&[0, 0, 1, 0], &text[..]].concat()
        }
        DEVICE => [16u32, 3, 9, 5].map(u32::to_ne_bytes).concat(),
        REGION => {
            let sizes = [REGISTER_BAR_BYTES, 0, DOORBELL_BAR_BYTES, 0, 0, 0, 0, CONFIG_BYTES as u64, 0];
            let index = get(body, 8);
            let head = [32, 3, index, 0].map(u32::to_ne_bytes).concat();
            [&head[..], &sizes[index as usize].to_ne_bytes(), &[0; 8]].concat()
        }
        IRQ => [16u32, 1, get(body, 8), 4].map(u32::to_ne_bytes).concat(),
        READ => [&body[..16], &vec![0x11; get(body, 12) as usize]].concat(),
        WRITE => body[..16].to_vec(),
        UNMAP => body.to_vec(),
        _ => Vec::new(),
    };
    let mut answer = request[..16].to_vec();
    set(&mut answer, 4, (16 + body.len() as u32).to_ne_bytes());
    set(&mut answer, 8, 1u32.to_ne_bytes());
    answer.extend(body);
    answer
}

/// Serves one connection until it ends, or `goes_on` returns false for a command. `bend` changes answers, by the command.
pub(crate) fn serve(
    mut socket: UnixStream,
    bend: &mut dyn FnMut(u16, &mut Vec<u8>) -> Act,
    goes_on: &mut dyn FnMut(u16) -> bool,
) {
    loop {
        let mut request = vec![0; 16];
        if socket.read_exact(&mut request).is_err() {
            return;
        }
        request.resize(get(&request, 4) as usize, 0);
        if socket.read_exact(&mut request[16..]).is_err() {
            return;
        }
        let command = u16::from_ne_bytes([request[2], request[3]]);
        if get(&request, 8) & 0xf == 1 {
            // The answer to a request of this server.
            continue;
        }
        if !goes_on(command) {
            return;
        }
        if get(&request, 8) & 1 << 4 != 0 {
            continue;
        }
        let mut answer = honest(&request);
        // An answer that the client does not take any more is no matter.
        match bend(command, &mut answer) {
            Act::Send => drop(socket.write_all(&answer)),
            Act::Swallow => {}
            Act::Part(bytes) => drop(socket.write_all(&answer[..bytes])),
            Act::Close => return,
        }
    }
}

/// Everything that a driver does with a function, up to the first failure.
fn use_it(socket: UnixStream, options: ConnectOptions) -> Result<VfioUserFunction, FunctionError> {
    let function = VfioUserFunction::over(socket, "pair".to_string(), options)?;
    function.config_space()?;
    function.write_config(4, &[6, 0])?;
    let registers = function.bar(REGISTER_BAR)?;
    registers.read64(0);
    function.check()?;
    (0..4).for_each(|value| registers.write64(8, value));
    function.bar(DOORBELL_BAR)?.read32(0);
    function.check()?;
    let memory = function.allocate(1, Purpose::Ring)?;
    let address = function.map(&memory)?;
    function.unmap(address)?;
    function.reset()?;
    Ok(function)
}

/// Runs a client against a server with one lie, and returns what the client says, and how long it took.
fn told(
    options: ConnectOptions,
    lie: &mut (dyn FnMut(u16, &mut Vec<u8>) -> Act + Send),
) -> (Result<(), FunctionError>, Duration) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(theirs, lie, &mut |_| true));
        let began = Instant::now();
        let told = use_it(ours, ConnectOptions { posted_max: 2, ..options });
        (told.map(drop), began.elapsed())
    })
}

#[test]
fn a_server_that_does_not_lie_is_believed() {
    told(options(), &mut |_, _| Act::Send).0.unwrap();
}

/// A lie: the command whose answer it is about, how the answer is changed, and what the client says then.
type Lie = (u16, fn(&mut Vec<u8>) -> Act, &'static str);

const LIES: &[Lie] = &[
    // Versions.
    (
        VERSION,
        |a| {
            set(a, 16, 1u16.to_ne_bytes());
            Act::Send
        },
        "speaks version 1.1 of vfio-user",
    ),
    (
        VERSION,
        |a| {
            set(a, 18, 2u16.to_ne_bytes());
            Act::Send
        },
        "speaks version 0.2 of vfio-user",
    ),
    (
        VERSION,
        |a| {
            a[20] = b'x';
            Act::Send
        },
        "the length of a text that is no JSON",
    ),
    (
        VERSION,
        |a| {
            text(a, "{\"capabilities\":{\"max_msg_fds\":0}}");
            Act::Send
        },
        "max_msg_fds is 0x0",
    ),
    (
        VERSION,
        |a| {
            text(a, "{\"capabilities\":{\"max_data_xfer_size\":7}}");
            Act::Send
        },
        "max_data_xfer_size is 0x7",
    ),
    (
        VERSION,
        |a| {
            a.resize(16 + 4 + 5000, b' ');
            resized(a)
        },
        "the length of the answer",
    ),
    // Headers.
    (
        DEVICE,
        |a| {
            set(a, 4, 15u32.to_ne_bytes());
            Act::Send
        },
        "the length of a message is 0xf",
    ),
    (
        DEVICE,
        |a| {
            set(a, 4, u32::MAX.to_ne_bytes());
            Act::Send
        },
        "the length of a message is 0xffffffff",
    ),
    (
        DEVICE,
        |a| {
            set(a, 0, 99u16.to_ne_bytes());
            Act::Send
        },
        "the number of an answer is 0x63",
    ),
    (
        DEVICE,
        |a| {
            set(a, 2, REGION.to_ne_bytes());
            Act::Send
        },
        "the command of an answer is 0x5",
    ),
    (
        DEVICE,
        |a| {
            set(a, 8, 2u32.to_ne_bytes());
            Act::Send
        },
        "the kind of a message is 0x2",
    ),
    (
        DEVICE,
        |a| {
            a.truncate(24);
            resized(a)
        },
        "the length of the answer is 0x8",
    ),
    (
        DEVICE,
        |a| {
            a.push(0);
            resized(a)
        },
        "the length of the answer is 0x11",
    ),
    // Devices, regions, interrupts.
    (
        DEVICE,
        |a| {
            set(a, 20, 1u32.to_ne_bytes());
            Act::Send
        },
        "the flags is 0x1, and should be those of a PCI function",
    ),
    (
        DEVICE,
        |a| {
            set(a, 24, 7u32.to_ne_bytes());
            Act::Send
        },
        "the number of regions is 0x7",
    ),
    (
        DEVICE,
        |a| {
            set(a, 24, u32::MAX.to_ne_bytes());
            Act::Send
        },
        "the number of regions is 0xffffffff",
    ),
    (
        DEVICE,
        |a| {
            set(a, 28, 2u32.to_ne_bytes());
            Act::Send
        },
        "the number of interrupt indices is 0x2",
    ),
    (
        REGION,
        |a| {
            set(a, 24, 5u32.to_ne_bytes());
            Act::Send
        },
        "the index is 0x5",
    ),
    (
        REGION,
        |a| {
            set(a, 32, 3u64.to_ne_bytes());
            Act::Send
        },
        "the size of a BAR is 0x3, and should be a power of two",
    ),
    (
        REGION,
        |a| {
            set(a, 32, (1u64 << 63).to_ne_bytes());
            Act::Send
        },
        "the size of a region is 0x8000000000000000",
    ),
    (
        REGION,
        |a| {
            set(a, 20, 1u32.to_ne_bytes());
            Act::Send
        },
        "the flags of a region is 0x1",
    ),
    (
        REGION,
        |a| {
            set(a, 16, u32::MAX.to_ne_bytes());
            set(a, 20, 11u32.to_ne_bytes());
            Act::Send
        },
        "the size of the capabilities is 0xffffffff",
    ),
    (
        REGION,
        |a| {
            set(a, 16, 64u32.to_ne_bytes());
            set(a, 20, 11u32.to_ne_bytes());
            Act::Send
        },
        "the size of the capabilities is 0x40",
    ),
    (
        REGION,
        |a| {
            if get(a, 24) == 7 {
                set(a, 32, 0x200u64.to_ne_bytes())
            }
            Act::Send
        },
        "the size of the configuration space is 0x200",
    ),
    (
        IRQ,
        |a| {
            set(a, 28, 2049u32.to_ne_bytes());
            Act::Send
        },
        "the number of vectors is 0x801",
    ),
    (
        IRQ,
        |a| {
            set(a, 24, 1u32.to_ne_bytes());
            Act::Send
        },
        "the index is 0x1",
    ),
    // Accesses.
    (
        READ,
        |a| {
            a.pop();
            resized(a)
        },
        "answered a read wrongly: the length of the answer",
    ),
    (
        READ,
        |a| {
            a.extend([0; 4096]);
            resized(a)
        },
        "answered a read wrongly: the length of the answer",
    ),
    (
        READ,
        |a| {
            set(a, 16, 1u64.to_ne_bytes());
            Act::Send
        },
        "the offset is 0x1, and should be that of the request",
    ),
    (
        READ,
        |a| {
            set(a, 24, 3u32.to_ne_bytes());
            Act::Send
        },
        "the region is 0x3, and should be that of the request",
    ),
    (
        WRITE,
        |a| {
            set(a, 28, 3u32.to_ne_bytes());
            Act::Send
        },
        "the count is 0x3, and should be that of the request",
    ),
    (
        MAP,
        |a| {
            a.extend([0; 40]);
            resized(a)
        },
        "answered a mapping wrongly: the length of the answer is 0x28",
    ),
    // Refusals, with and without a reason.
    (VERSION, refused::<22>, "refused the version: Invalid argument"),
    (DEVICE, refused::<0>, "refused a question about the device: it gives no reason"),
    (IRQ, refused::<95>, "refused a question about interrupts: Operation not supported"),
    (SET_IRQS, refused::<22>, "refused the setting of interrupts: Invalid argument"),
    (READ, refused::<5>, "refused a read: Input/output error"),
    (WRITE, refused::<1>, "refused a write: Operation not permitted"),
    (MAP, refused::<12>, "refused a mapping: Cannot allocate memory"),
    (RESET, refused::<16>, "refused a reset: Device or resource busy"),
    // Silence and death.
    (VERSION, |_| Act::Swallow, "took longer than 1s to answer the version"),
    (READ, |_| Act::Swallow, "took longer than 1s to answer a read"),
    (READ, |_| Act::Part(7), "took longer than 1s to answer a read"),
    (MAP, |_| Act::Swallow, "took longer than 1s to answer a mapping"),
    (RESET, |_| Act::Swallow, "took longer than 1s to answer a reset"),
    (VERSION, |_| Act::Close, "closed the connection at the version"),
    (REGION, |_| Act::Close, "closed the connection at a question about a region"),
    (READ, |_| Act::Close, "closed the connection at a read"),
    (SET_IRQS, |_| Act::Close, "closed the connection at the setting of interrupts"),
    (MAP, |_| Act::Close, "closed the connection at a mapping"),
];

/// Replaces the text of a version.
fn text(answer: &mut Vec<u8>, text: &str) {
    answer.truncate(20);
    answer.extend(text.bytes().chain([0]));
    resized(answer);
}

/// Writes the length of an answer into its header.
fn resized(answer: &mut [u8]) -> Act {
    let bytes = answer.len() as u32;
    set(answer, 4, bytes.to_ne_bytes());
    Act::Send
}

/// An answer that is an error.
fn refused<const ERRNO: u32>(answer: &mut Vec<u8>) -> Act {
    answer.truncate(16);
    set(answer, 8, (1u32 | 1 << 5).to_ne_bytes());
    set(answer, 12, ERRNO.to_ne_bytes());
    resized(answer)
}

#[test]
fn every_lie_is_an_error_that_names_it_in_bounded_time() {
    for (place, &(about, bend, expected)) in LIES.iter().enumerate() {
        let mut lie = |command, answer: &mut Vec<u8>| if command == about { bend(answer) } else { Act::Send };
        let is_silent = expected.starts_with("took longer");
        let (told, took) = told(if is_silent { impatient() } else { options() }, &mut lie);
        let error = told.expect_err(expected).to_string();
        assert!(error.starts_with("the server at pair ") && error.contains(expected), "{place}: {error}");
        assert!(took < Duration::from_secs(20), "{place}: {took:?}");
    }
}

/// A server that asks for memory with messages, in place of mapping it, is refused and served on; one that does nothing else
/// is given up.
#[test]
fn requests_of_the_server_are_refused() {
    let request = |count: usize, answer: &mut Vec<u8>| {
        let mut request = answer[..16].to_vec();
        set(&mut request, 2, 11u16.to_ne_bytes());
        set(&mut request, 4, 32u32.to_ne_bytes());
        set(&mut request, 8, 0u32.to_ne_bytes());
        request.extend([0; 16]);
        *answer = [request.repeat(count), std::mem::take(answer)].concat();
        Act::Send
    };
    let mut few =
        |command, answer: &mut Vec<u8>| if command == READ { request(3, answer) } else { Act::Send };
    told(options(), &mut few).0.unwrap();
    let mut many =
        |command, answer: &mut Vec<u8>| if command == READ { request(65, answer) } else { Act::Send };
    let error = told(options(), &mut many).0.unwrap_err().to_string();
    assert!(error.contains("the number of requests in place of an answer is 0x41"), "{error}");
}

/// After a lie nothing is asked any more: every call says at once what was found first, and BARs read as all ones.
#[test]
fn a_connection_that_is_lost_stays_lost() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let mut reads = 0;
        let mut lie = move |command, _: &mut Vec<u8>| {
            reads += u32::from(command == READ);
            if reads == 2 { Act::Swallow } else { Act::Send }
        };
        scope.spawn(move || serve(theirs, &mut lie, &mut |_| true));
        let function = VfioUserFunction::over(ours, "pair".to_string(), impatient()).unwrap();
        let registers = function.bar(REGISTER_BAR).unwrap();
        let memory = function.allocate(1, Purpose::Ring).unwrap();
        let address = function.map(&memory).unwrap();
        assert_eq!(registers.read64(0), 0x1111_1111_1111_1111);
        assert_eq!(registers.read64(0), u64::MAX);
        let began = Instant::now();
        for _ in 0..1000 {
            registers.write64(0, 1);
            assert_eq!(registers.read32(0), u32::MAX);
        }
        let lost = |error: FunctionError| {
            let FunctionError::Server { error, .. } = &error else { panic!("{error}") };
            assert!(matches!(error, ServerError::Stalled { what: "a read", .. }), "{error}");
        };
        lost(function.check().unwrap_err());
        lost(function.config_space().unwrap_err());
        lost(function.reset().unwrap_err());
        lost(function.map(&memory).unwrap_err());
        function.unmap(address).unwrap();
        assert!(began.elapsed() < Duration::from_secs(20), "2000 calls do not wait");
    });
}

/// A server that reads nothing fills the socket. Posted writes end then, within the time of one request.
#[test]
fn writes_to_a_server_that_takes_none_end() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut reads = 0;
            let copy = theirs.try_clone().unwrap();
            // The first read of a register is the last request that is served.
            serve(copy, &mut |_, _| Act::Send, &mut |command| {
                reads += u32::from(command == READ);
                reads < 2
            });
            is_done.recv().unwrap();
            theirs.flush().unwrap();
        });
        let options = ConnectOptions { posted_max: u32::MAX, ..impatient() };
        let function = VfioUserFunction::over(ours, "pair".to_string(), options).unwrap();
        let registers = function.bar(REGISTER_BAR).unwrap();
        assert_eq!(registers.read64(0), 0x1111_1111_1111_1111);
        assert_eq!(registers.read64(0), u64::MAX, "it is taken, and not answered");
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) && function.check().is_ok() {
            registers.write64(0, 1);
        }
        let error = function.check().unwrap_err().to_string();
        assert!(error.contains("took longer than 1s to answer"), "{error}");
        done.send(()).unwrap();
    });
}
