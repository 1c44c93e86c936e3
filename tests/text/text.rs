//! Tokenizers, streamed decoding and stop strings against independent implementations.
//!
//! The golden files and how they were made: tests/golden/text/README.md.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rillm::engine::request::dry_breakers;
use rillm::error::Code;
use rillm::text::detokenize::StreamDecoder;
use rillm::text::stop::StopStrings;
use rillm::text::tokenizer::{Tokenizer, Vocabulary};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/text")
}

fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn vocabulary(golden: &Value) -> Vocabulary {
    let vocabulary = &golden["vocabulary"];
    let id = |name: &str| vocabulary[name].as_u64().map(|id| id as u32);
    Vocabulary {
        model: vocabulary["model"].as_str().unwrap().to_owned(),
        pre: vocabulary["pre"].as_str().map(str::to_owned),
        tokens: strings(&vocabulary["tokens"]),
        scores: vocabulary["scores"]
            .as_array()
            .map(|scores| scores.iter().map(|score| score.as_f64().unwrap() as f32).collect())
            .unwrap_or_default(),
        token_types: vocabulary["token_types"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap() as i32).collect(),
        merges: strings(&vocabulary["merges"]),
        bos: id("bos"),
        eos: id("eos"),
        unk: id("unk"),
        ..Vocabulary::default()
    }
}

const GOLDEN_TOKENIZERS: [&str; 5] = ["gpt-2", "gpt-4o", "llama-bpe", "llama-spm", "sentencepiece"];

fn golden(name: &str) -> (Value, Tokenizer) {
    let golden = read_json(&folder().join(format!("{name}.json")));
    let tokenizer = Tokenizer::new(vocabulary(&golden)).unwrap();
    (golden, tokenizer)
}

/// Encodes and decodes every text of a golden file and says how many there were.
fn check_golden(golden: &Value, tokenizer: &Tokenizer) -> usize {
    let texts = match &golden["texts"] {
        Value::Null => strings(&read_json(&folder().join("texts.json"))),
        texts => strings(texts),
    };
    let add_special = golden["add_special"].as_bool().unwrap();
    let wanted = golden["ids"].as_array().unwrap();
    assert!(wanted.len() <= texts.len());
    for (n, (text, wanted)) in texts.iter().zip(wanted).enumerate() {
        let got = tokenizer.encode(text, add_special, false).unwrap();
        assert_eq!(got, ids(wanted), "{}: text {n} is {text:?}", golden["source"]);
        let decoded = tokenizer.decode(&got).unwrap();
        match &golden["decoded"] {
            Value::Null if golden["vocabulary"]["model"] == "llama" => assert_eq!(decoded, text.replace('▁', " ")),
            Value::Null => assert_eq!(&decoded, text),
            all => assert_eq!(decoded, all[n].as_str().unwrap(), "decoding text {n}, {text:?}"),
        }
    }
    wanted.len()
}

#[test]
fn token_ids_are_those_of_independent_implementations() {
    for name in GOLDEN_TOKENIZERS {
        let (golden, tokenizer) = golden(name);
        let checked = check_golden(&golden, &tokenizer);
        assert!(checked >= 500, "{name}: {checked} texts");
    }
}

#[test]
fn text_inside_of_text_gets_no_space_in_front() {
    for name in GOLDEN_TOKENIZERS {
        let (_, tokenizer) = golden(name);
        assert!(tokenizer.tokens_have_bytes(), "{name}");
        for text in ["{\"name\": \"", ", ", "\": ", " a word", "word", "größe 😀", "\n  x", "<|eot_id|>", "</s>"] {
            let ids = tokenizer.encode_inside(text);
            let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id).unwrap()).copied().collect();
            assert_eq!(String::from_utf8_lossy(&bytes), text, "{name}: {ids:?}");
            assert!(ids.iter().all(|id| !tokenizer.is_control(*id)), "{name}: {ids:?}");
        }
    }
}

/// Whatever stands before a word, the text ends with one of its forms.
#[test]
fn a_word_has_a_form_for_each_place() {
    for name in GOLDEN_TOKENIZERS {
        let (_, tokenizer) = golden(name);
        // These take a sign and the letters after it together, so that a word after one is other tokens each time.
        let signs = if matches!(name, "gpt-4o" | "llama-bpe") { &[][..] } else { &["(", "so\"", " '", "\u{bf}"] };
        for word in ["time", "good day", "größe", "x", "日本"] {
            let forms = tokenizer.encode_word(word).unwrap();
            for before in ["", " ", "so ", "7", "> ", "(\n", "\n "].iter().chain(signs) {
                let text = tokenizer.encode(&format!("{before}{word}"), false, false).unwrap();
                let ends = forms.iter().any(|form| text.ends_with(form));
                assert!(ends, "{name}: {before:?} before {word:?}: {text:?}, {forms:?}");
            }
        }
    }
    // As the vocabularies have them.
    for (name, forms) in [("llama-spm", ["▁time", "time"]), ("gpt-2", ["time", "Ġtime"])] {
        let (_, tokenizer) = golden(name);
        let got = tokenizer.encode_word("time").unwrap();
        assert!(forms.iter().all(|form| got.contains(&vec![tokenizer.token_id(form).unwrap()])), "{name}: {got:?}");
    }
}

/// However a text is cut before a breaker in it, tokens that write it are found.
#[test]
fn breakers_are_found_over_several_tokens() {
    for name in GOLDEN_TOKENIZERS {
        let (_, tokenizer) = golden(name);
        for breaker in ["\n\n", "END of it", "s:\n"] {
            let (found, is_written) = dry_breakers(&[breaker], &tokenizer, tokenizer.vocab_size()).unwrap();
            assert_eq!(is_written, [true], "{name}: {breaker:?}");
            for before in ["so ", "7", "the"] {
                let ids = tokenizer.encode(&format!("{before}{breaker}"), false, false).unwrap();
                let ends = ids.iter().enumerate().any(|(at, id)| {
                    let list = found.heads.iter().find(|(head, _)| head == id).map(|(_, list)| &found.lists[*list]);
                    let goes_on = |rest: &usize| ids[at + 1..] == found.rests[*rest];
                    list.is_some_and(|list| list.iter().any(goes_on))
                        || (at + 1 == ids.len() && found.tokens.contains(id))
                });
                assert!(ends, "{name}: {breaker:?} after {before:?}: {ids:?}");
            }
        }
        // One that can't be split has no more than its tokens.
        let (found, _) = dry_breakers(&["\n"], &tokenizer, tokenizer.vocab_size()).unwrap();
        assert!(!found.tokens.is_empty() && found.heads.is_empty() && found.rests.is_empty());
    }
}

#[test]
fn special_tokens_are_found_only_where_asked_for() {
    let (_, tokenizer) = golden("llama-bpe");
    let bos = tokenizer.bos().unwrap();
    let turn_end = tokenizer.token_id("<|eot_id|>").unwrap();
    let text = "<|begin_of_text|>Hi<|eot_id|> there";
    let parsed = tokenizer.encode(text, false, true).unwrap();
    assert_eq!((parsed[0], parsed.iter().filter(|&&id| id == turn_end).count()), (bos, 1));
    assert_eq!(tokenizer.decode(&parsed).unwrap(), "Hi there");
    let plain = tokenizer.encode(text, false, false).unwrap();
    assert!(plain.iter().all(|&id| !tokenizer.is_control(id)));
    assert_eq!(tokenizer.decode(&plain).unwrap(), text);
    assert_eq!(tokenizer.token_bytes(turn_end).unwrap(), b"");
    assert_eq!(tokenizer.token_bytes_with_control(turn_end).unwrap(), b"<|eot_id|>");
    assert_eq!(tokenizer.end_of_generation()[0], tokenizer.eos().unwrap());
    assert!(tokenizer.end_of_generation().contains(&turn_end));
    assert!(!tokenizer.end_of_generation().contains(&bos));
}

/// A sentencepiece vocabulary of a few tokens, with a control token and one that its maker defined.
fn small_sentencepiece() -> Vocabulary {
    let mut tokens = vec![
        "<unk>".to_owned(),
        "<s>".to_owned(),
        "</s>".to_owned(),
        "<turn>".to_owned(),
        "[x".to_owned(),
        "[x]".to_owned(),
    ];
    let mut token_types = vec![2, 3, 3, 3, 4, 4];
    let mut scores = vec![0.0; 6];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    token_types.extend([6; 256]);
    scores.extend([0.0; 256]);
    for (text, score) in [("▁a", -1.0), ("ab", -2.0), ("▁", -3.0), ("a", -4.0), ("b", -5.0), ("</", -6.0), ("s>", -7.0)]
    {
        tokens.push(text.to_owned());
        token_types.push(1);
        scores.push(score);
    }
    for text in ["<", "/", "s", ">"] {
        tokens.push(text.to_owned());
        token_types.push(1);
        scores.push(-9.0);
    }
    Vocabulary { model: "llama".to_owned(), tokens, token_types, scores, ..Vocabulary::default() }
}

#[test]
fn sentencepiece_puts_a_space_after_special_tokens_and_takes_it_away_at_the_beginning() {
    let tokenizer = Tokenizer::new(small_sentencepiece()).unwrap();
    let id = |text: &str| tokenizer.token_id(text).unwrap();
    let (space, a, b, space_a, ab) = (id("▁"), id("a"), id("b"), id("▁a"), id("ab"));
    assert_eq!(tokenizer.encode("ab", true, false).unwrap(), [1, space_a, b]);
    assert_eq!(tokenizer.encode("a<turn>a", false, true).unwrap(), [space_a, 3, space_a]);
    assert_eq!(tokenizer.encode("", true, false).unwrap(), [1]);
    // The highest score goes first, whatever stands to the left.
    assert_eq!(tokenizer.encode("bab a", false, false).unwrap(), [space, b, ab, space_a]);
    // A user-defined token is found in every text, the longest of several; a control token in plain text stays text.
    assert_eq!(tokenizer.encode("[x][x", false, false).unwrap(), [id("[x]"), id("[x")]);
    let plain = tokenizer.encode("</s>", false, false).unwrap();
    assert_eq!(plain, [space, id("</"), id("s>")]);
    assert_eq!(tokenizer.encode("é", false, false).unwrap(), [space, id("<0xC3>"), id("<0xA9>")]);
    // One space at the beginning belongs to the encoding, the others to the text.
    assert_eq!(tokenizer.decode(&[1, space_a, b, space_a]).unwrap(), "ab a");
    assert_eq!(tokenizer.decode(&[space, space_a]).unwrap(), " a");
    assert_eq!(tokenizer.decode(&[a, space]).unwrap(), "a ");
    let mut continued = StreamDecoder::continuing();
    assert_eq!(continued.push(&tokenizer, space_a).unwrap(), " a");
    let without = Vocabulary { add_space_prefix: Some(false), add_bos: Some(false), ..small_sentencepiece() };
    let without = Tokenizer::new(without).unwrap();
    assert_eq!(without.encode("ab", true, false).unwrap(), [ab]);
    assert_eq!(without.decode(&[space_a]).unwrap(), " a");
}

#[test]
fn tokens_that_end_a_turn_end_generation() {
    let ends = |tokens: &[(&str, i32)]| {
        let mut vocabulary = small_sentencepiece();
        for (text, token_type) in tokens {
            vocabulary.tokens.push((*text).to_owned());
            vocabulary.token_types.push(*token_type);
            vocabulary.scores.push(0.0);
        }
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        let is_end = |text: &str| tokenizer.end_of_generation().contains(&tokenizer.token_id(text).unwrap());
        assert_eq!(tokenizer.end_of_generation()[0], tokenizer.eos().unwrap());
        tokens.iter().map(|(text, _)| is_end(text)).collect::<Vec<_>>()
    };
    // Control or user-defined, but not a word that only looks so.
    assert_eq!(ends(&[("<|im_end|>", 3), ("<end_of_turn>", 4), ("<|eot_id|>", 1)]), [true, true, false]);
    assert_eq!(ends(&[("<|end|>", 3)]), [true]);
    // In the harmony format the turn goes on after it.
    assert_eq!(ends(&[("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)]), [false, true, true]);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let code = |vocabulary: Vocabulary| Tokenizer::new(vocabulary).err().map(|error| (error.code(), error.to_string()));
    let (golden, _) = golden("gpt-2");
    let good = vocabulary(&golden);
    let refused = |change: &dyn Fn(&mut Vocabulary), wanted: &str| {
        let mut changed = good.clone();
        change(&mut changed);
        let (code, message) = code(changed).unwrap_or_else(|| panic!("taken, wanted an error about {wanted}"));
        assert_eq!(code, Code::UnsupportedTokenizer);
        assert!(message.contains(wanted), "{message} does not say {wanted}");
    };
    refused(&|v| v.model = "rwkv".to_owned(), "\"rwkv\"");
    refused(&|v| v.pre = Some("whitespace".to_owned()), "llama-bpe, llama3");
    refused(&|v| v.tokens.clear(), "no tokens");
    refused(&|v| v.token_types.truncate(5), "5 token types");
    refused(&|v| v.token_types[3] = 9, "type 9");
    refused(&|v| v.tokens[1] = v.tokens[0].clone(), "like another");
    refused(&|v| v.merges.push("nospace".to_owned()), "wanted two parts");
    refused(&|v| v.merges.push("a ☃".to_owned()), "☃");
    refused(&|v| v.merges.push(format!("{} {}", "Ġ".repeat(400), "a")), "makes no token");
    refused(&|v| v.eos = Some(1_000_000), "1000000");
    refused(&|v| v.model = "llama".to_owned(), "scores");
    let mut nan = small_sentencepiece();
    nan.scores[7] = f32::NAN;
    assert_eq!(code(nan).unwrap().0, Code::UnsupportedTokenizer);

    let tokenizer = Tokenizer::new(good.clone()).unwrap();
    let beyond = tokenizer.vocab_size() as u32;
    assert_eq!(tokenizer.decode(&[beyond]).unwrap_err().code(), Code::InvalidRequest);
    assert_eq!(tokenizer.token_bytes(u32::MAX).unwrap_err().code(), Code::InvalidRequest);
    assert_eq!(tokenizer.token_bytes_with_control(beyond).unwrap_err().code(), Code::InvalidRequest);

    let mut decoder = StreamDecoder::continuing();
    assert_eq!(decoder.push(&tokenizer, beyond).unwrap(), "", "a model may have more ids than its tokenizer");

    // A byte that is no token is dropped, and its neighbours are not merged.
    let mut without_q = good.clone();
    let q = without_q.tokens.iter().position(|token| token == "q").unwrap();
    without_q.tokens[q] = "no longer q".to_owned();
    without_q.merges.retain(|merge| !merge.contains('q'));
    let without_q = Tokenizer::new(without_q).unwrap();
    let ids = |text: &str| without_q.encode(text, false, false).unwrap();
    assert_eq!(ids("quick"), ids("uick"));
    assert_eq!(ids("q"), [0u32; 0]);
    assert_eq!(ids("thqe"), [ids("th"), ids("e")].concat());
    assert_ne!(ids("thqe"), ids("the"));
}

#[test]
fn a_file_without_a_split_name_reads_as_default() {
    let (golden, _) = golden("gpt-2");
    let unnamed = Tokenizer::new(Vocabulary { pre: None, ..vocabulary(&golden) }).unwrap();
    let default = Tokenizer::new(Vocabulary { pre: Some("default".to_owned()), ..vocabulary(&golden) }).unwrap();
    for text in ["x = 12345; don't", "  a\n\n b"] {
        let ids = unnamed.encode(text, false, false).unwrap();
        assert_eq!(ids, default.encode(text, false, false).unwrap());
        assert_eq!(unnamed.decode(&ids).unwrap(), text);
    }
}

/// The words of a text under one of the splits, seen through a vocabulary in which only bytes are tokens and a merge of
/// two bytes across a border between words would show.
fn split_with(pre: &str, text: &str) -> Vec<String> {
    let (golden, _) = golden("gpt-2");
    let mut vocabulary = vocabulary(&golden);
    vocabulary.pre = Some(pre.to_owned());
    vocabulary.add_bos = Some(false);
    // Every pair of bytes of the text is a token, so the number of merges tells where words end.
    let bytes: Vec<String> = vocabulary.tokens[..256].to_vec();
    let single = Vocabulary { tokens: bytes, token_types: vec![], merges: vec![], eos: None, ..vocabulary.clone() };
    let byte_ids = Tokenizer::new(single.clone()).unwrap().encode(text, false, false).unwrap();
    let alphabet = |id: u32| single.tokens[id as usize].clone();
    // Chains: each prefix of the text is a token made of the prefix before and one byte, and so for every start.
    let mut chained = single.clone();
    let text_symbols: Vec<String> = byte_ids.iter().map(|&id| alphabet(id)).collect();
    for start in 0..text_symbols.len() {
        for end in start + 2..=text_symbols.len() {
            let whole = text_symbols[start..end].concat();
            if !chained.tokens.contains(&whole) {
                chained.tokens.push(whole);
                chained.merges.push(format!("{} {}", text_symbols[start..end - 1].concat(), text_symbols[end - 1]));
            }
        }
    }
    let tokenizer = Tokenizer::new(chained).unwrap();
    let ids = tokenizer.encode(text, false, false).unwrap();
    ids.iter().map(|&id| String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap()).into_owned()).collect()
}

/// What each split is known for, after the tokenizer.json files and llama.cpp's table (see tokenizer/pre.rs).
#[test]
fn splits_cut_numbers_and_spaces_as_their_models_do() {
    assert_eq!(split_with("gpt-2", "a 12345 b"), ["a", " 12345", " b"]);
    assert_eq!(split_with("smollm", "a 123 b"), ["a", " ", "1", "2", "3", " b"]);
    assert_eq!(split_with("qwen2", "a 123 b"), ["a", " ", "1", "2", "3", " b"]);
    assert_eq!(split_with("llama-bpe", "a 12345 b"), ["a", " ", "123", "45", " b"]);
    assert_eq!(split_with("deepseek-v3", "a 12345"), ["a", " ", "123", "45"]);
    assert_eq!(split_with("default", "12345"), ["123", "45"]);
    assert_eq!(split_with("falcon", "a.b12345"), ["a", ".", "b", "123", "45"]);
    assert_eq!(split_with("tiny_aya", "1234567"), ["1", "234", "567"]);
    assert_eq!(split_with("gpt-4o", "fooBar don't"), ["foo", "Bar", " don't"]);
    assert_eq!(split_with("tekken", "fooBar 12"), ["foo", "Bar", " ", "1", "2"]);
    assert_eq!(split_with("llama-bpe", "DON'T x"), ["DON", "'T", " x"]);
    assert_eq!(split_with("gpt-2", "DON'T x"), ["DON", "'", "T", " x"]);
    assert_eq!(split_with("gpt-2", "a  \n b"), ["a", "  \n", " b"]);
    assert_eq!(split_with("llama-bpe", "a  \n b"), ["a", "  \n", " b"]);
    assert_eq!(split_with("deepseek-llm", "ab\n\nc"), ["ab", "\n", "\n", "c"]);
    assert_eq!(split_with("bloom", "a, b"), ["a", ",", " b"]);
    assert_eq!(split_with("superbpe", "a b 12345 c"), ["a b ", "12", "345", " c"]);
    assert_eq!(split_with("afmoe", "x1234567"), ["x", "1", "234", "567"]);
    assert_eq!(split_with("kimi-k2", "ab漢字Cd 1234"), ["ab", "漢字", "Cd", " ", "123", "4"]);
    assert_eq!(split_with("youtu", "あa、12"), ["あ", "a", "、", "1", "2"]);
    let spaces = split_with("jais-2", "a \t\u{b}\u{c}\u{a0}\u{2003} b");
    assert_eq!(spaces, ["a", " \t\u{b}\u{c}", "\u{a0}\u{2003}", " b"]);
    assert_eq!(split_with("minicpm5", "a 12345"), ["a", " ", "123", "45"]);
    assert_eq!(split_with("ufakzeka", "Ali'nin"), ["Ali", "'nin"]);
    assert_eq!(split_with("qwen2", "Ali'sin"), ["Ali", "'s", "in"]);
    assert_eq!(split_with("laguna", "a\n\nb c"), ["a", "\n\n", "b", " c"]);
    assert_eq!(split_with("spark2_5", "a.\n\n12"), ["a", ".", "\n", "\n", "1", "2"]);
    assert_eq!(split_with("chameleon", "a  1b"), ["a", "  ", "1", "b"]);
    assert_eq!(split_with("granite-embed-multi-97m", "fooBar"), ["foo", "Bar"]);
}

/// A word that is a token which no merges lead to: families with `ignore_merges` take it, the others don't.
#[test]
fn whole_words_are_taken_without_merging_where_the_family_does_so() {
    let (golden, _) = golden("gpt-2");
    let word = "zqxjkv";
    let ids = |pre: &str| {
        let mut vocabulary = Vocabulary { pre: Some(pre.to_owned()), add_bos: Some(false), ..vocabulary(&golden) };
        vocabulary.tokens.push(word.to_owned());
        vocabulary.token_types.push(1);
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        (tokenizer.encode(word, false, false).unwrap(), tokenizer.token_id(word).unwrap())
    };
    for pre in ["llama-bpe", "tekken"] {
        let (got, whole) = ids(pre);
        assert_eq!(got, [whole], "{pre}");
    }
    for pre in ["gpt-2", "qwen2", "gpt-4o"] {
        let (got, _) = ids(pre);
        assert!(got.len() > 1, "{pre}: {got:?}");
    }
}

fn any_golden_tokenizer() -> impl Strategy<Value = usize> {
    0..GOLDEN_TOKENIZERS.len()
}

thread_local! {
    static TOKENIZERS: Vec<Tokenizer> = GOLDEN_TOKENIZERS.iter().map(|name| golden(name).1).collect();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any ids at all, so also broken UTF-8: the streamed pieces are the lossy text of the bytes.
    #[test]
    fn streamed_pieces_are_the_decoded_text(which in any_golden_tokenizer(), picks in proptest::collection::vec(any::<u32>(), 0..40)) {
        TOKENIZERS.with(|tokenizers| {
            let tokenizer = &tokenizers[which];
            // Low ids are bytes in all of these vocabularies: those make the hard cases.
            let ids: Vec<u32> = picks.iter().map(|&pick| {
                if pick % 2 == 0 { pick / 2 % 300 } else { pick / 2 % tokenizer.vocab_size() as u32 }
            }).collect();
            let mut bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap().to_vec()).collect();
            let mut continued = StreamDecoder::continuing();
            let mut text = String::new();
            for &id in &ids {
                text.push_str(&continued.push(tokenizer, id).unwrap());
                // What was handed out is final: whole characters at the beginning of the final text.
                assert!(String::from_utf8_lossy(&bytes).starts_with(text.as_str()));
            }
            text.push_str(&continued.finish());
            assert_eq!(text, String::from_utf8_lossy(&bytes));
            let is_sentencepiece = GOLDEN_TOKENIZERS[which].ends_with("spm") || GOLDEN_TOKENIZERS[which] == "sentencepiece";
            if is_sentencepiece && bytes.first() == Some(&b' ') {
                bytes.remove(0);
            }
            assert_eq!(tokenizer.decode(&ids).unwrap(), String::from_utf8_lossy(&bytes));
        });
    }

    /// Every text survives, but for the sign that sentencepiece writes for a space.
    #[test]
    fn decoding_gives_the_encoded_text_back(which in any_golden_tokenizer(), text in "(?s)[^▁]{0,60}") {
        TOKENIZERS.with(|tokenizers| {
            let ids = tokenizers[which].encode(&text, false, false).unwrap();
            assert_eq!(tokenizers[which].decode(&ids).unwrap(), text);
        });
    }

    /// Against a naive search: over all positions, of the stop strings that begin there the shortest. In the first pieces none may end.
    #[test]
    fn stop_strings_are_found_as_by_a_naive_search(
        stops in proptest::collection::vec("[aab]{1,2}[bé]{0,3}", 0..5),
        pieces in proptest::collection::vec("[abbé]{0,3}", 0..8),
        exempt in prop_oneof![Just(0), 0usize..6],
    ) {
        let text = pieces.concat();
        let exempt_bytes = pieces.iter().take(exempt).map(String::len).sum::<usize>();
        let naive = text.char_indices().find_map(|(at, _)| {
            let counts = |stop: &&String| text[at..].starts_with(stop.as_str()) && at + stop.len() > exempt_bytes;
            stops.iter().filter(counts).min_by_key(|stop| stop.len()).map(|stop| (at, stop.clone()))
        });
        let wanted = naive.as_ref().map_or(text.as_str(), |(at, _)| &text[..*at]);

        let mut matcher = StopStrings::new(stops.clone()).unwrap();
        let (mut got, mut matched) = (String::new(), None);
        for (n, piece) in pieces.iter().enumerate() {
            let progress = if n < exempt { matcher.push_exempt(piece) } else { matcher.push(piece) };
            prop_assert!(matched.is_none() || progress == Default::default(), "text after the stop");
            got.push_str(&progress.text);
            matched = matched.or(progress.matched);
            prop_assert!(wanted.starts_with(got.as_str()), "{got:?} was handed out too early");
            // Nothing is held longer than needed: what is not given out could begin a stop string.
            if matched.is_none() {
                let seen = pieces[..=n].concat();
                let held = &seen[got.len()..];
                prop_assert!(
                    held.is_empty() || stops.iter().any(|stop| stop.len() > held.len() && stop.starts_with(held)),
                    "{held:?} is held back for nothing"
                );
            }
        }
        let rest = matcher.finish();
        got.push_str(&rest.text);
        matched = matched.or(rest.matched);
        prop_assert_eq!(got, wanted);
        prop_assert_eq!(matched, naive.map(|(_, stop)| stop));
    }
}

#[test]
fn a_longer_stop_string_that_began_earlier_counts() {
    let progress = |pieces: &[&str]| {
        let mut matcher = StopStrings::new(["abcd", "bc", "x"]).unwrap();
        let mut all: Vec<_> = pieces.iter().map(|piece| matcher.push(piece)).collect();
        all.push(matcher.finish());
        let matched = all.iter().find_map(|progress| progress.matched.clone());
        (all.into_iter().map(|progress| progress.text).collect::<Vec<_>>(), matched)
    };
    let text = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    assert_eq!(progress(&["1a", "bc", "d2"]), (text(&["1", "", "", ""]), Some("abcd".to_owned())));
    assert_eq!(progress(&["1a", "bc", "e2"]), (text(&["1", "", "a", ""]), Some("bc".to_owned())));
    assert_eq!(progress(&["1a", "bc"]), (text(&["1", "", "a"]), Some("bc".to_owned())));
    assert_eq!(progress(&["1a", "b"]), (text(&["1", "", "ab"]), None));
    assert_eq!(progress(&["1x2", "3"]), (text(&["1", "", ""]), Some("x".to_owned())));
}

/// A step for each byte: by comparing at each place this takes minutes.
#[test]
fn long_stop_strings_take_linear_time() {
    let stop = "a".repeat(16_000) + "b";
    let mut matcher = StopStrings::new([stop.as_str(), &stop[1..], "ab"]).unwrap();
    let mut given = 0;
    for _ in 0..100_000 {
        given += matcher.push("a").text.len();
    }
    assert_eq!(given, 84_000, "what can't begin one any more");
    let end = matcher.push("b");
    assert_eq!((end.text.as_str(), end.matched), ("", Some(stop)));
}

#[test]
fn an_empty_stop_string_is_refused() {
    assert_eq!(StopStrings::new([""]).unwrap_err().code(), Code::InvalidRequest);
}
