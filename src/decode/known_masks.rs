//! One automaton of masks for all answers under a grammar.

use std::cell::RefCell;
use std::rc::Rc;

use super::constraint::TokenBytes;
use super::mask_automaton::MaskAutomaton;

/// What is known of a grammar's masks. Answers under the same grammar share it, also at the same time: what one learns, all know.
#[derive(Clone, Default)]
pub struct KnownMasks(Rc<RefCell<Option<Rc<RefCell<MaskAutomaton>>>>>);

impl KnownMasks {
    /// The automaton, a new one if there is none.
    pub fn automaton(&self, words: usize, vocabulary: &Rc<dyn TokenBytes>) -> Rc<RefCell<MaskAutomaton>> {
        let mut known = self.0.borrow_mut();
        known.get_or_insert_with(|| Rc::new(RefCell::new(MaskAutomaton::new(words, vocabulary)))).clone()
    }

    /// The one after an automaton that is full.
    pub fn after(
        &self,
        full: &Rc<RefCell<MaskAutomaton>>,
        words: usize,
        vocabulary: &Rc<dyn TokenBytes>,
    ) -> Rc<RefCell<MaskAutomaton>> {
        self.0.borrow_mut().take_if(|known| Rc::ptr_eq(known, full));
        self.automaton(words, vocabulary)
    }
}
