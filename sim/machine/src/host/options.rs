//! Behaviour of a host: standard, as for the bench, or hostile.
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_layout::limits::HOST_READ_TAGS_MAX;
use rnic_stimulus::chance::Delay;

/// A PCI Express link: its rate, and the overhead of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// Rate of each direction.
    pub bytes_per_second: u64,
    /// Overhead of a read request, of a write, and of an interrupt.
    pub request_overhead_bytes: u64,
    /// Overhead of a read completion.
    pub completion_overhead_bytes: u64,
    /// Largest payload of a read completion: answers are split at multiples of it. A power of two from 64 to 512.
    pub completion_bytes: u64,
    /// Largest payload of a write packet: writes are split at multiples of it. A power of two from 64 to 512.
    pub write_bytes: u64,
    /// A packet carries whole dwords, so that payload which is not aligned to 4 bytes takes up to 6 bytes more.
    pub pads_dwords: bool,
    /// Bytes that may wait for the link before requests and write data are stalled.
    pub buffer_bytes: u64,
}

impl LinkOptions {
    /// Gen3 x16, with the overhead that design 8 assumes.
    pub const GEN3_X16: LinkOptions = LinkOptions {
        bytes_per_second: 15_400_000_000,
        request_overhead_bytes: 24,
        completion_overhead_bytes: 20,
        completion_bytes: 256,
        write_bytes: 256,
        pads_dwords: false,
        buffer_bytes: 4096,
    };

    /// A link that limits nothing.
    pub const UNLIMITED: LinkOptions = LinkOptions {
        bytes_per_second: 1_000_000_000_000,
        request_overhead_bytes: 0,
        completion_overhead_bytes: 0,
        completion_bytes: 512,
        write_bytes: 512,
        pads_dwords: false,
        buffer_bytes: 1 << 20,
    };

    /// Bytes that the payload of packets takes on the link.
    pub(super) fn payload_bytes(&self, address: u64, length: u64) -> u64 {
        if !self.pads_dwords || length == 0 {
            return length;
        }
        // The packet may end at the end of the address space.
        let last = address.wrapping_add(length - 1);
        (last / 4).wrapping_sub(address / 4).wrapping_add(1) * 4
    }

    /// Panics if a field is outside its range.
    pub(super) fn check(&self) {
        for (name, bytes) in [("completion_bytes", self.completion_bytes), ("write_bytes", self.write_bytes)]
        {
            let is_allowed = (64..=512).contains(&bytes) && bytes.is_power_of_two();
            assert!(is_allowed, "{name} is {bytes}; allowed are 64, 128, 256 and 512");
        }
    }
}

/// Order in which writes become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrder {
    /// In the order of their requests, as posted writes of PCI Express.
    Posted,
    /// In any order, except for writes to the same bytes, as nothing is guaranteed until a write is reported done.
    Free,
}

/// Behaviour of a host. Probabilities are per cycle of the core clock, unless noted otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostOptions {
    /// Link between card and host.
    pub link: LinkOptions,
    /// Time from the arrival of a read request to its answer, drawn for each piece. Pieces of one request stay in order; those
    /// of different requests may overtake each other.
    pub read_latency: Delay,
    /// Probability that a piece is read from memory when the request arrives and not when it is answered, so that it misses
    /// writes in between.
    pub early_read: f64,
    /// Number of answers whose words may be interleaved; 1 sends one piece after the other.
    pub interleave: usize,
    /// Probability that `host_rd_data` is not valid although a word is ready.
    pub read_data_stall: f64,
    /// Probability that `host_rd_req` is stalled.
    pub read_request_stall: f64,
    /// Probability that `host_wr_req` is stalled.
    pub write_request_stall: f64,
    /// Probability that `host_wr_data` is stalled.
    pub write_data_stall: f64,
    /// Time from the arrival of a write until reads and software see it.
    pub write_visible: Delay,
    /// Time from then until the write is reported done.
    pub write_done: Delay,
    /// Order in which writes become visible.
    pub write_order: WriteOrder,
    /// Writes in flight above which further ones are stalled; at most [`WRITES_MAX`](super::write::WRITES_MAX).
    pub writes_max: usize,
    /// Probability that a read fails, per request.
    pub read_error: f64,
    /// Probability that a write fails and changes nothing, per request.
    pub write_error: f64,
    /// Reads in flight above which further ones are stalled, as by the credits of a root port for requests that are not
    /// posted; 1 to [`HOST_READ_TAGS_MAX`].
    pub reads_max: usize,
    /// Probability that `irq` is stalled.
    pub interrupt_stall: f64,
    /// Time from the card to software.
    pub interrupt_latency: Delay,
    /// Time from software to the register slave, and the same for the answer.
    pub register_latency: Delay,
    /// Probability that the register slave's answer is stalled, and that address and data of a write are sent apart.
    pub register_stall: f64,
    /// The host has no IOMMU that makes payload buffers contiguous: some of them are scattered over pages of 4 KiB to 1 GiB.
    pub scatters: bool,
    /// Device addresses that were unmapped are the first that are mapped again. Otherwise none is used twice, and the access of
    /// a card to memory that it has given back is a fault.
    pub reuses_addresses: bool,
}

impl HostOptions {
    /// A host that answers at once and never stalls.
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
        reads_max: HOST_READ_TAGS_MAX as usize,
        read_error: 0.0,
        write_error: 0.0,
        interrupt_stall: 0.0,
        interrupt_latency: Delay::NONE,
        register_latency: Delay::NONE,
        register_stall: 0.0,
        scatters: false,
        reuses_addresses: false,
    };

    /// Host of the standard bench (design 8): 1 us of read latency with jitter, Gen3 x16, writes that are reported done up to
    /// 0.5 us late, and reads that overtake them.
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

    /// Draws a host that stalls everything at times, answers late and out of order, and makes writes visible late. It breaks no
    /// rule of the boundary and injects no errors.
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
            reads_max: HOST_READ_TAGS_MAX as usize,
            read_error: 0.0,
            write_error: 0.0,
            interrupt_stall: stalls[4],
            interrupt_latency: Delay::Uniform { min_ps: 0, max_ps: 1_000_000 },
            register_latency: Delay::Uniform { min_ps: 0, max_ps: 300_000 },
            register_stall: stalls[5],
            scatters: random.random(),
            reuses_addresses: random.random(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_takes_whole_dwords_if_packets_carry_those() {
        let bytes = LinkOptions::GEN3_X16;
        let dwords = LinkOptions { pads_dwords: true, ..bytes };
        for (address, length, padded) in
            [(0, 4, 4), (0, 1, 4), (3, 1, 4), (3, 2, 8), (1, 256, 260), (u64::MAX, 1, 4)]
        {
            assert_eq!(
                (bytes.payload_bytes(address, length), dwords.payload_bytes(address, length)),
                (length, padded)
            );
        }
    }
}
