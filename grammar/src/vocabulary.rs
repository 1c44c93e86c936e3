//! The model's tokens as bytes, in a trie.
//!
//! Forced text is tokenized with the model's own tokenizer, so that the model sees the tokens that it would have written itself. The
//! maker of the vocabulary passes the tokenizer as a function. It is stored beside the trie, by thread, because the trie must be
//! `Send` and a function of JavaScript is not.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// Longer tokens are left out, because the trie counts the bytes of a token in ten bits.
const MAX_TOKEN_BYTES: usize = 1000;
/// The trie counts its nodes in 22 bits; there are at most as many nodes as bytes.
const MAX_BYTES: usize = (1 << 22) - 1;
/// The trie counts token ids in 24 bits.
const MAX_TOKENS: usize = (1 << 24) - 1;

type Tokenize = Rc<dyn Fn(&str) -> Vec<u32>>;

thread_local! {
    static TOKENIZERS: RefCell<HashMap<u64, Tokenize>> = RefCell::new(HashMap::new());
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The vocabulary of which the trie is made.
pub struct Vocabulary<'a> {
    /// The bytes of each token, by id; empty without text. Those of a control token are its name.
    pub words: Vec<&'a [u8]>,
    /// Whether each is a control token, which text never makes.
    pub control: &'a [bool],
    /// The tokens that end a text.
    pub ends: &'a [u32],
}

/// Splits concatenated words by their lengths.
pub fn words_of<'a>(bytes: &'a [u8], lengths: &[u32]) -> Result<Vec<&'a [u8]>, String> {
    let mut rest = bytes;
    let mut words = Vec::with_capacity(lengths.len());
    for &length in lengths {
        let Some((word, after)) = rest.split_at_checked(length as usize) else {
            return Err("the tokens' lengths add up to more than their bytes".to_owned());
        };
        words.push(word);
        rest = after;
    }
    Ok(words)
}

/// The trie, and how text is cut into tokens.
pub(crate) struct Trie {
    trie: TokTrie,
    id: u64,
}

impl Trie {
    pub fn new(vocabulary: &Vocabulary, tokenize: impl Fn(&str) -> Vec<u32> + 'static) -> Result<Self, String> {
        let count = vocabulary.words.len();
        let bytes: usize = vocabulary.words.iter().map(|word| word.len() + 1).sum();
        if count == 0 || count > MAX_TOKENS || bytes > MAX_BYTES || vocabulary.control.len() != count {
            return Err(format!(
                "a vocabulary of {count} tokens and {bytes} bytes, wanted 1 to {MAX_TOKENS} tokens of at most {MAX_BYTES} \
                 bytes in all"
            ));
        }
        let word = |(word, control): (&&[u8], &bool)| {
            if word.len() > MAX_TOKEN_BYTES || word.is_empty() {
                Vec::new()
            } else if *control {
                [&[TokTrie::SPECIAL_TOKEN_MARKER], *word].concat()
            } else if word.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
                // The marker of special tokens is a byte that does not occur in text.
                Vec::new()
            } else {
                word.to_vec()
            }
        };
        let words: Vec<Vec<u8>> = vocabulary.words.iter().zip(vocabulary.control).map(word).collect();
        let ends: Vec<u32> = vocabulary.ends.iter().copied().filter(|&id| (id as usize) < count).collect();
        let trie = TokTrie::from(
            &TokRxInfo::new(count as u32, ends.first().copied().unwrap_or(toktrie::INVALID_TOKEN)),
            &words,
        );
        let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(&ends) };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        TOKENIZERS.with_borrow_mut(|tokenizers| tokenizers.insert(id, Rc::new(tokenize)));
        Ok(Self { trie, id })
    }

    /// The tokens of a text: the tokenizer's, if their bytes are this text, or else greedily the longest.
    fn tokens(&self, text: &str) -> Vec<TokenId> {
        let tokenize = TOKENIZERS.with_borrow(|tokenizers| tokenizers.get(&self.id).cloned());
        let ids = tokenize.map(|tokenize| tokenize(text)).unwrap_or_default();
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.trie.token(id)).copied().collect();
        if bytes == text.as_bytes() { ids } else { self.trie.greedy_tokenize(text.as_bytes()) }
    }
}

impl Drop for Trie {
    fn drop(&mut self) {
        // At the end of the thread the map may be gone.
        let _ = TOKENIZERS.try_with(|tokenizers| tokenizers.borrow_mut().remove(&self.id));
    }
}

impl TokenizerEnv for Trie {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.tokens(text))
    }
}
