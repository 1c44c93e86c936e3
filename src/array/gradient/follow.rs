//! How an operation tells where its result comes from.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use super::history::{History, Kept, Pull, Rule, Saved, Source};
use super::tape::Recorded;
use crate::array::graph::node::{Array, State};
use crate::error::Result;

impl Array {
    /// This result of an operation on `inputs`, with the way back to them: `rule` gives the gradients of the inputs, which may broadcast to the
    /// shapes of the inputs, or be broadcast. `saved` are the arrays that it needs; the result itself may be one.
    pub(crate) fn derived(
        self,
        name: &'static str,
        inputs: &[&Array],
        saved: &[Option<&Array>],
        rule: impl Fn(&Pull<Array>) -> Result<Vec<Option<Array>>> + 'static,
    ) -> Result<Array> {
        if !self.is_followed(inputs) {
            return Ok(self.detached());
        }
        let saved = saved.iter().map(|array| array.map(Array::saved).transpose()).collect::<Result<_>>()?;
        Ok(self.with_way_back(name.into(), histories(inputs), saved, Some(Box::new(rule))))
    }

    /// The same where the gradient of the one input is `rule` of that of the result.
    pub(crate) fn derived_from(
        self,
        name: &'static str,
        input: &Array,
        rule: impl Fn(&Array) -> Result<Array> + 'static,
    ) -> Result<Array> {
        self.derived(name, &[input], &[], move |pull| Ok(vec![Some(rule(&pull.gradient)?)]))
    }

    /// This result of an operation that has no gradient, which a backward pass says.
    pub(crate) fn derived_without_gradient(self, name: &'static str, inputs: &[&Array]) -> Array {
        if !self.is_followed(inputs) {
            return self.detached();
        }
        self.with_way_back(name.into(), histories(inputs), Vec::new(), None)
    }

    pub(super) fn with_way_back(
        self,
        name: Cow<'static, str>,
        inputs: Vec<Option<Rc<History<Array>>>>,
        saved: Vec<Option<Saved<Array>>>,
        rule: Option<Box<Rule<Array>>>,
    ) -> Array {
        let kept = Kept { inputs, saved, rule };
        let source = Source::Operation { name, kept: RefCell::new(Some(Rc::new(kept))) };
        let history = self.new_history(source);
        let recorded: Rc<dyn Recorded> = history.clone();
        self.library().tape().add(Rc::downgrade(&recorded));
        self.with_history(Some(history))
    }

    pub(super) fn new_history(&self, source: Source<Array>) -> Rc<History<Array>> {
        let number = self.library().next_number();
        Rc::new(History { number, shape: self.shape(), dtype: self.dtype(), source })
    }

    fn is_followed(&self, inputs: &[&Array]) -> bool {
        self.dtype().is_float()
            && inputs.iter().any(|input| input.requires_grad())
            && self.library().tape().is_enabled()
    }

    /// The array as it is now, to be used by a backward pass. A product is computed now, since computing it again costs more than its memory.
    fn saved(&self) -> Result<Saved<Array>> {
        if self.has_product() {
            self.evaluate()?;
        }
        let bytes = match &*self.0.state.borrow() {
            State::Constant(_) | State::Places(_) => 0,
            _ => self.elements() as u64 * self.dtype().size() as u64,
        };
        Ok(Saved { array: self.detached(), version: self.memory_version(), size: (self.0.number, bytes) })
    }

    /// How often its memory was written; memory that it gets later was not.
    pub(super) fn memory_version(&self) -> u64 {
        match &*self.0.state.borrow() {
            State::Stored(stored) => stored.storage.version(),
            _ => 0,
        }
    }
}

pub(super) fn histories(inputs: &[&Array]) -> Vec<Option<Rc<History<Array>>>> {
    inputs.iter().map(|input| input.history().cloned()).collect()
}
