//! What a person should see of a test that passes: the test harness captures what `println!` prints.

use std::io::Write;

/// Says that a test was left out.
pub fn skipped(why: &str) {
    note(&format!("SKIPPED: {why}"));
}

pub fn note(text: &str) {
    // Nobody is there to be told when standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}
