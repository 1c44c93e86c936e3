//! What holds an answer to a grammar, as the engine sees it. The grammar engine itself (llguidance, in the crate `rillm-grammar`) is
//! not linked to this crate where it runs in a page: `web` loads it as a second wasm when a request first asks for structured output.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use super::api::request::GrammarRequest;
use super::constrained::Following;
use super::loaded::{Engine, Inner};
use crate::error::Result;
use crate::text::tokenizer::Tokenizer;

/// Where the grammar engine comes from.
pub trait GrammarLoader {
    fn load(&self, vocabulary: GrammarVocabulary) -> LoadingGrammars<'_>;
}

pub type LoadingGrammars<'a> = Pin<Box<dyn Future<Output = Result<Rc<dyn GrammarCompiler>>> + 'a>>;

/// The grammar engine for the tokens of one model.
pub trait GrammarCompiler {
    /// `grammar` is [`crate::text::grammar::Grammar::to_json`]. What can't be done is an `invalid_request` that says why.
    fn compile(&self, grammar: &str) -> Result<Box<dyn Constraint>>;
}

/// Where in a grammar an answer stands.
pub trait Constraint {
    /// Takes tokens in as long as they are allowed: where some are forced, these alone; where the answer may end, what ends it.
    fn advance(&mut self, tokens: &[u32]) -> Result<Advance>;

    /// The tokens that may follow, as bits, the first token's the lowest of the first word.
    fn mask(&mut self, bits: &mut [u32]) -> Result<()>;

    /// The same place once more, to look ahead from; None where that can't be had.
    fn fork(&self) -> Result<Option<Box<dyn Constraint>>>;
}

/// What became of some tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// So many of them were allowed, and are taken in.
    pub taken: usize,
    /// The only tokens that may follow, one behind the other, as far as the grammar leaves no choice. They are not taken in.
    pub forced: Vec<u32>,
    /// Nothing but the end may follow, or it has come.
    pub is_complete: bool,
}

/// From text to token ids.
pub type Tokenize = Box<dyn Fn(&str) -> Vec<u32>>;

/// The tokens of a model as a grammar engine wants them.
pub struct GrammarVocabulary {
    /// The bytes of all tokens, one behind the other.
    pub bytes: Vec<u8>,
    /// How many are each token's, by id; none where it has no text.
    pub lengths: Vec<u32>,
    /// Which are control tokens: their bytes are the names that they are written as.
    pub control: Vec<bool>,
    /// What ends an answer.
    pub ends: Vec<u32>,
    /// Cuts text in the middle of other text into tokens.
    pub tokenize: Tokenize,
}

impl GrammarVocabulary {
    /// The tokens that a model with so many logits can write.
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

impl Engine {
    /// Where the grammar engine comes from, for requests that want structured output. Without it they are refused.
    pub fn set_grammars(&self, loader: Rc<dyn GrammarLoader>) {
        *self.0.grammar_loader.borrow_mut() = Some(loader);
    }

    /// Whether requests can be held to grammars.
    pub(super) fn has_grammars(&self) -> bool {
        self.0.grammar_loader.borrow().is_some()
    }
}

impl Inner {
    /// Compiles a grammar, where it is not one of the last few; loads the grammar engine first, where that was not done yet.
    pub async fn follow(&self, asked: &GrammarRequest) -> Result<Following> {
        let grammar = asked.grammar.to_json();
        if let Some(following) = self.compiled.borrow_mut().get(&grammar)? {
            return Ok(following);
        }
        let ready = self.grammars.borrow().clone();
        let grammars = match ready {
            Some(grammars) => grammars,
            None => {
                let Some(loader) = self.grammar_loader.borrow().clone() else {
                    bail!(
                        InvalidRequest,
                        "{}: this engine was made without grammars (Engine::set_grammars)",
                        asked.field
                    );
                };
                let vocabulary = GrammarVocabulary::of(&self.tokenizer, self.decoder()?.config().vocab_size)?;
                let grammars = loader.load(vocabulary).await?;
                *self.grammars.borrow_mut() = Some(grammars.clone());
                grammars
            }
        };
        let beginning = grammars.compile(&grammar).map_err(|error| error.context(asked.field))?;
        self.compiled.borrow_mut().keep(grammar, beginning)
    }
}
