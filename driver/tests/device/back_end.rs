//! Memory that a back end hands out: its purpose and its size.

use crate::fake::FakeFunction;
use crate::rig::MAC;
use rnic_driver::memory::{Memory, Purpose};
use rnic_driver::{Bar, Device, Function, FunctionError, Options};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options() -> Options {
    Options { seed: Some(1), timeout: Duration::from_micros(100), ..Options::new(MAC) }
}

/// A back end that hands out the memory of a region once more, as that of a ring.
struct Twice {
    card: Arc<FakeFunction>,
    payload: Mutex<Option<Arc<Memory>>>,
}

impl Function for Twice {
    forward_to_card!();

    fn allocate(&self, bytes: usize, purpose: Purpose) -> Result<Arc<Memory>, FunctionError> {
        let mut payload = self.payload.lock().unwrap();
        match &*payload {
            Some(memory) => Ok(Arc::clone(memory)),
            None => {
                let memory = Arc::new(Memory::zeroed(bytes, purpose));
                if purpose == Purpose::Payload {
                    *payload = Some(Arc::clone(&memory));
                }
                Ok(memory)
            }
        }
    }
}

#[test]
fn a_ring_never_lies_in_memory_that_is_lent() {
    let function = Twice { card: FakeFunction::new(1), payload: Mutex::new(None) };
    let device = Device::open(Arc::new(function), options()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let mut region = domain.allocate(4096).unwrap();
    let mut bytes = region.bytes_mut();
    bytes.fill(0x5a);
    // Posting to this ring would write under the slice.
    let error = domain.create_shared_receive_queue(&Default::default()).unwrap_err().to_string();
    assert!(error.contains("Payload") && error.contains("Ring"), "{error}");
    // A second region in the same memory is too small, or its loan is refused.
    let error = domain.allocate(4097).unwrap_err().to_string();
    assert!(error.contains("4096") && error.contains("4097"), "{error}");
    assert!(bytes.iter().all(|&byte| byte == 0x5a));
}
