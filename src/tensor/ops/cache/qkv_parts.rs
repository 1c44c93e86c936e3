//! Which of the projections to queries, keys and values a matrix holds. Mostly all three; in files of mixed types, those that
//! share a type.

use super::cache_dtype::{cache_defines, cache_dtype};
use crate::gpu::Define;
use crate::tensor::{DType, Desc};

/// Neighbouring projections, in this order. There is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QkvParts {
    /// Queries.
    pub q: bool,
    /// Keys.
    pub k: bool,
    /// Values.
    pub v: bool,
}

impl QkvParts {
    /// All three projections.
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

    /// `count` of queries, keys and values, from index `first` on.
    pub fn of(first: usize, count: usize) -> Self {
        let holds = |part: usize| (first..first + count).contains(&part);
        Self { q: holds(0), k: holds(1), v: holds(2) }
    }

    /// Their range among the elements of all three.
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

    /// The number of caches that they are written to: inputs of an op, keys first.
    pub(in crate::tensor::ops) fn caches(self) -> usize {
        usize::from(self.k) + usize::from(self.v)
    }

    /// The inputs from `first` on that are caches.
    pub(in crate::tensor::ops) fn mutates(self, first: usize) -> &'static [usize] {
        const INPUTS: [usize; 7] = [0, 1, 2, 3, 4, 5, 6];
        &INPUTS[first..first + self.caches()]
    }

    /// Defines for the bindings of the caches, from `first` on, and of the queries, `between` bindings after the caches.
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

    /// The outputs of an op that also changes the caches: the queries, if they are among the parts.
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

/// Reorders heads of queries or keys as the fused ops keep them: the two numbers of a rope pair are neighbours, so that one
/// invocation stores both at once. Scores don't depend on the order.
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
