//! Tokenizers of whole words, which tell what the steps before the model make of a text.

use rillm::text::tokenizer::{Tokenizer, TokenizerFiles};
use serde_json::{Value, json};

/// Whether a tokenizer of whole words makes the wanted words of texts.
pub fn makes_words(mut file: Value, texts: &[(&str, Vec<String>)]) {
    let mut vocab = serde_json::Map::from_iter([("<unk>".to_owned(), json!(0))]);
    for word in texts.iter().flat_map(|(_, words)| words) {
        let id = vocab.len();
        vocab.entry(word.clone()).or_insert(json!(id));
    }
    let wanted = |words: &[String]| words.iter().map(|word| vocab[word].as_u64().unwrap() as u32).collect::<Vec<_>>();
    file["model"] = json!({"type": "WordLevel", "unk_token": "<unk>", "vocab": vocab});
    let bytes = file.to_string();
    let files = TokenizerFiles { tokenizer: bytes.as_bytes(), ..Default::default() };
    let tokenizer = Tokenizer::from_files(&files).unwrap();
    for (text, words) in texts {
        assert_eq!(tokenizer.encode(text, false, false).unwrap(), wanted(words), "{text:?} by {file}");
    }
}

/// Compares normal forms, BERT's steps and what counts as punctuation with `tests/golden/text/normal_forms.json`.
pub fn check_normalizers(golden: &Value) {
    for (name, cases) in golden["cases"].as_object().unwrap() {
        let cases: Vec<(&str, Vec<String>)> = cases
            .as_array()
            .unwrap()
            .iter()
            .map(|case| (case[0].as_str().unwrap(), vec![case[1].as_str().unwrap().to_owned()]))
            // Of nothing there is no word.
            .filter(|(_, words)| !words[0].is_empty())
            .collect();
        assert!(cases.len() > 100, "{name}: {}", cases.len());
        let normalizer = match name.as_str() {
            "BERT" => json!({
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                "lowercase": true,
            }),
            form => json!({"type": form}),
        };
        makes_words(json!({"normalizer": normalizer}), &cases);
    }
    let accents = [("e\u{301}\u{20dd}\u{903}x", vec!["ex".to_owned()])];
    makes_words(json!({"normalizer": {"type": "StripAccents"}}), &accents);
    let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let text = "Hé, «a»_b! c++ ½ $5 — 「日」~";
    let punctuation = json!({"type": "Punctuation", "behavior": "Contiguous"});
    let cut =
        words(&["Hé", ",", " ", "«", "a", "»_", "b", "!", " c", "++", " ½ ", "$", "5 ", "—", " ", "「", "日", "」~"]);
    makes_words(json!({"pre_tokenizer": punctuation}), &[(text, cut)]);
    let cut =
        words(&["Hé", ",", "«", "a", "»", "_", "b", "!", "c", "+", "+", "½", "$", "5", "—", "「", "日", "」", "~"]);
    makes_words(json!({"pre_tokenizer": {"type": "BertPreTokenizer"}}), &[(text, cut)]);
}
