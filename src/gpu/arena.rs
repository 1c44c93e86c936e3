//! Lays the tensors of a recorded step out in few buffers, so that tensors which never live at the same time share bytes.
//!
//! WebGPU tracks hazards by whole buffers: a dispatch may not read and write one buffer, not even different ranges of it. So
//! there are several banks, and what a dispatch writes is in another bank than everything else that it binds.
//!
//! Greedy by size (Pisarchyk, Lee 2020, "Efficient Memory Management for Deep Neural Net Inference"): the largest tensor
//! first, each into the lowest gap that fits. Invariant, held by the property test below: two tensors that share a byte never
//! live at the same time, and no dispatch finds what it writes and something else in one bank.

use super::buffer::BINDING_ALIGNMENT;

/// A tensor of the step: bytes, and the first and the last command that uses it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub size: u64,
    pub first: usize,
    pub last: usize,
}

/// A place in a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub bank: usize,
    pub offset: u64,
    pub size: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// The place of each tensor, in their order.
    pub slots: Vec<Slot>,
    /// Bytes of each bank.
    pub banks: Vec<u64>,
    /// What the tensors would take if none shared its bytes.
    pub bytes_without_reuse: u64,
}

impl Layout {
    pub fn bytes(&self) -> u64 {
        self.banks.iter().sum()
    }
}

/// Finds a place for every tensor. `apart` are pairs that may not lie in one bank; no bank grows above `largest_bank`, except
/// for a single tensor that is larger.
pub(super) fn lay_out(tensors: &[Lifetime], apart: &[(usize, usize)], largest_bank: u64) -> Layout {
    let mut enemies: Vec<Vec<usize>> = vec![Vec::new(); tensors.len()];
    for (a, b) in apart {
        enemies[*a].push(*b);
        enemies[*b].push(*a);
    }
    let aligned = |size: u64| size.max(1).next_multiple_of(BINDING_ALIGNMENT);
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(tensors[*index].size), *index));

    let mut slots: Vec<Option<Slot>> = vec![None; tensors.len()];
    let mut banks: Vec<Vec<usize>> = Vec::new();
    for index in order {
        let size = aligned(tensors[index].size);
        let mut best: Option<Slot> = None;
        for (bank, members) in banks.iter().enumerate() {
            if members.iter().any(|member| enemies[index].contains(member)) {
                continue;
            }
            let offset = lowest_gap(&tensors[index], size, members, tensors, &slots);
            if offset + size <= largest_bank && best.is_none_or(|best| offset < best.offset) {
                best = Some(Slot { bank, offset, size });
            }
        }
        let slot = best.unwrap_or_else(|| {
            banks.push(Vec::new());
            Slot { bank: banks.len() - 1, offset: 0, size }
        });
        banks[slot.bank].push(index);
        slots[index] = Some(slot);
    }
    let slots: Vec<Slot> = slots.into_iter().flatten().collect();
    let mut sizes = vec![0; banks.len()];
    for slot in &slots {
        sizes[slot.bank] = slot.offset.saturating_add(slot.size).max(sizes[slot.bank]);
    }
    Layout { bytes_without_reuse: tensors.iter().map(|tensor| aligned(tensor.size)).sum(), slots, banks: sizes }
}

/// The lowest offset in a bank at which `size` bytes are free for the whole life of `tensor`.
fn lowest_gap(tensor: &Lifetime, size: u64, members: &[usize], tensors: &[Lifetime], slots: &[Option<Slot>]) -> u64 {
    let mut taken: Vec<(u64, u64)> = members
        .iter()
        .filter(|member| tensors[**member].first <= tensor.last && tensor.first <= tensors[**member].last)
        .filter_map(|member| slots[*member].map(|slot| (slot.offset, slot.offset + slot.size)))
        .collect();
    taken.sort_unstable();
    let mut offset = 0;
    for (start, end) in taken {
        if offset + size <= start {
            break;
        }
        offset = offset.max(end);
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
        a.0 < b.1 && b.0 < a.1
    }

    proptest! {
        #[test]
        fn tensors_that_live_together_share_nothing(
            tensors in proptest::collection::vec((1u64..5000, 0usize..30, 0usize..10), 0..60),
            pairs in proptest::collection::vec((0usize..60, 0usize..60), 0..60),
            largest_bank in 4096u64..100_000,
        ) {
            let tensors: Vec<Lifetime> = tensors
                .into_iter()
                .map(|(size, first, length)| Lifetime { size, first, last: first + length })
                .collect();
            let apart: Vec<(usize, usize)> =
                pairs.into_iter().filter(|(a, b)| a != b && *a < tensors.len() && *b < tensors.len()).collect();
            let layout = lay_out(&tensors, &apart, largest_bank);
            prop_assert_eq!(layout.slots.len(), tensors.len());
            for (slot, tensor) in layout.slots.iter().zip(&tensors) {
                prop_assert!(slot.size >= tensor.size);
                prop_assert_eq!(slot.offset % BINDING_ALIGNMENT, 0);
                prop_assert!(slot.offset + slot.size <= layout.banks[slot.bank]);
            }
            for a in 0..tensors.len() {
                for b in 0..a {
                    let (x, y) = (&layout.slots[a], &layout.slots[b]);
                    let bytes = x.bank == y.bank
                        && overlap((x.offset, x.offset + x.size), (y.offset, y.offset + y.size));
                    let time = tensors[a].first <= tensors[b].last && tensors[b].first <= tensors[a].last;
                    prop_assert!(!(bytes && time), "{} and {} share bytes and live together", a, b);
                }
            }
            for (a, b) in apart {
                prop_assert_ne!(layout.slots[a].bank, layout.slots[b].bank);
            }
            prop_assert!(layout.bytes() <= layout.bytes_without_reuse);
            for bytes in &layout.banks {
                prop_assert!(*bytes <= largest_bank.max(5120));
            }
        }
    }

    #[test]
    fn a_chain_needs_two_banks_of_one_tensor() {
        // Each dispatch reads one tensor and writes the next.
        let tensors: Vec<Lifetime> = (0..10).map(|i| Lifetime { size: 1024, first: i, last: i + 1 }).collect();
        let apart: Vec<(usize, usize)> = (0..9).map(|i| (i, i + 1)).collect();
        let layout = lay_out(&tensors, &apart, u64::MAX);
        assert_eq!(layout.banks, [1024, 1024]);
        assert_eq!(layout.bytes_without_reuse, 10 * 1024);
    }
}
