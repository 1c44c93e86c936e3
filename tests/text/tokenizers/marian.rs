//! Folders with source.spm and vocab.json against transformers' `MarianTokenizer` (`scripts/golden/marian_tokenizer.py`), and such that are
//! broken.

use std::path::Path;

use rillm::error::{Code, Error};
use rillm::text::tokenizer::{MarianFiles, Tokenizer};
use serde_json::{Value, json};

use super::streamed;

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/encoder_decoders/marian");
    std::fs::read(folder.join(name)).unwrap()
}

fn value(name: &str) -> Value {
    serde_json::from_slice(&file(name)).unwrap()
}

fn load(source: &[u8], vocabulary: &Value, config: &Value) -> Result<Tokenizer, Error> {
    Tokenizer::from_marian(&MarianFiles {
        source,
        vocabulary: &serde_json::to_vec(vocabulary).unwrap(),
        tokenizer_config: Some(&serde_json::to_vec(config).unwrap()),
        ..MarianFiles::default()
    })
}

fn whole() -> Tokenizer {
    load(&file("source.spm"), &value("vocab.json"), &value("tokenizer_config.json")).unwrap()
}

#[test]
fn ids_and_texts_are_those_of_transformers() {
    let (tokenizer, vocabulary) = (whole(), value("vocab.json"));
    let id = |token: &str| vocabulary[token].as_u64().map(|id| id as u32);
    assert_eq!(tokenizer.vocab_size(), vocabulary.as_object().unwrap().len());
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.pad()), (None, id("</s>"), id("<pad>")));
    assert_eq!(tokenizer.end_of_generation(), [id("</s>").unwrap()]);
    let golden = value("golden.json");
    let encoded = golden["encoded"].as_array().unwrap();
    assert!(encoded.len() > 20);
    for case in encoded {
        let text = case["text"].as_str().unwrap();
        let wanted: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode(text, true, true).unwrap(), wanted, "{text:?}");
        // transformers removes all spaces around a text, which a stream can't.
        assert_eq!(tokenizer.decode(&wanted).unwrap().trim(), case["decoded"].as_str().unwrap(), "{text:?}");
        streamed(&tokenizer, &wanted);
    }
    // Ids by text, of either language, and what only the model of the source has.
    for token in ["▁sat", "ß", ">>deu<<", "</s>", "<unk>", "<pad>"] {
        assert_eq!(tokenizer.token_id(token), id(token), "{token}");
    }
    assert_eq!(tokenizer.token_id("▁cat"), None);
    // In text of unknown origin nothing is a token of its own.
    assert!(!tokenizer.encode(">>deu<< a</s>", false, false).unwrap().iter().any(|id| [0, 70].contains(id)));
}

#[test]
fn tokens_may_have_other_names_and_gaps() {
    let mut vocabulary = value("vocab.json");
    let entries = vocabulary.as_object_mut().unwrap();
    let unk = entries.remove("<unk>").unwrap();
    entries.insert("[UNK]".to_owned(), unk);
    entries.insert("far".to_owned(), json!(100));
    let config = json!({"unk_token": {"content": "[UNK]"}, "additional_special_tokens": [">>deu<<"]});
    let tokenizer = load(&file("source.spm"), &vocabulary, &config).unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.token_id("far")), (101, Some(100)));
    let ids = tokenizer.encode("the cat >>deu<<", true, true).unwrap();
    assert_eq!(ids, [2, 3, 1, 70, 0]);
    assert!(tokenizer.is_control(70) && tokenizer.token_bytes(90).unwrap().is_empty());
}

#[test]
fn what_is_wrong_is_named() {
    let (source, vocabulary, config) = (file("source.spm"), value("vocab.json"), value("tokenizer_config.json"));
    #[track_caller]
    fn refused(loaded: Result<Tokenizer, Error>, words: &str) {
        let error = loaded.err().unwrap();
        assert_eq!(error.code(), Code::UnsupportedTokenizer, "{error}");
        assert!(error.to_string().contains(words), "{error} does not say {words}");
    }
    refused(load(&source, &vocabulary, &json!({"separate_vocabs": true})), "separate_vocabs");
    refused(load(&source, &json!({"a": 0}), &config), "<unk>");
    refused(load(&source, &json!(["<unk>", "a"]), &config), "vocab.json");
    refused(load(&source, &json!([["<unk>", 0.0]]), &config), "vocab.json is a list");
    refused(load(&source, &json!({"<unk>": 0, "a": 0}), &config), "two tokens");
    refused(load(&source, &json!({"<unk>": 0, "a": 4_000_000}), &config), "too far above");
    refused(load(&source, &json!({"<unk>": -1}), &config), "vocab.json");
    refused(load(b"", &vocabulary, &config), "source.spm: the sentencepiece model has no pieces");
    refused(load(b"version https://git-lfs", &vocabulary, &config), "source.spm");
    refused(load(&source[..source.len() / 2], &vocabulary, &config), "source.spm");

    // Messages of protobuf's encoding, of fields shorter than 128 bytes.
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let scored = |text: &str, kind: u8, score: f32| {
        field(1, &[&field(1, text.as_bytes())[..], &[2 << 3 | 5], &score.to_le_bytes(), &[3 << 3, kind]].concat())
    };
    let piece = |text: &str, kind: u8| scored(text, kind, 0.0);
    let pieces = [piece("<unk>", 2), scored("a", 1, -3.0), scored("▁", 1, -1.0)].concat();
    let with = |more: Vec<u8>| load(&[pieces.clone(), more].concat(), &vocabulary, &config);
    assert!(with(Vec::new()).is_ok());
    refused(with(field(2, &[3 << 3, 2])), "unigram");
    refused(with(field(2, &[0xC0, 1, 1])), "space");
    refused(with(field(3, &[5 << 3, 0])), "space");
    refused(with(field(3, &field(2, b"charsmap"))), "charsmap");
    refused(with(piece("<0x0A>", 6)), "byte");
    refused(load(&piece("a", 1), &vocabulary, &config), "unknown piece");
    // What its users defined has a score that wins. The other pieces are as they are.
    let space = vocabulary["▁"].as_u64().unwrap() as u32;
    assert_eq!(with(scored("aaa", 4, -99.0)).unwrap().encode("aaa", false, true).unwrap(), [space, 1]);
    assert_eq!(with(scored("aaa", 1, -99.0)).unwrap().encode("aaa", false, true).unwrap(), [space, 49, 49, 49]);
    assert_eq!(with(scored("aaa", 5, 0.0)).unwrap().encode("aaa", false, true).unwrap(), [space, 49, 49, 49]);
}
