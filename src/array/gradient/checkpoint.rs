//! Checkpoints: work whose intermediate results are computed again by the backward pass, and not kept for it (Chen et al. 2016).

use std::collections::BTreeSet;
use std::rc::Rc;

use super::backward::Pass;
use super::history::{History, Pull, Source};
use super::tape::Recorded;
use crate::array::graph::node::Array;
use crate::array::library::Library;
use crate::error::Result;

impl Library {
    /// What `work` gives. Of what it records only the way to the arrays that were there before stays; a backward pass calls it again, and it does
    /// the same then.
    pub fn checkpoint(&self, work: impl Fn() -> Result<Array> + 'static) -> Result<Array> {
        let first = self.next_number();
        let result = work()?;
        let Some(history) = result.history().filter(|history| history.number > first).cloned() else {
            return Ok(result);
        };
        let (outer, bytes) = boundary(&history, first);
        self.tape().note_checkpoint(bytes);
        let again = {
            let (library, outer) = (self.clone(), outer.clone());
            move |pull: &Pull<Array>| {
                let first = library.next_number();
                let result = {
                    let _recording = library.tape().switched(true);
                    work()?
                };
                let Some(history) = result.history().filter(|history| history.number > first) else {
                    bail!(InvalidRequest, "checkpoint: the function gave nothing to follow back the second time")
                };
                if result.shape() != pull.gradient.shape() {
                    let (own, wanted) = (result.shape(), pull.gradient.shape());
                    bail!(ShapeMismatch, "checkpoint: the function gave {own} the second time, and {wanted} the first");
                }
                let gradient = pull.gradient.cast(result.dtype())?;
                let found = Pass { retain_graph: false, first }.run(history, gradient)?;
                let is_known = |number: u64| outer.iter().any(|leaf| leaf.number == number);
                if found.iter().any(|(leaf, _)| leaf.number < first && !is_known(leaf.number)) {
                    bail!(InvalidRequest, "checkpoint: the function used other tensors the second time than the first")
                }
                let of = |leaf: &Rc<History<Array>>| {
                    found.iter().find(|(other, _)| other.number == leaf.number).map(|(_, gradient)| gradient.clone())
                };
                Ok(outer.iter().map(of).collect())
            }
        };
        let detached = result.detached();
        // Its memory is what others need; what it was computed from goes with the graph.
        detached.evaluate()?;
        drop(result);
        history.forget();
        Ok(detached.with_way_back(
            "checkpoint".into(),
            outer.into_iter().map(Some).collect(),
            Vec::new(),
            Some(Box::new(again)),
        ))
    }
}

/// The histories from before `first` that one leads to, and the bytes of arrays made since then that are kept on the way.
fn boundary(from: &Rc<History<Array>>, first: u64) -> (Vec<Rc<History<Array>>>, u64) {
    let mut outer = Vec::new();
    let mut arrays: Vec<(u64, u64)> = Vec::new();
    let mut seen = BTreeSet::from([from.number]);
    let mut open = vec![from.clone()];
    while let Some(history) = open.pop() {
        if history.number < first || matches!(history.source, Source::Leaf(_)) {
            outer.push(history);
            continue;
        }
        let Some(kept) = history.kept() else { continue };
        arrays.extend(history.kept_bytes().into_iter().filter(|(number, _)| *number > first));
        open.extend(kept.inputs.iter().flatten().filter(|input| seen.insert(input.number)).cloned());
    }
    arrays.sort_unstable();
    arrays.dedup();
    outer.sort_by_key(|history| history.number);
    (outer, arrays.iter().map(|(_, bytes)| bytes).sum())
}
