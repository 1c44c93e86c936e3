//! `source.spm` of Marian's folders, beside one vocabulary: whatever loads encodes and decodes.

use rillm::text::tokenizer::{MarianFiles, Tokenizer};

const VOCABULARY: &[u8] = r#"{"</s>": 0, "<unk>": 1, "▁": 2, "a": 3, "▁a": 4, "ab": 5, "日": 6, ">>deu<<": 7, "<pad>": 8}"#.as_bytes();
const TEXT: &str = ">>deu<< a b  ab▁ </s> É\u{301} ﬁ 12, don't\n\u{0}日本";

pub fn run(bytes: &[u8]) {
    let files = MarianFiles { source: bytes, vocabulary: VOCABULARY, ..MarianFiles::default() };
    let Ok(tokenizer) = Tokenizer::from_marian(&files) else { return };
    for parse_special in [false, true] {
        let Ok(ids) = tokenizer.encode(TEXT, true, parse_special) else { continue };
        assert!(ids.iter().all(|id| *id < 9));
        tokenizer.decode(&ids).unwrap();
    }
}
