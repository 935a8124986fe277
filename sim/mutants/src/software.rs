//! Faults of the driver and of the reference endpoint, which are compiled with the feature `mutants` only.
use crate::{Fault, Kind, Place};

/// The faults; each is in the source of its crate as `mutant!("<name>")`.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "doorbell-before-wqe",
        kind: Kind::NoWait,
        place: Place::Crate("driver"),
        means: "a doorbell is written before its WQE",
        judge: "message",
    },
    Fault {
        name: "unmap-before-destroy",
        kind: Kind::Early,
        place: Place::Crate("driver"),
        means: "memory of a region is unmapped before the region is destroyed",
        judge: "keys",
    },
    Fault {
        name: "index-freed-before-destroy",
        kind: Kind::Early,
        place: Place::Crate("driver"),
        means: "the index of a key is free before its region is destroyed",
        judge: "numbers",
    },
    Fault {
        name: "consumer-index-not-published",
        kind: Kind::Lost,
        place: Place::Crate("driver"),
        means: "the card never hears that CQEs were read",
        judge: "endpoint",
    },
    Fault {
        name: "solicited-flag-lost",
        kind: Kind::Lost,
        place: Place::Crate("driver"),
        means: "WQEs are never solicited",
        judge: "operations",
    },
    Fault {
        name: "fence-flag-lost",
        kind: Kind::Lost,
        place: Place::Crate("driver"),
        means: "WQEs are never fenced",
        judge: "holds",
    },
    Fault {
        name: "send-sges-swapped",
        kind: Kind::Swapped,
        place: Place::Crate("driver"),
        means: "the first two SGEs of a send are swapped",
        judge: "operations",
    },
    Fault {
        name: "srq-doorbell-one-behind",
        kind: Kind::OffByOne,
        place: Place::Crate("driver"),
        means: "the last receive of an SRQ is not published",
        judge: "shared",
    },
    Fault {
        name: "page-offset-lost",
        kind: Kind::WrongField,
        place: Place::Crate("driver"),
        means: "a region with a page list begins at its first page",
        judge: "scattered",
    },
    Fault {
        name: "queue-end-not-signalled",
        kind: Kind::Lost,
        place: Place::Crate("driver"),
        means: "a send queue of unsignalled WQEs fills for ever",
        judge: "rings",
    },
    Fault {
        name: "earlier-sends-flushed",
        kind: Kind::WrongField,
        place: Place::Crate("driver"),
        means: "unsignalled sends that succeeded complete as flushed",
        judge: "operations",
    },
    Fault {
        name: "arm-lost",
        kind: Kind::Lost,
        place: Place::Crate("driver"),
        means: "a completion queue is never armed",
        judge: "hosts",
    },
    Fault {
        name: "endpoint-pad-not-checked",
        kind: Kind::Lost,
        place: Place::Crate("endpoint"),
        means: "a wrong pad count is accepted",
        judge: "frames",
    },
    Fault {
        name: "endpoint-read-not-counted",
        kind: Kind::Lost,
        place: Place::Crate("endpoint"),
        means: "READs do not count in the MSN",
        judge: "endpoint",
    },
    Fault {
        name: "endpoint-add-of-32-bits",
        kind: Kind::WrongWidth,
        place: Place::Crate("endpoint"),
        means: "FETCH_ADD adds 32 bits",
        judge: "endpoint",
    },
    Fault {
        name: "endpoint-acknowledges-one-ahead",
        kind: Kind::Early,
        place: Place::Crate("endpoint"),
        means: "an ACK covers a packet that was not received",
        judge: "endpoint",
    },
    Fault {
        name: "endpoint-read-needs-write",
        kind: Kind::WrongField,
        place: Place::Crate("endpoint"),
        means: "a READ is checked for the right to WRITE",
        judge: "endpoint",
    },
    Fault {
        name: "endpoint-immediate-swapped",
        kind: Kind::Swapped,
        place: Place::Crate("endpoint"),
        means: "the bytes of immediate data are swapped",
        judge: "endpoint",
    },
    Fault {
        name: "endpoint-keeps-invalidated-key",
        kind: Kind::Lost,
        place: Place::Crate("endpoint"),
        means: "SEND with Invalidate leaves the key valid",
        judge: "endpoint",
    },
    Fault {
        name: "endpoint-fence-ignored",
        kind: Kind::NoWait,
        place: Place::Crate("endpoint"),
        means: "fenced work does not wait for READs",
        judge: "endpoint",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    /// Sources of the crates, by the name in [`Place::Crate`].
    const SOURCES: [(&str, &str); 2] = [("driver", "driver/src"), ("endpoint", "sim/endpoint/src")];

    /// All files of a folder and of the folders in it.
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }

    /// Names of the faults in the source of a crate, each as often as it occurs.
    fn planted(folder: &str) -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        let names = files(&root).into_iter().flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            let starts = text.split("mutant!(\"").skip(1);
            starts.map(|rest| rest.split('"').next().unwrap().to_string()).collect::<Vec<_>>()
        });
        names.collect()
    }

    #[test]
    fn each_fault_is_planted_once_and_no_other_is() {
        for (name, folder) in SOURCES {
            let planted = planted(folder);
            let of_crate = FAULTS.iter().filter(|fault| fault.place == Place::Crate(name));
            let expected: BTreeSet<String> = of_crate.map(|fault| fault.name.to_string()).collect();
            assert_eq!(planted.len(), expected.len(), "{folder}");
            assert_eq!(planted.into_iter().collect::<BTreeSet<_>>(), expected, "{folder}");
        }
        assert!(FAULTS.iter().all(|fault| SOURCES.iter().any(|(name, _)| fault.place == Place::Crate(name))));
    }
}
