//! Weights in the memory of several threads, and feed-forwards and attention by them.

use std::ops::Range;
use std::sync::Arc;

use rillm_cpu_kernels as kernels;

use super::{filled, fits};
use crate::error::Result;
use crate::gpu::{Problem, Team, TeamAddress, TeamAttention, TeamBytes, TeamFeedForward, TeamMatrix, memory_of};
use crate::tensor::{CpuTensor, DType, Desc};

/// Whether weights of this kind are in the team's memory, if there is a team: those in formats that have names both sides know.
pub fn is_for_team(dtype: DType) -> bool {
    let DType::Weight(format) = dtype else { return false };
    format.gguf_type.and_then(kernels::Format::by_gguf_type).is_some()
}

/// A weight there.
pub struct TeamWeight<'a> {
    bytes: &'a TeamBytes,
    matrix: TeamMatrix,
}

impl<'a> TeamWeight<'a> {
    /// An error if it is no weight of a format that the team knows.
    pub fn new(bytes: &'a TeamBytes, desc: Desc, is_packed: bool) -> Result<Self> {
        let (DType::Weight(format), (rows, columns)) = (desc.dtype, desc.shape.matrix()?) else {
            bail!(Internal, "{desc:?} is in the memory of threads and is no weight")
        };
        let Some(gguf_type) = format.gguf_type.filter(|_| is_for_team(desc.dtype)) else {
            bail!(Internal, "{desc:?} is in the memory of threads, which don't know it")
        };
        Ok(Self { bytes, matrix: TeamMatrix { at: bytes.at(), gguf_type, is_packed, rows, columns } })
    }

    /// The numbers of rows and of columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.matrix.rows, self.matrix.columns)
    }

    /// Whether it is packed.
    pub fn is_packed(&self) -> bool {
        self.matrix.is_packed
    }

    /// Writes rows as they are in a file, or packs them.
    pub fn write_rows(&self, first: usize, count: usize, file: &[u8]) -> Result<()> {
        let team = self.bytes.team();
        if self.matrix.is_packed {
            return done(team.pack(self.matrix, first, count, file));
        }
        let at = first * file.len().checked_div(count).unwrap_or(0);
        if at + file.len() > self.bytes.size() {
            bail!(Internal, "a weight ends before its rows");
        }
        done(team.write(self.matrix.at + at as TeamAddress, file))
    }

    /// All bytes, which are as in a file.
    pub fn file_bytes(&self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = filled(0, length.min(self.bytes.size()))?;
        done(self.bytes.team().read(self.matrix.at, &mut bytes))?;
        Ok(bytes)
    }

    /// The bytes of some rows, as in a file.
    pub fn rows_bytes(&self, rows: Range<usize>, of_row: usize) -> Result<Vec<u8>> {
        if rows.end * of_row > self.bytes.size() {
            bail!(Internal, "a weight ends before its rows");
        }
        let mut bytes = filled(0, rows.len() * of_row)?;
        done(self.bytes.team().read(self.matrix.at + (rows.start * of_row) as TeamAddress, &mut bytes))?;
        Ok(bytes)
    }

    /// The products of rows with activations [tokens, columns], written to `out` [tokens, rows].
    pub fn multiply(&self, rows: Range<usize>, x: &[f32], out: &mut [f32]) -> Result<()> {
        done(self.bytes.team().multiply(self.matrix, rows, x, out))
    }

    /// A row as floats.
    pub fn row(&self, row: usize, out: &mut [f32]) -> Result<()> {
        done(self.bytes.team().row(self.matrix, row, out))
    }
}

/// A feed-forward of two packed weights, up and down, by a team's threads; written to `out` [tokens, outputs]. `false` if there is no room for it, if
/// they are not packed, or if they are in two memories.
pub fn feed_forward(
    [up, down]: [&TeamWeight<'_>; 2],
    activation: kernels::Activation,
    is_gated: bool,
    x: &[f32],
    bias: &[f32],
    out: &mut [f32],
) -> Result<bool> {
    let is_one_memory = memory_of(up.matrix.at) == memory_of(down.matrix.at);
    if !up.is_packed() || !down.is_packed() || !is_one_memory {
        return Ok(false);
    }
    let activation = activation.words();
    let all = TeamFeedForward { up: up.matrix, down: down.matrix, activation, is_gated, x, bias };
    match up.bytes.team().feed_forward(all, out) {
        Err(Problem::NoRoom(_)) => Ok(false),
        result => done(result).map(|()| true),
    }
}

/// Multiplications below which attention is not worth several threads: some tens of microseconds, and a call takes ten. Copies take a tenth of what
/// is computed with them, or less.
const LEAST: usize = 1 << 17;

/// Attention by a team's threads, which keep a copy of the caches that are `kept`. `false` if that would take longer, or if there is no room for it. How many threads there are does not matter, so
/// that no answer depends on it: a team may be compiled with other instructions than this.
pub fn attend(
    team: &Arc<dyn Team>,
    attention: &kernels::Attention<'_>,
    q: &[f32],
    caches: [kernels::Cache<'_>; 2],
    kept: Option<[&CpuTensor<'_>; 2]>,
    seen: &[kernels::Seen],
    [sums, totals]: [&mut [f32]; 2],
) -> Result<bool> {
    let rows: usize = seen.iter().map(|seen| seen.rows.len()).sum();
    let work = rows.saturating_mul(2 * attention.heads * attention.head_dim);
    if work < LEAST {
        return Ok(false);
    }
    let sent = fits(kernels::Sent::new(attention, q, caches, seen))?;
    let kernels::Sent { ref words, q, mut keys, mut values, numbers } = sent;
    let mut places = [0, 0];
    if let Some(kept) = kept {
        for ((tensor, bytes), place) in kept.into_iter().zip([&mut keys, &mut values]).zip(&mut places) {
            // Those that are sent are a part of the tensor's.
            let first = bytes.as_ptr().addr().saturating_sub(tensor.bytes()?.as_ptr().addr());
            if !bytes.is_empty()
                && let Some(at) = done(tensor.in_team(team, first..first + bytes.len()))?
            {
                *place = at;
            }
        }
    }
    // Threads work in one memory at a time.
    if places[0] > 0 && places[1] > 0 && memory_of(places[0]) != memory_of(places[1]) {
        places[1] = 0;
    }
    for (bytes, place) in [&mut keys, &mut values].into_iter().zip(places) {
        if place > 0 {
            *bytes = &[];
        }
    }
    match team.attend(TeamAttention { words, q, keys, values, numbers, places }, sums, totals) {
        Err(Problem::NoRoom(_)) => Ok(false),
        result => done(result).map(|()| true),
    }
}

fn done<T>(result: std::result::Result<T, Problem>) -> Result<T> {
    result.map_err(|problem| match problem {
        Problem::NoRoom(text) => err!(OutOfMemory, "the threads of the CPU: {text}"),
        Problem::Invalid(text) => err!(Internal, "the threads of the CPU: {text}"),
    })
}
