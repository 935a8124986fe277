//! Wave files: whether one is whole.
//!
//! ```text
//!   kind, 1 byte │ length without the kind, 8 bytes, most significant first │ rest of the block     and again
//! ```
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// Kinds of blocks that every file has: the header, the lengths of signals, and their names.
const HEADER: u8 = 0;
const LENGTHS: u8 = 3;
/// Names, in any of the three compressions.
const NAMES: [u8; 3] = [4, 6, 7];

/// Checks that a file consists of whole blocks, and has all that a reader needs.
///
/// # Errors
/// If it does not, or cannot be read.
pub(super) fn check(path: &Path) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let bytes = file.get_ref().metadata()?.len();
    let (mut at, mut kinds) = (0_u64, Vec::new());
    let cut = || io::Error::new(ErrorKind::UnexpectedEof, "it ends in the middle; the disk may be full");
    while at < bytes {
        let mut head = [0; 9];
        file.read_exact(&mut head).map_err(|_| cut())?;
        let [kind, length @ ..] = head;
        let length = u64::from_be_bytes(length);
        at = at
            .checked_add(1)
            .and_then(|at| at.checked_add(length))
            .filter(|_| length >= 8)
            .ok_or_else(cut)?;
        file.seek(SeekFrom::Start(at))?;
        kinds.push(kind);
    }
    let is_whole = at == bytes
        && kinds.first() == Some(&HEADER)
        && kinds.contains(&LENGTHS)
        && kinds.iter().any(|kind| NAMES.contains(kind));
    if is_whole { Ok(()) } else { Err(cut()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u8, bytes: usize) -> Vec<u8> {
        [&[kind][..], &(bytes as u64 + 8).to_be_bytes(), &vec![7; bytes]].concat()
    }

    #[test]
    fn a_file_that_was_cut_is_not_whole() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("wave.fst");
        let whole = [block(HEADER, 321), block(8, 5000), block(LENGTHS, 30), block(NAMES[1], 90)].concat();
        for (bytes, is_whole) in [
            (&whole[..], true),
            (&whole[..whole.len() - 1], false),
            (&whole[..whole.len() - 99], false),
            (&whole[..4000], false),
            (&whole[..4], false),
            (&whole[1..], false),
            (&[], false),
        ] {
            std::fs::write(&path, bytes)?;
            assert_eq!(check(&path).is_ok(), is_whole, "{} bytes", bytes.len());
        }
        Ok(())
    }
}
