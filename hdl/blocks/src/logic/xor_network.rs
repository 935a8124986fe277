//! A linear map as a leaf block.
use super::gf2::{Matrix, vector_of, word_of};
use rnic_kernel::prelude::*;

/// Multiplies a word with a constant matrix over GF(2): each output bit is the XOR of some input bits.
///
/// A kernel cannot say this, because the masks are data. Each row is printed as a reduction over a mask, so that
/// synthesis balances the tree itself; a row with one input is printed as a wire.
///
/// ```text
///       ┌───────────────┐
///  x ──>│  y = matrix·x ├──> y        combinational
///       └───────────────┘
/// ```
#[derive(Clone, Debug, LogicBlock, Registers)]
pub struct XorNetwork<const IN: usize, const OUT: usize> {
    /// The vector to multiply.
    pub x: Signal<In, Bits<IN>>,
    /// The product, combinational.
    pub y: Signal<Out, Bits<OUT>>,
    _matrix: Matrix,
}

impl<const IN: usize, const OUT: usize> XorNetwork<IN, OUT> {
    /// Makes the network of a matrix.
    ///
    /// # Panics
    /// If the matrix does not have `IN` columns and `OUT` rows.
    pub fn new(matrix: Matrix) -> Self {
        assert_eq!(
            (matrix.column_count(), matrix.row_count()),
            (IN, OUT),
            "inputs and outputs of the matrix"
        );
        Self { x: Default::default(), y: Default::default(), _matrix: matrix }
    }

    /// The right-hand side of one output.
    fn term(&self, row: usize) -> String {
        let row = self._matrix.row(row);
        let taps: u32 = row.iter().map(|word| word.count_ones()).sum();
        match taps {
            0 => "1'b0".into(),
            1 => {
                let word = row.iter().position(|&word| word != 0).unwrap_or_default();
                format!("x[{}]", 64 * word + row[word].trailing_zeros() as usize)
            }
            _ => format!("^(x & {IN}'h{:x})", word_of::<IN>(row)),
        }
    }
}

impl<const IN: usize, const OUT: usize> Logic for XorNetwork<IN, OUT> {
    fn update(&mut self) {
        self.y.next = word_of(&self._matrix.apply(&vector_of(self.x.val())));
    }

    fn connect(&mut self) {
        self.y.connect();
    }

    fn hdl(&self) -> Verilog {
        let body: String = (0..OUT).map(|row| format!("assign y[{row}] = {};\n", self.term(row))).collect();
        let doc = "Each output is the XOR of the inputs that its mask selects.";
        rnic_kernel::leaf(core::any::type_name::<Self>(), doc, body, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Stimulus, random};
    use rand::Rng;

    #[test]
    fn rust_and_verilog_agree_on_random_networks() {
        let mut random = random();
        // Rows of every kind: none, one and many inputs.
        let columns: Vec<[u64; 2]> = (0..130)
            .map(|_| [random.random::<u64>() & random.random::<u64>() & !1, random.random_range(0..8)])
            .collect();
        let mut bench =
            Bench::combinational(XorNetwork::<130, 67>::new(Matrix::from_columns(67, 130, |column| {
                columns[column].into()
            })))
            .in_lock_step();
        for _ in 0..200 {
            bench.block.x.next = Bits::sample(&mut random);
            bench.settle();
        }
    }

    #[test]
    fn a_wiring_prints_no_gate() {
        let network = XorNetwork::<4, 4>::new(Matrix::from_sources(4, 4, |row| 3 - row));
        assert_eq!([0, 1, 2, 3].map(|row| network.term(row)), ["x[3]", "x[2]", "x[1]", "x[0]"]);
    }

    #[test]
    #[should_panic(expected = "inputs and outputs of the matrix")]
    fn a_matrix_of_another_shape_is_refused() {
        XorNetwork::<4, 5>::new(Matrix::from_sources(5, 5, |row| row));
    }
}
