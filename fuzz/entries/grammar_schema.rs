//! What an answer is held to: the first byte chooses among JSON schemas, regular expressions, Lark grammars and choices (a line each), the
//! second how a text goes on; the rest is the grammar. Whatever it is, it compiles or is refused with a reason; and what a mask allows is
//! taken in, what is forced too.

use std::sync::LazyLock;

use rillm_grammar::{Grammars, Vocabulary};
use serde_json::{Value, json};

/// What ends a text, a control token, the bytes, and some tokens of several.
static WORDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let several = ["{\"", "\":", "\": ", ", ", "\"}", "]}", "name", "true", "false", "null", "12", "é", "ab", " a", "\\n", "  "];
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    let control = ["<end>", "<tool>"].map(|text| text.as_bytes().to_vec());
    control.into_iter().chain(bytes).chain(several.map(|text| text.as_bytes().to_vec())).collect()
});

thread_local! {
    static GRAMMARS: Grammars = {
        let control: Vec<bool> = (0..WORDS.len()).map(|id| id < 2).collect();
        let vocabulary = Vocabulary { words: WORDS.iter().map(Vec::as_slice).collect(), control: &control, ends: &[0] };
        Grammars::new(&vocabulary, |text| text.bytes().map(|byte| u32::from(byte) + 2).collect()).unwrap()
    };
}

/// The most tokens of a text.
const TOKENS: usize = 24;

pub fn run(bytes: &[u8]) {
    let [kind, way, text @ ..] = bytes else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let grammar = match kind % 4 {
        0 => match serde_json::from_str::<Value>(text) {
            Ok(schema) => json!({"json_schema": schema}),
            Err(_) => return,
        },
        1 => json!({"regex": text}),
        2 => json!({"lark": text}),
        _ => json!({"choice": text.lines().collect::<Vec<_>>()}),
    };
    let mut matching = match GRAMMARS.with(|grammars| grammars.compile(&grammar.to_string())) {
        Ok(matching) => matching,
        Err(reason) => return assert!(!reason.is_empty()),
    };
    let mut mask = vec![0u32; WORDS.len().div_ceil(32)];
    let mut way = usize::from(*way);
    for _ in 0..TOKENS {
        // Limits of llguidance's can be met on the way; that is an error too.
        let Ok(state) = matching.advance(&[]) else { return };
        if state.is_complete {
            return;
        }
        let next = match state.forced.first() {
            Some(&forced) => forced,
            None => {
                let Ok(()) = matching.mask(&mut mask) else { return };
                let allowed: Vec<u32> =
                    (0..WORDS.len() as u32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect();
                assert!(!allowed.is_empty(), "nothing may follow, and the text is not complete: {grammar}");
                way = way.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                allowed[(way >> 33) % allowed.len()]
            }
        };
        let Ok(state) = matching.advance(&[next]) else { return };
        assert_eq!(state.taken, 1, "token {next} is allowed or forced, and not taken: {grammar}");
    }
}
