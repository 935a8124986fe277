//! Helpers of several tests.
pub(crate) mod model;

pub(crate) use model::card_model;

/// Makes two tests of a function that is given the width of a card.
macro_rules! at_both_widths {
    ($( $part:ident: $narrow:ident, $wide:ident; )+) => {$(
        #[test]
        fn $narrow() -> Result<()> {
            $part(64)
        }

        #[test]
        fn $wide() -> Result<()> {
            $part(512)
        }
    )+};
}
pub(crate) use at_both_widths;
