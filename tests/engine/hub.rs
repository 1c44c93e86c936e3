//! References to models of the hub, and which file of a repository they mean.

use crate::support::errors::check_error;
use proptest::prelude::*;
use rillm::engine::hub::{FileFacts, Reference, Refused, Repository, Wanted, choose, choose_adapter, refusal};
use rillm::error::Code;

#[test]
fn references_are_taken_apart() {
    let parse = |text: &str| {
        let reference = Reference::parse(text).unwrap();
        (reference.repository.clone(), reference.revision().to_owned(), reference.wanted)
    };
    let file = |path: &str| Wanted::File(path.to_owned());
    let quant = |name: &str| Wanted::Quantization(name.to_owned());
    for (text, repository, revision, wanted) in [
        ("hf:o/n", "o/n", "main", Wanted::Any),
        ("hf://o/n.m-1_2", "o/n.m-1_2", "main", Wanted::Any),
        ("hf:o/n/a.gguf", "o/n", "main", file("a.gguf")),
        ("hf:o/n/q4/a:b@c.gguf", "o/n", "main", file("q4/a:b@c.gguf")),
        ("hf:o/n/q4/", "o/n", "main", file("q4")),
        ("hf:o/n:Q4_K_M", "o/n", "main", quant("Q4_K_M")),
        ("hf:o/n@v1.0", "o/n", "v1.0", Wanted::Any),
        ("hf:o/n@v1.0:q8_0", "o/n", "v1.0", quant("q8_0")),
        ("hf:o/n@v1.0/a/b.gguf", "o/n", "v1.0", file("a/b.gguf")),
        ("hf:o/n@refs/pr/12/b.gguf", "o/n", "refs/pr/12", file("b.gguf")),
        ("hf:o/n@refs/convert/gguf", "o/n", "refs/convert/gguf", Wanted::Any),
        ("hf:o/n@feature%2Fx:q8_0", "o/n", "feature/x", quant("q8_0")),
    ] {
        assert_eq!(parse(text), (repository.to_owned(), revision.to_owned(), wanted), "{text}");
    }
    for text in [
        "o/n",
        "hf:",
        "hf:n",
        "hf:/n",
        "hf:o/",
        "hf:o/n:",
        "hf:o/n:a/b",
        "hf:o/n@",
        "hf:o/n@/a",
        "hf:o/n/../x",
        "hf:o/n//x",
        "hf:o o/n",
        "hf:../n",
        "hf:o/n?x",
        "hf:o/n@..",
    ] {
        check_error(&Reference::parse(text).unwrap_err(), Code::InvalidRequest, &[text, "hf:owner/name"]);
    }
}

fn files(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn an_adapter_of_the_repository_is_chosen() {
    let peft = files(&[
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "checkpoint-8/adapter_model.safetensors",
    ]);
    let ggufs = files(&["README.md", "tone.gguf", "more/a.gguf", "more/b.gguf"]);
    let chosen = |files: &[String], wanted: Wanted| choose_adapter("o/n", files, &wanted);
    let file = |path: &str| Wanted::File(path.to_owned());
    assert_eq!(chosen(&peft, Wanted::Any).unwrap(), "adapter_model.safetensors");
    assert_eq!(chosen(&peft, file("checkpoint-8")).unwrap(), "checkpoint-8/adapter_model.safetensors");
    assert_eq!(chosen(&ggufs, file("more/b.gguf")).unwrap(), "more/b.gguf");
    assert_eq!(chosen(&ggufs[..2], Wanted::Any).unwrap(), "tone.gguf");
    check_error(&chosen(&ggufs, Wanted::Any).unwrap_err(), Code::InvalidRequest, &["tone.gguf", "more/a.gguf"]);
    check_error(&chosen(&ggufs, file("less")).unwrap_err(), Code::NotFound, &["less/adapter_model.safetensors"]);
    check_error(&chosen(&[], Wanted::Any).unwrap_err(), Code::NotFound, &["hf:o/n"]);
    let quantised = Wanted::Quantization("Q4_0".to_owned());
    check_error(&chosen(&ggufs, quantised).unwrap_err(), Code::InvalidRequest, &["Q4_0"]);
}

#[test]
fn a_model_of_the_repository_is_chosen() {
    let quants = files(&[
        "README.md",
        "Model-Q4_K_M.gguf",
        "Model-Q4_K_S.gguf",
        "Model-Q4_0.gguf",
        "Model-Q8_0.gguf",
        "mmproj-Model-f16.gguf",
        "Model.imatrix.gguf",
        "big/Model-BF16-00001-of-00002.gguf",
        "big/Model-BF16-00002-of-00002.gguf",
    ]);
    let quant = |name: &str| Wanted::Quantization(name.to_owned());
    let file = |name: &str| Wanted::File(name.to_owned());
    let chosen = |files: &[String], wanted: Wanted| choose("o/n", files, &wanted);
    for (wanted, path) in [
        (Wanted::Any, "Model-Q4_K_M.gguf"),
        (quant("q4_k_s"), "Model-Q4_K_S.gguf"),
        (quant("Q8_0"), "Model-Q8_0.gguf"),
        (quant("bf16"), "big/Model-BF16-00001-of-00002.gguf"),
        (file("Model-Q4_0.gguf"), "Model-Q4_0.gguf"),
        (file("big"), "big/Model-BF16-00001-of-00002.gguf"),
        (file("mmproj-Model-f16.gguf"), "mmproj-Model-f16.gguf"),
    ] {
        assert_eq!(chosen(&quants, wanted.clone()).unwrap(), path, "{wanted:?}");
    }
    // Q4_K is neither Q4_K_M nor Q4_K_S.
    for wanted in [quant("Q4_K"), quant("Q2_K"), quant("4_0"), quant("safetensors"), file("Model.gguf"), file("small")]
    {
        let error = chosen(&quants, wanted.clone()).unwrap_err();
        check_error(&error, Code::NotFound, &["hf:o/n", "Model-Q4_K_M.gguf", "Model-Q8_0.gguf"]);
        assert!(!error.message().contains("mmproj") && !error.message().contains("00002-of"), "{error}");
    }
    let both = files(&["config.json", "model.safetensors", "a.Q8_0.gguf", "a.F16.gguf"]);
    assert_eq!(chosen(&both, Wanted::Any).unwrap(), "a.Q8_0.gguf");
    assert_eq!(chosen(&both, quant("safetensors")).unwrap(), "model.safetensors");
    let shards = files(&["config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"]);
    assert_eq!(chosen(&shards, Wanted::Any).unwrap(), "model.safetensors.index.json");
    let unclear = files(&["a-F16.gguf", "b-F16.gguf"]);
    check_error(&chosen(&unclear, Wanted::Any).unwrap_err(), Code::InvalidRequest, &["a-F16.gguf, b-F16.gguf"]);
    check_error(&chosen(&unclear, quant("F16")).unwrap_err(), Code::InvalidRequest, &["a-F16.gguf, b-F16.gguf"]);
    let two_sizes = files(&["a-1b-Q4_K_M.gguf", "a-3b-Q4_K_M.gguf"]);
    check_error(&chosen(&two_sizes, Wanted::Any).unwrap_err(), Code::InvalidRequest, &["a-1b-Q4_K_M.gguf"]);
    let other = files(&["README.md", "pytorch_model.bin"]);
    check_error(&chosen(&other, Wanted::Any).unwrap_err(), Code::NotFound, &["2 files", "safetensors"]);
    // No file of a split model has the number 0, so this is a file like others.
    let zero = files(&["m-00000-of-00002.gguf", "m-00002-of-00002.gguf"]);
    assert_eq!(chosen(&zero, Wanted::Any).unwrap(), "m-00000-of-00002.gguf");
    let many: Vec<String> = (0..500).map(|i| format!("m{i}-F16.gguf")).collect();
    check_error(&chosen(&many, Wanted::Any).unwrap_err(), Code::InvalidRequest, &["and 460 more"]);
}

#[test]
fn digests_are_those_of_large_files() {
    let reference = Reference::parse("hf:o/n").unwrap();
    let digest = "0123456789ABCDEF".repeat(4);
    let facts = |file: &str| {
        let listing = format!("{{\"siblings\":[{{\"rfilename\":\"x\",{file}}}]}}");
        Repository::parse("https://hub.example", &reference, listing.as_bytes()).unwrap().facts("x")
    };
    let large = facts(&format!("\"size\":9,\"lfs\":{{\"sha256\":\"{digest}\",\"size\":12,\"pointerSize\":130}}"));
    assert_eq!(large, FileFacts { size: Some(12), sha256: Some(digest.to_lowercase()) });
    // What is no digest is none.
    for wrong in ["", "0123", &"g".repeat(64)] {
        assert_eq!(facts(&format!("\"lfs\":{{\"sha256\":\"{wrong}\"}}")).sha256, None);
    }
    assert_eq!(facts("\"size\":null,\"lfs\":null"), FileFacts::default());
}

#[test]
fn files_are_resolved_at_the_commit() {
    let reference = Reference::parse("hf:o/n@refs/pr/1").unwrap();
    let endpoint = "https://mirror.example/hub/";
    assert_eq!(
        Repository::listing_url(endpoint, &reference),
        "https://mirror.example/hub/api/models/o/n/revision/refs%2Fpr%2F1?blobs=true"
    );
    let sha = "0123456789abcdef0123456789abcdef01234567";
    let listing = format!(
        "{{\"id\":\"o/n\",\"sha\":\"{sha}\",\"siblings\":[{{\"rfilename\":\"a b/ü.gguf\",\"size\":1}}],\"gated\":false}}"
    );
    let repository = Repository::parse(endpoint, &reference, listing.as_bytes()).unwrap();
    assert!(repository.holds("a b/ü.gguf") && !repository.holds("a"));
    assert_eq!(
        repository.resolve_url("a b/ü.gguf"),
        format!("https://mirror.example/hub/o/n/resolve/{sha}/a%20b/%C3%BC.gguf")
    );
    assert_eq!(repository.facts("a b/ü.gguf"), FileFacts { size: Some(1), sha256: None });
    assert_eq!(repository.facts("none"), FileFacts::default());
    // A mirror that names no commit.
    let repository = Repository::parse(endpoint, &reference, b"{\"siblings\":[]}").unwrap();
    assert_eq!(repository.resolve_url("x"), "https://mirror.example/hub/o/n/resolve/refs%2Fpr%2F1/x");
    for listing in ["", "[]", "<html>", "{\"siblings\":[{}]}", "{}"] {
        let error = Repository::parse(endpoint, &reference, listing.as_bytes()).unwrap_err();
        check_error(&error, Code::InvalidFile, &["hf:o/n", "mirror.example"]);
    }
}

#[test]
fn refusals_say_what_to_do() {
    let reference = Reference::parse("hf:o/n@v2").unwrap();
    let refused = |status, code, with_token| {
        refusal("https://hub.example", &reference, None, Refused { status, code, with_token })
    };
    let page = "https://hub.example/o/n";
    check_error(&refused(401, Some("GatedRepo"), false), Code::AccessDenied, &["gated", page, "hub.token"]);
    check_error(&refused(403, Some("GatedRepo"), true), Code::AccessDenied, &["gated", page, "this token"]);
    check_error(
        &refused(401, Some("RepoNotFound"), false),
        Code::AccessDenied,
        &["does not exist or is private", "hub.token"],
    );
    check_error(&refused(401, None, true), Code::AccessDenied, &["token is not valid"]);
    check_error(&refused(403, None, false), Code::AccessDenied, &["hub.token"]);
    check_error(&refused(404, Some("RevisionNotFound"), false), Code::NotFound, &["\"v2\"", page]);
    check_error(&refused(404, Some("RepoNotFound"), true), Code::NotFound, &["repository"]);
    check_error(&refused(429, None, false), Code::Http, &["429", "hub.token"]);
    check_error(&refused(503, None, false), Code::Http, &["503", "later"]);
    let file = refusal(
        "https://hub.example",
        &reference,
        Some("a.gguf"),
        Refused { status: 404, code: Some("EntryNotFound"), with_token: false },
    );
    check_error(&file, Code::NotFound, &["hf:o/n/a.gguf", "no such file", "\"v2\""]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No reference panics, and what is read leads nowhere but into its repository.
    #[test]
    fn any_reference_is_read_or_refused(text in "hf:[a-z./@:%é]{0,24}", names in proptest::collection::vec("[a-zQ4_K.-]{0,12}(\\.gguf)?", 0..5)) {
        if let Ok(reference) = Reference::parse(&text) {
            let url = Repository::listing_url("https://h", &reference);
            prop_assert!(url.starts_with("https://h/api/models/") && !url.contains("/../"), "{}", url);
            if let Ok(path) = choose(&reference.repository, &names, &reference.wanted) {
                prop_assert!(names.contains(&path));
            }
        }
    }
}
