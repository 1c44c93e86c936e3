//! Plans: what a step of array operations records, kept to be recorded again. A replay creates nothing and writes nothing.
//!
//! The step runs several times while the plan is made: to find its kernels, to lay out its memory, and to be recorded. Arrays that it makes lie in an
//! arena, where those that never live at the same time share bytes. Arrays that were there before and have no memory yet are computed before it,
//! once, so that no replay computes them again.

use std::rc::Rc;

use super::graph::node::Array;
use super::library::Library;
use super::waiting::{Waiting, Written};
use crate::error::Result;
use crate::tensor;

/// A step that can be replayed.
pub struct Plan {
    library: Library,
    plan: tensor::Plan,
    /// What a replay writes.
    written: Vec<Rc<dyn Written>>,
}

impl Plan {
    /// Records the commands of the step again, after all that was recorded before. Its results have new contents then; what was derived from them
    /// before keeps the old ones.
    pub fn replay(&self) -> Result<()> {
        self.library.check_is_free("replay")?;
        self.library.context().device().check_usable()?;
        self.written.iter().try_for_each(|memory| memory.compute_dependents())?;
        self.written.iter().for_each(|memory| memory.note_write());
        self.library.context().replay(&self.plan)
    }

    /// The dispatches of one replay.
    pub fn dispatches(&self) -> usize {
        self.plan.dispatches()
    }

    /// Bytes of the arena of the step's arrays, and the bytes that they would take without sharing.
    pub fn arena_bytes(&self) -> (u64, u64) {
        self.plan.arena_bytes()
    }
}

impl Library {
    /// Runs a step, and keeps what it records for replays. The step must do the same each time it is called, and may neither write data nor read nor
    /// submit. Its results stay; everything else that it makes has to be gone when it ends.
    pub async fn plan(&self, step: impl Fn() -> Result<Vec<Array>>) -> Result<(Vec<Array>, Plan)> {
        let step = || {
            let results = step();
            // In each run it finds things as they were before.
            let is_left = self.trials().drop_gradients();
            let results: Vec<Array> = results?.iter().map(Array::detached).collect();
            results.iter().try_for_each(Array::evaluate)?;
            if is_left {
                bail!(
                    InvalidRequest,
                    "plan: a gradient that the function made is left at its end, and a replay would not see it; call zeroGrad() at its end, or give \
                     the tensor a gradient before, to which replays add"
                );
            }
            Ok(results)
        };
        self.needed_kernels(step)?.await?;
        // Others may have changed what was there meanwhile; from here on nobody can, since nothing is waited for.
        let device = self.context().device();
        let (_, outer) = self.trials().run(self.next_number(), || device.rehearse(step))?;
        outer.into_iter().try_for_each(Waiting::compute)?;
        let recorded = || {
            if device.is_tracing() {
                return self.trials().run(self.next_number(), step).map(|(results, _)| (results, Vec::new()));
            }
            self.trials().noting_writes(self.next_number(), step)
        };
        let ((results, mut written), plan) = self.context().plan(recorded).await?;
        for result in &results {
            written.push(result.stored_now()?.storage);
        }
        Ok((results, Plan { library: self.clone(), plan, written }))
    }
}
