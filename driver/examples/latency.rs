//! Measures what an access to a served card takes: a register read, a doorbell, and the processor time of its idle server.
//!
//! ```sh
//! rnic-sim serve --socket card0.sock &
//! cargo run --release -p rnic-driver --example latency -- card0.sock
//! ```
use rnic_driver::vfio_user::{ConnectOptions, VfioUserFunction};
use rnic_driver::{CompletionQueueOptions, Device, Function, Options};
use rnic_layout::doorbell::Arm;
use rnic_layout::pci::REGISTER_BAR;
use rnic_layout::registers::REG_SCRATCH;
use rustix::net::sockopt::socket_peercred;
use std::error::Error;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Measurements of each kind.
const COUNT: usize = 10_000;
/// Doorbells between two pauses, in which the simulation takes them: it is slower than a client that does nothing else.
const BURST: usize = 100;
/// Time for which the card is left alone.
const IDLE: Duration = Duration::from_secs(5);

/// Prints the median and the 99th percentile.
fn print(what: &str, times: &mut [Duration], bar: Duration) {
    times.sort_unstable();
    let [median, late] = [50, 99].map(|percent| times[times.len() * percent / 100]);
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    let verdict = if mean < bar { "below" } else { "ABOVE" };
    println!(
        "{what:<16} median {median:>9.2?}, mean {mean:>9.2?}, 99 % within {late:>9.2?}; mean {verdict} {bar:?}"
    );
}

fn times(count: usize, mut access: impl FnMut()) -> Vec<Duration> {
    let mut time = || {
        let start = Instant::now();
        access();
        start.elapsed()
    };
    (0..count).map(|_| time()).collect()
}

/// Processor time of all threads of a process, from `/proc`.
fn processor_time(process: i32) -> Result<Duration, Box<dyn Error>> {
    let mut sum = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanoseconds = text.split(' ').next().ok_or("schedstat is empty")?;
        sum += Duration::from_nanos(nanoseconds.parse()?);
    }
    Ok(sum)
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("name the socket of a served card")?;
    let socket = UnixStream::connect(&path)?;
    let server = socket_peercred(&socket)?.pid.as_raw_nonzero().get();
    let function: Arc<dyn Function> =
        Arc::new(VfioUserFunction::over(socket, path, ConnectOptions::default())?);
    let device = Device::open(Arc::clone(&function), Options::new([2, 0, 0, 0, 0, 1]))?;
    let registers = function.bar(REGISTER_BAR)?;

    let offset = u64::from(REG_SCRATCH.offset);
    let before = processor_time(server)?;
    let mut reads = times(COUNT, || assert_ne!(registers.read64(offset), u64::MAX, "no card answers"));
    let busy = processor_time(server)? - before;
    print("register read", &mut reads, Duration::from_micros(50));
    println!("{:<16} {:.2?} of processor time for each", "  its server", busy / COUNT as u32);

    let queue = device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
    let mut doorbells = Vec::new();
    while doorbells.len() < COUNT {
        doorbells.extend(times(BURST, || queue.arm(Arm::Next)));
        // A read comes after all writes.
        registers.read64(offset);
    }
    print("doorbell", &mut doorbells, Duration::from_micros(5));

    // The clock of a simulated card runs on for a while after the last access.
    std::thread::sleep(Duration::from_secs(1));
    let (start, before) = (Instant::now(), processor_time(server)?);
    std::thread::sleep(IDLE);
    let share = (processor_time(server)? - before).as_secs_f64() / start.elapsed().as_secs_f64();
    println!("{:<16} {:.1} % of a core; process {server}", "idle server", 100.0 * share);
    Ok(())
}
