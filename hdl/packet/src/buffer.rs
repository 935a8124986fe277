//! Receive buffer of responses: stores received packets whose payload is taken in their order.
//!
//! Payload is written before the packet is known to be good; payload and token become visible when the frame is accepted. Each role
//! has its own buffer, so that neither can fill the other's; that of requests is [`RequestBuffer`](super::request_buffer).
//!
//! ```text
//!  payload ──> ┌──────────────────────────────┐       ┌──────────────┐
//!  commit ───> │ PacketFifo: DATA bits a beat ├──────>│ bytes, last  ├──> payload_tx
//!  rollback ─> └──────────────────────────────┘       └──────▲───────┘
//!  fits <───┐  ┌──────────────────────────────┐              │
//!           └──┤ Fifo: lengths                ├──────────────┴───────> releases
//!              ├──────────────────────────────┤
//!  token ─────>│ Fifo: tokens                 ├────────────────────────> token_tx
//!              └──────────────────────────────┘
//! ```
//!
//! Latency 2 cycles from the commit to the token, 3 to the first payload beat; throughput one token and one payload beat a
//! cycle, also when every packet is one beat.
//!
//! 1. Tokens leave in the order of their commits; payload leaves in the same order, without beats for packets that have
//!    none. The two streams need not be taken in step.
//! 2. A packet has exactly `payload_bytes` bytes of payload: full beats, then one of 1 to `DATA / 8` bytes with `last`.
//! 3. `fits` is low when the payload or the token finds no room; then the packet must be rolled back.
//! 4. Each packet with payload is `released` once, when its payload has left.
//!
//! Refuses less payload room than one packet of the largest PMTU. A full buffer drops whole frames (design decision 3).
use super::entry_share::PACKETS_BITS;
use rnic_blocks::memory::Storage;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Beat, Fifo, PacketFifo, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::PacketToken;
use rnic_messages::receive::{ROOM_BITS, ROOM_UNIT_LOG2};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, SPAN_BITS, sizes};

/// Payload of the largest packet: PMTU 4096.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// log2 of the beats in a receive buffer of the card that is made, if it has room for `2^address`.
pub(super) fn beats_log2(address: usize, bytes: usize) -> usize {
    address.min(sizes().receive_bytes + 1 - bytes)
}

/// log2 of the packets in such a buffer, if it has room for `2^tokens`.
pub(super) fn packets_log2(tokens: usize) -> usize {
    tokens.min(sizes().receive_packets)
}

/// Payload of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Payload {
    /// Slot of the queue pair of the packet.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its length.
    pub bytes: Bits<SPAN_BITS>,
}

/// A buffer of up to `2^ADDRESS` beats and `2^TOKENS` packets: as many as the card that is made has.
///
/// `COUNT` is `ADDRESS + 1`, and `TOKEN_COUNT` is `TOKENS + 1`.
#[clocked(reset = "forgets all packets")]
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
#[require((PAYLOAD_BYTES_MAX * 8 / DATA).ilog2() as usize <= ADDRESS && ADDRESS <= 16, "a packet of 4096 bytes fits, and ADDRESS is at most 16")]
#[require(2 <= TOKENS && TOKENS <= 16)]
pub struct PacketBuffer<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> {
    /// From strip: a beat of payload of the packet that is being received, if it belongs to this buffer.
    pub payload: ValidRx<Bits<DATA>>,
    /// From dispatch: the packet, with the beat of this cycle, is good; only while `fits`.
    pub commit: Signal<In, Bit>,
    /// The packet is discarded.
    pub rollback: Signal<In, Bit>,
    /// With `commit`: its headers.
    pub token: Signal<In, PacketToken>,
    /// The packet, with the beat of this cycle, has found room; combinational.
    pub fits: Signal<Out, Bit>,

    /// Headers of the packets.
    pub token_tx: StreamTx<PacketToken>,
    /// Payload of the packets; `bytes` and `last` are functions of registers.
    pub payload_tx: StreamTx<Beat<DATA, BYTES>>,

    /// Payload has left; registered.
    pub releases: Signal<Out, Bit>,
    /// Of this packet; registered.
    pub released: Signal<Out, Payload>,

    /// Room that no payload has, in units of 128 bytes, rounded down; a function of registers.
    pub room: Signal<Out, Bits<ROOM_BITS>>,
    /// Beats of payload in the buffer; a function of registers.
    pub beats_used: Signal<Out, Bits<COUNT>>,
    /// Packets whose token has not left; registered.
    pub packets: Signal<Out, Bits<TOKEN_COUNT>>,
    /// Packets more for whose tokens there is room; a function of registers.
    pub free_packets: Signal<Out, Bits<PACKETS_BITS>>,

    #[init(PacketFifo::new(Storage::Block).with_beats_log2(beats_log2(ADDRESS, BYTES)))]
    beats: PacketFifo<Bits<DATA>, ADDRESS, COUNT>,
    #[init(Fifo::default().with_beats_log2(packets_log2(TOKENS)))]
    tokens: Fifo<PacketToken, TOKENS, TOKEN_COUNT>,
    /// Of packets with payload.
    #[init(Fifo::default().with_beats_log2(packets_log2(TOKENS)))]
    lengths: Fifo<Payload, TOKENS, TOKEN_COUNT>,
    /// Of the packet that leaves: index of its last byte, counted from the beat that leaves.
    last_byte: DFF<Bits<13>>,
    is_leaving: Reg<Bit>,
    leaving: DFF<Payload>,
    releases_held: Reg<Bit>,
    released_held: DFF<Payload>,
    #[init(beats_log2(ADDRESS, BYTES))]
    _beats_log2: usize,
    #[init(packets_log2(TOKENS))]
    _packets_log2: usize,
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> PacketBuffer<DATA, BYTES, ADDRESS, COUNT, TOKENS, TOKEN_COUNT>
{
    const BEAT_BYTES: u64 = DATA as u64 / 8;
    /// log2 of the beats in a unit of room.
    const UNIT_BEATS_LOG2: u64 = ROOM_UNIT_LOG2 as u64 - Self::BEAT_BYTES.ilog2() as u64;
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> Logic for PacketBuffer<DATA, BYTES, ADDRESS, COUNT, TOKENS, TOKEN_COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        self.beats_used.next = self.beats.level.val();
        self.packets.next = self.tokens.level.val();
        self.free_packets.next = bits::<PACKETS_BITS>(1 << self._packets_log2)
            - bit_cast::<PACKETS_BITS, TOKEN_COUNT>(self.tokens.level.val());
        let free_beats = bits::<32>(1 << self._beats_log2) - bit_cast::<32, COUNT>(self.beats.level.val());
        self.room.next = (free_beats >> Self::UNIT_BEATS_LOG2).get_bits::<ROOM_BITS>(0);

        // In: payload at once, token and length when the frame is accepted.
        let token = self.token.val();
        let commit = self.commit.val();
        self.beats.beat.next = self.payload.value.val();
        self.beats.write.next = self.payload.valid.val();
        self.beats.commit.next = commit;
        self.beats.rollback.next = self.rollback.val();
        self.tokens.rx.offer(commit, token);
        self.lengths.rx.beat.next = Payload { queue_pair: token.queue_pair, bytes: token.payload_bytes };
        self.lengths.rx.valid.next = commit && token.payload_bytes.any();
        self.fits.next = self.beats.fits.val() && self.tokens.rx.ready.val() && self.lengths.rx.ready.val();

        // Out: tokens as they are, payload cut by the lengths.
        StreamTx::link(&mut self.token_tx, &mut self.tokens.tx);
        let last_byte = self.last_byte.q.val();
        let is_last = last_byte < Self::BEAT_BYTES;
        let offers = self.is_leaving.q.val() && self.beats.tx.valid.val();
        let moves = offers && self.payload_tx.ready.val();
        self.payload_tx.valid.next = offers;
        self.payload_tx.beat.next = Beat::<DATA, BYTES> {
            data: self.beats.tx.beat.val(),
            bytes: if is_last {
                bit_cast::<BYTES, 13>(last_byte) + 1
            } else {
                bits::<BYTES>(Self::BEAT_BYTES)
            },
            last: is_last,
            error: false,
        };
        self.beats.tx.ready.next = self.is_leaving.q.val() && self.payload_tx.ready.val();

        // The next length is taken in the cycle in which the last beat moves, so that no cycle is lost between packets.
        let is_free = !self.is_leaving.q.val() || (moves && is_last);
        let next = self.lengths.tx.beat.val();
        self.lengths.tx.ready.next = is_free;
        self.releases_held.d.next = moves && is_last;
        self.released_held.d.next = self.leaving.q.val();
        self.releases.next = self.releases_held.q.val();
        self.released.next = self.released_held.q.val();
        if is_free {
            self.is_leaving.d.next = self.lengths.tx.valid.val();
            self.leaving.d.next = next;
            self.last_byte.d.next = next.bytes - 1;
        } else if moves {
            self.last_byte.d.next = last_byte - Self::BEAT_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Sink, Stalls, Stimulus, frames_of, random};
    use rnic_messages::sizes::Sizes;
    use std::collections::VecDeque;

    /// It could have more than the 512 beats and four packets of the tests.
    type Small = PacketBuffer<64, 4, 11, 12, 3, 4>;

    fn bench() -> Bench<Small> {
        let sizes = Sizes { receive_bytes: 12, receive_packets: 2, ..Sizes::LARGEST };
        Bench::clocked(sizes.make(Small::default), |block| &mut block.clock).in_lock_step()
    }

    /// What goes in: payload, and whether it is good.
    struct Packet {
        payload: Vec<u8>,
        is_good: bool,
    }

    #[test]
    fn good_packets_leave_whole_and_in_order_whoever_stalls() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = bench();
            let (mut tokens, mut payloads) = (Sink::new(stalls), Sink::new(stalls));
            let (mut expected_tokens, mut expected_payloads) = (Vec::new(), Vec::new());
            let (mut released, mut expected_releases) = (Vec::new(), Vec::new());
            let mut refused_count = 0;
            for _ in 0..60 {
                let payload_bytes = random.random_range(0..=40);
                let payload = (0..payload_bytes).map(|_| random.random()).collect();
                let packet = Packet { payload, is_good: random.random_bool(0.8) };
                let mut beats: VecDeque<_> = packet.payload.chunks(8).map(BigUint::from_bytes_le).collect();
                loop {
                    let pauses = stalls.source() && random.random();
                    let beat = if pauses { None } else { beats.pop_front() };
                    let ends = beats.is_empty() && !pauses;
                    let block = &mut bench.block;
                    block.payload.valid.next = beat.is_some();
                    block.payload.value.next = beat.unwrap_or_default().into();
                    let token = PacketToken {
                        psn: Bits::sample(&mut random),
                        queue_pair: Bits::sample(&mut random),
                        payload_bytes: bits(payload_bytes),
                        ..Default::default()
                    };
                    block.token.next = token;
                    block.commit.next = false;
                    block.rollback.next = false;
                    tokens.drive(&mut block.token_tx, &mut random);
                    payloads.drive(&mut block.payload_tx, &mut random);
                    bench.settle();
                    let fits = bench.block.fits.val();
                    bench.block.commit.next = ends && packet.is_good && fits;
                    bench.block.rollback.next = ends && !(packet.is_good && fits);
                    bench.settle();
                    tokens.sample(&bench.block.token_tx);
                    payloads.sample(&bench.block.payload_tx);
                    released.extend(bench.block.releases.val().then(|| bench.block.released.val()));
                    bench.tick();
                    if ends && packet.is_good && fits {
                        expected_tokens.push(token);
                        if payload_bytes > 0 {
                            expected_payloads.push((packet.payload.clone(), false));
                            expected_releases
                                .push(Payload { queue_pair: token.queue_pair, bytes: token.payload_bytes });
                        }
                    }
                    refused_count += usize::from(ends && packet.is_good && !fits);
                    if ends {
                        break;
                    }
                }
            }
            bench.block.commit.next = false;
            bench.block.rollback.next = false;
            bench.block.payload.valid.next = false;
            for _ in 0..100 {
                tokens.drive(&mut bench.block.token_tx, &mut random);
                payloads.drive(&mut bench.block.payload_tx, &mut random);
                bench.settle();
                tokens.sample(&bench.block.token_tx);
                payloads.sample(&bench.block.payload_tx);
                released.extend(bench.block.releases.val().then(|| bench.block.released.val()));
                bench.tick();
            }
            assert_eq!(released, expected_releases, "stalls: {stalls:?}");
            assert_eq!(tokens.received, expected_tokens, "stalls: {stalls:?}");
            assert_eq!(frames_of(&payloads.received), expected_payloads, "stalls: {stalls:?}");
            assert!(stalls.sink() || refused_count == 0, "{refused_count} packets found no room");
        }
    }

    #[test]
    fn room_and_packets_are_what_nothing_has() {
        let mut bench = bench();
        let free = |bench: &Bench<Small>| (bench.block.room.val(), bench.block.free_packets.val());
        bench.settle();
        // 512 beats of 8 bytes, and 4 tokens.
        assert_eq!(free(&bench), (bits(32), bits(4)));
        // Beats at the exit do not count.
        for (beats, room) in [(16, 31), (16, 30), (0, 30), (16, 29)] {
            for beat in 0..beats.max(1) {
                let block = &mut bench.block;
                block.payload.valid.next = beats > 0;
                block.token.next = PacketToken { payload_bytes: bits(8 * beats), ..Default::default() };
                block.commit.next = beat + 1 >= beats;
                bench.tick();
            }
            bench.block.payload.valid.next = false;
            bench.block.commit.next = false;
            (0..4).for_each(|_| bench.tick());
            bench.settle();
            assert_eq!(bench.block.room.val(), bits(room), "{beats} beats");
        }
        assert_eq!(free(&bench).1, bits(0));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert_eq!(PacketBuffer::<512, 7, 6, 7, 2, 3>::REFUSAL, None);
        assert!(
            PacketBuffer::<512, 7, 5, 6, 2, 3>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS"))
        );
        assert!(
            PacketBuffer::<64, 4, 8, 9, 2, 3>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS"))
        );
        assert!(
            PacketBuffer::<64, 4, 9, 10, 1, 2>::REFUSAL.is_some_and(|refusal| refusal.contains("TOKENS"))
        );
        assert!(PacketBuffer::<64, 5, 9, 10, 2, 3>::REFUSAL.is_some_and(|refusal| refusal.contains("BYTES")));
    }
}
