//! Memory that peers write is copied, never seen as a slice, and never posted.
use rnic_driver::{SendRequest, SharedRegion};

fn slice(region: &SharedRegion) {
    let _ = region.bytes();
}

fn post(region: SharedRegion) -> SendRequest {
    SendRequest::send(0).sge(region)
}

fn main() {}
