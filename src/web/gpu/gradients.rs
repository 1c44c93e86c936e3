//! Gradients' bindings: what requires one, backward passes, and what is recorded for them.

use std::rc::Rc;

use js_sys::{Function, Uint32Array};
use wasm_bindgen::prelude::*;

use super::super::convert::js_error;
use super::device::WasmGpu;
use super::registry::Registry;
use super::target::NONE;
use crate::array::{Array, Backward, pulled_back};
use crate::error::{Code, Error, Result};

#[wasm_bindgen]
impl WasmGpu {
    /// From now on the tensor requires a gradient, or does not.
    #[wasm_bindgen(js_name = requireGrad)]
    pub fn require_grad(&self, tensor: u32, on: bool) -> Result<(), JsValue> {
        let require = || {
            let array = self.registry.tensor(tensor)?;
            if !on && array.requires_grad() && !array.is_leaf() {
                bail!(
                    InvalidRequest,
                    "requiresGrad: the tensor {} was computed from one that requires a gradient; detach() gives one that does not",
                    array.shape()
                );
            }
            self.registry.replace(tensor, if on { array.requiring_grad()? } else { array.detached() });
            Ok(())
        };
        require().map_err(js_error)
    }

    #[wasm_bindgen(js_name = requiresGrad)]
    pub fn requires_grad(&self, tensor: u32) -> Result<bool, JsValue> {
        self.registry.tensor(tensor).map(|array| array.requires_grad()).map_err(js_error)
    }

    /// The number by which passes name what requires a gradient itself; 0 for others.
    #[wasm_bindgen(js_name = leafNumber)]
    pub fn leaf_number(&self, tensor: u32) -> Result<f64, JsValue> {
        self.registry.tensor(tensor).map(|array| array.leaf_number().unwrap_or(0) as f64).map_err(js_error)
    }

    pub fn detach(&self, tensor: u32) -> Result<u32, JsValue> {
        let detach = || Ok(self.registry.insert(self.registry.tensor(tensor)?.detached()));
        detach().map_err(js_error)
    }

    /// The tensor of a tensor's gradient, `NONE` if it has none. With `known`, that tensor becomes the gradient as it is now.
    pub fn gradient(&self, tensor: u32, known: u32) -> Result<u32, JsValue> {
        let gradient = || {
            let Some(gradient) = self.registry.tensor(tensor)?.grad() else { return Ok(NONE) };
            if known == NONE {
                return Ok(self.registry.insert(gradient));
            }
            self.registry.replace(known, gradient);
            Ok(known)
        };
        gradient().map_err(js_error)
    }

    /// Sets a tensor's gradient; `NONE` for none.
    #[wasm_bindgen(js_name = setGradient)]
    pub fn set_gradient(&self, tensor: u32, gradient: u32) -> Result<(), JsValue> {
        let set = || {
            let gradient = self.registry.given(gradient)?;
            self.registry.tensor(tensor)?.set_grad(gradient.as_ref())
        };
        set().map_err(js_error)
    }

    /// Adds to gradients. Returns the numbers of what got one.
    pub fn backward(&self, tensor: u32, gradient: u32, retain_graph: bool) -> Result<Vec<f64>, JsValue> {
        self.pass(tensor, gradient, retain_graph, |array, how| {
            Ok(array.backward(how)?.into_iter().map(|number| number as f64).collect())
        })
    }

    /// The gradients alone: the number of each leaf, then the id of its gradient.
    pub fn gradients(&self, tensor: u32, gradient: u32, retain_graph: bool) -> Result<Vec<f64>, JsValue> {
        self.pass(tensor, gradient, retain_graph, |array, how| {
            let found = array.gradients(how)?.into_iter();
            Ok(found
                .flat_map(|(number, gradient)| [number as f64, f64::from(self.registry.insert(gradient))])
                .collect())
        })
    }

    /// Makes a tensor the result of an operation of the caller's own. `rule` gets the id of the gradient of the result and gives those of the
    /// inputs' gradients, `NONE` for none.
    pub fn record(&self, name: &str, inputs: &[u32], output: u32, rule: Function) -> Result<(), JsValue> {
        let record = || {
            let (inputs, array) = (self.registry.tensors(inputs)?, self.registry.tensor(output)?);
            let registry = self.registry.clone();
            let rule = move |gradient: &Array| -> Result<Vec<Option<Array>>> {
                let id = registry.insert(gradient.clone());
                let given = rule.call1(&JsValue::UNDEFINED, &id.into());
                let gradients = given
                    .map_err(threw)
                    .and_then(|ids| Uint32Array::from(ids).to_vec().into_iter().map(|id| registry.given(id)).collect());
                registry.remove(id);
                gradients
            };
            let inputs: Vec<&Array> = inputs.iter().collect();
            self.registry.replace(output, array.record(name, &inputs, Box::new(rule))?);
            Ok(())
        };
        record().map_err(js_error)
    }

    /// What `work` gives, which a backward pass calls again.
    pub fn checkpoint(&self, work: Function) -> Result<u32, JsValue> {
        let registry = self.registry.clone();
        let checkpoint = self.registry.library.checkpoint(move || result_of(&registry, &work, &[]));
        checkpoint.map(|array| self.registry.insert(array)).map_err(js_error)
    }

    /// The ids of the gradients of the tensors that one operation gets; `NONE` for those without. `work` gets their ids and returns that of the result.
    #[wasm_bindgen(js_name = pullBack)]
    pub fn pull_back(&self, inputs: &[u32], gradient: u32, work: Function) -> Result<Vec<u32>, JsValue> {
        let pull_back = || {
            let (arrays, gradient) = (self.registry.tensors(inputs)?, self.registry.tensor(gradient)?);
            let inputs: Vec<&Array> = arrays.iter().collect();
            let found = pulled_back(&inputs, &gradient, |leaves| result_of(&self.registry, &work, leaves))?;
            Ok(found.into_iter().map(|found| found.map_or(NONE, |found| self.registry.insert(found))).collect())
        };
        pull_back().map_err(js_error)
    }

    #[wasm_bindgen(js_name = setRecording)]
    pub fn set_recording(&self, on: bool) {
        self.registry.library.set_records(on);
    }

    #[wasm_bindgen(js_name = isRecording)]
    pub fn is_recording(&self) -> bool {
        self.registry.library.records()
    }

    /// Operations that were recorded, the bytes that they keep, and those that checkpoints did not keep.
    pub fn recorded(&self) -> Vec<f64> {
        let (operations, bytes, checkpointed) = self.registry.library.recorded();
        vec![operations as f64, bytes as f64, checkpointed as f64]
    }

    #[wasm_bindgen(js_name = clearRecorded)]
    pub fn clear_recorded(&self) {
        self.registry.library.clear_recorded();
    }
}

impl WasmGpu {
    fn pass(
        &self,
        tensor: u32,
        gradient: u32,
        retain_graph: bool,
        pass: impl FnOnce(&Array, Backward<'_>) -> Result<Vec<f64>>,
    ) -> Result<Vec<f64>, JsValue> {
        let run = || {
            self.registry.device().check_usable()?;
            let gradient = self.registry.given(gradient)?;
            pass(&self.registry.tensor(tensor)?, Backward { gradient: gradient.as_ref(), retain_graph })
        };
        run().map_err(js_error)
    }
}

/// What a function of JavaScript makes of arrays. It gets ids that are valid while it runs, and returns one.
fn result_of(registry: &Rc<Registry>, work: &Function, inputs: &[Array]) -> Result<Array> {
    let ids: Vec<u32> = inputs.iter().map(|input| registry.insert(input.clone())).collect();
    let given = work.call1(&JsValue::UNDEFINED, &Uint32Array::from(&ids[..]).into());
    let result = match given {
        Ok(id) => registry.tensor(id.as_f64().map_or(NONE, |id| id as u32)),
        Err(thrown) => Err(threw(thrown)),
    };
    ids.into_iter().for_each(|id| registry.remove(id));
    result
}

impl Registry {
    /// A tensor that may be left out.
    fn given(&self, id: u32) -> Result<Option<Array>> {
        if id == NONE { Ok(None) } else { self.tensor(id).map(Some) }
    }
}

/// A function of the caller's threw; what, its caller in JavaScript keeps.
fn threw(_: JsValue) -> Error {
    Error::new(Code::InvalidRequest, "a function of the caller's threw")
}
