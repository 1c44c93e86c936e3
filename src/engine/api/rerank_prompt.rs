//! How a language model is asked whether a document fits a query: a text with places for both, from the model's files.
//!
//! Sources: the template "rerank" of llama.cpp's files, and chat templates with the roles `query` and `document`, as sentence-transformers
//! writes them.

use serde_json::json;

use crate::error::Result;
use crate::text::chat::{ChatTemplate, ChatTemplates, DEFAULT_TEMPLATE_NAME};
use crate::text::tokenizer::{Tokenizer, TypedIds};

const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";
const INSTRUCTION: &str = "{instruction}";
/// llama.cpp's name of the template.
const TEMPLATE_NAME: &str = "rerank";

/// A prompt of a model that ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct RerankPrompt {
    /// With places for query and document.
    default: String,
    /// The same with a place for an instruction.
    instructed: Option<String>,
    /// The texts of control tokens.
    controls: Vec<String>,
}

impl RerankPrompt {
    /// The prompt in a model's files; `None` if they have none.
    pub fn of(templates: &ChatTemplates, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        if let Some(text) = templates.get(TEMPLATE_NAME) {
            return Self::new(text.to_owned(), instructed(text), tokenizer).map(Some);
        }
        let Some(source) = templates.get(DEFAULT_TEMPLATE_NAME) else { return Ok(None) };
        let has_role = |role: &str| source.contains(&format!("\"{role}\"")) || source.contains(&format!("'{role}'"));
        if !has_role("query") || !has_role("document") {
            return Ok(None);
        }
        let template = ChatTemplate::new(source)?;
        let render = |instruction: Option<&str>| {
            let system = instruction.map(|text| json!({"role": "system", "content": text}));
            let pair = [("query", QUERY), ("document", DOCUMENT)];
            let messages: Vec<_> =
                system.into_iter().chain(pair.map(|(role, text)| json!({"role": role, "content": text}))).collect();
            template.render(&json!({"messages": messages, "add_generation_prompt": true}))
        };
        let instructed = render(Some(INSTRUCTION)).ok().filter(|text| text.matches(INSTRUCTION).count() == 1);
        Self::new(render(None)?, instructed, tokenizer).map(Some)
    }

    /// From a text with places.
    pub fn new(default: String, instructed: Option<String>, tokenizer: &Tokenizer) -> Result<Self> {
        for text in [Some(&default), instructed.as_ref()].into_iter().flatten() {
            let [queries, documents] = [QUERY, DOCUMENT].map(|place| text.matches(place).count());
            if (queries, documents) != (1, 1) {
                bail!(
                    ChatTemplate,
                    "the model's prompt for ranking has {queries} places for a query and {documents} for a document, wanted one of each"
                );
            }
        }
        let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        let text = |id| tokenizer.token_bytes_with_control(id).ok().and_then(|bytes| std::str::from_utf8(bytes).ok());
        let controls = ids.filter(|id| tokenizer.is_control(*id)).filter_map(text).filter(|text| !text.is_empty());
        Ok(Self { default, instructed, controls: controls.map(str::to_owned).collect() })
    }

    /// The prompt for a pair, of at most `limit` tokens. Control tokens that are written in the texts are plain text. What is too much is
    /// cut where the last text ends, if `truncate` allows it.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        [query, document]: [&str; 2],
        instruction: Option<&str>,
        (limit, truncate): (usize, bool),
    ) -> Result<TypedIds> {
        let template = match (instruction, &self.instructed) {
            (None, _) => &self.default,
            (Some(_), Some(instructed)) => instructed,
            (Some(_), None) => {
                bail!(InvalidRequest, "instruction: the model's prompt for ranking has no place for one; leave it out")
            }
        };
        let places = [(QUERY, query), (DOCUMENT, document), (INSTRUCTION, instruction.unwrap_or_default())];
        let begin = |text: &str| places.iter().filter_map(|(place, _)| text.find(place)).min();
        let first = begin(template).unwrap_or(0);
        let last = places.iter().filter_map(|(place, _)| Some(template.rfind(place)? + place.len())).max().unwrap_or(0);
        // Control tokens cut a text, so what stands on either side of one is encoded by itself.
        let ends = self.controls.iter().filter_map(|token| Some(template[..first].rfind(token)? + token.len()));
        let head = ends.max().unwrap_or(0);
        let begins = self.controls.iter().filter_map(|token| template[last..].find(token));
        let tail = last + begins.min().unwrap_or(template.len() - last);
        let mut body = String::new();
        let mut rest = &template[head..tail];
        while let Some(at) = begin(rest) {
            body.push_str(&rest[..at]);
            let (place, text) = places.iter().find(|(place, _)| rest[at..].starts_with(place)).unwrap_or(&places[0]);
            body.push_str(text);
            rest = &rest[at + place.len()..];
        }
        body.push_str(rest);
        let mut ids = tokenizer.encode(&template[..head], false, true)?;
        let mut body = tokenizer.encode(&body, false, false)?;
        let tail = tokenizer.encode(&template[tail..], false, true)?;
        let (frame, all) = (ids.len() + tail.len(), ids.len() + body.len() + tail.len());
        if all > limit {
            if !truncate || frame >= limit {
                bail!(
                    ContextLengthExceeded,
                    "the prompt has {all} tokens and the model takes {limit}; shorten the texts, load with a longer contextLength, or set \
                     truncate: true to leave out the document's end"
                );
            }
            body.truncate(limit - frame);
        }
        ids.extend(body);
        ids.extend(tail);
        Ok(ids.into())
    }
}

/// A prompt of Qwen3-Reranker's form with a place for the instruction.
fn instructed(text: &str) -> Option<String> {
    const BEGIN: &str = "<Instruct>: ";
    let begin = text.find(BEGIN)? + BEGIN.len();
    let end = begin + text[begin..].find('\n')?;
    Some(format!("{}{INSTRUCTION}{}", &text[..begin], &text[end..]))
}

/// The prompt of an architecture, with the instruction that its models were trained with.
pub(in crate::engine) fn of_architecture(text: &str, tokenizer: &Tokenizer) -> Result<RerankPrompt> {
    RerankPrompt::new(text.to_owned(), instructed(text), tokenizer)
}
