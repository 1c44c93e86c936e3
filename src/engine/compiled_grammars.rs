//! The last compiled grammars, and what was learned about their masks: requests ask for the same few again and again.

use crate::decode::constraint::Constraint;
use crate::decode::{GrammarCursor, KnownMasks};
use crate::error::Result;

/// How many are kept.
const MOST: usize = 8;

/// In the order of their last use, the latest at the end.
#[derive(Default)]
pub struct CompiledGrammars(Vec<Compiled>);

struct Compiled {
    grammar: String,
    beginning: Box<dyn Constraint>,
    known: KnownMasks,
}

impl CompiledGrammars {
    /// The grammar's beginning, if it is still here.
    pub fn get(&mut self, grammar: &str) -> Result<Option<GrammarCursor>> {
        let Some(at) = self.0.iter().position(|compiled| compiled.grammar == grammar) else { return Ok(None) };
        let compiled = self.0.remove(at);
        let known = compiled.known.clone();
        let beginning = compiled.beginning.fork()?;
        self.0.push(compiled);
        Ok(beginning.map(|constraint| GrammarCursor { constraint, known }))
    }

    /// Keeps a grammar that was just compiled, if it can be forked.
    pub fn keep(&mut self, grammar: String, beginning: Box<dyn Constraint>) -> Result<GrammarCursor> {
        let Some(constraint) = beginning.fork()? else {
            return Ok(GrammarCursor { constraint: beginning, known: KnownMasks::default() });
        };
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        let known = KnownMasks::default();
        self.0.push(Compiled { grammar, beginning, known: known.clone() });
        Ok(GrammarCursor { constraint, known })
    }
}
