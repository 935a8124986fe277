//! Shape of host requests, and requests that are left at the end.
use super::{Log, Rule};
use rnic_layout::limits::{HOST_BOUNDARY_BYTES, HOST_REQUEST_BYTES_MAX};

/// Checks that a request has 1 to 512 bytes and crosses no multiple of 4096. Returns whether it does.
pub fn check_shape(log: &mut Log, time_ps: u64, what: &str, address: u64, length: u32) -> bool {
    let is_wrong_length = length == 0 || length > HOST_REQUEST_BYTES_MAX;
    // A request that wraps crosses the last multiple.
    let crosses = address % HOST_BOUNDARY_BYTES + u64::from(length) > HOST_BOUNDARY_BYTES;
    if is_wrong_length || crosses {
        let which =
            if is_wrong_length { "has a length that is not 1 to 512" } else { "crosses a multiple of 4096" };
        log.report(time_ps, Rule::Shape, || format!("{what} of {length} bytes at {address:#x} {which}"));
    }
    !is_wrong_length && !crosses
}

/// Checks that no request is in flight when a run has ended.
pub fn check_idle(log: &mut Log, time_ps: u64, what: &str, count: usize) {
    if count > 0 {
        log.report(time_ps, Rule::Pools, || format!("{count} {what} are left at the end"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_of_a_request_is_kept_on_both_sides() {
        let cases = [
            (0, 1, true),
            (0, 0, false),
            (0, 512, true),
            (0, 513, false),
            (4096 - 512, 512, true),
            (4096 - 511, 512, false),
            (4095, 1, true),
            (4095, 2, false),
            (u64::MAX, 1, true),
            (u64::MAX, 2, false),
        ];
        for (address, length, is_good) in cases {
            let mut log = Log::new("card0");
            assert_eq!(check_shape(&mut log, 5, "a read", address, length), is_good, "{address:#x}+{length}");
            assert_eq!(log.violations().is_empty(), is_good);
            assert!(log.take().iter().all(|violation| violation.rule == Rule::Shape));
        }
    }

    #[test]
    fn accesses_in_flight_at_the_end_are_reported() {
        let mut log = Log::new("card0");
        check_idle(&mut log, 0, "reads", 0);
        assert!(log.violations().is_empty());
        check_idle(&mut log, 7, "reads", 2);
        assert_eq!(log.take()[0].to_string(), "card0 at 7 ps: Pools: 2 reads are left at the end");
    }
}
