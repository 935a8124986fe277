//! How a host behaves: honest, as the bench of design 8 wants it, or hostile.
use crate::chance::Delay;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// A PCI Express link as seen from above: what it carries, and what each packet costs beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// In each direction.
    pub bytes_per_second: u64,
    /// Overhead of a read request, of a write, and of an interrupt.
    pub request_overhead_bytes: u64,
    /// Overhead of a completion.
    pub completion_overhead_bytes: u64,
    /// Most payload in a packet; completions and writes are cut at multiples of it. A power of two from 64 to 512.
    pub piece_bytes: u64,
    /// Bytes that may wait for the link before requests and write data are held back.
    pub buffer_bytes: u64,
}

impl LinkOptions {
    /// Gen3 x16 as design 8 counts it.
    pub const GEN3_X16: LinkOptions = LinkOptions {
        bytes_per_second: 15_400_000_000,
        request_overhead_bytes: 24,
        completion_overhead_bytes: 20,
        piece_bytes: 256,
        buffer_bytes: 4096,
    };

    /// A link that never limits anything.
    pub const UNLIMITED: LinkOptions = LinkOptions {
        bytes_per_second: 1_000_000_000_000,
        request_overhead_bytes: 0,
        completion_overhead_bytes: 0,
        piece_bytes: 512,
        buffer_bytes: 1 << 20,
    };
}

/// In which order writes that are not reported done become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrder {
    /// In that of their requests, as posted writes of PCI Express do.
    Posted,
    /// In any order but for writes that touch the same bytes: nothing is promised before a write is done.
    Free,
}

/// How a host behaves. Probabilities are per cycle of the core clock, unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostOptions {
    /// What lies between card and host.
    pub link: LinkOptions,
    /// From the arrival of a read request to its answer, drawn for each piece. Pieces of one request keep their order;
    /// those of others overtake them.
    pub read_latency: Delay,
    /// How often a piece is read when the request is made and not when it is answered, so that it misses writes between.
    pub early_read: f64,
    /// Answers that may mix word by word; 1 for one piece after the other.
    pub interleave: usize,
    /// `host_rd_data` has no word although one is there.
    pub read_data_stall: f64,
    /// `host_rd_req` is held back.
    pub read_request_stall: f64,
    /// `host_wr_req` is held back.
    pub write_request_stall: f64,
    /// `host_wr_data` is held back.
    pub write_data_stall: f64,
    /// From the arrival of a write to when reads and software see it.
    pub write_visible: Delay,
    /// From then to the report that it is done.
    pub write_done: Delay,
    /// In which order writes become visible.
    pub write_order: WriteOrder,
    /// Writes that may be under way before more are held back; at most [`WRITES_MAX`](super::write::WRITES_MAX).
    pub writes_max: usize,
    /// Reads that fail for no reason, per request.
    pub read_error: f64,
    /// Writes that fail for no reason and change nothing, per request.
    pub write_error: f64,
    /// `irq` is held back.
    pub interrupt_stall: f64,
    /// From the card to software.
    pub interrupt_latency: Delay,
    /// From software to the register slave, and from its answer back.
    pub register_latency: Delay,
    /// The register slave's answer is held back, and address and data of a write come apart.
    pub register_stall: f64,
    /// There is no IOMMU that would make one piece of what is mapped for payload: some of it lies scattered, in pages of 4 KiB
    /// to 1 GiB.
    pub scatters: bool,
}

impl HostOptions {
    /// A host that answers at once and never waits.
    pub const IDEAL: HostOptions = HostOptions {
        link: LinkOptions::UNLIMITED,
        read_latency: Delay::nanoseconds(100),
        early_read: 0.0,
        interleave: 1,
        read_data_stall: 0.0,
        read_request_stall: 0.0,
        write_request_stall: 0.0,
        write_data_stall: 0.0,
        write_visible: Delay::NONE,
        write_done: Delay::NONE,
        write_order: WriteOrder::Posted,
        writes_max: super::write::WRITES_MAX,
        read_error: 0.0,
        write_error: 0.0,
        interrupt_stall: 0.0,
        interrupt_latency: Delay::NONE,
        register_latency: Delay::NONE,
        register_stall: 0.0,
        scatters: false,
    };

    /// The host of the standard bench (design 8): 1 us of read latency with jitter, Gen3 x16, writes that are reported
    /// done up to half a microsecond late, and reads that overtake them.
    pub const STANDARD: HostOptions = HostOptions {
        link: LinkOptions::GEN3_X16,
        read_latency: Delay::Uniform { min_ps: 900_000, max_ps: 1_100_000 },
        early_read: 0.5,
        interleave: 4,
        write_visible: Delay::Uniform { min_ps: 50_000, max_ps: 300_000 },
        write_done: Delay::Uniform { min_ps: 0, max_ps: 200_000 },
        interrupt_latency: Delay::nanoseconds(200),
        register_latency: Delay::nanoseconds(150),
        ..HostOptions::IDEAL
    };

    /// Draws a host that holds everything back now and then, answers late and out of order, and shows writes late. It
    /// breaks no rule of the boundary and injects no errors.
    pub fn hostile(random: &mut ChaCha8Rng) -> HostOptions {
        let mut stall = || if random.random_bool(0.5) { 0.0 } else { random.random_range(0.05..0.7) };
        let stalls: [f64; 6] = std::array::from_fn(|_| stall());
        let read_max_ps = random.random_range(200_000..3_000_000);
        let write_max_ps = random.random_range(1_000..1_500_000);
        HostOptions {
            link: if random.random_bool(0.5) { LinkOptions::GEN3_X16 } else { LinkOptions::UNLIMITED },
            read_latency: if random.random_bool(0.5) {
                Delay::Uniform { min_ps: 20_000, max_ps: read_max_ps }
            } else {
                Delay::Tail { usual_ps: 100_000, probability: 0.1, max_ps: read_max_ps }
            },
            early_read: random.random_range(0.0..1.0),
            interleave: random.random_range(1..=8),
            read_data_stall: stalls[0],
            read_request_stall: stalls[1],
            write_request_stall: stalls[2],
            write_data_stall: stalls[3],
            write_visible: Delay::Uniform { min_ps: 0, max_ps: write_max_ps },
            write_done: Delay::Uniform { min_ps: 0, max_ps: write_max_ps },
            write_order: if random.random_bool(0.5) { WriteOrder::Posted } else { WriteOrder::Free },
            writes_max: random.random_range(4..=super::write::WRITES_MAX),
            read_error: 0.0,
            write_error: 0.0,
            interrupt_stall: stalls[4],
            interrupt_latency: Delay::Uniform { min_ps: 0, max_ps: 1_000_000 },
            register_latency: Delay::Uniform { min_ps: 0, max_ps: 300_000 },
            register_stall: stalls[5],
            scatters: random.random(),
        }
    }
}
