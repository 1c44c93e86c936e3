//! Replays the corpus of every fuzz target through the target's own function: no panic, and no input that takes forever. Then inputs that are
//! made of the corpus at random, the same in each run: what a change of a parser breaks close to what is known is found without a fuzzer.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::support::corpus::files;

/// Inputs take milliseconds. This is for busy machines and builds without optimisation.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a target gets inputs that are made at random; `CORPUS_SECONDS` says how long instead.
const MUTATING: Duration = Duration::from_millis(1500);

fn mutating() -> Duration {
    std::env::var("CORPUS_SECONDS").map_or(MUTATING, |seconds| Duration::from_secs(seconds.parse().unwrap()))
}

/// Splitmix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}

/// A file of the corpus with a few changes: bits, bytes, pieces that are gone, doubled, or of another file.
fn mutated(files: &[(String, Vec<u8>)], random: &mut Random) -> Vec<u8> {
    let mut bytes = files[random.below(files.len())].1.clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + 1 + random.below(16)).min(bytes.len());
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = [0, 0x7f, 0x80, 0xff, b'"', b'{', b'[', b'9'][random.below(8)],
            2 if at < end => drop(bytes.drain(at..end)),
            3 if at < end => {
                let piece = bytes[at..end].repeat(1 + random.below(40));
                bytes.splice(at..at, piece);
            }
            4 => bytes.truncate(at),
            _ => {
                let other = &files[random.below(files.len())].1;
                let from = random.below(other.len() + 1);
                let to = (from + random.below(64)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

fn replay(target: &'static str, run: fn(&[u8])) {
    let files = files(target);
    assert!(files.len() > 50, "{target}: {} files", files.len());
    let (begin, begun) = channel();
    let worker = std::thread::spawn(move || {
        for (name, bytes) in &files {
            // Nobody listens any more after a timeout.
            let _ = begin.send(name.clone());
            run(bytes);
        }
        let mut random = Random(1);
        let until = Instant::now() + mutating();
        let mut n = 0;
        while Instant::now() < until {
            n += 1;
            let bytes = mutated(&files, &mut random);
            let _ = begin.send(format!("input {n} made at random, {}", bytes.escape_ascii()));
            run(&bytes);
        }
        println!("{target}: {} files and {n} inputs made of them", files.len());
    });
    let mut current = String::new();
    loop {
        match begun.recv_timeout(LONGEST) {
            Ok(name) => current = name,
            Err(RecvTimeoutError::Timeout) => panic!("{target}: {current} takes more than {LONGEST:?}"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    assert!(worker.join().is_ok(), "{target}: {current} panics");
}

macro_rules! targets {
    ($($target:ident: $path:literal)*) => {
        $(
            #[path = $path]
            mod $target;
        )*

        mod replays {
            $(
                #[test]
                fn $target() {
                    super::replay(stringify!($target), super::$target::run);
                }
            )*
        }

        const TARGETS: &[&str] = &[$(stringify!($target)),*];
    };
}

targets! {
    adapter: "../../fuzz/entries/adapter.rs"
    chat_template: "../../fuzz/entries/chat_template.rs"
    checkpoint: "../../fuzz/entries/checkpoint.rs"
    config_json: "../../fuzz/entries/config_json.rs"
    gguf: "../../fuzz/entries/gguf.rs"
    grammar_schema: "../../fuzz/entries/grammar_schema.rs"
    hub: "../../fuzz/entries/hub.rs"
    index_json: "../../fuzz/entries/index_json.rs"
    requests: "../../fuzz/entries/requests.rs"
    safetensors: "../../fuzz/entries/safetensors.rs"
    sentencepiece_model: "../../fuzz/entries/sentencepiece_model.rs"
    session: "../../fuzz/entries/session.rs"
    tokenizer_json: "../../fuzz/entries/tokenizer_json.rs"
    tool_calls: "../../fuzz/entries/tool_calls.rs"
}

#[test]
fn every_target_is_replayed() {
    let names = |folder: &str, ending: &str| -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(folder);
        let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| Some(name.strip_suffix(ending)?.to_owned())).collect()
    };
    let replayed: BTreeSet<String> = TARGETS.iter().map(|target| (*target).to_owned()).collect();
    assert_eq!(replayed, names("fuzz_targets", ".rs"));
    assert_eq!(replayed, names("entries", ".rs"));
    assert_eq!(replayed, names("corpus", ".tar.gz"));
}
