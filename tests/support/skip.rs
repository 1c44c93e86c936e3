//! Says that a test was left out, where a person sees it: the test harness captures what `println!` prints.

use std::io::Write;

pub fn skipped(why: &str) {
    // Nobody is there to be told when standard error is closed.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
