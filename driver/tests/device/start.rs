//! Opening a card, its failures, and objects without queue pairs: regions, address handles, event queues, counters.

use crate::fake::{ADDRESS_BITS, FakeFunction, Faults};
use rnic_driver::{Device, Error, EventQueueOptions, Function, FunctionError, Options, Path, RemoteRights};
use rnic_layout::admin::{CommandOpcode, CommandStatus};
use rnic_layout::path::Gid;
use rnic_layout::pci::{COMMAND_BUS_MASTER, COMMAND_MEMORY};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::registers::*;
use std::sync::Arc;
use std::time::Duration;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn options() -> Options {
    Options { seed: Some(1), timeout: Duration::from_micros(100), ..Options::new(MAC) }
}

fn open(function: &Arc<FakeFunction>) -> Result<Device, Error> {
    Device::open(Arc::clone(function) as Arc<dyn Function>, options())
}

fn open_faulty(faults: Faults) -> Error {
    let function = FakeFunction::new(1);
    function.misbehave(faults);
    let error = open(&function).unwrap_err();
    assert_eq!(function.card().mappings(), 0, "memory is unmapped");
    error
}

#[test]
fn a_card_is_started_in_the_order_of_the_manual() {
    let function = FakeFunction::new(1);
    function.misbehave(Faults { reset_steps: 20, ..Faults::default() });
    let device = open(&function).unwrap();
    let card = function.card();
    assert_eq!(card.register(REG_CONTROL.offset), 1);
    assert_eq!(card.register(REG_OWN_MAC.offset), 0x0200_0000_0001);
    assert_eq!(card.register(REG_SOURCE_ADDRESS_HIGH.at(0)), 0xfe80_0000_0000_0000);
    assert_eq!(card.register(REG_SOURCE_ADDRESS_LOW.at(0)), 0x0000_00ff_fe00_0001);
    assert_eq!(card.register(REG_SOURCE_ADDRESS_PORT.at(0)), 1 << 48 | 0x0200_0000_0001);
    // One kind of context is in host memory; the other three mappings are the command, answer and event rings.
    assert_ne!(card.register(REG_HOST_MEMORY_BASE.at(MemoryKind::Region.number().into())), 0);
    assert_eq!(card.mappings(), 4);
    assert_eq!(card.commands, [CommandOpcode::Nothing]);
    drop(card);
    assert_eq!(device.limits().geometry.datapath_bits, 512);
    assert_eq!(device.address(0), Some(Gid::from_mac(MAC)));
    assert!(device.link_up().unwrap());
    assert_eq!(function.card().address_bits, Some(u32::from(ADDRESS_BITS)));
    assert_eq!(device.limits().address_bits(), u32::from(ADDRESS_BITS));
    assert_eq!(device.permanent_mac().unwrap(), Some([2, 0, 0, 0, 0, 9]));
    assert_eq!(device.port_speed().unwrap(), Some(25_000));
    device.check().unwrap();

    drop(device);
    let card = function.card();
    assert_eq!(card.register(REG_CONTROL.offset), 0, "a reset has cleared it");
    assert_eq!(card.mappings(), 0);
}

#[test]
fn another_card_is_refused_by_its_magic() {
    let error = open_faulty(Faults { magic: Some(0x1234), ..Faults::default() });
    assert_eq!(
        error.to_string(),
        "this is not an rnic card: register magic is 0x0000000000001234, and would be 0x2177682d63696e72; open \
         another device"
    );
    let error = open_faulty(Faults { magic: Some(u64::MAX), ..Faults::default() });
    assert!(matches!(error, Error::Absent));
}

#[test]
fn a_function_that_is_not_ours_is_refused_by_its_configuration_space() {
    for (byte, value, what) in [
        (0x00, 0xec, "its PCI vendor is 0x1aec, and that of an rnic card of this layout is 0x1af4"),
        (0x02, 0xf1, "its PCI device is 0x10f1, and that of an rnic card of this layout is 0x10f0"),
        (0x2d, 0x00, "its PCI subsystem vendor is 0x00f4"),
        (0x2e, 0x00, "its PCI subsystem is 0x7200"),
        (0x08, 0x01, "its PCI revision is 0x0001, and that of an rnic card of this layout is 0x0002"),
    ] {
        let error = open_faulty(Faults { config_byte: Some((byte, value)), ..Faults::default() });
        assert!(error.to_string().starts_with(&format!("this function is not ours: {what}")), "{error}");
    }
    let error = open_faulty(Faults { config_bytes: Some(63), ..Faults::default() });
    assert!(error.to_string().contains("has 63 bytes, and 64 are needed"), "{error}");
    for bytes in [4096, 32 << 20] {
        let error = open_faulty(Faults { doorbell_bytes: Some(bytes), ..Faults::default() });
        assert!(matches!(error, Error::BarSize { bar: 2, expected: 0x100_0000, .. }), "{error}");
    }
    // Without a configuration space the card is no PCI function, and this one then has no memory enabled.
    assert!(matches!(open_faulty(Faults { config_bytes: Some(0), ..Faults::default() }), Error::Absent));
}

#[test]
fn a_function_has_one_owner() {
    let function = FakeFunction::new(1);
    let device = open(&function).unwrap();
    let error = open(&function).unwrap_err().to_string();
    let owner = format!("by process {} with the MAC address 02:00:00:00:00:01;", std::process::id());
    assert!(error.contains(&owner), "{error}");
    // An object keeps the function too.
    let events = device.events();
    drop(device);
    assert!(matches!(open(&function), Err(Error::Function(FunctionError::InUse { .. }))));
    drop(events);
    drop(open(&function).unwrap());
    // An attempt that fails leaves no owner.
    function.misbehave(Faults { never_ready: true, ..Faults::default() });
    open(&function).unwrap_err();
    function.misbehave(Faults::default());
    open(&function).unwrap();
}

#[test]
fn an_open_card_is_bus_master_and_a_closed_one_is_not() {
    let function = FakeFunction::new(1);
    let command = || function.card().command() & (COMMAND_MEMORY | COMMAND_BUS_MASTER);
    assert_eq!(command(), 0);
    let device = open(&function).unwrap();
    assert_eq!(command(), COMMAND_MEMORY | COMMAND_BUS_MASTER);
    drop(device);
    assert_eq!(command(), COMMAND_MEMORY);
    // A reset of the function clears both; the driver sets them again.
    function.misbehave(Faults { reset_steps: u32::MAX, ..Faults::default() });
    let device = open(&function).unwrap();
    assert_eq!(function.card().function_resets, 1);
    assert_eq!(command(), COMMAND_MEMORY | COMMAND_BUS_MASTER);
    drop(device);
}

#[test]
fn a_card_that_was_reset_under_the_driver_is_closed_and_opens_again() {
    let function = FakeFunction::new(1);
    let device = open(&function).unwrap();
    function.reset().unwrap();
    assert!(matches!(device.check(), Err(Error::Absent)), "the BARs are off");
    drop(device);
    let card = function.card();
    assert_eq!((card.mappings(), card.command() & COMMAND_MEMORY), (0, COMMAND_MEMORY));
    drop(card);
    open(&function).unwrap();
}

#[test]
fn another_major_version_is_refused_and_another_minor_is_not() {
    let error = open_faulty(Faults { layout_version: Some(1 << 16 | 7), ..Faults::default() });
    assert!(matches!(error, Error::LayoutVersion { found_major: 1, found_minor: 7 }));
    assert!(error.to_string().contains("version 1.7, and this driver speaks 2.x"), "{error}");
    let function = FakeFunction::new(1);
    function.misbehave(Faults { layout_version: Some(2 << 16 | 9), ..Faults::default() });
    open(&function).unwrap();
}

#[test]
fn a_reset_that_times_out_is_repeated_after_a_function_reset() {
    let function = FakeFunction::new(1);
    function.misbehave(Faults { reset_steps: u32::MAX, ..Faults::default() });
    let device = open(&function).unwrap();
    assert_eq!(function.card().function_resets, 1);
    drop(device);
}

#[test]
fn a_card_that_does_not_start_or_answer_is_given_up() {
    let error = open_faulty(Faults { never_ready: true, ..Faults::default() });
    assert!(matches!(error, Error::TimedOut { what: "the start of the card", .. }), "{error}");
    let error = open_faulty(Faults { mute: true, ..Faults::default() });
    assert!(matches!(error, Error::TimedOut { what: "the answer to a command", .. }), "{error}");
    let error = open_faulty(Faults { wrong_tag: true, ..Faults::default() });
    assert!(matches!(error, Error::AdminStopped { .. }), "{error}");
}

#[test]
fn after_a_missing_answer_no_command_is_given() {
    let function = FakeFunction::new(1);
    let device = open(&function).unwrap();
    let domain = device.create_protection_domain().unwrap();
    function.misbehave(Faults { mute: true, ..Faults::default() });
    assert!(matches!(domain.allocate(10), Err(Error::TimedOut { .. })));
    function.misbehave(Faults::default());
    assert!(matches!(domain.allocate(10), Err(Error::AdminStopped { .. })));
}

#[test]
fn options_are_checked_before_the_card_is_touched() {
    let refused = |options| {
        let function = FakeFunction::new(1);
        Device::open(function, options).unwrap_err().to_string()
    };
    let error = refused(Options { addresses: vec![Gid::default(); 17], ..options() });
    assert_eq!(error, "addresses.len() is 17; this card allows 0 to 16");
    for (entries_log2, good) in [(5, false), (6, true), (8, true), (9, false)] {
        let options = Options { eqes_log2: entries_log2, ..options() };
        assert_eq!(Device::open(FakeFunction::new(1), options).is_ok(), good, "{entries_log2}");
    }
}

#[test]
fn a_refused_command_names_the_field_and_leaves_nothing_behind() {
    let function = FakeFunction::new(1);
    let device = open(&function).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let before = function.card().mappings();
    let refuse = Some((CommandOpcode::CreateRegion, CommandStatus::RangeNotAllowed, 192));
    function.misbehave(Faults { refuse, ..Faults::default() });
    let error = domain.allocate(4096).unwrap_err();
    assert!(error.to_string().contains("range_not_allowed in CreateRegion.length;"), "{error}");
    assert_eq!(function.card().mappings(), before);
    // All 128 keys can still be allocated.
    let regions: Vec<_> = (0..128).map(|_| domain.allocate(1).unwrap()).collect();
    assert!(matches!(domain.allocate(1), Err(Error::Exhausted { what: "regions", limit: 128 })));
    drop(regions);
    assert_eq!(function.card().objects()[1], 0);
    domain.allocate(1).unwrap();
}

#[test]
fn equal_seeds_give_equal_keys() {
    let keys = |seed| {
        let function = FakeFunction::new(1);
        let device = Device::open(function, Options { seed: Some(seed), ..options() }).unwrap();
        let domain = device.create_protection_domain().unwrap();
        (0..4).map(|_| domain.share(64, RemoteRights::ALL).unwrap().remote()).collect::<Vec<_>>()
    };
    assert_eq!(keys(1), keys(1));
    assert_ne!(keys(1), keys(2));
}

#[test]
fn a_region_is_split_and_joined_at_any_byte() {
    let device = open(&FakeFunction::new(1)).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let mut whole = domain.allocate(100).unwrap();
    let address = whole.address();
    whole.bytes_mut().copy_from_slice(&std::array::from_fn::<u8, 100, _>(|index| index as u8));
    let (left, mut right) = whole.split_at(33).unwrap();
    assert_eq!((left.len(), right.len(), right.address()), (33, 67, address + 33));
    right.bytes_mut()[0] = 0xff;
    assert_eq!((left.bytes()[32], right.bytes()[1]), (32, 34));
    let (right, left) = right.join(left).unwrap_err();
    let whole = left.join(right).unwrap();
    assert_eq!((whole.len(), whole.bytes()[33]), (100, 0xff));
    assert_eq!(whole.split_at(101).unwrap_err().len(), 100);
    // Ranges of different registrations are never adjacent.
    let (left, right) = (domain.allocate(8).unwrap(), domain.allocate(8).unwrap());
    assert!(left.join(right).is_err());
}

#[test]
fn shared_memory_is_copied_inside_its_bounds() {
    let device = open(&FakeFunction::new(1)).unwrap();
    let region = device.create_protection_domain().unwrap().share(10, RemoteRights::WRITE).unwrap();
    region.write(3, b"abcdefg").unwrap();
    let mut bytes = [0; 4];
    region.read(6, &mut bytes).unwrap();
    assert_eq!(&bytes, b"defg");
    assert!(region.read(7, &mut bytes).is_err());
    assert!(region.write(usize::MAX, b"a").is_err());
}

#[test]
fn address_handles_come_and_go() {
    let function = FakeFunction::new(1);
    let device = open(&function).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let path = Path::new(Gid::from_mac([2, 0, 0, 0, 0, 2]), [2, 0, 0, 0, 0, 2]);
    let handles: Vec<_> = (0..4).map(|_| domain.create_address_handle(&path).unwrap()).collect();
    assert!(matches!(domain.create_address_handle(&path), Err(Error::Exhausted { .. })));
    assert_eq!(function.card().objects()[2], 4);
    drop(handles);
    assert_eq!(function.card().objects()[2], 0);
    let error = domain.create_address_handle(&Path { source_index: 1, ..path }).unwrap_err();
    assert_eq!(error.to_string(), "path.source_index is 1; this card allows 0 to 0");
}

#[test]
fn events_come_with_and_without_interrupts() {
    for vectors in [0, 1] {
        let function = FakeFunction::new(vectors);
        let device = open(&function).unwrap();
        let events = device.events();
        assert_eq!(events.poll().unwrap(), None);
        let started = function.now();
        assert_eq!(events.wait(Duration::from_micros(50)).unwrap(), None);
        let waited = function.now() - started;
        assert!((50..60).contains(&waited.as_micros()), "{waited:?}");
        // More events than the ring has EQEs, so that index and phase wrap.
        for number in 0..1000 {
            function.card().raise(0, AsyncEvent::QueuePairFatal, number);
            let event = events.wait(Duration::from_micros(50)).unwrap().unwrap();
            assert_eq!((event.code, event.object_number), (AsyncEvent::QueuePairFatal, number));
        }
    }
}

#[test]
fn events_that_are_not_polled_are_discarded_oldest_first() {
    let function = FakeFunction::new(1);
    let device = Device::open(Arc::clone(&function) as _, Options { eqes_log2: 6, ..options() }).unwrap();
    let queue = device.events();
    for number in 0..70 {
        function.card().raise(0, AsyncEvent::PortActive, number);
        // Every command reads the events too.
        device.create_protection_domain().unwrap().allocate(1).unwrap();
    }
    assert_eq!(queue.lost(), 6);
    assert_eq!(queue.poll().unwrap().unwrap().object_number, 6);
}

#[test]
fn more_event_queues_can_be_created() {
    let function = FakeFunction::new(4);
    let device = open(&function).unwrap();
    let make = |vector| device.create_event_queue(&EventQueueOptions { vector, ..Default::default() });
    let queues: Vec<_> = (1..4).map(|vector| make(vector).unwrap()).collect();
    assert!(matches!(make(0), Err(Error::Exhausted { what: "event queues", limit: 4 })));
    function.card().raise(2, AsyncEvent::SpeedChange, 0);
    assert_eq!(queues[1].wait(Duration::from_micros(50)).unwrap().unwrap().code, AsyncEvent::SpeedChange);
    assert_eq!(queues[0].poll().unwrap(), None);
    drop(queues);
    assert_eq!(make(3).unwrap().number(), 1);
    assert!(matches!(make(4), Err(Error::Option { .. })));
}

#[test]
fn counters_are_read_by_name() {
    let device = open(&FakeFunction::new(1)).unwrap();
    let counters = device.counters().unwrap();
    assert_eq!(counters.get("mac_error"), 1);
    assert_eq!(counters.iter().count(), COUNTERS.len());
    assert!(counters.iter().any(|(name, value)| (name, value) == ("too_long", 2)));
}
