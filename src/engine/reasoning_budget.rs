//! A limit for the tokens of a model's reasoning (vLLM's `thinking_token_budget`). When it is reached, the text that ends reasoning is
//! forced, and the answer goes on after it.
//!
//! It is a constraint like a grammar: forced tokens go through one pass, and nothing else is banned. A grammar, if there is one, holds
//! as well.

use std::rc::Rc;

use crate::decode::constraint::{Advance, Constraint};
use crate::error::Result;
use crate::text::answer::{Answer, AnswerSettings};
use crate::text::detokenize::StreamDecoder;
use crate::text::tokenizer::Tokenizer;

/// What a request asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    /// The most tokens of reasoning.
    pub tokens: usize,
    /// The text that ends reasoning.
    pub ending: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Counting,
    /// The number of the ending's tokens that were taken.
    Ending(usize),
    Over,
}

pub(super) struct ReasoningBudget {
    tokenizer: Rc<Tokenizer>,
    decoder: StreamDecoder,
    /// Tells reasoning from the rest, as the answer's own reader does.
    answer: Answer,
    budget: Budget,
    used: usize,
    state: State,
    /// Tokens that end the answer.
    ends: Vec<u32>,
    grammar: Option<Box<dyn Constraint>>,
}

impl ReasoningBudget {
    /// Counts from the beginning of an answer that `decoder` and `settings` read. `grammar` holds it besides.
    pub fn new(
        tokenizer: Rc<Tokenizer>,
        decoder: StreamDecoder,
        settings: AnswerSettings,
        budget: Budget,
        ends: Vec<u32>,
        grammar: Option<Box<dyn Constraint>>,
    ) -> Self {
        let answer = Answer::new(settings);
        Self { tokenizer, decoder, answer, budget, used: 0, state: State::Counting, ends, grammar }
    }

    /// Begins to force the ending if the budget is used up, but never inside a character.
    fn look(&mut self) {
        if self.state == State::Counting
            && self.answer.is_reasoning()
            && self.used >= self.budget.tokens
            && !self.decoder.is_within_character()
        {
            self.state = State::Ending(0);
        }
    }

    /// Takes one token in, if the grammar does.
    fn take(&mut self, token: u32) -> Result<bool> {
        if let Some(grammar) = &mut self.grammar
            && grammar.advance(&[token])?.taken == 0
        {
            return Ok(false);
        }
        match self.state {
            State::Counting => {
                let was_reasoning = self.answer.is_reasoning();
                let text = self.decoder.push(&self.tokenizer, token)?;
                self.answer.push(&text);
                let is_reasoning = self.answer.is_reasoning();
                self.used += usize::from(was_reasoning || is_reasoning);
                if was_reasoning && !is_reasoning {
                    self.state = State::Over;
                }
            }
            State::Ending(taken) if taken + 1 < self.budget.ending.len() => self.state = State::Ending(taken + 1),
            State::Ending(_) => self.state = State::Over,
            State::Over => {}
        }
        Ok(true)
    }
}

impl Constraint for ReasoningBudget {
    fn advance(&mut self, tokens: &[u32]) -> Result<Advance> {
        let mut taken = 0;
        for &token in tokens {
            self.look();
            if let State::Ending(at) = self.state
                && self.budget.ending.get(at) != Some(&token)
            {
                break;
            }
            if !self.take(token)? {
                break;
            }
            taken += 1;
            if self.ends.contains(&token) {
                return Ok(Advance { taken, forced: Vec::new(), is_complete: true });
            }
        }
        self.look();
        let state = match &mut self.grammar {
            Some(grammar) => grammar.advance(&[])?,
            None => Advance::default(),
        };
        let forced = match self.state {
            State::Ending(at) => self.budget.ending[at..].to_vec(),
            _ => state.forced,
        };
        Ok(Advance { taken, forced, is_complete: state.is_complete })
    }

    fn mask(&mut self, bits: &mut [u32]) -> Result<()> {
        match (self.state, &mut self.grammar) {
            (State::Ending(at), _) => {
                bits.fill(0);
                if let Some(&token) = self.budget.ending.get(at)
                    && let Some(word) = bits.get_mut(token as usize / 32)
                {
                    *word |= 1 << (token % 32);
                }
                Ok(())
            }
            (_, Some(grammar)) => grammar.mask(bits),
            (_, None) => {
                bits.fill(u32::MAX);
                Ok(())
            }
        }
    }

    /// Only after the reasoning: until then, what may follow depends on how many tokens came before.
    fn fork(&self) -> Result<Option<Box<dyn Constraint>>> {
        match (self.state, &self.grammar) {
            (State::Over, Some(grammar)) => grammar.fork(),
            _ => Ok(None),
        }
    }
}
