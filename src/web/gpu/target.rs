//! What operations are carried out on: tensors of the device, at once, or buffers of a batch, which notes them.

use std::rc::Rc;

use wasm_bindgen::JsValue;

use super::super::convert::js_error;
use super::registry::{OpenBatch, Registry};
use crate::array::{Array, Library};
use crate::error::{Error, Result};

/// The number of a tensor that is left out.
pub const NONE: u32 = u32::MAX;

pub enum Target {
    Device(Rc<Registry>),
    Batch(Rc<Registry>, Rc<OpenBatch>),
}

impl Target {
    /// An operation with one result; the numbers are of tensors or of buffers.
    pub fn one<const N: usize>(
        &self,
        inputs: [u32; N],
        work: impl Fn([&Array; N]) -> Result<Array> + 'static,
    ) -> Result<u32, JsValue> {
        match self {
            Target::Device(registry) => registry.made(|| work(exactly(&registry.tensors(&inputs)?)?)),
            Target::Batch(_, batch) => only(noted(batch, &inputs, move |arrays| Ok(vec![work(exactly(arrays)?)?]))),
        }
        .map_err(named_as_called)
    }

    /// The same where inputs may be left out.
    pub fn some<const N: usize>(
        &self,
        inputs: [u32; N],
        work: impl Fn([Option<&Array>; N]) -> Result<Array> + 'static,
    ) -> Result<u32, JsValue> {
        let given: Vec<u32> = inputs.into_iter().filter(|input| *input != NONE).collect();
        self.list(&given, move |arrays| {
            let mut arrays = arrays.iter();
            work(inputs.map(|input| if input == NONE { None } else { arrays.next() }))
        })
    }

    /// The same with any number of inputs.
    pub fn list(&self, inputs: &[u32], work: impl Fn(&[Array]) -> Result<Array> + 'static) -> Result<u32, JsValue> {
        match self {
            Target::Device(registry) => registry.made(|| work(&registry.tensors(inputs)?)),
            Target::Batch(_, batch) => only(noted(batch, inputs, move |arrays| Ok(vec![work(arrays)?]))),
        }
        .map_err(named_as_called)
    }

    /// An array that is known without the GPU, so that a batch need not note it.
    pub fn made(&self, make: impl FnOnce(&Library) -> Result<Array>) -> Result<u32, JsValue> {
        let library = &self.registry().library;
        match self {
            Target::Device(registry) => registry.made(|| make(library)),
            Target::Batch(_, batch) => make(library).and_then(|array| match &mut *batch.borrow_mut() {
                Some(batch) => Ok(batch.insert(array)),
                None => bail!(Disposed, "the batch was disposed of"),
            }),
        }
        .map_err(named_as_called)
    }

    /// An operation with several results, or with none but what it writes.
    pub fn several<const N: usize>(
        &self,
        inputs: [u32; N],
        work: impl Fn([&Array; N]) -> Result<Vec<Array>> + 'static,
    ) -> Result<Vec<u32>, JsValue> {
        match self {
            Target::Device(registry) => {
                let results = || work(exactly(&registry.tensors(&inputs)?)?);
                results().and_then(|results| results.into_iter().map(|result| registry.made(|| Ok(result))).collect())
            }
            Target::Batch(_, batch) => noted(batch, &inputs, move |arrays| work(exactly(arrays)?)),
        }
        .map_err(named_as_called)
    }

    /// The dimensions of a shape's number.
    pub fn dims(&self, shape: u32) -> Result<Vec<usize>, JsValue> {
        self.registry().dims(shape).map_err(js_error)
    }

    /// What arrays are made with.
    pub fn library(&self) -> &Library {
        &self.registry().library
    }

    fn registry(&self) -> &Rc<Registry> {
        match self {
            Target::Device(registry) | Target::Batch(registry, _) => registry,
        }
    }
}

fn noted(
    batch: &OpenBatch,
    inputs: &[u32],
    work: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static,
) -> Result<Vec<u32>> {
    match &mut *batch.borrow_mut() {
        Some(batch) => batch.note(inputs, work),
        None => bail!(Disposed, "the batch was disposed of"),
    }
}

fn only(results: Result<Vec<u32>>) -> Result<u32> {
    match results?[..] {
        [result] => Ok(result),
        ref results => bail!(Internal, "an operation has {} results, not one", results.len()),
    }
}

fn exactly<const N: usize>(arrays: &[Array]) -> Result<[&Array; N]> {
    match <&[Array; N]>::try_from(arrays) {
        Ok(arrays) => Ok(arrays.each_ref()),
        Err(_) => bail!(Internal, "{} inputs, not {N}", arrays.len()),
    }
}

/// Messages begin with the operation's name, which JavaScript knows in camel case.
fn named_as_called(error: Error) -> JsValue {
    let Some((name, rest)) = error.message().split_once(':') else { return js_error(error) };
    if !name.contains('_')
        || !name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
    {
        return js_error(error);
    }
    let mut parts = name.split('_');
    let mut called = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        called.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        called.push_str(letters.as_str());
    }
    js_error(Error::new(error.code(), format!("{called}:{rest}")))
}
