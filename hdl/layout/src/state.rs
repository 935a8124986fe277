//! What a queue pair may do in each state, and how it gets from one to another.

use crate::field::values;

values! {
    /// A path's PMTU, in the code of the verbs.
    pub enum PathMtu, "protocol 4.1" {
        /// Not set yet; no connected queue pair leaves INIT with it.
        Unset = 0, "unset";
        /// 256 bytes.
        Bytes256 = 1, "256";
        /// 512 bytes.
        Bytes512 = 2, "512";
        /// 1024 bytes.
        Bytes1024 = 3, "1024";
        /// 2048 bytes.
        Bytes2048 = 4, "2048";
        /// 4096 bytes.
        Bytes4096 = 5, "4096";
    }
}
