//! Grammars as the engine sees them. The grammar engine itself (llguidance, in the crate `rillm-grammar`) is not linked to this crate in a
//! page: `web` loads it as a second wasm when a request first needs it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use super::api::request::GrammarRequest;
use super::compiled_grammars::CompiledGrammars;
use crate::decode::GrammarCursor;
use crate::decode::constraint::TokenBytes;
pub use crate::decode::constraint::{Advance, Constraint};
use crate::error::Result;
use crate::text::grammar_limits;
use crate::text::tokenizer::Tokenizer;

/// Where the grammar engine comes from.
pub trait GrammarLoader {
    /// Called by the first request that needs a grammar; after an error, by the next one again.
    fn load(&self, vocabulary: GrammarVocabulary) -> LoadingGrammars<'_>;
}

/// A grammar engine on its way.
pub type LoadingGrammars<'a> = Pin<Box<dyn Future<Output = Result<Rc<dyn GrammarCompiler>>> + 'a>>;

/// The grammar engine for the tokens of one model.
pub trait GrammarCompiler {
    /// `grammar` is [`crate::text::grammar::Grammar::to_json`]. One that is not supported is `invalid_request`, with the reason.
    fn compile(&self, grammar: &str) -> Result<Box<dyn Constraint>>;
}

/// From a text to token ids.
pub type Tokenize = Box<dyn Fn(&str) -> Vec<u32>>;

/// A model's tokens, as a grammar engine wants them.
pub struct GrammarVocabulary {
    /// The bytes of all tokens, one after the other.
    pub bytes: Vec<u8>,
    /// How many bytes each token has, by id; 0 if it has no text.
    pub lengths: Vec<u32>,
    /// Which tokens are control tokens; their bytes are their names.
    pub control: Vec<bool>,
    /// Tokens that end an answer.
    pub ends: Vec<u32>,
    /// Tokenises text that stands in the middle of other text.
    pub tokenize: Tokenize,
}

impl GrammarVocabulary {
    /// The tokens that a model with `vocab_size` logits can write.
    fn of(tokenizer: &Rc<Tokenizer>, vocab_size: usize) -> Result<Self> {
        if !tokenizer.tokens_have_bytes() {
            bail!(
                UnsupportedTokenizer,
                "what this model's tokens stand for depends on their neighbours, so a grammar can't be held to them; leave \
                 structured output out, or use another model"
            );
        }
        let count = vocab_size.min(tokenizer.vocab_size());
        let (mut bytes, mut lengths, mut control) = (Vec::new(), Vec::with_capacity(count), Vec::with_capacity(count));
        for id in 0..count as u32 {
            let token = tokenizer.token_bytes_with_control(id)?;
            bytes.extend_from_slice(token);
            lengths.push(token.len() as u32);
            control.push(tokenizer.is_control(id));
        }
        let own = tokenizer.clone();
        Ok(Self {
            bytes,
            lengths,
            control,
            ends: tokenizer.end_of_generation().to_vec(),
            tokenize: Box::new(move |text| own.encode_inside(text)),
        })
    }
}

impl TokenBytes for Tokenizer {
    fn bytes(&self, token: u32) -> &[u8] {
        self.token_bytes_with_control(token).unwrap_or_default()
    }
}

/// The grammars of one engine.
#[derive(Default)]
pub(super) struct Grammars {
    loader: RefCell<Option<Rc<dyn GrammarLoader>>>,
    /// Loaded when a request first needs it.
    compiler: RefCell<Option<Rc<dyn GrammarCompiler>>>,
    compiled: RefCell<CompiledGrammars>,
}

impl Grammars {
    /// Sets where the grammar engine comes from.
    pub fn set_loader(&self, loader: Rc<dyn GrammarLoader>) {
        *self.loader.borrow_mut() = Some(loader);
    }

    /// Whether requests can be held to grammars.
    pub fn are_there(&self) -> bool {
        self.loader.borrow().is_some()
    }

    /// The beginning of a grammar, which is compiled unless it is one of the last few. Loads the grammar engine first if that was not done.
    pub async fn begin(
        &self,
        asked: &GrammarRequest,
        tokenizer: &Rc<Tokenizer>,
        vocab_size: usize,
    ) -> Result<GrammarCursor> {
        grammar_limits::check(&asked.grammar).map_err(|error| error.context(asked.field))?;
        let grammar = asked.grammar.to_json();
        if let Some(cursor) = self.compiled.borrow_mut().get(&grammar)? {
            return Ok(cursor);
        }
        let ready = self.compiler.borrow().clone();
        let compiler = match ready {
            Some(compiler) => compiler,
            None => {
                let Some(loader) = self.loader.borrow().clone() else {
                    bail!(
                        InvalidRequest,
                        "{}: this engine was made without grammars (Engine::set_grammars)",
                        asked.field
                    );
                };
                let compiler = loader.load(GrammarVocabulary::of(tokenizer, vocab_size)?).await?;
                *self.compiler.borrow_mut() = Some(compiler.clone());
                compiler
            }
        };
        let beginning = compiler.compile(&grammar).map_err(|error| error.context(asked.field))?;
        self.compiled.borrow_mut().keep(grammar, beginning)
    }
}
