//! The simulated machine with a card in Verilog that copies memory, echoes frames, and breaks one rule at a time on request.
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rnic_driver::function::Function;
use rnic_driver::memory::Purpose;
use rnic_layout::admin::{
    Answer, Body, Command, CommandHeader, CommandOpcode, CommandStatus, CreateAddressHandle, CreateQueuePair,
    ModifyQueuePair,
};
use rnic_layout::pci::{COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY};
use rnic_layout::queue::event::{AsyncEvent, Eqe, EventKind};
use rnic_layout::registers::{
    REG_SOURCE_ADDRESS_HIGH, REG_SOURCE_ADDRESS_LOW, REG_SOURCE_ADDRESS_PORT, SourceAddressPort, counter,
};
use rnic_layout::state::{AttributeMask, PathMtu, QpState};
use rnic_layout::wire::{Filter, IpRepr, PacketRepr, classify};
use rnic_machine::function::SimulatedFunction;
use rnic_machine::host::{Access, Bar, HostOptions};
use rnic_machine::monitor::Rule;
use rnic_machine::monitor::order::{Ring, RingKind};
use rnic_machine::wire::WireCounts;
use rnic_machine::wire::replay::Replay;
use rnic_machine::wire::socket::{Pace, Socket};
use rnic_machine::wire::{Fate, Frame, WireOptions};
use rnic_machine::world::{CardOptions, Domain, Port, World, model_options};
use rnic_monitor::Monitor;
use rnic_stimulus::captures::Capture;
use rnic_stimulus::chance::{Delay, Seed};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use verilator_sys::{Model, ModelOptions, Optimization};

const SOURCE: u64 = 0x1_0000;
const TARGET: u64 = 0x8_0000;
const SPAN: usize = 0x8000;
const MICROSECOND_PS: u64 = 1_000_000;

fn model(width_bits: u32) -> Result<Model> {
    let parameters = [
        ("W", width_bits as usize),
        ("FRAMES_DROPPED", counter("buffer_full")),
        ("FRAMES_RECEIVED", counter("frames_received")),
        ("BYTES_RECEIVED", counter("bytes_received")),
        ("FRAMES_KEPT", counter("requests_received")),
        ("FRAMES_SENT", counter("frames_sent")),
        ("BYTES_SENT", counter("bytes_sent")),
        ("HOST_READS", counter("host_reads")),
        ("HOST_WRITES", counter("host_writes")),
        ("INTERRUPTS", counter("interrupts_raised")),
    ];
    let verilator_arguments = parameters.map(|(name, value)| format!("-G{name}={value}")).to_vec();
    let options =
        ModelOptions { optimization: Optimization::O1, verilator_arguments, ..ModelOptions::default() };
    Ok(Model::build("echo_card", include_str!("fixtures/echo_card.v"), &model_options(options))?)
}

/// Options of a card whose frames are not judged, since it echoes any.
fn options(width_bits: u32, host: HostOptions) -> CardOptions {
    CardOptions { host, is_judged: false, ..CardOptions::standard(width_bits) }
}

/// A world of one card, out of reset, whose host has a source full of random bytes and a target.
fn world(width_bits: u32, host: HostOptions, seed: u64) -> Result<World> {
    let mut world = World::new(seed);
    world.add_card(&model(width_bits)?, options(width_bits, host))?;
    let mut random = Seed(seed).stream("source");
    let memory = world.host_mut(0).memory_mut();
    let source = memory.allocate(SPAN);
    memory.buffer_mut(source)?.fill_with(|| random.random());
    memory.map(SOURCE, source, 0, SPAN, Access::Read)?;
    let target = memory.allocate(SPAN);
    memory.map(TARGET, target, 0, SPAN, Access::Write)?;
    world.leave_reset()?;
    Ok(world)
}

/// A world of two cards in reset.
fn two_cards(width_bits: u32) -> Result<World> {
    let mut world = World::new(9);
    let model = model(width_bits)?;
    for _ in 0..2 {
        world.add_card(&model, options(width_bits, HostOptions::IDEAL))?;
    }
    Ok(world)
}

fn start_copy(world: &mut World, from: u64, to: u64, length: u64, count: u64) -> Result<()> {
    for (offset, value) in [(0x2000, from), (0x2008, to), (0x2010, count << 16 | length)] {
        world.write_register(0, Bar::Registers, offset, value)?;
    }
    world.post_register(0, Bar::Registers, 0x2018, 1);
    Ok(())
}

fn set_fault(world: &mut World, fault: u64) -> Result<()> {
    Ok(world.write_register(0, Bar::Registers, 0x2020, fault)?)
}

/// Copies `count` pieces and compares them once the interrupt is there.
fn copy(world: &mut World, offset: u64, length: u64, count: u64) -> Result<()> {
    start_copy(world, SOURCE + offset, TARGET + offset, length, count)?;
    world.run_until("the copy raises its interrupt", 500 * MICROSECOND_PS, |world| {
        world.host_mut(0).take_interrupt().is_some_and(|interrupt| interrupt.vector == 5)
    })?;
    for piece in 0..count {
        let at = offset + piece * 512;
        let (mut from, mut to) = (vec![0; length as usize], vec![0; length as usize]);
        world.host(0).memory().read_bytes(SOURCE + at, &mut from)?;
        world.host(0).memory().read_bytes(TARGET + at, &mut to)?;
        ensure!(from == to, "piece {piece} at {at:#x} differs");
    }
    let status = world.read_register(0, Bar::Registers, 0x2018)?;
    ensure!(status == count, "the card says {status:#x}");
    Ok(())
}

/// What a run shows of itself, to be compared with another.
fn fingerprint(width_bits: u32, seed: u64) -> Result<(u64, u64, u64, Vec<WireCounts>)> {
    let host = HostOptions::hostile(&mut Seed(seed).stream("host options"));
    let mut world = world(width_bits, host, seed)?;
    let replay = world.add_station(Replay::new());
    let wire_options = WireOptions {
        loss: 0.2,
        duplicate: 0.1,
        delay: Delay::Uniform { min_ps: 100_000, max_ps: 900_000 },
        ..world.card(0).options().wire()
    };
    let wire = world.connect(Port::Card(0), Port::Station(replay), wire_options)?;
    for length in 0..40 {
        world.station::<Replay>(replay).send_at(0, Frame::new(vec![length; 60 + usize::from(length) * 37]));
    }
    copy(&mut world, 0x23, 0x1d0, 20)?;
    world.finish()?;
    let cycles = world.card(0).cycles(Domain::Core);
    Ok((world.now_ps(), world.events(), cycles, world.wire_counts(wire).to_vec()))
}

#[test]
fn memory_is_copied_whatever_the_host_does() -> Result<()> {
    for width_bits in [64, 512] {
        let mut hosts = vec![HostOptions::IDEAL, HostOptions::STANDARD];
        hosts.extend((0..6).map(|seed| HostOptions::hostile(&mut Seed(seed).stream("host options"))));
        for (seed, host) in (0..).zip(hosts) {
            let mut world = world(width_bits, host, seed)?;
            let mut random = Seed(seed).stream("copies");
            for _ in 0..6 {
                let offset = random.random_range(0..512);
                let length = random.random_range(1..=512 - offset);
                copy(&mut world, offset, length, random.random_range(1..=50))?;
            }
            world.finish()?;
        }
    }
    Ok(())
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() -> Result<()> {
    for width_bits in [64, 512] {
        let first = fingerprint(width_bits, 11)?;
        assert_eq!(first, fingerprint(width_bits, 11)?);
        assert_ne!(first, fingerprint(width_bits, 12)?);
    }
    Ok(())
}

#[test]
fn a_read_that_fails_is_reported_to_the_card_and_to_the_test() -> Result<()> {
    let mut world = world(512, HostOptions::STANDARD, 1)?;
    start_copy(&mut world, SOURCE + SPAN as u64 - 512, TARGET, 512, 2)?;
    world.run_for(20 * MICROSECOND_PS)?;
    let status = world.read_register(0, Bar::Registers, 0x2018)?;
    assert_eq!(status, 1 << 48 | 2, "both pieces are done, and one has failed");
    let faults = world.host_mut(0).memory_mut().take_faults();
    assert_eq!(faults[0].address, SOURCE + SPAN as u64, "{faults:?}");
    world.finish()?;
    start_copy(&mut world, SOURCE, SOURCE, 64, 1)?;
    world.run_for(20 * MICROSECOND_PS)?;
    let violations = world.finish().unwrap_err().to_string();
    assert!(violations.contains("Bounds: the card may not Write at 0x10000: Direction"), "{violations}");
    Ok(())
}

#[test]
fn registers_answer_and_refuse() -> Result<()> {
    let host = HostOptions { register_stall: 0.5, ..HostOptions::STANDARD };
    let mut world = world(64, host, 3)?;
    for value in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
        world.write_register(0, Bar::Registers, 0x2028, value)?;
        assert_eq!(world.read_register(0, Bar::Registers, 0x2028)?, value);
    }
    assert!(world.write_register(0, Bar::Doorbells, 0xf000, 1).is_err(), "the slave refuses this one");
    world.post_register(0, Bar::Doorbells, 0xf000, 1);
    let violations = world.finish().unwrap_err().to_string();
    assert!(violations.contains("Answer"), "a posted write that failed is not forgotten: {violations}");
    Ok(())
}

/// The card echoes each frame of a station.
#[test]
fn frames_cross_clocks_and_wires_unchanged() -> Result<()> {
    for width_bits in [64, 512] {
        let mut world = world(width_bits, HostOptions::IDEAL, 5)?;
        let replay = world.add_station(Replay::new());
        let wire_options = world.card(0).options().wire();
        let wire = world.connect(Port::Station(replay), Port::Card(0), wire_options)?;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("card.pcap");
        world.capture(Port::Card(0), &path)?;
        let mut random = Seed(5).stream("frames");
        let frames: Vec<Frame> = (0..60)
            .map(|_| {
                let mut bytes = vec![0; random.random_range(14..=1500)];
                bytes.fill_with(|| random.random());
                Frame::new(bytes)
            })
            .collect();
        for frame in &frames {
            world.station::<Replay>(replay).send_at(0, frame.clone());
        }
        world.finish()?;
        let received = world.station::<Replay>(replay).take_received();
        let bytes: Vec<&Vec<u8>> = received.iter().map(|(_, frame)| &frame.bytes).collect();
        assert!(bytes.iter().copied().eq(frames.iter().map(|frame| &frame.bytes)));
        assert_eq!(world.wire_counts(wire)[1].arrived, 60);
        drop(world);
        assert_eq!(Capture::read(&path)?.frames.len(), 120, "each frame crossed the port twice");
    }
    Ok(())
}

#[test]
fn damaged_frames_and_a_flood_are_dropped_and_accounted_for() -> Result<()> {
    let mut world = world(64, HostOptions::IDEAL, 6)?;
    let replay = world.add_station(Replay::new());
    let wire_options = WireOptions { damage: 0.3, ..world.card(0).options().wire() };
    world.connect(Port::Station(replay), Port::Card(0), wire_options)?;
    for length in 60..200 {
        world.station::<Replay>(replay).send_at(0, Frame::new(vec![1; length]));
    }
    world.finish()?;
    let counters = world.counters(0)?;
    assert!(counters[counter("mac_error")] > 20);
    assert_eq!(counters[counter("frames_received")], 140);
    Ok(())
}

/// Both cards echo the frame without end, so a script loses it.
#[test]
fn two_cards_play_with_one_frame_until_it_is_lost() -> Result<()> {
    let mut world = two_cards(512)?;
    let wire = world.connect(Port::Card(0), Port::Card(1), CardOptions::standard(512).wire())?;
    world
        .direction_mut(wire, 0)
        .set_script(Some(Box::new(|index, _| if index == 10 { Fate::Lose } else { Fate::Pass })));
    world.leave_reset()?;
    let now_ps = world.now_ps();
    world.card_mut(0).arrive(now_ps, Frame::new(vec![7; 300]));
    world.finish()?;
    let [there, back] = world.wire_counts(wire);
    assert_eq!((there.sent, there.lost, back.sent, back.arrived), (11, 1, 10, 10));
    Ok(())
}

#[test]
fn cards_that_take_turns_run_one_at_a_time_and_catch_nothing_up() -> Result<()> {
    let mut world = two_cards(64)?;
    world.leave_reset()?;
    let cycles = |world: &World| [0, 1].map(|card| world.card(card).cycles(Domain::Core));
    world.take_turns(true);
    for card in [0, 1, 0] {
        let before = cycles(&world);
        world.read_register(card, Bar::Registers, 0x2018)?;
        let after = cycles(&world);
        assert!(after[card] > before[card], "card {card} runs");
        assert_eq!(after[1 - card], before[1 - card], "card {} stands still", 1 - card);
    }
    world.take_turns(false);
    let before = cycles(&world);
    world.run_for(MICROSECOND_PS)?;
    let passed = [0, 1].map(|card| cycles(&world)[card] - before[card]);
    assert!(passed.iter().all(|cycles| (249..=251).contains(cycles)), "{passed:?} of 250 cycles");
    Ok(())
}

/// Runs a copy of three pieces and two frames on a card with a fault, and returns which rules were seen to be violated.
fn rules_of_fault(fault: u64) -> Result<Vec<Rule>> {
    let host = HostOptions {
        read_request_stall: 0.6,
        write_request_stall: 0.6,
        write_data_stall: 0.6,
        interrupt_stall: 0.6,
        write_visible: Delay::nanoseconds(200),
        ..HostOptions::IDEAL
    };
    let mut world = world(512, host, 21)?;
    let replay = world.add_station(Replay::new());
    let wire_options = world.card(0).options().wire();
    world.connect(Port::Station(replay), Port::Card(0), wire_options)?;
    let kind = RingKind::Event { vector: 5 };
    let ring = Ring { kind, number: 0, address: TARGET, entries_log2: 6, doorbell_page: 0 };
    world.host_mut(0).order_mut().watch(ring);
    let event = Eqe {
        object_number: 0,
        detail: 0,
        kind: EventKind::Asynchronous,
        code: AsyncEvent::PortActive,
        phase: true,
    };
    let mut events = [0; 32];
    events[..16].copy_from_slice(&event.to_bytes()?);
    events[16..].copy_from_slice(&event.to_bytes()?);
    world.host_mut(0).memory_mut().write_bytes(SOURCE, &events)?;

    let run = |world: &mut World| -> Result<()> {
        set_fault(world, fault)?;
        for _ in 0..2 {
            world.station::<Replay>(replay).send_at(0, Frame::new(vec![1; 200]));
        }
        // Two entries of the event queue, then pieces outside of it.
        start_copy(world, SOURCE, TARGET, 32, 1)?;
        world.run_for(10 * MICROSECOND_PS)?;
        start_copy(world, SOURCE + 2048, TARGET + 2048, 200, 20)?;
        world.host_mut(0).order_mut().forget_all();
        world.run_for(20 * MICROSECOND_PS)?;
        Ok(world.finish()?)
    };
    let result = run(&mut world);
    let mut rules: Vec<Rule> =
        world.card_mut(0).log_mut().take().iter().map(|violation| violation.rule).collect();
    rules.sort();
    rules.dedup();
    ensure!(result.is_ok() == rules.is_empty(), "fault {fault}: {result:?}, but {rules:?}");
    Ok(rules)
}

#[test]
fn every_planted_fault_is_seen_by_its_monitor() -> Result<()> {
    assert_eq!(rules_of_fault(0)?, [], "without a fault no rule is violated");
    let faults = [
        (1, Rule::Handshake, "a read request is withdrawn"),
        (2, Rule::Handshake, "the address of a read request changes"),
        (3, Rule::Handshake, "a word to write changes"),
        (4, Rule::Shape, "a read has no bytes"),
        (5, Rule::Shape, "a read crosses a page"),
        (6, Rule::Tag, "all reads have one tag"),
        (7, Rule::Words, "a write ends too early"),
        (8, Rule::Answer, "the register slave does not answer"),
        (9, Rule::Order, "the interrupt comes before the event"),
        (10, Rule::Counters, "a frame is not counted"),
        (11, Rule::Frame, "a frame that is sent is marked as broken"),
        (12, Rule::Pools, "a write never gets its data"),
        (13, Rule::Handshake, "the vector of an interrupt changes"),
        (14, Rule::Answer, "the register slave answers without being asked"),
        (15, Rule::Frame, "the line waits inside a frame"),
        (17, Rule::Pools, "an entry of a pool is lost"),
    ];
    for (fault, rule, what) in faults {
        let rules = rules_of_fault(fault)?;
        assert!(rules.contains(&rule), "{what}: {rules:?}");
    }
    Ok(())
}

/// A card whose frames are judged, as usual, and that echoes the frame of a queue pair that it does not have.
#[test]
fn a_frame_that_no_set_up_allows_ends_the_run_with_all_that_is_known() -> Result<()> {
    let mut world = World::new(33);
    world.add_card(&model(512)?, CardOptions::standard(512))?;
    let replay = world.add_station(Replay::new());
    let wire_options = world.card(0).options().wire();
    world.connect(Port::Station(replay), Port::Card(0), wire_options)?;
    world.leave_reset()?;
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/rxe_rc_send_2500.pcap");
    let capture = Capture::read(&path)?;
    let frame = capture.roce_frames().next().context("there are some")?;
    world.station::<Replay>(replay).send_at(0, Frame::new(frame.clone()));
    let failure = world.run_for(5 * MICROSECOND_PS).unwrap_err();
    assert!(failure.violations.iter().all(|violation| violation.rule == Rule::Wire), "{failure}");
    let text = failure.to_string();
    for part in
        ["seed 33", "card0 at ", "wire 0, direction 1", "Destination: no queue pair", "RC_SEND_", " PSN 0x"]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    Ok(())
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Tells the monitor of a port of a queue pair whose first packet is this one, over IPv4.
fn set_up(port: &mut Monitor, packet: &PacketRepr) -> Result<()> {
    let gid = packet.ip.source().0;
    let mac = number_of(&packet.ethernet.source.0);
    let source = u64::from_le_bytes(SourceAddressPort { mac, valid: true }.to_bytes()?);
    port.register(REG_SOURCE_ADDRESS_HIGH.at(0).into(), number_of(&gid[..8]));
    port.register(REG_SOURCE_ADDRESS_LOW.at(0).into(), number_of(&gid[8..]));
    port.register(REG_SOURCE_ADDRESS_PORT.at(0).into(), source);
    let handle = CreateAddressHandle {
        source_port: packet.udp.source_port,
        destination_mac: number_of(&packet.ethernet.destination.0),
        traffic_class: packet.ip.traffic_class(),
        hop_limit: packet.ip.hop_limit(),
        destination_address: packet.ip.destination().0,
        ..CreateAddressHandle::at_reset()
    };
    let attributes = [
        AttributeMask::STATE,
        AttributeMask::PARTITION,
        AttributeMask::ADDRESS,
        AttributeMask::PATH_MTU,
        AttributeMask::DESTINATION_QP,
        AttributeMask::SEND_PSN,
        AttributeMask::RETRY_COUNT,
    ];
    let modify = ModifyQueuePair {
        mask: attributes.into_iter().fold(AttributeMask::NONE, AttributeMask::and).0,
        next_state: QpState::ReadyToSend,
        partition_key: packet.bth.partition_key,
        address_handle: 1,
        path_mtu: PathMtu::Bytes1024,
        destination_qp: packet.bth.destination_qp,
        send_psn: packet.bth.psn.value(),
        retry_count: 7,
        ..ModifyQueuePair::at_reset()
    };
    for (opcode, body) in [
        (CommandOpcode::CreateAddressHandle, Body::AddressHandle(handle)),
        (CommandOpcode::CreateQueuePair, Body::CreateQueuePair(CreateQueuePair::at_reset())),
        (CommandOpcode::ModifyQueuePair, Body::ModifyQueuePair(modify)),
    ] {
        port.command(&Command { header: CommandHeader { opcode, tag: 1, object_number: 1 }, body });
        port.answer(0, &Answer { tag: 1, status: CommandStatus::Success, ..Answer::at_reset() });
    }
    Ok(())
}

/// Returns a first packet of Linux, with the bit that our cards set.
fn first_packet() -> Result<Vec<u8>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/rxe_rc_send_2500.pcap");
    let capture = Capture::read(&path)?;
    let frame = capture.roce_frames().next().context("there are some")?;
    let mut packet = classify(frame, false, &Filter::PROMISCUOUS)?;
    ensure!(matches!(packet.ip, IpRepr::V4(_)), "it is IPv4");
    packet.bth.migrated = true;
    let mut bytes = vec![0; packet.buffer_len()];
    packet.emit(&mut bytes)?;
    Ok(bytes)
}

/// A card sends a request twice, by echoing it, and nothing was lost on the wire. That is right only if the card has dropped a frame.
#[test]
fn requests_that_are_sent_again_are_judged_with_the_counters() -> Result<()> {
    let frame = first_packet()?;
    for dropped in [0, 1] {
        let mut world = World::new(34);
        world.add_card(&model(512)?, CardOptions::standard(512))?;
        let replay = world.add_station(Replay::new());
        let wire_options = world.card(0).options().wire();
        world.connect(Port::Card(0), Port::Station(replay), wire_options)?;
        set_up(world.host_mut(0).port_mut(), &classify(&frame, false, &Filter::PROMISCUOUS)?)?;
        world.leave_reset()?;
        for _ in 0..2 {
            world.station::<Replay>(replay).send_at(0, Frame::new(frame.clone()));
        }
        for _ in 0..dropped {
            let damaged = Frame { is_damaged: true, ..Frame::new(frame.clone()) };
            world.station::<Replay>(replay).send_at(0, damaged);
        }
        world.run_for(5 * MICROSECOND_PS)?;
        let result = world.finish();
        if dropped > 0 {
            result?;
            continue;
        }
        let text = result.unwrap_err().to_string();
        for part in
            ["seed 34", "card0 at ", "wire 0, direction 0", "RequestPsn: the PSN is ", "RC_SEND_", ".pcap"]
        {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }
    Ok(())
}

#[test]
fn a_failing_run_says_how_to_repeat_it_and_leaves_its_frames() -> Result<()> {
    let mut world = world(512, HostOptions::IDEAL, 31)?;
    let replay = world.add_station(Replay::new());
    let wire_options = world.card(0).options().wire();
    world.connect(Port::Station(replay), Port::Card(0), wire_options)?;
    world.station::<Replay>(replay).send_at(0, Frame::new(vec![1; 64]));
    world.run_for(5 * MICROSECOND_PS)?;
    let failure = world.run_until("pigs fly", MICROSECOND_PS, |_| false).unwrap_err();
    assert!(failure.to_string().starts_with("seed 31, at "), "{failure}");
    assert_eq!(failure.files.len(), 2, "one capture a port: {failure}");
    assert_eq!(Capture::read(&failure.files[0])?.frames.len(), 2);
    Ok(())
}

#[test]
fn a_model_that_is_no_card_is_refused_by_name() {
    let verilog = "module counter (input wire core_clock, output reg q); always @(posedge core_clock) q <= !q; endmodule";
    let model = Model::build("counter", verilog, &ModelOptions::default()).unwrap();
    let error = World::new(1).add_card(&model, CardOptions::standard(512)).unwrap_err();
    assert!(format!("{error:#}").starts_with("`counter` is no card"), "{error:#}");
}

/// The driver's way to a card: registers, memory of its own, interrupts, time.
#[test]
fn a_driver_reaches_a_card_through_its_function() -> Result<()> {
    let world = Arc::new(Mutex::new(world(512, HostOptions::STANDARD, 41)?));
    let function = SimulatedFunction::new(Arc::clone(&world), 0);
    let registers = function.bar(0)?;
    assert_eq!(registers.read64(0x2028), u64::MAX, "no BAR answers until memory is enabled");
    function.write_config(COMMAND, &(COMMAND_MEMORY | COMMAND_BUS_MASTER).to_le_bytes())?;
    assert_eq!(function.config_space()?[..4], [0xf4, 0x1a, 0xf0, 0x10]);
    registers.write64(0x2028, 0x1122_3344_5566_7788);
    assert_eq!(registers.read64(0x2028), 0x1122_3344_5566_7788);
    assert_eq!((registers.read32(0x2028), registers.read32(0x202c)), (0x5566_7788, 0x1122_3344));
    assert_eq!(registers.read64(registers.bytes()), u64::MAX, "nothing is there");
    assert!(function.bar(1).is_err());

    let source = function.allocate(4096, Purpose::Payload)?;
    let target = function.allocate(4096, Purpose::Payload)?;
    let (from, to) = (function.map(&source)?, function.map(&target)?);
    source.device_view().write(8, b"over the boundary")?;
    for (offset, value) in [(0x2000, from + 8), (0x2008, to + 8), (0x2010, 1 << 16 | 17), (0x2018, 1)] {
        registers.write64(offset, value);
    }
    let until = function.now() + Duration::from_micros(50);
    assert!(function.wait_interrupt(5, until)?, "the copy raises its interrupt");
    assert!(!function.take_interrupt(5)?, "an interrupt is taken once");
    let mut bytes = [0; 17];
    target.device_view().read(8, &mut bytes)?;
    assert_eq!(&bytes, b"over the boundary");

    // A card that is not bus master waits.
    function.write_config(COMMAND, &COMMAND_MEMORY.to_le_bytes())?;
    let before = function.world().host(0).traffic();
    registers.write64(0x2018, 1);
    assert!(!function.wait_interrupt(5, function.now() + Duration::from_micros(50))?);
    let after = function.world().host(0).traffic();
    assert_eq!((after.reads, after.writes, after.interrupts), (before.reads, before.writes, 1));
    function.write_config(COMMAND, &(COMMAND_MEMORY | COMMAND_BUS_MASTER).to_le_bytes())?;
    assert!(function.wait_interrupt(5, function.now() + Duration::from_micros(50))?);
    // One that begins nevertheless is found.
    function.write_config(COMMAND, &COMMAND_MEMORY.to_le_bytes())?;
    registers.write64(0x2020, 16);
    registers.write64(0x2018, 1);
    assert!(function.wait_interrupt(5, function.now() + Duration::from_micros(50))?);
    let found = function.world().card_mut(0).log_mut().take();
    assert!(found.len() == 3 && found.iter().all(|found| found.rule == Rule::BusMaster), "{found:?}");
    // A function-level reset in the middle of a copy is acknowledged, and ends the copy.
    registers.write64(0x2020, 0);
    function.write_config(COMMAND, &(COMMAND_MEMORY | COMMAND_BUS_MASTER).to_le_bytes())?;
    registers.write64(0x2010, 8 << 16 | 17);
    registers.write64(0x2018, 1);
    assert!(registers.read64(0x2018) & 0xffff < 8, "the copy is not over");
    function.reset()?;
    assert_eq!(registers.read64(0x2028), u64::MAX, "no BAR answers after a reset");
    function.write_config(COMMAND, &(COMMAND_MEMORY | COMMAND_BUS_MASTER).to_le_bytes())?;
    assert!(!function.wait_interrupt(5, function.now() + Duration::from_micros(50))?);
    function.unmap(from)?;
    function.unmap(to)?;
    assert!(function.unmap(to).is_err());
    function.world().finish()?;
    Ok(())
}

#[test]
fn a_station_that_cannot_go_on_ends_the_run() -> Result<()> {
    let mut world = world(64, HostOptions::IDEAL, 1)?;
    let (ours, theirs) = UnixStream::pair()?;
    let station = Socket::new(ours, Pace::Turns { every_ps: MICROSECOND_PS }, Duration::from_secs(20))?;
    let station = world.add_station(station);
    world.connect(Port::Card(0), Port::Station(station), world.card(0).options().wire())?;
    drop(theirs);
    let failure = world.run_for(10 * MICROSECOND_PS).expect_err("the other end is closed");
    ensure!(failure.text == "station 0: the foreign peer has closed its socket", "{failure}");
    Ok(())
}
