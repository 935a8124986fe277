//! What crosses the boundary of a card for one WRITE, cycle by cycle, as `docs/hardware.md` shows it.
use crate::hosts::{connect, open};
use crate::lock;
use crate::support::card_model;
use anyhow::{Context, Result, ensure};
use rnic_driver::{ConnectOptions, RemoteRights, SendRequest};
use rnic_layout::doorbell::Arm;
use rnic_layout::path::Pmtu;
use rnic_machine::function::two_cards;
use rnic_machine::host::HostOptions;
use rnic_machine::world::{Card, CardOptions, Domain};
use rnic_stimulus::chance::{Delay, Seed};
use std::path::Path;
use verilator_sys::Waves;

const WIDTH_BITS: u32 = 512;
/// Bytes of the WRITE.
const BYTES: usize = 100;
/// Latency of host reads, and of the report that a write is visible.
const LATENCY_NS: u64 = 4;
/// Events of the world within which everything has happened.
const EVENTS: usize = 20_000;

/// A wave of a card in cycles of a domain. It begins when its first port is high for the `nth` time. A port that is neither `valid` nor
/// `ready` is shown while the `valid` before it is high.
struct Wave {
    name: &'static str,
    card: usize,
    domain: Domain,
    nth: usize,
    cycles: usize,
    ports: &'static str,
}

const WAVES: [Wave; 5] = [
    Wave {
        name: "doorbell",
        card: 0,
        domain: Domain::Core,
        nth: 1,
        cycles: 6,
        ports: "s_axil_awvalid s_axil_awready s_axil_awaddr s_axil_wvalid s_axil_wready s_axil_bvalid s_axil_bready",
    },
    Wave {
        name: "read",
        card: 0,
        domain: Domain::Core,
        nth: 2,
        cycles: 8,
        ports: "host_rd_req_valid host_rd_req_ready host_rd_req_length host_rd_req_tag \
                host_rd_data_valid host_rd_data_bytes host_rd_data_tag host_rd_data_last",
    },
    Wave {
        name: "interrupt",
        card: 0,
        domain: Domain::Core,
        nth: 1,
        cycles: 26,
        ports: "host_wr_req_valid host_wr_req_ready host_wr_req_length host_wr_data_valid host_wr_data_ready \
                host_wr_data_last host_wr_done_valid irq_valid irq_ready irq_vector",
    },
    Wave {
        name: "frame",
        card: 0,
        domain: Domain::Transmit,
        nth: 1,
        cycles: 5,
        ports: "mac_tx_tvalid mac_tx_tready mac_tx_tlast mac_tx_tuser",
    },
    Wave {
        name: "received",
        card: 1,
        domain: Domain::Receive,
        nth: 1,
        cycles: 6,
        ports: "mac_rx_tvalid mac_rx_tlast mac_rx_tuser",
    },
];

/// A wave that is being recorded.
struct Recording {
    of: &'static Wave,
    waves: Waves,
    /// Cycles of the domain so far, those that are recorded, and how often the first port was high before them.
    cycles: u64,
    recorded: usize,
    seen: usize,
}

impl Recording {
    fn new(of: &'static Wave, card: &Card) -> Recording {
        let (mut waves, mut valid) = (Waves::new(), "");
        for port in of.ports.split_whitespace() {
            waves = waves.signal(port);
            if port.ends_with("valid") {
                valid = port;
            } else if !port.ends_with("ready") {
                waves = waves.when(valid);
            }
        }
        Recording { of, waves, cycles: card.cycles(of.domain), recorded: 0, seen: 0 }
    }

    /// Takes a sample if the clock has risen and the wave has begun.
    fn look(&mut self, card: &Card) {
        let cycles = card.cycles(self.of.domain);
        if std::mem::replace(&mut self.cycles, cycles) == cycles || self.recorded == self.of.cycles {
            return;
        }
        let first = self.of.ports.split_whitespace().next().expect("a wave has ports");
        self.seen += usize::from(card.port(first).1 == 1);
        if self.seen >= self.of.nth {
            self.waves.sample(|port| card.port(port));
            self.recorded += 1;
        }
    }
}

/// Records all waves while a WRITE is executed.
fn record() -> Result<Vec<Recording>> {
    let latency = Delay::nanoseconds(LATENCY_NS);
    let host = HostOptions { read_latency: latency, write_done: latency, ..HostOptions::IDEAL };
    let card = CardOptions { host, ..CardOptions::standard(WIDTH_BITS) };
    let (world, functions) = two_cards(&card_model(WIDTH_BITS)?, [card; 2], card.wire(), 1)?;
    let hosts = open(functions, Seed(1))?;
    let window = hosts[1].domain.share(BYTES, RemoteRights::ALL)?;
    let piece = hosts[0].domain.allocate(BYTES)?;
    let ends = [hosts[0].queue_pair(RemoteRights::ALL)?, hosts[1].queue_pair(RemoteRights::ALL)?];
    let [mut asker, _peer] = connect(ends, Pmtu::Bytes1024, &ConnectOptions::default())?;
    hosts[0].queue.arm(Arm::Next);
    hosts[0].device.events().arm();
    lock(&world).run_for(10_000_000)?;
    asker.post_sends(&mut vec![SendRequest::write(1, window.remote()).sge(piece).signalled()])?;
    let mut running = lock(&world);
    let mut recordings: Vec<_> = WAVES.iter().map(|of| Recording::new(of, running.card(of.card))).collect();
    for _ in 0..EVENTS {
        running.step();
        recordings.iter_mut().for_each(|recording| recording.look(running.card(recording.of.card)));
    }
    running.check()?;
    drop(running);
    let done = hosts[0].poll()?;
    ensure!(done.len() == 1 && done[0].is_success(), "{done:?}");
    Ok(recordings)
}

/// `RNIC_BLESS=1` writes the waves into the document anew.
#[test]
fn the_waves_of_the_manual_are_those_of_the_card() -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/hardware.md");
    let manual = std::fs::read_to_string(&path)?;
    let mut found = manual.clone();
    for Recording { of, waves, recorded, .. } in record()? {
        ensure!(recorded == of.cycles, "{}: {recorded} of {} cycles", of.name, of.cycles);
        let begin = format!("<!-- wave {} -->\n```text\n", of.name);
        let from = found.find(&begin).with_context(|| format!("{begin} is missing"))? + begin.len();
        let end = from + found[from..].find("```\n").with_context(|| format!("{begin} has no end"))?;
        found.replace_range(from..end, &waves.to_string());
    }
    if std::env::var_os("RNIC_BLESS").is_some() {
        return Ok(std::fs::write(&path, &found)?);
    }
    let command = "RNIC_BLESS=1 cargo test --workspace --test card boundary";
    ensure!(found == manual, "docs/hardware.md is out of date; this writes it anew:\n  {command}");
    Ok(())
}
