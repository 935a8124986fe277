//! Cards by their names on the command line, opened by the library `rnic`.

use rnic::{Card, Named, OpenError, Options};

/// MAC address of the port while this program has the card: a locally administered one, since nobody else uses the port then.
const MAC: [u8; 6] = [0x02, 0x72, 0x6e, 0x69, 0x63, 0x00];

/// Opens a card, with the same address each time.
pub(crate) fn open(named: &Named) -> Result<Card, OpenError> {
    named.open_with(Options::new(MAC))
}
