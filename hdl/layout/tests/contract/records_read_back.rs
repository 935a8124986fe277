//! Every record, filled with random allowed values, is parsed back from the bytes that it emits.

use proptest::prelude::*;
use rnic_layout::admin::*;
use rnic_layout::context::PathRecord;
use rnic_layout::doorbell::*;
use rnic_layout::field::Record;
use rnic_layout::queue::completion::Cqe;
use rnic_layout::queue::event::Eqe;
use rnic_layout::queue::receive::ReceiveWqe;
use rnic_layout::queue::send::*;
use rnic_layout::registers::*;

/// Clears reserved bits, and replaces values that a field does not allow.
fn legal(record: &Record, bytes: &mut [u8]) {
    for &(first, end) in record.reserved {
        for bit in first..end {
            bytes[bit as usize / 8] &= !(1 << (bit % 8));
        }
    }
    for field in record.fields.iter().filter(|field| field.width <= 64) {
        let found = field.get(bytes);
        let wanted = match (field.values, field.range) {
            (Some(table), _) => table.values[found as usize % table.values.len()].value,
            (None, Some((min, max))) => min + found % (max - min + 1),
            (None, None) => found,
        };
        field.set(bytes, wanted).unwrap();
    }
}

macro_rules! reads_back {
    ($random:expr, [$($record:ident),+ $(,)?]) => {$({
        let mut bytes = [0; $record::BYTES];
        bytes.copy_from_slice(&$random[..$record::BYTES]);
        // Clears the bits after a record that does not end at a byte.
        if $record::RECORD.bits % 8 != 0 {
            bytes[$record::BYTES - 1] &= (1 << ($record::RECORD.bits % 8)) - 1;
        }
        legal(&$record::RECORD, &mut bytes);
        let record = $record::parse(&bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(record.to_bytes(), Ok(bytes));
    })+};
}

proptest! {
    #[test]
    fn every_record_reads_back(random: [u8; 72]) {
        reads_back!(random, [
            SendWqe, DatagramWqe, AtomicWqe, SendWqeExtension, Sge, ReceiveWqe, Cqe, Eqe,
        ]);
        reads_back!(random, [
            CommandHeader, CreateQueuePair, ModifyQueuePair, CreateCompletionQueue, ModifyCompletionQueue, ResizeCompletionQueue,
            CreateEventQueue, ModifyEventQueue, CreateSharedReceiveQueue, ModifySharedReceiveQueue, CreateRegion,
            ModifyRegion, CreateAddressHandle, Query, Destroy, Answer,
        ]);
        reads_back!(random, [PathRecord]);
        reads_back!(random, [WorkDoorbell, CompletionDoorbell, EventDoorbell]);
        reads_back!(random, [Features, TableSizes, QueueLimits, PortControl, AdminControl, Fatal]);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(random: [u8; 128], length in 0usize..=128) {
        let bytes = &random[..length];
        for &service in rnic_layout::state::Service::ALL {
            let _ = Wqe::parse(service, bytes);
        }
        let _ = Cqe::parse(bytes);
        let _ = Eqe::parse(bytes);
        let _ = ReceiveWqe::parse(bytes);
        let _ = PathRecord::parse(bytes);
        if let Some(command) = bytes.first_chunk::<COMMAND_BYTES>() {
            let _ = Command::parse(command);
        }
    }
}
