//! Gives the library its name, and its functions the names and versions of `symbols.txt`.

use rnic_stand_in::Library;

fn main() {
    Library { name: "librdmacm.so", versions: "RDMACM", list: include_str!("symbols.txt") }.export();
}
