//! The order of the rows of queries and keys. llama.cpp's converter reorders them for some architectures, so that rope turns neighbours; an
//! adapter's B has the order of the model that it was trained on.

use crate::error::Result;
use crate::model::arch::RopeKind;
use crate::model::config::Config;

/// The rows of heads in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reordered {
    /// The order that is wanted.
    pub to: RopeKind,
    pub head_dim: usize,
}

impl Reordered {
    /// The row of the file that becomes `row`.
    pub fn source(self, row: usize) -> usize {
        let Self { to, head_dim } = self;
        let (head, within) = (row / head_dim, row % head_dim);
        let from = match to {
            RopeKind::Interleaved => within % 2 * (head_dim / 2) + within / 2,
            RopeKind::Halves => within % (head_dim / 2) * 2 + within / (head_dim / 2),
        };
        head * head_dim + from
    }

    /// The way back: from the order that is wanted to that of the file.
    pub fn back(self) -> Self {
        let to = match self.to {
            RopeKind::Interleaved => RopeKind::Halves,
            RopeKind::Halves => RopeKind::Interleaved,
        };
        Self { to, ..self }
    }

    /// Rows of `width` numbers in the order that is wanted.
    pub fn rows(self, of_file: &[f32], width: usize) -> Vec<f32> {
        let rows = of_file.len() / width.max(1);
        let mut all = Vec::with_capacity(of_file.len());
        (0..rows).for_each(|row| all.extend(of_file.iter().skip(self.source(row) * width).take(width)));
        all
    }
}

/// How the rows of B for `tensor`, which a file calls `name` and has in the order of `theirs`, must be reordered for the model, if they are of
/// heads that rope turns.
pub(super) fn reordered(
    config: &Config,
    (tensor, name): (&str, &str),
    theirs: Option<RopeKind>,
) -> Result<Option<Reordered>> {
    let (mut parts, rope) = (tensor.split('.').skip(1), config.ropes.first());
    let (Some(layer), Some(stem)) = (parts.next().and_then(|layer| layer.parse::<usize>().ok()), parts.next()) else {
        return Ok(None);
    };
    let is_turned = ["attn_q", "attn_k", "attn_qkv"].contains(&stem);
    let (Some(rope), Some(theirs), true) = (rope, theirs, is_turned) else { return Ok(None) };
    if rope.kind == theirs {
        return Ok(None);
    }
    let Some(layer) = config.layers.get(layer) else { return Ok(None) };
    if stem == "attn_qkv" || rope.dim != layer.head_dim {
        bail!(
            UnsupportedAdapter,
            "the adapter adds to {name}, whose rows stand in another order in the model's file, which is not supported"
        );
    }
    Ok(Some(Reordered { to: rope.kind, head_dim: layer.head_dim }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_halves_become_neighbours_and_back() {
        let sources = |to, heads: usize| -> Vec<usize> {
            let reordered = Reordered { to, head_dim: 6 };
            (0..heads * 6).map(|row| reordered.source(row)).collect()
        };
        let to_neighbours = sources(RopeKind::Interleaved, 2);
        assert_eq!(to_neighbours, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        let back = sources(RopeKind::Halves, 2);
        let numbers: Vec<f32> = (0..24u8).map(f32::from).collect();
        let turned = Reordered { to: RopeKind::Interleaved, head_dim: 6 };
        assert_eq!(turned.rows(&numbers, 2)[..6], [0.0, 1.0, 6.0, 7.0, 2.0, 3.0]);
        assert_eq!(turned.back().rows(&turned.rows(&numbers, 2), 2), numbers);
        assert_eq!(back.iter().map(|row| to_neighbours[*row]).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    }
}
