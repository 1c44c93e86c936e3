//! The GGUF reader, the configuration and the byte sources, on files that a small writer makes here.

mod config;
mod header;
mod source;
pub mod writer;

use crate::support::errors::check_error;
use rillm::{
    error::{Code, Error},
    model::{gguf::Gguf, source::MemorySource},
};

fn read(bytes: Vec<u8>) -> Result<Gguf, Error> {
    pollster::block_on(Gguf::read(&MemorySource::new(bytes).with_name("test.gguf")))
}

/// The file is refused with this code, and the message names the file and each of the words.
#[track_caller]
fn refused(bytes: Vec<u8>, code: Code, words: &[&str]) {
    let error = read(bytes).expect_err("this file must be refused");
    check_error(&error, code, words);
    check_error(&error, code, &["test.gguf"]);
}
