//! Arena: allocates buffers with any alignment from registered memory, and takes them back.
use super::plan::{LANES, Piece};
use rnic_driver::Region;

/// Contents of free memory.
const UNTOUCHED: u8 = 0xc3;

/// Memory of one queue.
pub struct Arena {
    /// Free ranges, by address. No two of them are adjacent.
    free: Vec<Region>,
    bytes: usize,
    /// First address after the memory.
    end: u64,
}

impl Arena {
    /// Makes an arena of a region.
    pub fn new(region: Region) -> Arena {
        let bytes = region.len();
        let end = region.address() + bytes as u64;
        let mut arena = Arena { free: Vec::new(), bytes, end };
        arena.give(region);
        arena
    }

    /// First address after the memory.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Allocates all pieces, or none if there is not enough memory.
    pub fn take(&mut self, pieces: &[Piece]) -> Option<Vec<Region>> {
        let mut taken = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match self.take_one(piece) {
                Some(region) => taken.push(region),
                None => {
                    taken.into_iter().for_each(|region| self.give(region));
                    return None;
                }
            }
        }
        Some(taken)
    }

    fn take_one(&mut self, piece: &Piece) -> Option<Region> {
        let gap = |region: &Region| piece.lane.wrapping_sub(region.address() as usize) % LANES;
        let place = self.free.iter().position(|region| region.len() >= gap(region) + piece.length)?;
        let region = self.free.remove(place);
        let gap = gap(&region);
        let (before, rest) = region.split_at(gap).expect("the range is long enough, as was checked above");
        let (taken, after) =
            rest.split_at(piece.length).expect("the range is long enough, as was checked above");
        // An empty piece takes nothing from its range.
        let left = match taken.is_empty() {
            true => vec![before.join(after).expect("they were split just now")],
            false => [before, after].into_iter().filter(|region| !region.is_empty()).collect(),
        };
        self.free.splice(place..place, left);
        Some(taken)
    }

    /// Frees memory.
    pub fn give(&mut self, mut region: Region) {
        if region.is_empty() {
            return;
        }
        region.bytes_mut().fill(UNTOUCHED);
        let mut place = self.free.partition_point(|free| free.address() < region.address());
        if place > 0 {
            let before = self.free.remove(place - 1);
            match before.join(region) {
                Ok(joined) => {
                    region = joined;
                    place -= 1;
                }
                Err((before, alone)) => {
                    self.free.insert(place - 1, before);
                    region = alone;
                }
            }
        }
        if place < self.free.len() {
            let after = self.free.remove(place);
            match region.join(after) {
                Ok(joined) => region = joined,
                Err((alone, after)) => {
                    self.free.insert(place, after);
                    region = alone;
                }
            }
        }
        self.free.insert(place, region);
    }

    /// Returns whether all memory is free and unchanged.
    pub fn is_untouched(&self) -> bool {
        let [whole] = &self.free[..] else { return false };
        whole.len() == self.bytes && whole.bytes().iter().all(|&byte| byte == UNTOUCHED)
    }
}
