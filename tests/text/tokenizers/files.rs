//! The files beside a tokenizer.json: special tokens, what stands around a text, what ends a generation.

use rillm::error::Code;
use rillm::text::chat::{ChatTemplates, TemplateFiles};
use rillm::text::tokenizer::{Tokenizer, TokenizerFiles};
use serde_json::{Value, json};

/// Words of one letter; `<s>`, `</s>` and `<end>` are added tokens, and `<t>` is in the vocabulary alone.
fn tokenizer_json() -> Value {
    let added = |id: u32, content: &str, special: bool| {
        json!({
            "id": id, "content": content, "special": special, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        })
    };
    json!({
        "version": "1.0",
        "added_tokens": [added(5, "<s>", true), added(6, "</s>", true), added(7, "<end>", false), added(9, "<|im_end|>", true)],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "<t>": 3, "s": 4}},
    })
}

fn load(files: &[(&str, Value)]) -> Result<Tokenizer, rillm::error::Error> {
    let bytes = |name: &str| {
        files.iter().find(|(other, _)| *other == name).map(|(_, value)| serde_json::to_vec(value).unwrap())
    };
    let tokenizer = bytes("tokenizer").unwrap_or_else(|| serde_json::to_vec(&tokenizer_json()).unwrap());
    let (config, map, generation, model) =
        (bytes("tokenizer_config"), bytes("special_tokens_map"), bytes("generation_config"), bytes("config"));
    Tokenizer::from_files(&TokenizerFiles {
        tokenizer: &tokenizer,
        tokenizer_config: config.as_deref(),
        special_tokens_map: map.as_deref(),
        generation_config: generation.as_deref(),
        config: model.as_deref(),
    })
}

#[test]
fn special_tokens_come_from_the_files_beside() {
    let plain = load(&[]).unwrap();
    assert_eq!((plain.bos(), plain.eos(), plain.vocab_size()), (None, None, 10));
    // Known ends of a turn count without being named.
    assert_eq!(plain.end_of_generation(), [6, 9]);
    assert_eq!(plain.encode("a<t>b<end>", true, true).unwrap(), [1, 0, 0, 0, 2, 7]);
    // Id 8 is a gap.
    assert_eq!(plain.token_bytes(8).unwrap(), b"");
    assert_eq!(plain.token_bytes(10).unwrap_err().code(), Code::InvalidRequest);

    let config = json!({
        "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null, "add_bos_token": true,
        "added_tokens_decoder": {"8": {"content": "<new>", "special": true, "normalized": false}},
    });
    let map = json!({"bos_token": "b", "additional_special_tokens": ["<t>", "not in it"]});
    let both = load(&[("tokenizer_config", config), ("special_tokens_map", map)]).unwrap();
    assert_eq!((both.bos(), both.eos(), both.pad()), (Some(5), Some(6), None));
    assert!(both.adds_bos());
    assert_eq!(both.encode("a<t>b", true, true).unwrap(), [5, 1, 3, 2]);
    assert_eq!(both.encode("a<new>", false, true).unwrap(), [1, 8]);
    // As plain text, control tokens are text.
    assert!(both.encode("<s></s><t><new>", false, false).unwrap().iter().all(|&id| !both.is_control(id)));
    assert_eq!(both.decode(&[5, 1, 3, 2, 7]).unwrap(), "a b <end>");
    assert_eq!(both.decode_with_control(&[5, 1]).unwrap(), "<s> a");
    assert_eq!(both.end_of_generation(), [6, 9]);
}

/// Each model would make the token of a word that is written like it.
#[test]
fn plain_text_makes_no_control_token() {
    let vocab = json!({"?": 0, "a": 1, "<": 2, "x": 3, ">": 4, "<x": 5, "<x>": 6, "##a": 7});
    let scores: Vec<Value> = vocab.as_object().unwrap().keys().map(|token| json!([token, -1.0])).collect();
    let models = [
        json!({"type": "WordLevel", "unk_token": "?", "vocab": vocab}),
        json!({"type": "WordPiece", "unk_token": "?", "vocab": vocab}),
        json!({"type": "BPE", "unk_token": "?", "vocab": vocab, "merges": [["<", "x"]], "ignore_merges": true}),
        json!({"type": "Unigram", "unk_id": 0, "vocab": scores}),
    ];
    for model in models {
        let file = json!({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model});
        let config = json!({"eos_token": "<x>"});
        let tokenizer = load(&[("tokenizer", file), ("tokenizer_config", config)]).unwrap();
        assert_eq!(tokenizer.eos(), Some(6));
        assert_eq!(tokenizer.encode("a<x>", false, true).unwrap(), [1, 6], "{model}");
        let plain = tokenizer.encode("a <x>", false, false).unwrap();
        assert!(!plain.contains(&6) && plain.len() >= 2, "{model}: {plain:?}");
    }
}

#[test]
fn everything_that_ends_a_generation_is_known() {
    let config = || json!({"eos_token": "</s>"});
    let ends = |files: &[(&str, Value)]| load(files).unwrap().end_of_generation().to_vec();
    assert_eq!(ends(&[("tokenizer_config", config()), ("generation_config", json!({"eos_token_id": 3}))]), [6, 3, 9]);
    let several = json!({"eos_token_id": [6, 7, 99], "other": true});
    assert_eq!(ends(&[("generation_config", several.clone()), ("config", json!({"eos_token_id": 1}))]), [6, 7, 9]);
    assert_eq!(ends(&[("config", json!({"eos_token_id": 1}))]), [1, 6, 9]);
    // What ends a generation is no text.
    let tokenizer = load(&[("generation_config", several)]).unwrap();
    assert_eq!(tokenizer.decode(&[1, 7]).unwrap(), "a");
    assert_eq!(tokenizer.eos(), Some(6));
}

#[test]
fn bos_and_eos_stand_where_the_config_wants_them() {
    let mut file = tokenizer_json();
    file["post_processor"] = json!({"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false},
        {"type": "RobertaProcessing", "sep": ["</s>", 6], "cls": ["<s>", 5], "trim_offsets": true, "add_prefix_space": true},
        {"type": "TemplateProcessing", "pair": [], "single": [
            {"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        ], "special_tokens": {"x": {"id": "x", "ids": [3, 4], "tokens": ["<t>", "s"]}}},
    ]});
    let ids = |config: Value| {
        let tokenizer = load(&[("tokenizer", file.clone()), ("tokenizer_config", config)]).unwrap();
        assert_eq!(tokenizer.encode("a", false, false).unwrap(), [1]);
        tokenizer.encode("a", true, false).unwrap()
    };
    assert_eq!(ids(json!({})), [3, 4, 5, 1, 6]);
    let named = |bos: Value, eos: Value| json!({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": bos, "add_eos_token": eos});
    assert_eq!(ids(named(json!(true), Value::Null)), [5, 1]);
    assert_eq!(ids(named(json!(false), json!(true))), [1, 6]);
    assert_eq!(ids(named(Value::Null, Value::Null)), [3, 4, 5, 1, 6]);
}

#[test]
fn templates_come_from_files_by_name() {
    let one = br#"{"chat_template": "one"}"#;
    let many = br#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}"#;
    let templates = |files: TemplateFiles| ChatTemplates::from_files(&files);
    let none = TemplateFiles::default();
    assert!(templates(none).unwrap().is_empty());
    let of_config = templates(TemplateFiles { tokenizer_config: Some(one), ..none }).unwrap();
    assert_eq!((of_config.get("default"), of_config.get("tool_use")), (Some("one"), None));
    let of_list = templates(TemplateFiles { tokenizer_config: Some(many), ..none }).unwrap();
    assert_eq!((of_list.get("default"), of_list.get("tool_use")), (Some("d"), Some("t")));
    let of_file =
        templates(TemplateFiles { tokenizer_config: Some(many), chat_template_jinja: Some(b"j"), ..none }).unwrap();
    assert_eq!((of_file.get("default"), of_file.get("tool_use")), (Some("j"), Some("t")));
    let broken = TemplateFiles { tokenizer_config: Some(br#"{"chat_template": 7}"#), ..none };
    assert_eq!(templates(broken).unwrap_err().code(), Code::ChatTemplate);
    let not_utf8 = TemplateFiles { chat_template_jinja: Some(b"\xFF"), ..none };
    assert_eq!(templates(not_utf8).unwrap_err().code(), Code::ChatTemplate);
}
