//! Grammars that were compiled of late, and what was learned about their masks: requests ask for the same few again and again.

use std::rc::Rc;

use crate::decode::constraint::Constraint;
use crate::decode::{GrammarCursor, MaskAutomaton};
use crate::error::Result;

/// As many as are kept.
const MOST: usize = 8;

/// The ones that were asked for last are the last.
#[derive(Default)]
pub struct CompiledGrammars(Vec<Compiled>);

struct Compiled {
    grammar: Rc<str>,
    beginning: Box<dyn Constraint>,
    /// Each answer begins with a copy of it.
    automaton: Option<MaskAutomaton>,
}

impl CompiledGrammars {
    /// The grammar's beginning, if it is still here.
    pub fn get(&mut self, grammar: &str) -> Result<Option<GrammarCursor>> {
        let Some(at) = self.0.iter().position(|compiled| &*compiled.grammar == grammar) else { return Ok(None) };
        let compiled = self.0.remove(at);
        let name = compiled.grammar.clone();
        let beginning = compiled.beginning.fork()?;
        self.0.push(compiled);
        Ok(beginning.map(|constraint| GrammarCursor { constraint, name: Some(name) }))
    }

    /// Keeps a grammar that was just compiled, if it can be forked.
    pub fn keep(&mut self, grammar: String, beginning: Box<dyn Constraint>) -> Result<GrammarCursor> {
        let Some(constraint) = beginning.fork()? else {
            return Ok(GrammarCursor { constraint: beginning, name: None });
        };
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        let grammar: Rc<str> = grammar.into();
        self.0.push(Compiled { grammar: grammar.clone(), beginning, automaton: None });
        Ok(GrammarCursor { constraint, name: Some(grammar) })
    }

    /// What is known of a grammar's masks.
    pub fn automaton(&self, grammar: &str) -> Result<Option<MaskAutomaton>> {
        let of_grammar = self.0.iter().find(|compiled| &*compiled.grammar == grammar);
        of_grammar.and_then(|compiled| compiled.automaton.as_ref()).map(MaskAutomaton::copy).transpose()
    }

    /// What an answer knew of its grammar's masks in the end. Of several at once the one that learned most counts.
    pub fn keep_automaton(&mut self, grammar: &str, automaton: MaskAutomaton) {
        let of_grammar = self.0.iter_mut().find(|compiled| &*compiled.grammar == grammar);
        if let Some(kept) = of_grammar.map(|compiled| &mut compiled.automaton)
            && kept.as_ref().is_none_or(|kept| !kept.knows_more_than(&automaton))
        {
            *kept = Some(automaton);
        }
    }
}
