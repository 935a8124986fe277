//! Waits of the driver for a card whose host is slow, or never answers.

use crate::fake::{CLOCK_KHZ, FakeFunction, Faults};
use crate::rig::MAC;
use rnic_driver::{Device, Error, Function, Options};
use rnic_layout::registers::{HostLimit, REG_HOST_LIMIT};
use std::sync::Arc;
use std::time::Duration;

fn open(function: &Arc<FakeFunction>, options: Options) -> Result<Device, Error> {
    Device::open(Arc::clone(function) as Arc<dyn Function>, options)
}

/// Steps of the fake card, each of a microsecond.
const fn steps(time: Duration) -> u32 {
    time.as_micros() as u32
}

#[test]
fn a_host_read_of_forty_milliseconds_is_only_slow() {
    let function = FakeFunction::new(1);
    let slow_commands = steps(Duration::from_millis(40));
    // Every command, that of the start among them, and each reset.
    function.misbehave(Faults { slow_commands, reset_steps: slow_commands, ..Faults::default() });
    let device = open(&function, Options::new(MAC)).unwrap();
    let domain = device.create_protection_domain().unwrap();
    drop((domain.allocate(10).unwrap(), domain, device));
    let card = function.card();
    assert_eq!((card.function_resets, card.mappings()), (0, 0));
}

#[test]
fn a_card_that_waits_longer_than_all_limits_is_reset_and_used_again() {
    let function = FakeFunction::new(1);
    let options = || Options {
        timeout: Duration::from_micros(300),
        host_limit: Duration::from_millis(2),
        ..Options::new(MAC)
    };
    let device = open(&function, options()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    // The read of the command and the write of the answer are two accesses.
    let longest = 2 * 2000 + 300;
    function.misbehave(Faults { slow_commands: longest - 5, ..Faults::default() });
    drop(domain.allocate(10).unwrap());
    function.misbehave(Faults { slow_commands: u32::MAX, ..Faults::default() });
    let begin = function.now();
    let error = domain.allocate(10).unwrap_err();
    assert!(matches!(error, Error::TimedOut { what: "the answer to a command", .. }), "{error}");
    let took = steps(function.now() - begin);
    assert!((longest..longest + 10).contains(&took), "{took} us");
    assert!(matches!(domain.allocate(10), Err(Error::AdminStopped { .. })));
    drop((domain, device));
    function.misbehave(Faults::default());
    let device = open(&function, options()).unwrap();
    device.create_protection_domain().unwrap().allocate(10).unwrap();
}

#[test]
fn card_and_driver_have_one_limit() {
    for (host_limit, units) in [
        (Options::new(MAC).host_limit, 15_625),
        (Duration::from_nanos(1), 1),
        (Duration::from_nanos(4097), 2),
        (Duration::from_nanos(HostLimit::nanoseconds(HostLimit::UNITS_MAX, CLOCK_KHZ)), 65_535),
    ] {
        let function = FakeFunction::new(1);
        let device = open(&function, Options { host_limit, ..Options::new(MAC) }).unwrap();
        assert_eq!(function.card().register(REG_HOST_LIMIT.offset), units, "{host_limit:?}");
        drop(device);
    }
    for host_limit in [Duration::ZERO, Duration::from_nanos(268_431_361), Duration::MAX] {
        let error = open(&FakeFunction::new(1), Options { host_limit, ..Options::new(MAC) }).unwrap_err();
        let value = u64::try_from(host_limit.as_nanos()).unwrap_or(u64::MAX);
        assert_eq!(
            error.to_string(),
            format!("host_limit in ns is {value}; this card allows 1 to 268431360")
        );
    }
}

/// A reset takes as long as the card waits for its host, as the register says, not as the options of the next owner do.
#[test]
fn a_reset_is_waited_for_as_long_as_the_card_waits_for_its_host() {
    let function = FakeFunction::new(1);
    let short = || Options { timeout: Duration::from_micros(100), ..Options::new(MAC) };
    let longest = steps(Duration::from_nanos(HostLimit::nanoseconds(15_625 + 64, CLOCK_KHZ))) + 100;
    for (reset_steps, function_resets) in [(longest - 5, 0), (longest + 5, 1)] {
        function.misbehave(Faults { reset_steps, ..Faults::default() });
        let options = Options { host_limit: Duration::from_micros(5), ..short() };
        let device = open(&function, options).unwrap();
        assert_eq!(function.card().function_resets, function_resets, "{reset_steps} steps");
        function.misbehave(Faults::default());
        drop(device);
    }
}
