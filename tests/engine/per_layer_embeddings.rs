//! Models whose table of per-layer embeddings stays in their files (Gemma 3n and 4): every way of decoding gives what it gives with the table in memory, what
//! can't be is refused by name, and a file that can't be read ends one answer and nothing else.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::{FutureExt, LocalBoxFuture, join_all};
use rillm::engine::source::{ByteSource, ChunkStream, FileSource, LocalFuture, MemorySource};
use rillm::engine::{Engine, KvFormat, LoadOptions, LogitsProcessor, PerLayerEmbeddings, Precision, inspect};
use rillm::model::folder::{DirectoryFolder, OneFile};
use rillm::{Code, Result};
use serde_json::json;

use super::recurrent::{
    all, answer, every_way_gives_the_same_by, request, start, what_one_engine_saves_another_restores,
};
use crate::support::engines::{exact_on_cpu, load};
use crate::support::errors::check_error;

/// With fused ops, and with several residual streams and one op at a time.
const MODELS: [&str; 2] = ["gemma4_e", "gemma3n"];
const SMALL: &str = "gemma4_e";

fn file_of(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/architectures").join(model).join("model.gguf")
}

/// Few rows: prompts take several passes, and rows make room for others all the time.
fn on_disk(rows: usize) -> LoadOptions {
    LoadOptions { per_layer_embeddings: PerLayerEmbeddings::Disk, per_layer_cache_rows: Some(rows), ..in_memory() }
}

fn in_memory() -> LoadOptions {
    LoadOptions { precision: Some(Precision::Exact), kv_cache: Some(KvFormat::F32), ..Default::default() }
}

#[test]
fn every_way_of_decoding_gives_the_same() {
    let engine = every_way_gives_the_same_by(SMALL, &on_disk(64));
    assert_eq!(engine.info().per_layer_embeddings, PerLayerEmbeddings::Disk);
}

#[test]
fn a_session_goes_from_one_to_the_other() {
    let file = "architectures/gemma4_e/model.gguf";
    what_one_engine_saves_another_restores(&load(file, &in_memory()), &load(file, &on_disk(64)));
    what_one_engine_saves_another_restores(&load(file, &on_disk(64)), &load(file, &in_memory()));
}

/// Logits, hidden states, samples, shifts of the context and processors.
#[test]
fn all_else_is_the_same() {
    let limited = |options: LoadOptions| LoadOptions { context_length: Some(48), max_sequences: Some(2), ..options };
    let (memory, disk) = (limited(in_memory()), limited(on_disk(40)));
    for path in ["gemma4_e/model.gguf", "gemma4_e/model.safetensors", "gemma3n/model.safetensors"] {
        let (model, file) = path.split_once('/').unwrap();
        let folder = DirectoryFolder::new(file_of(model).parent().unwrap());
        let loaded = |options: &LoadOptions| {
            pollster::block_on(Engine::load_from(&folder, Some(file), &exact_on_cpu(options), &mut |_| Ok(()))).unwrap()
        };
        let (memory, disk) = (loaded(&memory), loaded(&disk));
        // Half of the rows is the most of one pass.
        let ids: Vec<u32> = (0..60).map(|at| at % 20 + 3).take(40).collect();
        let logits =
            |engine: &Engine| pollster::block_on(async { engine.forward(&ids).await?.readback().await }).unwrap();
        let (wanted, given) = (logits(&memory), logits(&disk));
        let apart = wanted.iter().zip(&given).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4, "{path}: logits are {apart} apart");
        for more in [
            json!({"temperature": 0.8, "seed": 7}),
            json!({"context_shift": true, "max_tokens": 90}),
            json!({"logprobs": 3, "repetition_penalty": 1.2}),
        ] {
            assert_eq!(
                answer(&disk, &ids[..30], more.clone()).0,
                answer(&memory, &ids[..30], more.clone()).0,
                "{path} {more}"
            );
        }
        let wanted = answer(&memory, &ids[..30], json!({"max_tokens": 12})).0;
        let processed = start(&disk, request(&ids[..30], json!({"max_tokens": 12})));
        let processed = processed.with_logits_processor(Rc::new(Unchanged)).unwrap();
        assert_eq!(pollster::block_on(all(processed)).0, [wanted], "{path}: with a processor");
    }
}

struct Unchanged;

impl LogitsProcessor for Unchanged {
    fn process(&self, logits: Vec<f32>, _: Vec<u32>, _: usize) -> LocalBoxFuture<'_, Result<Option<Vec<f32>>>> {
        async move { Ok(Some(logits)) }.boxed_local()
    }
}

/// `inspect` tells both sizes, and what it tells is what a load takes.
#[test]
fn the_table_takes_no_memory() {
    for model in MODELS {
        let source = FileSource::open(file_of(model)).unwrap();
        let said = |options: &LoadOptions| pollster::block_on(inspect(&OneFile(&source), None, options)).unwrap();
        let (with, without) = (said(&in_memory()), said(&on_disk(32)));
        let table = with.per_layer_embedding_bytes.unwrap();
        assert!(table > 0 && without.per_layer_embedding_bytes == Some(table), "{model}: {table} bytes");
        let engines = [in_memory(), on_disk(32)].map(|options| load(file_of(model), &options));
        let [in_memory, on_disk] = engines.each_ref().map(|engine| engine.info());
        assert_eq!(
            in_memory.weight_bytes - on_disk.weight_bytes,
            with.weight_bytes.unwrap() - without.weight_bytes.unwrap()
        );
        // In this small model the places of tokens count, and 32 rows of f32.
        let cache = 4 * (256 + 32 * (table as usize / 256 / 2)) as u64;
        assert!(in_memory.weight_bytes - on_disk.weight_bytes >= table.saturating_sub(2 * cache), "{model}");
        assert_eq!((on_disk.parameters, &on_disk.quantization), (in_memory.parameters, &in_memory.quantization));
    }
    let plain =
        pollster::block_on(inspect(&OneFile(&FileSource::open(file_of("llama3")).unwrap()), None, &in_memory()));
    assert_eq!(plain.unwrap().per_layer_embedding_bytes, Some(0));
}

#[test]
fn what_can_not_be_is_refused_by_name() {
    let refused = |source: &dyn ByteSource, options: &LoadOptions| {
        let said = pollster::block_on(inspect(&OneFile(source), None, options)).unwrap();
        let error = pollster::block_on(Engine::load(source, options, &mut |_| Ok(()))).err().unwrap();
        (error, said.problem)
    };
    let (error, problem) = refused(&FileSource::open(file_of("llama3")).unwrap(), &on_disk(64));
    check_error(&error, Code::InvalidRequest, &["perLayerEmbeddings", "llama", "leave the option out"]);
    assert_eq!(problem.map(|problem| problem.code), Some("invalid_request"));
    let gone = Flaky::new(SMALL, false);
    let (error, _) = refused(&gone, &on_disk(64));
    check_error(&error, Code::InvalidRequest, &["perLayerEmbeddings", "not kept on this device"]);

    let engine = load(file_of(SMALL), &on_disk(64));
    let ids: Vec<u32> = (3..36).collect();
    let error = pollster::block_on(engine.forward(&ids)).err().unwrap();
    check_error(&error, Code::InvalidRequest, &["33 different tokens", "32", "perLayerEmbeddings"]);
    assert_eq!(
        answer(&engine, &ids, json!({})),
        answer(&load(file_of(SMALL), &in_memory()), &ids, json!({})),
        "and it goes on"
    );
    let folder = DirectoryFolder::new(file_of(SMALL).parent().unwrap());
    let error = pollster::block_on(engine.with_draft(&folder, Some("model.gguf"), &mut |_| Ok(()))).err().unwrap();
    check_error(&error, Code::InvalidRequest, &["perLayerEmbeddings", "draft"]);
}

/// A file that is there, and then is not.
#[derive(Clone)]
struct Flaky {
    file: Rc<MemorySource>,
    lasts: bool,
    /// How many reads come before those that fail; `None` if none fails.
    fails_after: Rc<Cell<Option<usize>>>,
}

impl Flaky {
    fn new(model: &str, lasts: bool) -> Self {
        let file = Rc::new(MemorySource::new(std::fs::read(file_of(model)).unwrap()));
        Self { file, lasts, fails_after: Rc::default() }
    }
}

impl ByteSource for Flaky {
    fn name(&self) -> String {
        "flaky".to_owned()
    }

    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>>> {
        match self.fails_after.get() {
            Some(0) => Box::pin(async { Err(rillm::Error::new(Code::Read, "flaky: the disk was pulled out")) }),
            left => {
                self.fails_after.set(left.map(|left| left - 1));
                self.file.read(offset, length)
            }
        }
    }

    fn stream<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>>> {
        self.file.stream(offset, length)
    }

    fn lasting<'a>(&'a self, _: u64, _: u64) -> LocalFuture<'a, Result<Option<Rc<dyn ByteSource>>>> {
        Box::pin(async move { Ok(self.lasts.then(|| Rc::new(self.clone()) as Rc<dyn ByteSource>)) })
    }
}

/// At whatever read it happens: the answer ends in the error, what was answered stays right, and the next request is answered.
#[test]
fn a_file_that_fails_ends_one_answer() {
    let file = Flaky::new(SMALL, true);
    let options = LoadOptions { max_sequences: Some(2), ..on_disk(16) };
    let engine = pollster::block_on(Engine::load(&file, &options, &mut |_| Ok(()))).unwrap();
    let in_memory = load(file_of(SMALL), &in_memory());
    let mut errors = 0;
    for reads in 0..12 {
        // No prompt begins as another one.
        let ids: Vec<u32> = (0..30).map(|at| 3 + (17 * reads + 7 * at) % 250).collect();
        let wanted = answer(&in_memory, &ids, json!({})).0;
        file.fails_after.set(Some(reads as usize));
        let (tokens, error) = pollster::block_on(async {
            let mut generation = start(&engine, request(&ids, json!({})));
            let mut tokens = Vec::new();
            loop {
                match generation.next().await {
                    Ok(Some(chunk)) => tokens.extend(chunk.token_ids),
                    Ok(None) => return (tokens, None),
                    Err(error) => return (tokens, Some(error)),
                }
            }
        });
        file.fails_after.set(None);
        assert_eq!(tokens, wanted[..tokens.len()], "{reads} reads");
        if let Some(error) = error {
            check_error(&error, Code::Read, &["the disk was pulled out"]);
            errors += 1;
        }
        assert_eq!(answer(&engine, &ids, json!({})).0, wanted, "after an error at read {reads}");
    }
    assert!(errors > 3, "{errors} errors");
    // Two at once, of which one meets the error at least.
    file.fails_after.set(Some(3));
    let prompts: [Vec<u32>; 2] = [(100..130).collect(), (150..180).collect()];
    let ended = |prompt: &Vec<u32>| {
        let mut generation = start(&engine, request(prompt, json!({})));
        async move {
            while generation.next().await?.is_some() {}
            Ok::<_, rillm::Error>(())
        }
    };
    let outcomes = pollster::block_on(join_all(prompts.iter().map(ended)));
    assert!(outcomes.iter().any(Result::is_err));
    file.fails_after.set(None);
    for prompt in &prompts {
        assert_eq!(answer(&engine, prompt, json!({})).0, answer(&in_memory, prompt, json!({})).0);
    }
}
