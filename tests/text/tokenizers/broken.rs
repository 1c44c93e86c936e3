//! Files that are broken, by hand and at random: an error with a code, never a panic, and never an allocation that the file does
//! not warrant.

use proptest::prelude::*;
use rillm::error::Code;
use rillm::text::tokenizer::{Tokenizer, TokenizerFiles};
use serde_json::{Value, json};

use super::from_json;
use crate::support::corpus;

fn good() -> Value {
    json!({
        "version": "1.0",
        "added_tokens": [
            {"id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"Regex": " +"}, "content": "▁"},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated", "invert": false},
            {"type": "FixedLength", "length": 4},
        ]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "s", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"s": {"id": "s", "ids": [5], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "▁": 4}, "merges": [["a", "b"]]},
    })
}

fn refused(change: impl Fn(&mut Value), wanted: &str) {
    let mut file = good();
    change(&mut file);
    match from_json(&file) {
        Ok(_) => panic!("taken, wanted an error about {wanted}"),
        Err(error) => {
            assert_eq!(error.code(), Code::UnsupportedTokenizer, "{error}");
            assert!(error.message().contains(wanted), "{error} does not say {wanted}");
        }
    }
}

#[test]
fn what_is_wrong_in_a_file_is_named() {
    assert!(from_json(&good()).is_ok());
    refused(|file| file["model"]["type"] = json!("Word2Vec"), "BPE, Unigram, WordLevel, WordPiece");
    refused(|file| file["normalizer"] = json!({"type": "Upper"}), "\"Upper\"");
    refused(|file| file["normalizer"] = json!({"strip_left": true}), "no type");
    refused(|file| file["pre_tokenizer"] = json!({"type": "Mecab"}), "\"Mecab\"");
    refused(|file| file["decoder"] = json!({"type": "Morse"}), "\"Morse\"");
    refused(|file| file["post_processor"] = json!({"type": "Xlnet"}), "\"Xlnet\"");
    refused(|file| file["model"]["merges"] = json!([["a", "x"]]), "\"x\"");
    refused(|file| file["model"]["merges"] = json!([["b", "a"]]), "\"ba\"");
    refused(|file| file["model"]["merges"] = json!(["a b c"]), "two tokens");
    refused(|file| file["model"]["merges"] = json!([["a", "b", "c"]]), "invalid length");
    refused(|file| file["model"]["merges"] = Value::Null, "no merges");
    refused(|file| file["model"]["continuing_subword_prefix"] = json!("##long prefix"), "##long prefix");
    refused(|file| file["model"]["vocab"]["b"] = json!(1), "belongs to two tokens");
    refused(|file| file["model"]["vocab"]["b"] = json!(4_000_000_000u32), "too far above");
    refused(|file| file["model"]["vocab"] = json!({}), "no tokens");
    refused(|file| file["model"]["vocab"]["b"] = json!(-1), "expected u32");
    refused(|file| file["added_tokens"][0]["id"] = json!(u32::MAX), "too far above");
    refused(|file| file["added_tokens"][0]["id"] = json!(3), "belongs to two tokens");
    refused(|file| file["added_tokens"][0]["content"] = json!(""), "is empty");
    refused(|file| file["added_tokens"] = json!([file["added_tokens"][0], file["added_tokens"][0]]), "twice");
    // The crate divides by it.
    refused(|file| file["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0}), "length 0");
    // The crate looks it up without asking.
    refused(|file| file["post_processor"]["special_tokens"] = json!({}), "has no ids");
    refused(|file| file["post_processor"]["special_tokens"]["s"]["ids"] = json!([6]), "id 6");
    refused(|file| file["post_processor"]["single"][1]["Sequence"]["id"] = json!("B"), "\"B\"");
    refused(|file| file["post_processor"]["single"] = json!([]), "0 times");
    // The crate expects it to be sound.
    for charsmap in [json!("!"), json!(""), json!("AAAA"), json!("CAAAAP////8AAAAA"), json!(7)] {
        refused(
            |file| file["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": charsmap}),
            "charsmap",
        );
    }
    refused(|file| file["normalizer"]["normalizers"][1]["pattern"] = json!({"Regex": "("}), "expression");
    refused(|file| file["normalizer"]["normalizers"][1]["pattern"] = json!({"Regex": "a".repeat(70_000)}), "bytes");
    refused(|file| file["normalizer"]["normalizers"][1]["pattern"] = json!({"Glob": "*"}), "pattern");
    refused(|file| file["decoder"]["decoders"][3]["content"] = json!("two"), "Strip");
    refused(
        |file| {
            file["model"] = json!({"type": "WordPiece", "unk_token": "?", "vocab": {"?": 0}, "max_input_chars_per_word": 1_000_000});
        },
        "at most 1000",
    );
    refused(|file| file["model"] = json!({"type": "WordPiece", "vocab": {"a": 0}}), "[UNK]");
    refused(|file| file["model"] = json!({"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}), "unk_id");
    refused(|file| file["model"] = json!({"type": "Unigram", "vocab": [["a".repeat(5000), 0.0]]}), "5000 bytes");
    refused(|file| file["model"] = json!({"type": "Unigram", "vocab": {"a": 0}}), "not a list");
    refused(|file| file["model"] = json!({"type": "BPE", "merges": [], "vocab": [["a", 0.0]]}), "is a list");
    // One would end after the other's beginning.
    refused(
        |file| {
            let token = |id: u32, content: &str| json!({"id": id, "content": content, "lstrip": true, "rstrip": true, "normalized": false, "special": true});
            file["added_tokens"] = json!([token(5, "<s>"), token(6, " ")]);
        },
        "consists of spaces",
    );
}

#[test]
fn what_is_no_json_at_all_is_refused() {
    let load = |tokenizer: &[u8], config: Option<&[u8]>| {
        Tokenizer::from_files(&TokenizerFiles { tokenizer, tokenizer_config: config, ..TokenizerFiles::default() })
    };
    let bytes = serde_json::to_vec(&good()).unwrap();
    for end in 0..bytes.len() {
        assert_eq!(load(&bytes[..end], None).err().unwrap().code(), Code::UnsupportedTokenizer, "cut at {end}");
    }
    for bad in [&b"\xFF\xFE"[..], b"[]", b"null", b"7"] {
        assert_eq!(load(bad, None).err().unwrap().code(), Code::UnsupportedTokenizer);
    }
    let nested = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    assert_eq!(load(&nested, None).err().unwrap().code(), Code::UnsupportedTokenizer);
    for bad in [&b"{"[..], b"[]", br#"{"eos_token": 7}"#, br#"{"added_tokens_decoder": {"x": {"content": "y"}}}"#] {
        assert_eq!(load(&bytes, Some(bad)).err().unwrap().code(), Code::UnsupportedTokenizer);
    }
}

#[test]
fn an_expression_that_gives_up_on_a_text_is_an_error_and_not_another_cut() {
    let mut file = good();
    file["normalizer"] = Value::Null;
    file["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": "(?>(?:a+)+(?=b)())b|c"}, "behavior": "Isolated", "invert": false});
    let tokenizer = from_json(&file).unwrap();
    assert!(tokenizer.encode("aab", false, false).is_ok());
    let error = tokenizer.encode(&"a".repeat(40), false, false).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest, "{error}");
    // The tokenizer goes on.
    assert!(tokenizer.encode("aab", false, false).is_ok());
}

/// A value somewhere in the file becomes another one.
fn mutate(value: &mut Value, mut at: usize, with: &Value) -> usize {
    if at == 0 {
        *value = with.clone();
        return usize::MAX;
    }
    at -= 1;
    let children: Box<dyn Iterator<Item = &mut Value>> = match value {
        Value::Array(list) => Box::new(list.iter_mut()),
        Value::Object(map) => Box::new(map.values_mut()),
        _ => Box::new(std::iter::empty()),
    };
    for child in children {
        at = mutate(child, at, with);
        if at == usize::MAX {
            break;
        }
    }
    at
}

fn any_value() -> impl Strategy<Value = Value> {
    let numbers = prop_oneof![Just(0u64), Just(1), Just(5), Just(6), Just(1 << 20), Just(u64::MAX), any::<u64>()];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        numbers.prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[ab▁<>s ]{0,4}".prop_map(Value::from),
        "(ByteLevel|WordPiece|Metaspace|BPEDecoder|CTC|Fuse|Strip|NFC|Nmt|Digits|Unigram|WordLevel|BPE)"
            .prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([["a", 0.5], ["b", -1.0]])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands where: the file is taken or refused, and one that is taken encodes, decodes and streams.
    #[test]
    fn no_file_panics(changes in proptest::collection::vec((0..90usize, any_value()), 1..4), text in "[ab▁<>s é]{0,12}") {
        let mut file = good();
        for (at, with) in &changes {
            mutate(&mut file, *at, with);
        }
        if let Ok(tokenizer) = from_json(&file) {
            for parse_special in [false, true] {
                if let Ok(ids) = tokenizer.encode(&text, true, parse_special) {
                    super::streamed(&tokenizer, &ids);
                    tokenizer.decode_with_control(&ids).unwrap();
                }
            }
        }
    }
}

/// What the fuzz target starts from: sound files, which have names, and what it found worth keeping, which is called by its hash.
#[test]
fn damaged_files_do_not_panic() {
    let mut seed = 12345u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let load = |bytes: &[u8]| Tokenizer::from_files(&TokenizerFiles { tokenizer: bytes, ..TokenizerFiles::default() });
    let use_it = |tokenizer: &Tokenizer| {
        if let Ok(ids) = tokenizer.encode("a b  ab▁ <s> É\u{301} ﬁ 12\n日本", true, true) {
            super::streamed(tokenizer, &ids);
        }
    };
    let (mut sound, mut taken, mut found) = (0, 0, 0);
    for (name, bytes) in corpus::files("tokenizer_json") {
        if name.len() == 40 {
            found += 1;
            if let Ok(tokenizer) = load(&bytes) {
                use_it(&tokenizer);
            }
            continue;
        }
        assert!(load(&bytes).is_ok(), "{name}");
        sound += 1;
        for _ in 0..400 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + random(3) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] = random(256) as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes[at] = b"0123456789truefalsenull[]{}\",:"[random(30)],
                }
            }
            if let Ok(tokenizer) = load(&bytes) {
                taken += 1;
                use_it(&tokenizer);
            }
        }
    }
    assert!(sound >= 5 && taken > 100 && found > 100, "{sound} sound files, {taken} taken, {found} found by fuzzing");
}
