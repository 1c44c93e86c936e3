//! `tokenizer.json`: whatever loads encodes, decodes and streams.

use rillm::text::detokenize::StreamDecoder;
use rillm::text::tokenizer::{Tokenizer, TokenizerFiles};

const TEXT: &str = "a b  ab▁ <s> É\u{301} ﬁ 12, don't\n<x>\u{0}日本";

pub fn run(bytes: &[u8]) {
    let Ok(tokenizer) = Tokenizer::from_files(&TokenizerFiles { tokenizer: bytes, ..TokenizerFiles::default() }) else {
        return;
    };
    for parse_special in [false, true] {
        let Ok(ids) = tokenizer.encode(TEXT, true, parse_special) else { continue };
        let mut decoder = StreamDecoder::new(&tokenizer);
        let mut text = String::new();
        for &id in &ids {
            text.push_str(&decoder.push(&tokenizer, id).unwrap());
        }
        text.push_str(&decoder.finish());
        assert_eq!(text, tokenizer.decode(&ids).unwrap());
        tokenizer.decode_with_control(&ids).unwrap();
    }
}
