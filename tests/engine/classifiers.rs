//! Rerankers and classifiers against transformers: tiny random models from both formats; what a request may hold, and what is refused.
//!
//! The golden files and how they were made: tests/golden/README.md.

use std::path::{Path, PathBuf};

use rillm::engine::folder::{DirectoryFolder, MemoryFolder};
use rillm::engine::request::ChatRequest;
use rillm::engine::source::FileSource;
use rillm::engine::{
    Classification, ClassifyRequest, EmbeddingRequest, Engine, LoadOptions, Precision, Ranking, RerankRequest,
};
use rillm::error::{Code, Error};
use serde_json::{Value, json};

fn golden(model: &str) -> (PathBuf, Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/classifiers").join(model);
    let file = path.join("golden.json");
    let text = std::fs::read(&file).unwrap_or_else(|cause| panic!("{}: {cause}", file.display()));
    (path, serde_json::from_slice(&text).unwrap())
}

fn exact() -> LoadOptions {
    LoadOptions { precision: Some(Precision::Exact), ..LoadOptions::default() }
}

fn folder(path: &Path, options: &LoadOptions) -> Result<Engine, Error> {
    pollster::block_on(Engine::load_from(&DirectoryFolder::new(path), None, options, &mut |_| Ok(())))
}

fn gguf(path: &Path) -> Engine {
    let source = FileSource::open(path.join("model.gguf")).unwrap();
    pollster::block_on(Engine::load(&source, &exact(), &mut |_| Ok(()))).unwrap()
}

/// The folder with a change of its configuration and with further files.
fn changed(path: &Path, change: impl Fn(&mut Value), more: &[(&str, String)]) -> Result<Engine, Error> {
    let file = |name: &str| (name.to_owned(), std::fs::read(path.join(name)).unwrap());
    let mut config = serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap();
    change(&mut config);
    let mut files = vec![file("model.safetensors"), file("tokenizer.json")];
    files.push(("config.json".to_owned(), config.to_string().into_bytes()));
    files.extend(more.iter().map(|(name, text)| ((*name).to_owned(), text.clone().into_bytes())));
    let folder = MemoryFolder::new(files);
    pollster::block_on(Engine::load_from(&folder, None, &exact(), &mut |_| Ok(())))
}

fn rerank(engine: &Engine, request: Value) -> Result<Ranking, Error> {
    pollster::block_on(engine.rerank(RerankRequest::parse(request)?))
}

fn classify(engine: &Engine, request: Value) -> Result<Classification, Error> {
    pollster::block_on(engine.classify(ClassifyRequest::parse(request)?))
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// The logits of rows.
fn rows(value: &Value) -> Vec<Vec<f32>> {
    value.as_array().unwrap().iter().map(floats).collect()
}

#[track_caller]
fn close(what: &str, got: &[f32], wanted: &[f32]) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (got, wanted) in got.iter().zip(wanted) {
        assert!((got - wanted).abs() < 1e-4, "{what}: {got}, wanted {wanted}");
    }
}

/// The scores of all documents, in the order of the request.
fn scores(ranking: &Ranking) -> Vec<f32> {
    let mut results = ranking.results.clone();
    assert!(results.is_sorted_by(|a, b| a.relevance_score >= b.relevance_score), "{results:?}");
    results.sort_by_key(|result| result.index);
    results.iter().map(|result| result.relevance_score).collect()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn a_cross_encoder_ranks_as_transformers_does() {
    let (path, wanted) = golden("bert_reranker");
    let engine = folder(&path, &exact()).unwrap();
    let info = engine.info();
    assert!(info.reranks && !info.generates && !info.embeds && info.warnings.is_empty());
    assert_eq!(info.labels, ["LABEL_0"]);
    let logits: Vec<f32> = rows(&wanted["pair_logits"]).concat();
    let request = |more: Value| {
        let mut request = json!({"query": wanted["query"], "documents": wanted["documents"]});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    // Its files say that logits are the scores.
    let ranking = rerank(&engine, request(json!({}))).unwrap();
    close("all", &scores(&ranking), &logits);
    let tokens: usize = wanted["pair_ids"].as_array().unwrap().iter().map(|ids| ids.as_array().unwrap().len()).sum();
    assert_eq!((ranking.usage.prompt_tokens, ranking.usage.total_tokens), (tokens, tokens));
    let best = rerank(&engine, request(json!({"top_n": 2}))).unwrap();
    assert_eq!(best.results[..], ranking.results[..2]);
    assert_eq!(rerank(&engine, request(json!({"top_n": 99}))).unwrap().results.len(), logits.len());
    // One at a time, and with their texts in fields.
    for (document, logit) in wanted["documents"].as_array().unwrap().iter().zip(&logits) {
        let one = json!({"query": wanted["query"], "documents": [{"text": document}]});
        close("alone", &scores(&rerank(&engine, one).unwrap()), &[*logit]);
    }
    // More than fit one pass, and equal ones in their order.
    let many: Vec<&Value> = wanted["documents"].as_array().unwrap().iter().cycle().take(90).collect();
    let ranking = rerank(&engine, json!({"query": wanted["query"], "documents": many})).unwrap();
    assert!(ranking.usage.prompt_tokens > 1024);
    let expected: Vec<f32> = logits.iter().copied().cycle().take(90).collect();
    close("many", &scores(&ranking), &expected);
    // A model whose files say nothing gives shares.
    let plain = changed(&path, |config| config["sbert_ce_default_activation_function"] = Value::Null, &[]).unwrap();
    let shares: Vec<f32> = logits.iter().map(|logit| sigmoid(*logit)).collect();
    close("shares", &scores(&rerank(&plain, request(json!({}))).unwrap()), &shares);
    close("logits", &scores(&rerank(&plain, request(json!({"use_activation": false}))).unwrap()), &logits);
    // As its one label.
    let labelled = classify(&plain, json!({"input": wanted["documents"]})).unwrap();
    let singles: Vec<f32> = rows(&wanted["logits"]).concat().into_iter().map(sigmoid).collect();
    let got: Vec<f32> = labelled.data.iter().flat_map(|text| text.probs.clone()).collect();
    close("one label", &got, &singles);
}

#[test]
fn pairs_that_are_too_long_are_refused_or_cut_as_the_tokenizer_cuts_them() {
    let (path, wanted) = golden("bert_reranker");
    let engine = folder(&path, &exact()).unwrap();
    for case in wanted["cut"].as_array().unwrap() {
        let [query, document] = [&case["texts"][0], &case["texts"][1]];
        let request = |truncate: bool| json!({"query": query, "documents": [document], "truncate": truncate});
        let error = rerank(&engine, request(false)).unwrap_err();
        assert_eq!(error.code(), Code::ContextLengthExceeded, "{error}");
        assert!(error.message().contains("document 0") && error.message().contains("takes 64"), "{error}");
        let cut = rerank(&engine, request(true)).unwrap();
        assert_eq!(cut.usage.prompt_tokens, 64);
        // The tokens, taken as they are: without types, as of one text.
        let pair = json!({"input": {"text": query, "text_pair": document}, "truncate": true, "use_activation": false});
        let as_pair = classify(&engine, pair).unwrap();
        close("cut", &scores(&cut), &as_pair.data[0].probs);
    }
    // Without types the ids alone can be compared.
    let (path, wanted) = golden("xlm_roberta_reranker");
    let engine = folder(&path, &exact()).unwrap();
    for case in wanted["cut"].as_array().unwrap() {
        let pair = json!({"text": case["texts"][0], "text_pair": case["texts"][1]});
        let cut = classify(&engine, json!({"input": pair, "truncate": true})).unwrap();
        let ids = classify(&engine, json!({"input": case["ids"]})).unwrap();
        close("ids", &cut.data[0].probs, &ids.data[0].probs);
    }
}

#[test]
fn heads_of_other_forms_give_the_logits_of_transformers() {
    for (model, labels) in [("distilbert_labels", 2), ("electra_labels", 2), ("deberta_v2_labels", 3)] {
        let (path, wanted) = golden(model);
        let engine = folder(&path, &exact()).unwrap();
        assert_eq!(engine.info().labels.len(), labels);
        let query = wanted["query"].as_str().unwrap();
        let documents = wanted["documents"].as_array().unwrap();
        let pairs: Vec<Value> = documents.iter().map(|text| json!({"text": query, "text_pair": text})).collect();
        for (input, logits) in [(json!(documents), &wanted["logits"]), (json!(pairs), &wanted["pair_logits"])] {
            let got = classify(&engine, json!({"input": input, "use_activation": false})).unwrap();
            for (got, wanted) in got.data.iter().zip(rows(logits)) {
                close(model, &got.probs, &wanted);
            }
        }
    }
}

#[test]
fn rerankers_rank_from_both_formats() {
    for model in ["xlm_roberta_reranker", "modern_bert_reranker"] {
        ranks_from_both_formats(model);
    }
}

fn ranks_from_both_formats(model: &str) {
    let (path, wanted) = golden(model);
    let logits: Vec<f32> = rows(&wanted["pair_logits"]).concat();
    let singles: Vec<f32> = rows(&wanted["logits"]).concat();
    for (what, engine) in [("folder", folder(&path, &exact()).unwrap()), ("GGUF", gguf(&path))] {
        assert!(engine.info().reranks && !engine.info().embeds, "{what}");
        let request = json!({"query": wanted["query"], "documents": wanted["documents"], "use_activation": false});
        close(what, &scores(&rerank(&engine, request).unwrap()), &logits);
        let labelled = classify(&engine, json!({"input": wanted["documents"], "use_activation": false})).unwrap();
        let got: Vec<f32> = labelled.data.iter().flat_map(|text| text.probs.clone()).collect();
        close(what, &got, &singles);
        let error = pollster::block_on(engine.embed(EmbeddingRequest::parse(json!({"input": "a"})).unwrap()));
        assert!(error.unwrap_err().message().contains("use rerank or classify"));
    }
}

#[test]
fn labels_are_those_of_transformers() {
    let (path, wanted) = golden("bert_nli");
    let engine = folder(&path, &exact()).unwrap();
    assert_eq!(engine.info().labels, ["contradiction", "entailment", "neutral"]);
    assert!(!engine.info().reranks);
    let documents = wanted["documents"].as_array().unwrap();
    let pairs: Vec<Value> =
        documents.iter().map(|document| json!({"text": wanted["query"], "text_pair": document})).collect();
    for (input, logits) in [(json!(pairs), &wanted["pair_logits"]), (json!(documents), &wanted["logits"])] {
        let logits = rows(logits);
        let raw = classify(&engine, json!({"input": input, "use_activation": false})).unwrap();
        let soft = classify(&engine, json!({"input": input})).unwrap();
        assert_eq!(raw.data.len(), logits.len());
        for (index, ((raw, soft), wanted)) in raw.data.iter().zip(&soft.data).zip(&logits).enumerate() {
            close("logits", &raw.probs, wanted);
            let total: f32 = wanted.iter().map(|x| x.exp()).sum();
            close("shares", &soft.probs, &wanted.iter().map(|x| x.exp() / total).collect::<Vec<_>>());
            let best = (0..3).max_by(|a, b| wanted[*a].total_cmp(&wanted[*b])).unwrap();
            assert_eq!((soft.index, soft.num_classes, &soft.label), (index, 3, &engine.info().labels[best]));
        }
    }
    // One text, one pair, ids, and all in one request.
    let one = classify(&engine, json!({"input": documents[0]})).unwrap();
    let pair = classify(&engine, json!({"input": pairs[0]})).unwrap();
    let mixed = classify(&engine, json!({"input": [documents[0], pairs[0]]})).unwrap();
    close("text", &mixed.data[0].probs, &one.data[0].probs);
    close("pair", &mixed.data[1].probs, &pair.data[0].probs);
    // What the files say of the problem decides.
    for (problem, function) in [("multi_label_classification", sigmoid as fn(f32) -> f32), ("regression", |x| x)] {
        let engine = changed(&path, |config| config["problem_type"] = json!(problem), &[]).unwrap();
        let got = classify(&engine, json!({"input": documents[0]})).unwrap();
        let wanted: Vec<f32> = rows(&wanted["logits"])[0].iter().map(|logit| function(*logit)).collect();
        close(problem, &got.data[0].probs, &wanted);
    }
    let error = rerank(&engine, json!({"query": "a", "documents": ["b"]})).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert!(error.message().contains("contradiction"), "{error}");
}

#[test]
fn a_decoder_with_a_head_labels_texts_and_writes_none() {
    let (path, wanted) = golden("qwen3_reward");
    for unfused_ops in [false, true] {
        let engine = folder(&path, &LoadOptions { unfused_ops, ..exact() }).unwrap();
        assert!(!engine.info().generates && !engine.info().reranks && !engine.info().embeds);
        let got = classify(&engine, json!({"input": wanted["ids"]})).unwrap();
        for (got, wanted) in got.data.iter().zip(rows(&wanted["logits"])) {
            close("logits", &got.probs, &wanted);
        }
        assert_eq!(got.data.len(), wanted["ids"].as_array().unwrap().len());
        let chat = ChatRequest::parse(json!({"messages": [{"role": "user", "content": "Hi"}]})).unwrap();
        let error = engine.chat(chat).err().unwrap();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains("rerank or classify"), "{error}");
        assert_eq!(pollster::block_on(engine.forward(&[1])).err().unwrap().code(), Code::InvalidRequest);
    }
}

#[test]
fn a_language_model_ranks_by_its_tokens_yes_and_no() {
    let (path, wanted) = golden("qwen3_reranker");
    let documents = wanted["documents"].as_array().unwrap();
    let logits = |cases: &Value| -> Vec<f32> {
        rows(&cases.as_array().unwrap().iter().map(|case| case["logits"].clone()).collect())
            .iter()
            .map(|logits| logits[0] - logits[1])
            .collect()
    };
    let tokens = |cases: &Value| -> usize {
        cases.as_array().unwrap().iter().map(|case| case["ids"].as_array().unwrap().len()).sum()
    };
    let module = json!([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
        {"idx": 1, "name": "1", "path": "1_LogitScore", "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"},
    ]);
    let score = json!({"true_token_id": wanted["yes"], "false_token_id": wanted["no"]});
    let template = wanted["chat_template"].as_str().unwrap().to_owned();
    let files = [
        ("modules.json", module.to_string()),
        ("1_LogitScore/config.json", score.to_string()),
        ("chat_template.jinja", template),
        (
            "config_sentence_transformers.json",
            json!({"activation_fn": "torch.nn.modules.activation.Sigmoid"}).to_string(),
        ),
    ];
    let asked = LoadOptions { classifier_from_token: Some(vec!["no".to_owned(), "yes".to_owned()]), ..exact() };
    let engines = [
        ("as newer folders say it", changed(&path, |_| {}, &files).unwrap()),
        ("as the option says it", folder_only(&path, &asked).unwrap()),
        ("GGUF", gguf(&path)),
    ];
    for (what, engine) in &engines {
        assert!(engine.info().reranks, "{what}");
        for (more, cases) in [(json!(null), &wanted["default"]), (wanted["instruction"].clone(), &wanted["instructed"])]
        {
            let request = |use_activation: bool| {
                json!({
                    "query": wanted["query"], "documents": documents, "instruction": more,
                    "use_activation": use_activation,
                })
            };
            let ranking = rerank(engine, request(false)).unwrap();
            close(what, &scores(&ranking), &logits(cases));
            assert_eq!(ranking.usage.prompt_tokens, tokens(cases), "{what}");
            let shares: Vec<f32> = logits(cases).into_iter().map(sigmoid).collect();
            close(what, &scores(&rerank(engine, request(true)).unwrap()), &shares);
        }
        // Control tokens in texts are text.
        let quoted = json!({"query": "a", "documents": ["<|im_end|>", "b"]});
        let tokens = rerank(engine, quoted).unwrap().usage.prompt_tokens;
        let plain = rerank(engine, json!({"query": "a", "documents": ["c", "b"]})).unwrap().usage.prompt_tokens;
        assert!(tokens > plain + 3, "{what}: {tokens} and {plain} tokens");
        // What is too much is cut at the document's end.
        let long = json!({"query": "a", "documents": ["long ".repeat(600)], "truncate": true});
        assert_eq!(rerank(engine, long).unwrap().usage.prompt_tokens, 512, "{what}");
    }
    // A folder that says nothing of it is a language model.
    let plain = folder_only(&path, &exact()).unwrap();
    let error = rerank(&plain, json!({"query": "a", "documents": ["b"]})).unwrap_err();
    assert!(error.message().contains("classifierFromToken"), "{error}");
    let chat = ChatRequest::parse(json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})).unwrap();
    assert!(plain.chat(chat).is_ok());
    // The option, where it can't be.
    let refused = |path: &Path, tokens: &[&str], wanted: &str| {
        let tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
        let error = folder_only(path, &LoadOptions { classifier_from_token: Some(tokens), ..exact() }).err().unwrap();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains(wanted), "{error}");
    };
    refused(&path, &["no"], "1 tokens");
    refused(&path, &["no", "perhaps so"], "perhaps so");
    refused(&golden("bert_reranker").0, &["no", "yes"], "leave the option out");
    refused(&golden("qwen3_reward").0, &["no", "yes"], "leave the option out");
}

/// The folder without its GGUF file.
fn folder_only(path: &Path, options: &LoadOptions) -> Result<Engine, Error> {
    let file = |name: &str| (name.to_owned(), std::fs::read(path.join(name)).unwrap());
    let folder = MemoryFolder::new(["model.safetensors", "tokenizer.json", "config.json"].map(file));
    pollster::block_on(Engine::load_from(&folder, None, options, &mut |_| Ok(())))
}

#[test]
fn requests_and_files_are_checked() {
    let (path, _) = golden("bert_nli");
    let engine = changed(&path, |_| {}, &[]).unwrap();
    let refused = |error: Error, code: Code, wanted: &str| {
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(wanted), "{error} does not say {wanted}");
    };
    let invalid = Code::InvalidRequest;
    refused(classify(&engine, json!({})).unwrap_err(), invalid, "input");
    refused(classify(&engine, json!({"input": []})).unwrap_err(), invalid, "0 texts");
    refused(classify(&engine, json!({"input": [[]]})).unwrap_err(), invalid, "input 0 has no tokens");
    refused(classify(&engine, json!({"input": [[2, 100]]})).unwrap_err(), invalid, "token id 100");
    refused(classify(&engine, json!({"input": {"text": "a"}})).unwrap_err(), invalid, "input");
    refused(classify(&engine, json!({"input": "a", "labels": 1})).unwrap_err(), invalid, "labels");
    refused(classify(&engine, json!({"input": "a ".repeat(80)})).unwrap_err(), Code::ContextLengthExceeded, "takes 64");
    let (path, _) = golden("bert_reranker");
    let engine = changed(&path, |_| {}, &[]).unwrap();
    let of = |request: Value| rerank(&engine, request).unwrap_err();
    refused(of(json!({"documents": ["a"]})), invalid, "query");
    refused(of(json!({"query": "a"})), invalid, "documents");
    refused(of(json!({"query": "a", "documents": []})), invalid, "0 texts");
    refused(of(json!({"query": "a", "documents": vec!["b"; 2049]})), invalid, "2049 texts");
    refused(of(json!({"query": "a", "documents": ["b"], "top_n": 0})), invalid, "top_n is 0");
    refused(of(json!({"query": "a", "documents": ["b", 7]})), invalid, "documents");
    refused(of(json!({"query": "a", "documents": [{"title": "b"}]})), invalid, "documents");
    refused(of(json!({"query": "a", "documents": ["b"], "instruction": "c"})), invalid, "instruction");
    refused(of(json!({"query": "a", "documents": ["b"], "rank": 1})), invalid, "rank");
    // Files that say what is not computed.
    let unsupported = |change: &dyn Fn(&mut Value), wanted: &str| {
        let error = changed(&path, change, &[]).err().unwrap();
        assert!(error.message().contains(wanted), "{error} does not say {wanted}");
        error.code()
    };
    let function = "sbert_ce_default_activation_function";
    assert_eq!(
        unsupported(&|config| config[function] = json!("torch.nn.modules.activation.Tanh"), "Tanh"),
        Code::UnsupportedArchitecture
    );
    assert_eq!(unsupported(&|config| config["problem_type"] = json!("other"), "other"), Code::UnsupportedArchitecture);
    let names = json!({"0": "a", "1": "b"});
    assert_eq!(unsupported(&|config| config["id2label"] = names.clone(), "2 names"), Code::ShapeMismatch);
    assert_eq!(unsupported(&|config| config["id2label"] = json!({"1": "b"}), "id 0"), Code::InvalidMetadata);
    // Heads for other tasks are named in a warning, as they were.
    let other = changed(&path, |config| config["architectures"] = json!(["BertForTokenClassification"]), &[]).unwrap();
    assert_eq!(other.info().warnings[0].code, "ignored_head");
    assert!(!other.info().reranks && other.info().labels.is_empty() && other.info().embeds);
    // A model without a head.
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/encoders/bert");
    let encoder = folder(&tiny, &exact()).unwrap();
    refused(classify(&encoder, json!({"input": "a"})).unwrap_err(), invalid, "no head");
    refused(rerank(&encoder, json!({"query": "a", "documents": ["b"]})).unwrap_err(), invalid, "does not rank");
}
