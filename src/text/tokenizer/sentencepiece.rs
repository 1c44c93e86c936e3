//! Sentencepiece BPE ("llama" in GGUF). Of all neighbours that make a token, the pair whose token has the highest score is merged first;
//! among equals, the leftmost. Characters without a token fall back to bytes.
//!
//! The `tokenizers` crate merges by rank, so every split of every token would need a merge with its own rank. That resolves ties
//! differently from sentencepiece, and takes about 600,000 strings for a vocabulary of 256,000. Merging by score needs only the vocabulary.
//! The algorithm is that of sentencepiece's `bpe_model.cc`.
//!
//! Knows nothing of special tokens: the text here contains none.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::vocabulary::{TokenType, Vocabulary, byte_of_token};
use crate::error::Result;

/// Sentencepiece's character for a space.
const SPACE_SYMBOL: &str = "▁";

pub(super) struct SentencePieceBpe {
    ids: HashMap<String, u32>,
    scores: Vec<f32>,
    /// Ids of the tokens that stand for one byte.
    bytes: [Option<u32>; 256],
    unk: Option<u32>,
    /// The longest token's length in bytes. Longer texts are not looked up.
    longest: usize,
}

/// A piece of the text that is one symbol so far. Symbols are a list by index; one that was merged away has length 0.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    len: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Two neighbours that make a token, as they were when the candidate was made.
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    /// The length of both together. If it is different now, one of them was merged since.
    len: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap takes the greatest first: highest score, then leftmost.
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl SentencePieceBpe {
    pub(super) fn new(vocabulary: &Vocabulary, types: &[TokenType], unk: Option<u32>) -> Result<Self> {
        let n_tokens = vocabulary.tokens.len();
        if vocabulary.scores.len() != n_tokens {
            bail!(
                UnsupportedTokenizer,
                "the vocabulary has {n_tokens} tokens but {} scores, wanted one for each: this tokenizer merges by score",
                vocabulary.scores.len()
            );
        }
        if let Some(id) = vocabulary.scores.iter().position(|score| score.is_nan()) {
            bail!(UnsupportedTokenizer, "the score of token {id} is NaN, wanted a number");
        }
        let mut ids = HashMap::with_capacity(n_tokens);
        let mut bytes = [None; 256];
        let mut longest = 0;
        for ((text, kind), id) in vocabulary.tokens.iter().zip(types).zip(0u32..) {
            match kind {
                // Ordinary text must not become a control token.
                TokenType::Control | TokenType::Unknown => {}
                TokenType::Byte => match byte_of_token(text) {
                    Some(byte) => bytes[usize::from(byte)] = Some(id),
                    None => bail!(UnsupportedTokenizer, "byte token {id} is {text:?}, wanted the form \"<0x0A>\""),
                },
                TokenType::Normal | TokenType::UserDefined | TokenType::Unused => {
                    if text.is_empty() {
                        continue;
                    }
                    longest = longest.max(text.len());
                    if let Some(first) = ids.insert(text.clone(), id) {
                        bail!(UnsupportedTokenizer, "tokens {first} and {id} are both {text:?}, wanted each text once");
                    }
                }
            }
        }
        // -0.0 and 0.0 are the same score to sentencepiece but not to `total_cmp`.
        let scores = vocabulary.scores.iter().map(|&score| score + 0.0).collect();
        Ok(Self { ids, scores, bytes, unk, longest })
    }

    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        match self.ids.get(text) {
            Some(&id) => Some(id),
            None => byte_of_token(text).and_then(|byte| self.bytes[usize::from(byte)]),
        }
    }

    /// Appends the ids of `text`, with a space in front if `space_prefix` is set.
    pub(super) fn encode(&self, text: &str, space_prefix: bool, ids: &mut Vec<u32>) -> Result<()> {
        let mut escaped = String::with_capacity(text.len() + text.len() / 4 + SPACE_SYMBOL.len());
        if space_prefix {
            escaped.push_str(SPACE_SYMBOL);
        }
        for (n, part) in text.split(' ').enumerate() {
            if n > 0 {
                escaped.push_str(SPACE_SYMBOL);
            }
            escaped.push_str(part);
        }
        for symbol in self.merge(&escaped) {
            match self.ids.get(symbol) {
                Some(&id) => ids.push(id),
                None => self.encode_bytes(symbol, ids)?,
            }
        }
        Ok(())
    }

    fn encode_bytes(&self, symbol: &str, ids: &mut Vec<u32>) -> Result<()> {
        let bytes = symbol.bytes().map(|byte| self.bytes[usize::from(byte)]);
        match bytes.collect::<Option<Vec<u32>>>() {
            Some(bytes) => ids.extend(bytes),
            None => match self.unk {
                Some(unk) => ids.push(unk),
                None => bail!(
                    UnsupportedTokenizer,
                    "{symbol:?} is not a token, and the vocabulary has neither byte tokens nor an unknown token for it"
                ),
            },
        }
        Ok(())
    }

    /// The pieces after all merges.
    fn merge<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let n_symbols = text.chars().count();
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, character))| Symbol {
                start,
                len: character.len_utf8(),
                previous: index.checked_sub(1),
                next: (index + 1 < n_symbols).then_some(index + 1),
            })
            .collect();
        let mut candidates = BinaryHeap::new();
        for left in 0..n_symbols.saturating_sub(1) {
            candidates.extend(self.candidate(text, &symbols, left, left + 1));
        }
        while let Some(Candidate { left, right, len, .. }) = candidates.pop() {
            let (into, from) = (symbols[left], symbols[right]);
            // If a symbol was merged since, the pair's length has changed.
            if into.len == 0 || from.len == 0 || into.len + from.len != len {
                continue;
            }
            symbols[left] = Symbol { len, next: from.next, ..into };
            symbols[right].len = 0;
            if let Some(next) = from.next {
                symbols[next].previous = Some(left);
                candidates.extend(self.candidate(text, &symbols, left, next));
            }
            if let Some(previous) = into.previous {
                candidates.extend(self.candidate(text, &symbols, previous, left));
            }
        }
        symbols.into_iter().filter(|symbol| symbol.len > 0).map(|symbol| &text[symbol.start..symbol.start + symbol.len])
    }

    fn candidate(&self, text: &str, symbols: &[Symbol], left: usize, right: usize) -> Option<Candidate> {
        let len = symbols[left].len + symbols[right].len;
        if len > self.longest {
            return None;
        }
        let start = symbols[left].start;
        let id = *self.ids.get(&text[start..start + len])?;
        Some(Candidate { score: self.scores[id as usize], left, right, len })
    }
}

/// The bytes of a token: `▁` is a space, a byte token is its byte.
pub(super) fn bytes_of_token(text: &str, kind: TokenType, bytes: &mut Vec<u8>) {
    bytes.clear();
    match (kind, byte_of_token(text)) {
        (TokenType::Byte, Some(byte)) => bytes.push(byte),
        _ => bytes.extend_from_slice(text.replace(SPACE_SYMBOL, " ").as_bytes()),
    }
}
