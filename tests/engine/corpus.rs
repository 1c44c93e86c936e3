//! Replays the corpus of every fuzz target through the target's own function: no panic, and no input that takes forever.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::support::corpus::files;

/// Inputs take milliseconds. This is for busy machines and builds without optimisation.
const LONGEST: Duration = Duration::from_secs(60);

fn replay(target: &'static str, run: fn(&[u8])) {
    let files = files(target);
    assert!(files.len() > 50, "{target}: {} files", files.len());
    let (begin, begun) = channel();
    let worker = std::thread::spawn(move || {
        for (name, bytes) in files {
            // Nobody listens any more after a timeout.
            let _ = begin.send(name);
            run(&bytes);
        }
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
    config_json: "../../fuzz/entries/config_json.rs"
    gguf: "../../fuzz/entries/gguf.rs"
    grammar_schema: "../../fuzz/entries/grammar_schema.rs"
    hub: "../../fuzz/entries/hub.rs"
    index_json: "../../fuzz/entries/index_json.rs"
    requests: "../../fuzz/entries/requests.rs"
    safetensors: "../../fuzz/entries/safetensors.rs"
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
