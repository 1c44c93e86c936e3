#![no_main]

#[path = "../entries/tokenizer_json.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::run(bytes));
