//! Every model, normalizer, pre-tokenizer, post-processor and decoder of a tokenizer.json: the ids and the text that the
//! `tokenizers` crate gives when it reads the same file as a whole.

use std::str::FromStr;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{from_json, streamed};
use crate::support::words;

const TEXTS: &[&str] = &[
    "",
    " ",
    "Hello world",
    "  Héllo,   wörld!  ",
    "don't do not it's a--b 1234 ½ Ⅳ",
    "ＡＢＣ ﬁ ﷺ ﬀ e\u{301}",
    "日本語 テキスト とか 漢字 한국어",
    "a\nb\r\n\tc\u{0}\u{7}\u{200b}d",
    "👩‍👩‍👧 🇩🇪",
    "xx<a>yy<b> <b>zz",
    "İ ẞ ΑΣ",
];

/// All characters of the texts, in every form that a step can give them, and some longer tokens.
static TOKENS: LazyLock<Vec<String>> = LazyLock::new(tokens);

fn tokens() -> Vec<String> {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>", "<0x00>", "<0xE2>"].map(str::to_owned).to_vec();
    let mut push = |token: String| {
        if !tokens.contains(&token) {
            tokens.push(token);
        }
    };
    for text in [
        "Hello", "hello", "wo", "wor", "ll", "do", "don", "▁wo", "▁He", "Ġwo", "not", "12", "日本", "n't", "lo</w>",
        "##lo", "##ll",
    ] {
        push(text.to_owned());
    }
    for text in TEXTS {
        for character in text.chars().chain(text.to_lowercase().chars()).chain("▁ABCfi".chars()) {
            push(character.to_string());
            push(format!("##{character}"));
            push(format!("{character}</w>"));
            push(format!("▁{character}"));
        }
    }
    for byte in 0x21..0x144u32 {
        push(char::from_u32(byte).unwrap().to_string());
    }
    tokens
}

fn added(id: usize, content: &str, special: bool, more: Value) -> Value {
    let mut token = json!({
        "id": id, "content": content, "special": special, "normalized": !special,
        "single_word": false, "lstrip": false, "rstrip": false,
    });
    for (key, value) in more.as_object().unwrap() {
        token[key] = value.clone();
    }
    token
}

fn models() -> Vec<Value> {
    let tokens = &*TOKENS;
    let vocab: serde_json::Map<String, Value> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    let scores: Vec<Value> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| json!([token, -0.01 * id as f64 - 2.0 / token.len() as f64]))
        .collect();
    let merges = json!([["l", "l"], ["w", "o"], ["wo", "r"], ["▁", "wo"], ["d", "o"], ["do", "n"], ["1", "2"]]);
    vec![
        json!({"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "vocab": vocab, "merges": merges}),
        json!({"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "vocab": vocab, "merges": ["l l", "w o", "wo r"]}),
        json!({"type": "BPE", "end_of_word_suffix": "</w>", "ignore_merges": true, "vocab": vocab, "merges": []}),
        json!({"type": "BPE", "continuing_subword_prefix": "##", "vocab": vocab, "merges": [["##l", "##l"]]}),
        json!({"type": "Unigram", "unk_id": 0, "vocab": scores}),
        json!({"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": scores}),
        json!({
            "type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9,
            "vocab": vocab,
        }),
        json!({"type": "WordLevel", "unk_token": "<unk>", "vocab": vocab}),
    ]
}

fn normalizers() -> Vec<Value> {
    vec![
        Value::Null,
        json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true}),
        json!({"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]}),
        json!({"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}, {"type": "NFKC"}, {"type": "Nmt"}]}),
        json!({"type": "Sequence", "normalizers": [
            {"type": "Strip", "strip_left": true, "strip_right": true},
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            {"type": "Replace", "pattern": {"Regex": "l+"}, "content": "ll"},
        ]}),
        json!({"type": "ByteLevel"}),
        // What begins a text is gone, which a Metaspace that wants the first word only must know.
        json!({"type": "Sequence", "normalizers": [
            {"type": "NFKD"},
            {"type": "Replace", "pattern": {"Regex": "^[\\s\\x00Hd]"}, "content": ""},
        ]}),
    ]
}

fn pre_tokenizers() -> Vec<Value> {
    let split = |behavior: &str, invert: bool| json!({"type": "Split", "pattern": {"Regex": r"\w+|\s(?=\S)"}, "behavior": behavior, "invert": invert});
    let mut all = vec![
        Value::Null,
        json!({"type": "BertPreTokenizer"}),
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        json!({"type": "CharDelimiterSplit", "delimiter": "o"}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}),
        json!({"type": "Whitespace"}),
        json!({"type": "UnicodeScripts"}),
        json!({"type": "FixedLength", "length": 3}),
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Punctuation", "behavior": "Contiguous"},
            {"type": "Digits", "individual_digits": true},
            {"type": "Split", "pattern": {"String": "l"}, "behavior": "MergedWithNext", "invert": false},
        ]}),
    ];
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"] {
        all.extend([split(behavior, false), split(behavior, true)]);
    }
    all
}

fn decoders() -> Vec<Value> {
    let replace = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
    let sequence = |decoders: &[Value]| json!({"type": "Sequence", "decoders": decoders});
    let (fallback, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
    let strip = |start: usize, stop: usize| json!({"type": "Strip", "content": " ", "start": start, "stop": stop});
    vec![
        Value::Null,
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": false}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true}),
        json!({"type": "BPEDecoder", "suffix": "</w>"}),
        json!({"type": "CTC", "pad_token": "<s>", "word_delimiter_token": "▁", "cleanup": true}),
        sequence(&[replace.clone(), fallback.clone(), fuse.clone(), strip(1, 0)]),
        sequence(&[replace.clone(), fallback.clone(), fuse.clone(), strip(2, 0)]),
        // Stripping both sides, the crate panics on a text that is one space.
        sequence(&[fuse.clone(), replace.clone(), strip(1, 0)]),
        sequence(&[json!({"type": "Replace", "pattern": {"Regex": "l+|▁"}, "content": "L"}), fuse]),
        replace,
    ]
}

fn file(model: &Value, normalizer: &Value, pre_tokenizer: &Value, decoder: &Value) -> Value {
    let n = TOKENS.len();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [
            added(1, "<s>", true, json!({})),
            added(2, "</s>", true, json!({})),
            added(n, "<a>", true, json!({"lstrip": true, "rstrip": true})),
            added(n + 1, "<b>", false, json!({"normalized": false})),
            added(n + 2, "Zz", false, json!({"single_word": true})),
        ],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder,
        "post_processor": {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]},
        "model": model,
    })
}

/// Ids of the texts by both, and the decoded text of every text's ids. Says how many texts had an id.
fn compare(file: &Value) -> usize {
    let ours = from_json(file).unwrap_or_else(|error| panic!("{error}: {file}"));
    let theirs = tokenizers::Tokenizer::from_str(&file.to_string()).unwrap_or_else(|error| panic!("{error}: {file}"));
    let mut n_encoded = 0;
    let what =
        || format!("{} {} {} {}", file["model"]["type"], file["normalizer"], file["pre_tokenizer"], file["decoder"]);
    for text in TEXTS {
        let wanted = theirs.encode(*text, true).map(|encoding| encoding.get_ids().to_vec());
        let got = ours.encode(text, true, true);
        match (wanted, got) {
            (Ok(wanted), Ok(got)) => {
                assert_eq!(got, wanted, "{text:?} by {}", what());
                let n_text = got.iter().filter(|&&id| !ours.is_control(id)).count();
                n_encoded += usize::from(n_text > 0);
                let text = streamed(&ours, &got);
                // Control tokens alone: the crate's BPEDecoder counts down from none.
                let wanted = if n_text == 0 { String::new() } else { theirs.decode(&got, true).unwrap() };
                // The crate gives up on a whole run of byte tokens where one of them is wrong, and writes a normalized token
                // as the normalizers would.
                let normalized = got.contains(&(TOKENS.len() as u32 + 2)) && !file["normalizer"].is_null();
                if !wanted.contains(char::REPLACEMENT_CHARACTER) && !normalized {
                    assert_eq!(text, wanted, "{got:?} by {}", what());
                }
            }
            (Err(_), Err(_)) => {}
            (wanted, got) => panic!("{text:?} by {}: {wanted:?} and {got:?}", what()),
        }
    }
    n_encoded
}

#[test]
fn ids_are_those_of_the_crate_for_every_model_normalizer_and_pre_tokenizer() {
    let fuse = json!({"type": "Fuse"});
    for model in &models() {
        let mut n_encoded = 0;
        for normalizer in &normalizers() {
            for pre_tokenizer in &pre_tokenizers() {
                n_encoded += compare(&file(model, normalizer, pre_tokenizer, &fuse));
            }
        }
        assert!(n_encoded > 600, "{}: {n_encoded}", model["type"]);
    }
}

#[test]
fn text_is_that_of_the_crate_for_every_decoder_and_streams_without_change() {
    for model in &models() {
        for decoder in &decoders() {
            for pre_tokenizer in &pre_tokenizers()[..5] {
                compare(&file(model, &Value::Null, pre_tokenizer, decoder));
            }
        }
    }
}

#[test]
fn added_tokens_keep_the_ids_of_the_file() {
    // The crate would count up from the size of the vocabulary: 3, 4.
    let mut file = json!({
        "added_tokens": [added(7, "<x>", true, json!({})), added(5, "<y>", false, json!({}))],
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2}},
        "pre_tokenizer": {"type": "Whitespace"},
    });
    let tokenizer = from_json(&file).unwrap();
    assert_eq!(tokenizer.encode("a<x>b<y>", false, true).unwrap(), [1, 7, 2, 5]);
    assert_eq!(tokenizer.vocab_size(), 8);
    // Where the vocabulary has the token, both take its id.
    file["added_tokens"][0]["content"] = json!("a");
    let theirs = tokenizers::Tokenizer::from_str(&file.to_string()).unwrap();
    assert_eq!(theirs.token_to_id("a"), Some(1));
    let ours = from_json(&file).unwrap();
    assert_eq!((ours.token_id("a"), ours.is_control(1)), (Some(1), true));
}

#[test]
fn texts_are_normalized_as_unicode_says() {
    let golden = include_str!("../../golden/text/normal_forms.json");
    words::check_normalizers(&serde_json::from_str(golden).unwrap());
}
