//! What learns: A and B of each target, y = W·x + α/r · B·(A·x) (Hu et al. 2021, https://arxiv.org/abs/2106.09685).

use std::collections::HashMap;

use crate::array::{Array, DType, Library, Scalar};
use crate::error::Result;
use crate::model::adapters::PairValues;
use crate::model::{HeldRows, Matrix};

/// A and B of one tensor of the model.
pub(super) struct Pair {
    pub held: HeldRows,
    /// A, [rank, columns].
    pub down: Array,
    /// B, [rows, rank].
    pub up: Array,
}

/// All that learns.
pub(super) struct LowRank {
    rank: usize,
    /// α / rank.
    factor: f64,
    /// In the order of the model's layers.
    pairs: Vec<Pair>,
    /// Which pairs add to a matrix, by its key.
    by_matrix: HashMap<String, Vec<usize>>,
}

impl LowRank {
    /// A is uniform in ±1/√columns and B is 0, as PEFT begins: at first the model is as it was.
    pub fn new<'m>(
        library: &Library,
        (rank, alpha, seed): (usize, f64, u64),
        targets: impl Iterator<Item = (&'m Matrix, &'m HeldRows)>,
    ) -> Result<Self> {
        let mut low_rank = Self { rank, factor: alpha / rank as f64, pairs: Vec::new(), by_matrix: HashMap::new() };
        for (matrix, held) in targets {
            let number = low_rank.pairs.len();
            let columns = matrix.columns();
            let bound = 1.0 / (columns as f64).sqrt();
            let uniform = library.rand(&[rank, columns], seed.wrapping_mul(0x9e37_79b9).wrapping_add(number as u64))?;
            let down = uniform.scaled(2.0 * bound)?.plus_number(-bound)?.copied()?.requiring_grad()?;
            let up = library.full(&[held.rows, rank], DType::F32, Scalar::Int(0))?.copied()?.requiring_grad()?;
            low_rank.pairs.push(Pair { held: held.clone(), down, up });
            low_rank.by_matrix.entry(matrix.key().to_owned()).or_default().push(number);
        }
        Ok(low_rank)
    }

    /// Every matrix that learns: A and B of the first pair, of the second, and so on.
    pub fn parameters(&self) -> impl Iterator<Item = &Array> {
        self.pairs.iter().flat_map(|pair| [&pair.down, &pair.up])
    }

    /// y [n, rows] with what is added to the product of x [n, columns] with this matrix.
    pub fn added(&self, matrix: &Matrix, x: &Array, y: Array) -> Result<Array> {
        let Some(pairs) = self.by_matrix.get(matrix.key()) else { return Ok(y) };
        let n = y.dims().first().copied().unwrap_or(0);
        let mut parts: Vec<Array> = Vec::new();
        let mut next_row = 0;
        // Rows that no pair adds to.
        let gap = |rows: usize| y.library().full(&[n, rows], DType::F32, Scalar::Int(0));
        for pair in pairs.iter().filter_map(|number| self.pairs.get(*number)) {
            if pair.held.first_row > next_row {
                parts.push(gap(pair.held.first_row - next_row)?);
            }
            let inner = x.matmul(&pair.down.transpose(0, 1)?)?; // [n, rank]
            parts.push(inner.matmul(&pair.up.transpose(0, 1)?)?);
            next_row = pair.held.first_row + pair.held.rows;
        }
        if next_row < matrix.rows() {
            parts.push(gap(matrix.rows() - next_row)?);
        }
        let added = match &parts[..] {
            [only] => only.clone(),
            parts => Array::cat(parts, 1)?,
        };
        y.plus(&added.scaled(self.factor)?)
    }

    /// Writes other numbers to A and B of the tensors that `values` names, all of which are targets.
    pub fn set(&self, values: &[PairValues]) -> Result<()> {
        for value in values {
            let Some(pair) = self.pairs.iter().find(|pair| pair.held.name == value.tensor) else {
                bail!(InvalidRequest, "{} is no target of the training", value.tensor)
            };
            let found = [self.rank, value.columns, value.rows, self.rank];
            let wanted = [pair.down.dims(), pair.up.dims()].concat();
            if wanted != found
                || value.down.len() != self.rank * value.columns
                || value.up.len() != value.rows * self.rank
            {
                bail!(ShapeMismatch, "A and B for {} are {found:?}, wanted {wanted:?}", value.tensor);
            }
            for (own, numbers) in [(&pair.down, &value.down), (&pair.up, &value.up)] {
                let library = own.library();
                library.no_grad(|| own.assign(&library.f32(own.dims(), numbers)?))?;
            }
        }
        Ok(())
    }

    /// All numbers, read from the GPU.
    pub async fn values(&self) -> Result<Vec<PairValues>> {
        let mut all = Vec::with_capacity(self.pairs.len());
        for Pair { held, down, up } in &self.pairs {
            all.push(PairValues {
                tensor: held.name.clone(),
                columns: down.dims().last().copied().unwrap_or(0),
                rows: held.rows,
                down: down.to_f32().await?,
                up: up.to_f32().await?,
            });
        }
        Ok(all)
    }

    /// The gradients that a backward pass left, in the form of A and B; zeros where there is none.
    pub async fn gradients(&self) -> Result<Vec<PairValues>> {
        let mut all = Vec::with_capacity(self.pairs.len());
        for Pair { held, down, up } in &self.pairs {
            let mut numbers = Vec::with_capacity(2);
            for parameter in [down, up] {
                numbers.push(match parameter.grad() {
                    Some(gradient) => gradient.to_f32().await?,
                    None => vec![0.0; parameter.elements()],
                });
            }
            let (Some(up), Some(down)) = (numbers.pop(), numbers.pop()) else { bail!(Internal, "two gradients") };
            let columns = down.len() / self.rank;
            all.push(PairValues { tensor: held.name.clone(), columns, rows: held.rows, down, up });
        }
        Ok(all)
    }
}
