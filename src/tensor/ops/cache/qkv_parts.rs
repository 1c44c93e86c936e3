//! Which of the projections to queries, keys and values a matrix holds. Mostly all three; in files of mixed types those that are of
//! one type.

use super::cache_dtype::{cache_defines, cache_dtype};
use crate::gpu::Define;
use crate::tensor::{DType, Desc};

/// Projections that stand side by side, in this order. There is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QkvParts {
    pub q: bool,
    pub k: bool,
    pub v: bool,
}

impl QkvParts {
    pub const ALL: QkvParts = QkvParts { q: true, k: true, v: true };

    /// Every run of projections.
    pub(in crate::tensor::ops) const RUNS: [QkvParts; 6] = [
        Self::ALL,
        QkvParts { q: true, k: true, v: false },
        QkvParts { q: false, k: true, v: true },
        QkvParts { q: true, k: false, v: false },
        QkvParts { q: false, k: true, v: false },
        QkvParts { q: false, k: false, v: true },
    ];

    /// Of queries, keys and values, `count` from the one of number `first` on.
    pub fn of(first: usize, count: usize) -> Self {
        let holds = |part: usize| (first..first + count).contains(&part);
        Self { q: holds(0), k: holds(1), v: holds(2) }
    }

    /// Where they stand among the elements of all three.
    pub fn range(self, q_dim: usize, kv_dim: usize) -> std::ops::Range<usize> {
        let first = if self.q {
            0
        } else if self.k {
            q_dim
        } else {
            q_dim + kv_dim
        };
        let dims = [(self.q, q_dim), (self.k, kv_dim), (self.v, kv_dim)];
        first..first + dims.iter().filter(|(is_there, _)| *is_there).map(|(_, dim)| dim).sum::<usize>()
    }

    pub(in crate::tensor::ops) fn is_a_run(self) -> bool {
        Self::RUNS.contains(&self)
    }

    /// How many of the caches of keys and of values they are written to: inputs of an op, keys first.
    pub(in crate::tensor::ops) fn caches(self) -> usize {
        usize::from(self.k) + usize::from(self.v)
    }

    /// The inputs from `first` on that are caches.
    pub(in crate::tensor::ops) fn mutates(self, first: usize) -> &'static [usize] {
        const INPUTS: [usize; 7] = [0, 1, 2, 3, 4, 5, 6];
        &INPUTS[first..first + self.caches()]
    }

    /// Where a kernel finds the caches and the queries, when they begin at a binding. `between` more stand before the queries.
    pub(in crate::tensor::ops) fn defines(self, first: u32, between: u32) -> Vec<(&'static str, Define)> {
        let caches = self.caches() as u32;
        let parts = [
            (self.k, "KEYS", "K_BINDING", first),
            (self.v, "VALUES", "V_BINDING", first + u32::from(self.k)),
            (self.q, "QUERIES", "Q_BINDING", first + caches + between),
        ];
        let parts = parts.into_iter().filter(|part| part.0);
        parts.flat_map(|(_, flag, name, binding)| [(flag, Define::Flag), (name, Define::U32(binding))]).collect()
    }

    /// What an op gives besides changing the caches: the queries, if they are among the parts.
    pub(in crate::tensor::ops) fn outputs(self, tokens: usize, q_dim: usize) -> Vec<Desc> {
        if self.q { vec![Desc::f32(&[tokens, q_dim])] } else { vec![] }
    }

    /// The dtypes of the caches, of which `first` is the first.
    pub(in crate::tensor::ops) fn cache_dtypes(self, first: Option<&Desc>) -> Vec<Option<DType>> {
        vec![cache_dtype(first); self.caches()]
    }

    /// The defines that say how caches store numbers, if there are any.
    pub(in crate::tensor::ops) fn cache_defines(self, first: Option<&Desc>) -> Option<(&'static str, Define)> {
        if self.caches() > 0 { cache_defines(first) } else { None }
    }
}

/// Turns heads of queries or keys to the order in which the fused ops keep them: the two numbers that rope turns together stand
/// side by side, so that one invocation stores both at once. Scores don't depend on it.
pub(in crate::tensor::ops) fn to_pair_order<T: Copy>(
    values: &mut [T],
    head_dim: usize,
    pairs: usize,
    interleaved: bool,
) {
    if interleaved {
        return;
    }
    for head in values.chunks_exact_mut(head_dim) {
        let turned = head[..2 * pairs].to_vec();
        for pair in 0..pairs {
            head[2 * pair] = turned[pair];
            head[2 * pair + 1] = turned[pair + pairs];
        }
    }
}
