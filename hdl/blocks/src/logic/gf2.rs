//! Matrices over GF(2): addition is XOR, multiplication is AND.
//!
//! A CRC is a linear map, so what a CRC engine does in a cycle (take a beat in, step over a beat, take trailing
//! zeros back) is a product with a matrix. They are computed here, in ordinary Rust, and become hardware as an
//! [`XorNetwork`](super::xor_network::XorNetwork).
use rust_hdl::prelude::Bits;

/// A matrix over GF(2). Vectors are bit sets: element `i` is bit `i % 64` of word `i / 64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    column_count: usize,
    rows: Vec<Vec<u64>>,
}

impl Matrix {
    /// Makes the matrix whose column `j` is `image(j)`: the image of the unit vector `j`.
    pub fn from_columns(row_count: usize, column_count: usize, image: impl Fn(usize) -> Vec<u64>) -> Self {
        let mut rows = vec![vec![0; column_count.div_ceil(64)]; row_count];
        for column in 0..column_count {
            let image = image(column);
            for (row, words) in rows.iter_mut().enumerate() {
                words[column / 64] |= u64::from(element(&image, row)) << (column % 64);
            }
        }
        Self { column_count, rows }
    }

    /// Makes the matrix whose output `i` is input `source(i)` alone: a wiring, without any gate.
    pub fn from_sources(row_count: usize, column_count: usize, source: impl Fn(usize) -> usize) -> Self {
        let row = |index| {
            let mut words = vec![0; column_count.div_ceil(64)];
            let column = source(index);
            words[column / 64] = 1 << (column % 64);
            words
        };
        Self { column_count, rows: (0..row_count).map(row).collect() }
    }

    /// The number of outputs.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// The number of inputs.
    pub fn column_count(&self) -> usize {
        self.column_count
    }

    /// The inputs that output `row` depends on, as a bit set.
    pub fn row(&self, row: usize) -> &[u64] {
        &self.rows[row]
    }

    /// Multiplies with a vector.
    pub fn apply(&self, vector: &[u64]) -> Vec<u64> {
        let mut product = vec![0; self.rows.len().div_ceil(64)];
        for (index, row) in self.rows.iter().enumerate() {
            let sum = row.iter().zip(vector).fold(0, |sum, (row, vector)| sum ^ (row & vector));
            product[index / 64] |= u64::from(sum.count_ones() & 1) << (index % 64);
        }
        product
    }

    /// The map that first applies `first`, then this one.
    ///
    /// # Panics
    /// If `first` has not as many outputs as this map has inputs.
    pub fn after(&self, first: &Matrix) -> Matrix {
        assert_eq!(self.column_count, first.row_count(), "the maps do not fit together");
        Matrix::from_columns(self.row_count(), first.column_count, |column| {
            let mut unit = vec![0; first.column_count.div_ceil(64)];
            unit[column / 64] = 1 << (column % 64);
            self.apply(&first.apply(&unit))
        })
    }

    /// The map that undoes this one, if there is one (Gauss and Jordan's elimination).
    pub fn inverse(&self) -> Option<Matrix> {
        let size = self.rows.len();
        if self.column_count != size {
            return None;
        }
        let mut left = self.rows.clone();
        let mut right = Matrix::from_sources(size, size, |row| row).rows;
        for column in 0..size {
            let pivot = (column..size).find(|&row| element(&left[row], column))?;
            left.swap(column, pivot);
            right.swap(column, pivot);
            let (left_pivot, right_pivot) = (left[column].clone(), right[column].clone());
            for row in (0..size).filter(|&row| row != column) {
                if element(&left[row], column) {
                    add_to(&mut left[row], &left_pivot);
                    add_to(&mut right[row], &right_pivot);
                }
            }
        }
        Some(Matrix { column_count: size, rows: right })
    }
}

fn element(vector: &[u64], index: usize) -> bool {
    vector[index / 64] >> (index % 64) & 1 == 1
}

fn add_to(vector: &mut [u64], other: &[u64]) {
    vector.iter_mut().zip(other).for_each(|(word, other)| *word ^= other);
}

/// A hardware word as a vector: bit `i` is element `i`.
pub fn vector_of<const N: usize>(word: Bits<N>) -> Vec<u64> {
    let mut vector = vec![0; N.div_ceil(64)];
    for index in (0..N).filter(|&index| word.get_bit(index)) {
        vector[index / 64] |= 1 << (index % 64);
    }
    vector
}

/// A vector as a hardware word.
///
/// # Panics
/// If an element beyond `N` is set.
pub fn word_of<const N: usize>(vector: &[u64]) -> Bits<N> {
    let halves: Vec<u32> = vector.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]).collect();
    num_bigint::BigUint::new(halves).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn random_matrix(random: &mut ChaCha8Rng, rows: usize, columns: usize) -> Matrix {
        let image: Vec<Vec<u64>> =
            (0..columns).map(|_| (0..rows.div_ceil(64)).map(|_| random.random()).collect()).collect();
        Matrix::from_columns(rows, columns, |column| image[column].clone())
    }

    #[test]
    fn product_is_the_sum_of_the_columns_chosen() {
        let matrix = Matrix::from_columns(8, 3, |column| vec![[0x0f, 0x3c, 0xff][column]]);
        assert_eq!(matrix.apply(&[0b011]), [0x0f ^ 0x3c]);
        assert_eq!(matrix.apply(&[0b110]), [0x3c ^ 0xff]);
        assert_eq!(matrix.row(0), [0b101]);
    }

    #[test]
    fn composition_applies_the_right_map_first() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let (outer, inner) = (random_matrix(&mut random, 70, 130), random_matrix(&mut random, 130, 65));
        let vector = [random.random(), 1];
        assert_eq!(outer.after(&inner).apply(&vector), outer.apply(&inner.apply(&vector)));
    }

    #[test]
    fn inverse_undoes_and_singular_maps_have_none() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let identity = Matrix::from_sources(96, 96, |row| row);
        let invertible = (0..100).find_map(|_| {
            let matrix = random_matrix(&mut random, 96, 96);
            matrix.inverse().map(|inverse| (matrix, inverse))
        });
        let (matrix, inverse) = invertible.expect("three random matrices of ten are invertible");
        assert_eq!(matrix.after(&inverse), identity);
        assert_eq!(inverse.after(&matrix), identity);
        assert_eq!(Matrix::from_columns(2, 2, |_| vec![0b01]).inverse(), None);
        assert_eq!(Matrix::from_sources(2, 3, |row| row).inverse(), None);
    }

    #[test]
    fn words_and_vectors_convert_both_ways() {
        let vector = vec![0x0123_4567_89ab_cdef, 0x1f];
        assert_eq!(vector_of(word_of::<69>(&vector)), vector);
        assert_eq!(word_of::<69>(&[0, 0b10]), Bits::<69>::default().replace_bit(65, true));
    }
}
