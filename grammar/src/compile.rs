//! From a grammar, as JSON, to a state that follows a text.

use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;
use toktrie::{InferenceCapabilities, TokEnv};

use crate::matching::Matching;
use crate::vocabulary::{Trie, Vocabulary};

/// Compiles grammars for one vocabulary.
pub struct Grammars {
    factory: ParserFactory,
    ends: Vec<u32>,
}

impl Grammars {
    /// Makes the trie, which takes about 4 µs for each token. `tokenize` is the model's tokenizer for text in the middle of other text:
    /// without special tokens around it, and without control tokens in it.
    pub fn new(vocabulary: &Vocabulary, tokenize: impl Fn(&str) -> Vec<u32> + 'static) -> Result<Self, String> {
        let env: TokEnv = Arc::new(Trie::new(vocabulary, tokenize)?);
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let capabilities = InferenceCapabilities { ff_tokens: true, ..Default::default() };
        let mut factory = ParserFactory::new(&env, capabilities, &slices).map_err(|error| error.to_string())?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Self { factory, ends: vocabulary.ends.to_vec() })
    }

    /// Reads `"json_object"`, `{"json_schema": …}`, `{"regex": …}`, `{"choice": […]}` or `{"lark": …}`. The error says what is
    /// wrong with it, or what llguidance does not support.
    pub fn compile(&self, grammar: &str) -> Result<Matching, String> {
        let grammar: Value = serde_json::from_str(grammar).map_err(|error| error.to_string())?;
        let mut matcher = Matcher::new(self.factory.create_parser(grammar_of(&grammar)?));
        if let Some(error) = matcher.get_error() {
            let error = reason(&error);
            // A regular expression becomes a grammar of one rule, which its author does not know.
            let own = error.find("regex parse error:").filter(|_| grammar.get("regex").is_some());
            return Err(match own {
                Some(begin) => error[begin..].split("\n   1 | ").next().unwrap_or(&error).to_owned(),
                None => error,
            });
        }
        // A grammar can be well-formed although this vocabulary can't write any of its texts.
        let ends_at_once = matcher.is_accepting().unwrap_or(false);
        if !ends_at_once && matcher.compute_mask().is_err() {
            return Err(match matcher.get_error() {
                Some(error) if !error.contains("NoExtension") => reason(&error),
                _ => "it admits no text that the model's tokens can write".to_owned(),
            });
        }
        Ok(Matching::new(matcher, self.ends.clone(), self.factory.tok_env().tok_trie().vocab_size()))
    }
}

fn grammar_of(grammar: &Value) -> Result<TopLevelGrammar, String> {
    let (kind, body) = match grammar {
        Value::String(kind) => (kind.as_str(), &Value::Null),
        Value::Object(fields) if fields.len() == 1 => match fields.iter().next() {
            Some((kind, body)) => (kind.as_str(), body),
            None => ("", &Value::Null),
        },
        _ => ("", &Value::Null),
    };
    match (kind, body) {
        ("json_schema", schema) => Ok(TopLevelGrammar::from_json_schema(schema.clone())),
        ("regex", Value::String(pattern)) => Ok(TopLevelGrammar::from_regex(without_anchors(pattern))),
        ("choice", Value::Array(texts)) => {
            let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
            if texts.is_empty() {
                return Err("it has no choices".to_owned());
            }
            let choices: Vec<String> = texts.into_iter().map(regex_syntax::escape).collect();
            Ok(TopLevelGrammar::from_regex(&choices.join("|")))
        }
        ("lark", Value::String(text)) => Ok(TopLevelGrammar::from_grammar(GrammarWithLexer::from_lark(text.clone()))),
        _ => Err(format!("a grammar of an unknown kind: {kind:?}")),
    }
}

/// Removes anchors: a whole match needs none, and llguidance has none.
fn without_anchors(pattern: &str) -> &str {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    match pattern.strip_suffix('$') {
        Some(before) if (before.len() - before.trim_end_matches('\\').len()).is_multiple_of(2) => before,
        _ => pattern,
    }
}

/// The first part of llguidance's message; the state of its parser follows.
pub(crate) fn reason(error: &str) -> String {
    let end = ["\n<state>", "\n<non-verbose/>"].iter().filter_map(|mark| error.find(mark)).min();
    error[..end.unwrap_or(error.len())].trim().to_owned()
}
