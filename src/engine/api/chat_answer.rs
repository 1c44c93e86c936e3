//! How the answer of a chat is read: which markers the model's template uses, what is reasoning, which calls are allowed, and the
//! grammar that the calls obey.

use std::rc::Rc;

use super::chat_prompt::Rendered;
use super::request::{ChatFields, FREE_CALLS, GrammarRequest, ReasoningFields};
use crate::decode::conflicts::{Feature, conflict};
use crate::engine::choice::Request;
use crate::engine::engine::Engine;
use crate::engine::reasoning_budget::Budget;
use crate::error::Result;
use crate::text::answer::AnswerSettings;
use crate::text::grammar::Grammar;
use crate::text::tokenizer::Tokenizer;
use crate::text::tools::{ToolChoice, ToolFormat, ToolGrammar, Tools};

/// A forced end of reasoning is its marker between these line breaks, as models write it.
const BEFORE_END: &str = "\n";
const AFTER_END: &str = "\n\n";

impl Engine {
    /// Adds to a request how its answer is read.
    pub(super) fn reading(
        &self,
        mut request: Request,
        chat: &ChatFields,
        reasoning: &ReasoningFields,
        tools: Rc<Tools>,
        choice: &ToolChoice,
        rendered: &Rendered,
    ) -> Result<Request> {
        let tokenizer = self.tokenizer();
        let template = rendered.template(&self.0.templates);
        let format = template.tool_format;
        let is_separate = reasoning.is_separate()?;
        // With a grammar for the whole answer, all of it is content from the beginning.
        let has_format = request.grammar.is_some();
        let calls = !tools.is_empty() && *choice != ToolChoice::None;
        if has_format && calls && *choice != ToolChoice::Auto {
            bail!(
                InvalidRequest,
                "tool_choice asks for a call, and {} for another form of the answer; leave one of them out",
                request.grammar.as_ref().map_or("", |asked| asked.field)
            );
        }
        let markers = template.reasoning.filter(|_| format.channels.is_none());
        let beginning =
            markers.map(|markers| (markers, markers.beginning(&rendered.prompt, rendered.continued.as_deref())));
        let calls = calls && !has_format;
        let channels = format.channels.filter(|_| !has_format).map(|channels| {
            let begun = rendered.prompt.rsplit_once(channels.prompt_end).map_or("", |(_, begun)| begun);
            (begun.to_owned(), !is_separate)
        });
        request.answer.settings = AnswerSettings {
            tools: calls.then(|| (format, tools.clone())),
            reasoning: beginning.filter(|_| is_separate && !has_format),
            channels,
        };
        let shown = |marker: &&str| tokenizer.token_id(marker).filter(|id| tokenizer.is_control(*id));
        let of_format = if calls || format.channels.is_some() { format.markers } else { &[] };
        let of_reasoning = markers.iter().flat_map(|markers| markers.tokens());
        request.answer.visible =
            of_format.iter().copied().chain(of_reasoning).filter_map(|marker| shown(&marker)).collect();
        if calls {
            request.answer.ends = format.end_tokens.iter().filter_map(|token| tokenizer.token_id(token)).collect();
            request.answer.single_call =
                chat.parallel_tool_calls == Some(false) || matches!(choice, ToolChoice::Function(_));
            request.answer.call_id = format.call_id;
            let grammar = ToolGrammar {
                format,
                tools: &tools,
                choice,
                parallel: chat.parallel_tool_calls != Some(false),
                reasoning: beginning,
                template: template.source(),
                control: &|marker| shown(&marker),
            };
            self.hold_to(&mut request, grammar, *choice == ToolChoice::Auto)?;
        }
        request.answer.drop_reasoning = reasoning.include_reasoning == Some(false);
        if let Some(tokens) = reasoning.thinking_token_budget {
            let is_reasoning =
                request.answer.settings.reasoning.is_some() || request.answer.settings.channels.is_some();
            request.budget =
                self.budget(tokens, markers.map(|markers| markers.close), format)?.filter(|_| is_reasoning);
        }
        Ok(request)
    }

    /// Holds the calls to their schemas. Calls that the model may leave out go without, if grammars are not available.
    fn hold_to(&self, request: &mut Request, grammar: ToolGrammar, is_free: bool) -> Result<()> {
        if is_free {
            // The request doesn't ask for a grammar itself, so whatever excludes grammars wins.
            let has_conflict = request.features().iter().any(|(of, _)| conflict(*of, Feature::Grammar).is_some());
            let can = self.0.grammars.are_there() && self.tokenizer().tokens_have_bytes();
            if has_conflict || !can {
                return Ok(());
            }
        }
        let field = if is_free { FREE_CALLS } else { "tool_choice" };
        let lark = grammar.lark().map_err(|error| error.context(field))?;
        request.grammar = lark.map(|lark| GrammarRequest { field, grammar: Grammar::Lark(lark), is_whole: false });
        Ok(())
    }

    fn budget(&self, tokens: u64, close: Option<&str>, format: &ToolFormat) -> Result<Option<Budget>> {
        let tokenizer = self.tokenizer();
        let ending = match (format.channels, close) {
            (Some(channels), _) => tokens_of(tokenizer, channels.reasoning_end),
            (_, Some(close)) => tokens_of(tokenizer, &[BEFORE_END, close, AFTER_END]),
            // A model that does not reason needs no budget.
            (_, None) => return Ok(None),
        };
        if ending.is_empty() {
            bail!(InvalidRequest, "thinking_token_budget: the tokenizer has no tokens for the end of reasoning");
        }
        Ok(Some(Budget { tokens: usize::try_from(tokens).unwrap_or(usize::MAX), ending }))
    }
}

/// The tokens of several texts in a row. A text that is itself a token becomes that token.
fn tokens_of(tokenizer: &Tokenizer, texts: &[&str]) -> Vec<u32> {
    let texts = texts.iter().filter(|text| !text.is_empty());
    texts
        .flat_map(|text| match tokenizer.token_id(text) {
            Some(id) => vec![id],
            None => tokenizer.encode_inside(text),
        })
        .collect()
}
