//! A product of a matrix's rows with tokens' activations, in parts of some rows.

use std::ops::Range;

use rillm_cpu_kernels::{Format, GROUP, Mismatch, Packed, Quantized, Weights, filled, mat_mul, products_packed};

use crate::job::{WORDS, parts_for};

/// A matrix of weights [rows, columns] in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The address of its first byte, a multiple of 16.
    pub at: usize,
    /// The `ggml_type` of its format.
    pub gguf_type: u32,
    /// It is packed for products with activations of 8 bits.
    pub is_packed: bool,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
}

impl Matrix {
    fn format(&self) -> Result<Format, Mismatch> {
        let none = Mismatch { what: "a format of the CPU's loops", expected: 0, found: self.gguf_type as usize };
        Format::by_gguf_type(self.gguf_type).ok_or(none)
    }

    /// The bytes that it has.
    pub fn bytes(&self) -> Result<usize, Mismatch> {
        let format = self.format()?;
        let bytes = if self.is_packed {
            Packed::bytes(format, self.rows, self.columns)
        } else {
            format.row_bytes(self.columns).and_then(|row| row.checked_mul(self.rows))
        };
        bytes.ok_or(Mismatch { what: "columns of whole blocks", expected: 0, found: self.columns })
    }

    /// # Safety
    ///
    /// As many bytes as `bytes` says are at the address, and nobody writes them meanwhile.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    unsafe fn slice<'a>(&self) -> Result<&'a [u8], Mismatch> {
        let bytes = self.bytes()?;
        // SAFETY: as the caller promises.
        Ok(unsafe { std::slice::from_raw_parts(self.at as *const u8, bytes) })
    }

    /// The weights as in a file.
    ///
    /// # Safety
    ///
    /// As for the bytes.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub unsafe fn weights<'a>(&self) -> Result<Weights<'a>, Mismatch> {
        // SAFETY: as the caller promises.
        Weights::new(self.format()?, unsafe { self.slice()? }, self.rows, self.columns)
    }

    /// The packed weights.
    ///
    /// # Safety
    ///
    /// As for the bytes.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub unsafe fn packed<'a>(&self) -> Result<Packed<'a>, Mismatch> {
        // SAFETY: as the caller promises.
        Packed::new(self.format()?, unsafe { self.slice()? }, self.rows, self.columns)
    }
}

/// The product of some rows with activations [tokens, columns], written to [tokens, rows].
#[derive(Clone, Copy, Debug)]
pub struct Product {
    matrix: Matrix,
    first: usize,
    end: usize,
    tokens: usize,
    /// Of a packed matrix the address of its `Quantized`, otherwise that of floats.
    x: usize,
    out: usize,
    /// Rows of a part.
    rows: usize,
}

impl Product {
    /// `x` is the address of the activations: of a `Quantized` if the matrix is packed, or else of floats. `out` is that of the products. Of a
    /// packed matrix rows begin with a group.
    pub fn new(matrix: Matrix, rows: Range<usize>, tokens: usize, [x, out]: [usize; 2], threads: usize) -> Self {
        let count = rows.len();
        let work = count.saturating_mul(matrix.columns).saturating_mul(tokens);
        let of_part = count.div_ceil(parts_for(work, threads));
        Self {
            matrix,
            first: rows.start,
            end: rows.end,
            tokens,
            x,
            out,
            rows: of_part.next_multiple_of(GROUP).max(GROUP),
        }
    }

    pub(crate) fn parts(&self) -> u32 {
        (self.end.saturating_sub(self.first)).div_ceil(self.rows.max(1)).max(1) as u32
    }

    pub(crate) fn words(&self) -> [usize; WORDS] {
        let Self { matrix, first, end, tokens, x, out, rows } = *self;
        let Matrix { at, gguf_type, is_packed, rows: all, columns } = matrix;
        [at, gguf_type as usize, usize::from(is_packed), all, columns, first, end, tokens, x, out, rows]
    }

    pub(crate) fn of(words: [usize; WORDS]) -> Self {
        let [at, gguf_type, is_packed, all, columns, first, end, tokens, x, out, rows] = words;
        let matrix = Matrix { at, gguf_type: gguf_type as u32, is_packed: is_packed != 0, rows: all, columns };
        Self { matrix, first, end, tokens, x, out, rows }
    }

    /// Multiplies the rows of a part.
    ///
    /// # Safety
    ///
    /// As for a job.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub(crate) unsafe fn work(&self, part: u32) -> Result<(), Mismatch> {
        let first = self.first + part as usize * self.rows;
        let rows = first..self.end.min(first + self.rows);
        let (count, all) = (rows.len(), self.end - self.first);
        let out = (self.out as *mut f32).wrapping_add(first - self.first);
        if self.matrix.is_packed {
            // SAFETY: as the caller promises.
            let (packed, x) = unsafe { (self.matrix.packed()?, &*(self.x as *const Quantized)) };
            // Products go to their places at once: a row of them at a time, as other parts write between them.
            return products_packed(&packed.rows(rows)?, x, self.tokens, |token, row, products| {
                // SAFETY: the same. There are no more tokens, and these rows are this part's.
                let out =
                    unsafe { std::slice::from_raw_parts_mut(out.wrapping_add(token * all + row), products.len()) };
                out.copy_from_slice(products);
            });
        }
        let operands = || {
            // SAFETY: the same.
            let x = unsafe { std::slice::from_raw_parts(self.x as *const f32, self.tokens * self.matrix.columns) };
            // SAFETY: the same.
            Ok((unsafe { self.matrix.weights()? }.rows(rows)?, x))
        };
        if self.tokens == 1 {
            let (weights, x) = operands()?;
            // SAFETY: the same; these rows are this part's.
            return mat_mul(&weights, 1, x, unsafe { std::slice::from_raw_parts_mut(out, count) });
        }
        // First, since there may be no room.
        let mut products = filled(0.0, self.tokens.saturating_mul(count))?;
        let (weights, x) = operands()?;
        mat_mul(&weights, self.tokens, x, &mut products)?;
        for (token, products) in products.chunks_exact(count.max(1)).enumerate() {
            // SAFETY: the same.
            unsafe { std::slice::from_raw_parts_mut(out.wrapping_add(token * all), count) }.copy_from_slice(products);
        }
        Ok(())
    }
}
