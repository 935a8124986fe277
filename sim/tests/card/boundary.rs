//! What crosses the boundary of a card for one WRITE, cycle by cycle, as `docs/hardware.md` shows it.
use crate::hosts::{connect, open};
use crate::lock;
use crate::support::card_model;
use anyhow::{Context, Result, ensure};
use rnic_driver::{ConnectOptions, RemoteRights, SendRequest};
use rnic_layout::doorbell::Arm;
use rnic_layout::path::Pmtu;
use rnic_machine::function::{SharedWorld, two_cards};
use rnic_machine::host::HostOptions;
use rnic_machine::world::{CardOptions, Domain};
use rnic_stimulus::chance::{Delay, Seed};
use std::path::Path;

const WIDTH_BITS: u32 = 512;
/// Bytes of the WRITE.
const BYTES: usize = 100;
/// Latency of host reads, and of the report that a write is visible.
const LATENCY_NS: u64 = 20;
/// Events of the world within which everything has happened.
const EVENTS_MAX: usize = 200_000;
/// Characters of a cycle.
const CELL: usize = 6;
/// Bits of a value that are shown.
const LOW_BITS: u64 = 0xffff;

/// Ports of a wave in their order: a bit; or a value, with the port that says when it is valid.
type Rows = &'static [(&'static str, Option<&'static str>)];

/// A wave: the card and the domain whose cycles are shown, from the first cycle in which a port is high.
struct Wave {
    name: &'static str,
    card: usize,
    domain: Domain,
    first: &'static str,
    rows: Rows,
}

const WAVES: [Wave; 6] = [
    Wave {
        name: "doorbell",
        card: 0,
        domain: Domain::Core,
        first: "s_axil_awvalid",
        rows: &[
            ("s_axil_awvalid", None),
            ("s_axil_awready", None),
            ("s_axil_awaddr", Some("s_axil_awvalid")),
            ("s_axil_wvalid", None),
            ("s_axil_wready", None),
            ("s_axil_bvalid", None),
            ("s_axil_bready", None),
        ],
    },
    Wave {
        name: "read",
        card: 0,
        domain: Domain::Core,
        first: "host_rd_req_valid",
        rows: &[
            ("host_rd_req_valid", None),
            ("host_rd_req_ready", None),
            ("host_rd_req_address", Some("host_rd_req_valid")),
            ("host_rd_req_length", Some("host_rd_req_valid")),
            ("host_rd_req_tag", Some("host_rd_req_valid")),
            ("host_rd_data_valid", None),
            ("host_rd_data_bytes", Some("host_rd_data_valid")),
            ("host_rd_data_tag", Some("host_rd_data_valid")),
            ("host_rd_data_last", Some("host_rd_data_valid")),
        ],
    },
    Wave {
        name: "frame",
        card: 0,
        domain: Domain::Transmit,
        first: "mac_tx_tvalid",
        rows: &[
            ("mac_tx_tvalid", None),
            ("mac_tx_tready", None),
            ("mac_tx_tkeep", Some("mac_tx_tvalid")),
            ("mac_tx_tlast", Some("mac_tx_tvalid")),
            ("mac_tx_tuser", Some("mac_tx_tvalid")),
        ],
    },
    Wave {
        name: "received",
        card: 1,
        domain: Domain::Receive,
        first: "mac_rx_tvalid",
        rows: &[
            ("mac_rx_tvalid", None),
            ("mac_rx_tkeep", Some("mac_rx_tvalid")),
            ("mac_rx_tlast", Some("mac_rx_tvalid")),
            ("mac_rx_tuser", Some("mac_rx_tvalid")),
        ],
    },
    Wave {
        name: "interrupt",
        card: 0,
        domain: Domain::Core,
        first: "host_wr_req_valid",
        rows: &[
            ("host_wr_req_valid", None),
            ("host_wr_req_ready", None),
            ("host_wr_req_address", Some("host_wr_req_valid")),
            ("host_wr_req_length", Some("host_wr_req_valid")),
            ("host_wr_data_valid", None),
            ("host_wr_data_ready", None),
            ("host_wr_data_last", Some("host_wr_data_valid")),
            ("host_wr_done_valid", None),
            ("irq_valid", None),
            ("irq_ready", None),
            ("irq_vector", Some("irq_valid")),
        ],
    },
    Wave {
        name: "reset",
        card: 0,
        domain: Domain::Core,
        first: "flr_request",
        rows: &[("flr_request", None), ("flr_done", None)],
    },
];

/// What the ports of waves were in each cycle.
struct Recorder {
    cycles: [u64; WAVES.len()],
    values: [Vec<Vec<u64>>; WAVES.len()],
}

impl Recorder {
    fn new(world: &SharedWorld) -> Recorder {
        let world = lock(world);
        Recorder {
            cycles: std::array::from_fn(|wave| world.card(WAVES[wave].card).cycles(WAVES[wave].domain)),
            values: Default::default(),
        }
    }

    /// Runs the world for an event, and records what has changed with an edge.
    fn step(&mut self, world: &SharedWorld) -> Result<()> {
        let mut world = lock(world);
        world.step();
        for (wave, (cycle, values)) in WAVES.iter().zip(self.cycles.iter_mut().zip(&mut self.values)) {
            let card = world.card(wave.card);
            if std::mem::replace(cycle, card.cycles(wave.domain)) != card.cycles(wave.domain) {
                let ports = wave.rows.iter().map(|(port, _)| card.port(port));
                values.push(ports.collect::<Result<_>>()?);
            }
        }
        Ok(())
    }

    /// Runs the world until a port of a wave is in this state, and some cycles more.
    fn run(&mut self, world: &SharedWorld, wave: &str, port: &str, value: u64) -> Result<()> {
        let wave = WAVES.iter().position(|one| one.name == wave).context("there is such a wave")?;
        let row = WAVES[wave].rows.iter().position(|(name, _)| *name == port).context("it has the port")?;
        for _ in 0..EVENTS_MAX {
            self.step(world)?;
            if self.values[wave].last().is_some_and(|values| values[row] == value) {
                return (0..20).try_for_each(|_| self.step(world));
            }
        }
        anyhow::bail!("{port} is never {value}")
    }

    /// Draws a wave. Cycles in which nothing changes are one column of dots.
    fn draw(&self, wave: usize) -> Result<String> {
        let (Wave { name, first, rows, .. }, values) = (&WAVES[wave], &self.values[wave]);
        let place = |port: &str| rows.iter().position(|(name, _)| *name == port);
        let first = place(first).context("the first port is shown")?;
        let first = values.iter().position(|values| values[first] == 1).context("it is high")?;
        let cells = |values: &Vec<u64>| -> Vec<String> {
            let cell = |(row, (_, valid)): (usize, &(_, Option<&str>))| match valid.map(place) {
                None if values[row] == 1 => "▔".repeat(CELL),
                None => "▁".repeat(CELL),
                Some(Some(valid)) if values[valid] == 1 => format!("{:x}", values[row] & LOW_BITS),
                Some(_) => String::new(),
            };
            rows.iter().enumerate().map(cell).collect()
        };
        let shown: Vec<_> = values[first.saturating_sub(1)..].iter().map(cells).collect();
        let last = shown.windows(2).rposition(|pair| pair[0] != pair[1]).map_or(0, |place| place + 1);
        let mut columns: Vec<Vec<String>> = Vec::new();
        for (cycle, cells) in shown[..=last].iter().enumerate() {
            let is_steady = cycle > 0 && shown[cycle - 1] == *cells && shown.get(cycle + 1) == Some(cells);
            let dots = vec!["...".to_string(); rows.len() + 1];
            if !is_steady {
                columns.push([vec![cycle.to_string()], cells.clone()].concat());
            } else if columns.last() != Some(&dots) {
                columns.push(dots);
            }
        }
        let names: Vec<&str> = std::iter::once("cycle").chain(rows.iter().map(|(port, _)| *port)).collect();
        let label = names.iter().map(|name| name.len()).max().unwrap_or(0) + 2;
        let mut text = format!("<!-- wave {name} -->\n```text\n");
        for (row, name) in names.iter().enumerate() {
            let line: String = columns.iter().map(|cells| format!("{:<CELL$}", cells[row])).collect();
            text += &format!("{name:<label$}{}\n", line.trim_end());
        }
        Ok(text + "```\n")
    }
}

/// Moves a message, and resets the function.
fn record() -> Result<Recorder> {
    let host = HostOptions {
        read_latency: Delay::nanoseconds(LATENCY_NS),
        write_done: Delay::nanoseconds(LATENCY_NS),
        ..HostOptions::IDEAL
    };
    let card = CardOptions { host, ..CardOptions::standard(WIDTH_BITS) };
    let (world, functions) = two_cards(&card_model(WIDTH_BITS)?, [card; 2], card.wire(), 1)?;
    let hosts = open(functions, Seed(1))?;
    let window = hosts[1].domain.share(BYTES, RemoteRights::ALL)?;
    let piece = hosts[0].domain.allocate(BYTES)?;
    let ends = [hosts[0].queue_pair(RemoteRights::ALL)?, hosts[1].queue_pair(RemoteRights::ALL)?];
    let [mut asker, peer] = connect(ends, Pmtu::Bytes1024, &ConnectOptions::default())?;
    hosts[0].queue.arm(Arm::Next);
    hosts[0].device.events().arm();
    lock(&world).run_for(10_000_000).map_err(|failure| anyhow::anyhow!("{failure}"))?;
    let mut recorder = Recorder::new(&world);
    asker.post_sends(&mut vec![SendRequest::write(1, window.remote()).sge(piece).signalled()])?;
    recorder.run(&world, "interrupt", "irq_valid", 1)?;
    let done = hosts[0].poll()?;
    ensure!(done.len() == 1 && done[0].is_success(), "{done:?}");
    // A driver would wait for a card that is reset behind its back.
    drop((asker, peer, done, window, hosts));
    let mut reset = lock(&world).begin_reset(0);
    while lock(&world).continue_reset(&mut reset).is_none() {
        recorder.step(&world)?;
    }
    (0..200).try_for_each(|_| recorder.step(&world))?;
    Ok(recorder)
}

/// `RNIC_BLESS=1` writes the waves into the document anew.
#[test]
fn the_waves_of_the_manual_are_those_of_the_card() -> Result<()> {
    let recorder = record()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/hardware.md");
    let manual = std::fs::read_to_string(&path)?;
    let mut text = manual.clone();
    for wave in 0..WAVES.len() {
        let drawn = recorder.draw(wave)?;
        let (begin, _) = drawn.split_once('\n').context("a wave has lines")?;
        let from = text.find(begin).with_context(|| format!("docs/hardware.md has no {begin}"))?;
        // The opening fence names its language.
        let end = text[from..].find("```\n").map(|fence| from + fence + 4);
        let end = end.with_context(|| format!("docs/hardware.md has no end of {begin}"))?;
        text.replace_range(from..end, &drawn);
    }
    if std::env::var_os("RNIC_BLESS").is_some() {
        std::fs::write(&path, &text)?;
    }
    let manual = std::fs::read_to_string(&path)?;
    let command = "RNIC_BLESS=1 cargo test --workspace --test card boundary";
    ensure!(text == manual, "docs/hardware.md is out of date; this writes it anew:\n  {command}");
    Ok(())
}
