//! What an error must say.

use rillm::error::{Code, Error};

#[track_caller]
pub fn check_error(error: &Error, code: Code, words: &[&str]) {
    assert_eq!(error.code(), code, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{word:?} is not in {:?}", error.message());
    }
}
