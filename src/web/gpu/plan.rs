//! Plans' bindings: what a function of the caller's records, kept for replays.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::Function;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

use super::super::convert::js_error;
use super::registry::Registry;
use crate::array::{Array, Plan};
use crate::error::{Code, Error, Result};

/// A step that can be replayed.
#[wasm_bindgen]
pub struct WasmPlan {
    /// `None` once it was disposed of.
    plan: Rc<RefCell<Option<Plan>>>,
}

#[wasm_bindgen]
impl WasmPlan {
    pub fn replay(&self) -> Result<(), JsValue> {
        self.with(Plan::replay)
    }

    pub fn dispatches(&self) -> Result<usize, JsValue> {
        self.with(|plan| Ok(plan.dispatches()))
    }

    /// Bytes of the arena, and what they would be without sharing.
    #[wasm_bindgen(js_name = arenaBytes)]
    pub fn arena_bytes(&self) -> Result<Vec<f64>, JsValue> {
        self.with(|plan| {
            let (bytes, without_reuse) = plan.arena_bytes();
            Ok(vec![bytes as f64, without_reuse as f64])
        })
    }

    pub fn dispose(&self) {
        self.plan.take();
    }
}

impl WasmPlan {
    fn with<T>(&self, work: impl FnOnce(&Plan) -> Result<T>) -> Result<T, JsValue> {
        match &*self.plan.borrow() {
            Some(plan) => work(plan).map_err(js_error),
            None => Err(js_error(err!(Disposed, "the plan was disposed of"))),
        }
    }
}

/// Resolves to a plan of what `step` records. `step` returns the numbers of its results, and throws what its caller wants to be rejected with. The
/// results of its last call stay.
pub fn plan(registry: &Rc<Registry>, step: Function) -> js_sys::Promise {
    let registry = registry.clone();
    future_to_promise(async move {
        let step = Step { registry: registry.clone(), step, results: RefCell::default(), thrown: RefCell::default() };
        let made = registry.library.plan(|| step.run()).await;
        match made {
            Ok((_, plan)) => {
                step.results.take();
                let plan = Rc::new(RefCell::new(Some(plan)));
                registry.insert_plan(&plan);
                Ok(WasmPlan { plan }.into())
            }
            Err(error) => Err(step.thrown.take().unwrap_or_else(|| js_error(error))),
        }
    })
}

struct Step {
    registry: Rc<Registry>,
    step: Function,
    /// The results of the last call.
    results: RefCell<Vec<u32>>,
    thrown: RefCell<Option<JsValue>>,
}

impl Step {
    fn run(&self) -> Result<Vec<Array>> {
        self.forget_results();
        let results = self.step.call0(&JsValue::UNDEFINED).map_err(|thrown| {
            *self.thrown.borrow_mut() = Some(thrown);
            Error::new(Code::InvalidRequest, "plan: the function threw")
        })?;
        let ids = js_sys::Uint32Array::from(results).to_vec();
        let arrays = self.registry.tensors(&ids);
        // Nobody goes back through a step from outside of it.
        for (id, array) in ids.iter().zip(arrays.iter().flatten()) {
            self.registry.replace(*id, array.detached());
        }
        *self.results.borrow_mut() = ids;
        arrays
    }

    /// What an earlier call made has no memory, or lies in an arena that is gone.
    fn forget_results(&self) {
        self.results.take().into_iter().for_each(|id| self.registry.remove(id));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.forget_results();
    }
}
