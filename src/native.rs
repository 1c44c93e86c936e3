//! The grammar engine for native programs: they link it, while a page loads it as a second wasm.

use std::future::ready;
use std::rc::Rc;

use rillm_grammar::{Grammars, Matching, Vocabulary, words_of};

use crate::engine::Engine;
use crate::engine::grammars::{
    Advance, Constraint, GrammarCompiler, GrammarLoader, GrammarVocabulary, LoadingGrammars,
};
use crate::error::Result;

/// The linked grammar engine.
pub struct LinkedGrammars;

struct Compiler(Grammars);
struct Held(Matching);

impl GrammarLoader for LinkedGrammars {
    fn load(&self, vocabulary: GrammarVocabulary) -> LoadingGrammars<'_> {
        Box::pin(ready(compiler(vocabulary)))
    }
}

/// The engine, with structured output.
pub fn with_grammars(engine: Engine) -> Engine {
    engine.set_grammars(Rc::new(LinkedGrammars));
    engine
}

fn compiler(vocabulary: GrammarVocabulary) -> Result<Rc<dyn GrammarCompiler>> {
    let GrammarVocabulary { bytes, lengths, control, ends, tokenize } = vocabulary;
    let grammars = words_of(&bytes, &lengths)
        .and_then(|words| Grammars::new(&Vocabulary { words, control: &control, ends: &ends }, tokenize))
        .map_err(|error| err!(UnsupportedTokenizer, "the grammar engine can't take this vocabulary: {error}"))?;
    Ok(Rc::new(Compiler(grammars)))
}

impl GrammarCompiler for Compiler {
    fn compile(&self, grammar: &str) -> Result<Box<dyn Constraint>> {
        match self.0.compile(grammar) {
            Ok(matching) => Ok(Box::new(Held(matching))),
            Err(reason) => bail!(InvalidRequest, "{reason}"),
        }
    }
}

impl Constraint for Held {
    fn advance(&mut self, tokens: &[u32]) -> Result<Advance> {
        match self.0.advance(tokens) {
            Ok(rillm_grammar::Advance { taken, forced, is_complete }) => Ok(Advance { taken, forced, is_complete }),
            Err(reason) => bail!(InvalidRequest, "the grammar can't be followed any further: {reason}"),
        }
    }

    fn mask(&mut self, bits: &mut [u32]) -> Result<()> {
        self.0.mask(bits).map_err(|reason| err!(InvalidRequest, "the grammar can't be followed any further: {reason}"))
    }

    fn fork(&self) -> Result<Option<Box<dyn Constraint>>> {
        Ok(Some(Box::new(Self(self.0.clone()))))
    }
}
