//! Which proposer and which acceptor a request gets. A new method of decoding is a new proposer or acceptor, and a line here.

use std::cell::RefCell;
use std::rc::Rc;

use web_time::Duration;

use super::accept::Acceptor;
use super::accept::all::AcceptAll;
use super::accept::grammar::AcceptGrammar;
use super::accept::greedy_match::GreedyMatch;
use super::accept::processor::AcceptProcessed;
use super::constraint::TokenBytes;
use super::grammar::{GrammarCursor, GrammarState, Mode};
use super::proposal::Proposer;
use super::proposal::draft::{DraftModelHome, DraftProposer, HeldDraftModel};
use super::proposal::draft_under_grammar::{DraftUnderGrammar, Refused};
use super::proposal::lookup::PromptLookup;
use super::proposal::mask_automaton::GrammarProposer;
use super::proposal::mtp::{MtpProposer, Pay};
use super::proposal::processor::{LogitsProcessor, ProcessorProposer};
use super::proposal::run_ahead::RunAheadProposer;
use super::proposal::with_rows::WithRows;
use super::sequence::Sequence;
use crate::error::Result;
use crate::model::RowCache;
use crate::sampler::ops::MaskLogits;

/// Where drafts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculation {
    PromptLookup(PromptLookup),
    /// At most this many tokens from the draft model.
    DraftModel(usize),
    /// At most this many tokens from the model's own head.
    Mtp(usize),
}

/// The grammar that an answer must follow.
pub struct Grammar {
    pub cursor: GrammarCursor,
    pub vocabulary: Rc<dyn TokenBytes>,
    pub vocab_size: usize,
    /// The mode to use; None for the faster one.
    pub mode: Option<Mode>,
}

/// What a request asks for.
#[derive(Default)]
pub struct Methods {
    pub speculation: Option<Speculation>,
    pub grammar: Option<Grammar>,
    pub processor: Option<Rc<dyn LogitsProcessor>>,
    pub draft_model: DraftModelHome,
    /// What drafts of the model's own head are worth.
    pub pay: Pay,
    /// Where embeddings stay in files: each token is known before the pass that takes it in.
    pub row_cache: Option<Rc<RowCache>>,
}

/// What decides about one sequence.
pub struct Decided {
    pub proposer: Box<dyn Proposer>,
    pub acceptor: Box<dyn Acceptor>,
    /// What was learned is taken from it when the answer is over.
    pub grammar: Option<Rc<RefCell<GrammarState>>>,
}

impl Methods {
    /// For a sequence whose prompt is in the caches. `step` is how long earlier steps took, if known.
    pub fn decide(self, sequence: &mut Sequence, step: Option<Duration>) -> Result<Decided> {
        let grammar = match self.grammar {
            None => None,
            Some(Grammar { cursor, vocabulary, vocab_size, mode }) => {
                let words = MaskLogits::words(vocab_size);
                let state = GrammarState::new(cursor, words, vocabulary, sequence, step)?;
                // A step that is dropped would have moved what mirostat allows.
                let is_single =
                    self.processor.is_some() || self.row_cache.is_some() || sequence.params.features().mirostat();
                let mode = if is_single { Some(Mode::StepByStep(None)) } else { mode };
                let state = state.in_mode(mode);
                Some(Rc::new(RefCell::new(state)))
            }
        };
        let (drafts, model): (Option<Box<dyn Proposer>>, _) = match self.speculation {
            None => (None, None),
            Some(Speculation::PromptLookup(lookup)) => (Some(Box::new(lookup)), None),
            Some(Speculation::DraftModel(max_tokens)) => {
                let held = Rc::new(RefCell::new(HeldDraftModel::new(self.draft_model)));
                (Some(Box::new(DraftProposer { held: held.clone(), max_tokens })), Some(held))
            }
            Some(Speculation::Mtp(max_tokens)) => (Some(Box::new(MtpProposer::new(max_tokens, self.pay))), None),
        };
        let refused = Refused::default();
        let accept: Box<dyn Acceptor> = match &grammar {
            Some(grammar) => {
                Box::new(AcceptGrammar { grammar: grammar.clone(), refused: refused.clone(), model: model.clone() })
            }
            None => Box::new(AcceptAll),
        };
        let by_grammar = |grammar: &Rc<RefCell<GrammarState>>| GrammarProposer { grammar: grammar.clone() };
        let (proposer, acceptor): (Box<dyn Proposer>, Box<dyn Acceptor>) = match (self.processor, &grammar, drafts) {
            (Some(processor), _, _) => {
                let raw = Rc::default();
                let logprobs = sequence.params.logprobs.take();
                let accept = AcceptProcessed { raw: Rc::clone(&raw), logprobs, inner: accept };
                (Box::new(ProcessorProposer { processor, raw, grammar: grammar.clone() }), Box::new(accept))
            }
            (None, Some(grammar), Some(drafts)) => {
                (Box::new(DraftUnderGrammar { grammar: by_grammar(grammar), drafts, refused }), accept)
            }
            (None, Some(grammar), None) => (Box::new(by_grammar(grammar)), accept),
            (None, None, Some(drafts)) => (drafts, Box::new(GreedyMatch { model })),
            (None, None, None) => (Box::new(RunAheadProposer), accept),
        };
        let proposer = match self.row_cache {
            Some(cache) => Box::new(WithRows::new(proposer, cache)),
            None => proposer,
        };
        Ok(Decided { proposer, acceptor, grammar })
    }
}
