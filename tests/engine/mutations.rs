//! Models that are damaged at random: whatever is changed in a header, a configuration, an index or a tokenizer, loading ends in a typed
//! error before the first weight is read, or gets there; and an inspection has told so, with the same code and the same words.
//!
//! `RILLM_SOAK` makes it many times more, and holds inspections to their memory (`npm run soak`).

mod mutate;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::Poll;
use std::time::{Duration, Instant};

use rillm::engine::{Autotune, Engine, LoadOptions, Phase, inspect};
use rillm::error::{Code, Error};
use rillm::model::folder::{Folder, MemoryFolder};
use rillm::tensor::Rng;

pub use self::mutate::Files;
use self::mutate::mutate;
use crate::support::files::golden;
use crate::support::skip;
use crate::support::soak::is_soak;

/// No single one may take longer.
const LONGEST: Duration = Duration::from_secs(10);
const SEED: u64 = 20;
/// Of each model.
const MUTATIONS: u64 = 143;

/// Models by name: their folders, and the files that are damaged.
const MODELS: &[(&str, &[&str])] = &[
    ("tiny_llama", &["tied-q4_0.gguf"]),
    ("tiny_qwen2", &["untied-q4_0.gguf"]),
    ("encoders/xlm_roberta", &["model.gguf"]),
    (
        "folders/qwen2_bf16",
        &["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"],
    ),
    (
        "folders/llama_sharded_f16",
        &[
            "model.safetensors.index.json",
            "model-00001-of-00005.safetensors",
            "model-00002-of-00005.safetensors",
            "model-00003-of-00005.safetensors",
            "model-00004-of-00005.safetensors",
            "model-00005-of-00005.safetensors",
            "config.json",
            "tokenizer.json",
            "chat_template.jinja",
        ],
    ),
    ("encoders/bert", &["model.safetensors", "config.json", "tokenizer.json", "1_Pooling/config.json"]),
    ("architectures/gemma2", &["model.safetensors", "config.json", "tokenizer.json"]),
    ("architectures/qwen3_next", &["model.gguf"]),
    ("architectures/qwen3_5_moe", &["model.safetensors", "config.json", "tokenizer.json"]),
    ("quantized/gptq4_ordered", &["model.safetensors", "config.json", "tokenizer.json"]),
    ("quantized/nf4", &["model.safetensors", "config.json", "tokenizer.json"]),
    ("quantized/int4", &["model.safetensors", "config.json", "tokenizer.json"]),
    ("quantized/fp8_blocks", &["model.safetensors", "config.json", "tokenizer.json"]),
    ("quantized/mlx4", &["model.safetensors", "config.json", "tokenizer.json"]),
    ("encoder_decoders/flan_t5", &["model.gguf"]),
    ("encoder_decoders/nllb", &["model.safetensors", "config.json", "tokenizer.json"]),
    ("encoder_decoders/marian", &["model.safetensors", "config.json", "vocab.json", "source.spm"]),
];

pub fn files(folder: &str, names: &[&str]) -> Files {
    names.iter().map(|name| ((*name).to_owned(), std::fs::read(golden(folder).join(name)).unwrap())).collect()
}

fn options() -> LoadOptions {
    LoadOptions { autotune: Autotune::Off, ..LoadOptions::default() }
}

/// What a load ends in before the first weight is read.
fn load(folder: &dyn Folder) -> Result<(), Error> {
    let options = options();
    let reads = Cell::new(false);
    let mut progress = |progress: rillm::engine::Progress| {
        reads.set(reads.get() || progress.phase == Phase::Weights);
        if reads.get() { Err(Error::new(Code::Aborted, "that is far enough")) } else { Ok(()) }
    };
    let mut loading = pin!(Engine::load_from(folder, None, &options, &mut progress));
    // Nobody waits for kernels that are compiled meanwhile.
    let ended = poll_fn(|context| match loading.as_mut().poll(context) {
        _ if reads.get() => Poll::Ready(Ok(())),
        Poll::Ready(loaded) => Poll::Ready(loaded.map(drop)),
        Poll::Pending => Poll::Pending,
    });
    pollster::block_on(ended)
}

/// The error that an inspection tells of.
fn inspected(folder: &dyn Folder) -> Option<(String, String)> {
    match pollster::block_on(inspect(folder, None, &options())) {
        Err(error) => Some((error.code().to_string(), error.message().to_owned())),
        Ok(said) => said.problem.map(|problem| (problem.code.to_owned(), problem.message)),
    }
}

/// Loads what an inspection finds sound, and nothing else.
pub fn check(files: &Files) -> Option<(String, String)> {
    let folder = MemoryFolder::new(files.iter().cloned());
    let told = inspected(&folder);
    let ended = load(&folder).err().map(|error| (error.code().to_string(), error.message().to_owned()));
    assert_eq!(told, ended, "what was told beforehand, and what the load ended in");
    if let Some((code, message)) = &told {
        assert!(code != Code::Internal.as_str() && !message.is_empty(), "{code}: {message}");
    }
    told
}

/// That these files are refused with this code, and that the message has these words.
#[track_caller]
pub fn refused(files: &Files, code: Code, words: &[&str]) {
    let (found, message) = check(files).expect("this model must be refused");
    assert_eq!(found, code.as_str(), "{message}");
    for word in words {
        assert!(message.contains(word), "{message} does not say {word}");
    }
}

/// Bytes that this process has had at most, and has now.
fn memory() -> Option<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    };
    Some((of("VmHWM:")?, of("VmRSS:")?))
}

/// An inspection takes no more memory than twice the files and 64 MB.
fn check_memory(files: &Files) {
    let folder = MemoryFolder::new(files.iter().cloned());
    let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    // From here on the most is counted anew.
    let counted = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    let Some((_, before)) = memory().filter(|_| counted) else { return skip::skipped("this system counts no memory") };
    inspected(&folder);
    let most = memory().map_or(0, |(most, _)| most).saturating_sub(before);
    assert!(most <= 2 * bytes as u64 + (64 << 20), "{most} bytes of memory for files of {bytes}");
}

#[test]
fn damaged_models_are_told_and_refused_alike() {
    let soak = is_soak();
    let rounds = if soak { 4 * MUTATIONS } else { MUTATIONS };
    let (begin, begun) = channel();
    let worker = std::thread::spawn(move || {
        let (mut all, mut sound, mut slowest) = (0, 0, Duration::ZERO);
        for (number, (folder, names)) in MODELS.iter().enumerate() {
            let whole = files(folder, names);
            assert_eq!(check(&whole), None, "{folder} is sound");
            for round in 0..rounds {
                let mut rng = Rng(SEED + round * MODELS.len() as u64 + number as u64);
                let mut files = whole.clone();
                let how = mutate(&mut files, &mut rng);
                // Nobody listens any more after a timeout.
                let _ = begin.send(format!("{folder}, round {round}, {how}"));
                let start = Instant::now();
                sound += usize::from(check(&files).is_none());
                slowest = slowest.max(start.elapsed());
                all += 1;
                if soak {
                    check_memory(&files);
                }
            }
        }
        skip::note(&format!("{all} damaged models, {sound} of them found sound; the slowest took {slowest:?}"));
        // Most are noticed, and some changes say nothing of the model.
        assert!(all / 20 < sound && sound < all / 2, "{sound} of {all}");
    });
    let mut current = String::new();
    loop {
        match begun.recv_timeout(LONGEST) {
            Ok(name) => current = name,
            Err(RecvTimeoutError::Timeout) => panic!("{current} takes more than {LONGEST:?}"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    assert!(worker.join().is_ok(), "{current}");
}
