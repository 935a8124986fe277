//! Values of `vendor_error` in the CQEs that the requester writes.

/// The host did not return the slot of the WQE.
pub const UNREADABLE: u64 = 1;
/// The second slot of the WQE was not posted.
pub const HALF_WQE: u64 = 2;
/// The producer index claims more slots than the ring has.
pub const OVERRUN: u64 = 3;
/// A field of the WQE has a value that it must not have, or this card does not execute its opcode.
pub const MALFORMED: u64 = 4;
/// The host did not return the payload, or did not accept it.
pub const PAYLOAD: u64 = 7;
/// The protection domain has no such key that a WQE may invalidate.
pub const KEY: u64 = 8;
