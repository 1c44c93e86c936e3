//! Which features of a request can't go together. Only this file says so: requests are checked here, and the table of docs/guide/conflicts.md is made here.

use crate::error::Result;

/// What a request may ask of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    Speculation,
    Grammar,
    ReasoningBudget,
    LogitsProcessor,
    ContextShift,
    Logprobs,
    Sampling,
    LogitRules,
    IgnoreEos,
    /// An encoder reads the prompt.
    Encoder,
}

use Feature::{
    ContextShift, Encoder, Grammar, IgnoreEos, LogitRules, LogitsProcessor, Logprobs, Sampling, Speculation,
};

/// The pairs that can't go together, and the reasons. Every other pair works.
const CONFLICTS: [(Feature, Feature, &str); 7] = [
    (
        Speculation,
        Sampling,
        "a draft is kept as far as the model itself finds it the most probable, which is temperature 0",
    ),
    (
        Speculation,
        LogitRules,
        "a draft is compared with the model's own most probable tokens, and these rules change them",
    ),
    (Speculation, Logprobs, "a draft is verified without log probabilities"),
    (Speculation, LogitsProcessor, "a draft is verified without the processor"),
    (Grammar, IgnoreEos, "a grammar says where the end is"),
    (
        Speculation,
        Encoder,
        "a decoder that has an encoder does not continue its prompt, so that nothing in it is a draft, and a draft model would not know it",
    ),
    (ContextShift, Encoder, "such a decoder's text is an answer as a whole, of which nothing may be dropped"),
];

/// Why two features can't go together; None if they can.
pub fn conflict(a: Feature, b: Feature) -> Option<&'static str> {
    let is_it = |(one, other, _): &&(Feature, Feature, &str)| (*one, *other) == (a, b) || (*one, *other) == (b, a);
    CONFLICTS.iter().find(is_it).map(|(_, _, reason)| *reason)
}

/// Refuses a request whose features can't go together. Each feature comes with the field that asks for it.
pub fn check(features: &[(Feature, &str)]) -> Result<()> {
    for (at, (a, a_field)) in features.iter().enumerate() {
        for (b, b_field) in &features[at + 1..] {
            if let Some(reason) = conflict(*a, *b) {
                bail!(InvalidRequest, "{a_field} and {b_field} exclude each other: {reason}; leave one of them out");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Feature::ReasoningBudget;
    use super::*;
    use crate::error::Code;

    /// All features, in the order of the table.
    const FEATURES: [Feature; 10] = [
        Speculation,
        Grammar,
        ReasoningBudget,
        LogitsProcessor,
        ContextShift,
        Logprobs,
        Sampling,
        LogitRules,
        IgnoreEos,
        Encoder,
    ];

    impl Feature {
        /// The feature's name in the table.
        fn name(self) -> &'static str {
            match self {
                Speculation => "`speculation`",
                Grammar => "structured output, tool calls",
                ReasoningBudget => "`thinking_token_budget`",
                LogitsProcessor => "`logitsProcessor`",
                ContextShift => "`context_shift`",
                Logprobs => "`logprobs`",
                Sampling => "`temperature` above 0",
                LogitRules => "bias, bans, penalties, DRY, `min_tokens`",
                IgnoreEos => "`ignore_eos`",
                Encoder => "encoder-decoder models",
            }
        }
    }

    /// The guide's table in Markdown: a row and a column for each feature.
    fn table() -> String {
        let numbered = FEATURES.iter().enumerate();
        let mut lines = vec![
            format!(
                "| |{} |",
                numbered.clone().map(|(at, _)| format!(" {} |", at + 1)).collect::<String>().trim_end_matches(" |")
            ),
            format!("|---|{}", "---|".repeat(FEATURES.len())),
        ];
        for (at, row) in numbered {
            let cells = FEATURES.iter().map(|column| if conflict(*row, *column).is_some() { " ✗ |" } else { " ✓ |" });
            lines.push(format!("| {} {} |{}", at + 1, row.name(), cells.collect::<String>()));
        }
        let reasons = CONFLICTS.iter().map(|(a, b, reason)| format!("- {} and {}: {reason}.", a.name(), b.name()));
        format!("{}\n\n{}\n", lines.join("\n"), reasons.collect::<Vec<_>>().join("\n"))
    }

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/conflicts.md");
    const BEGIN: &str = "<!-- made by `UPDATE_DOCS=1 cargo test --lib conflicts` -->\n";
    const END: &str = "<!-- end -->";

    #[test]
    fn the_table_of_the_guide_is_this_one() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (given, after) = rest.split_once(END).unwrap();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(PAGE, [before, BEGIN, &table(), END, after].concat()).unwrap();
        } else {
            assert_eq!(given, table(), "run UPDATE_DOCS=1 cargo test --lib conflicts");
        }
    }

    #[test]
    fn a_conflict_names_both_fields_and_the_reason() {
        assert!(check(&[]).is_ok() && check(&[(Grammar, "tools"), (Logprobs, "logprobs")]).is_ok());
        let asked = [(Logprobs, "logprobs"), (ContextShift, "context_shift"), (Speculation, "speculation")];
        let error = check(&asked).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        for word in ["logprobs", "speculation", "without log probabilities"] {
            assert!(error.message().contains(word), "{error}");
        }
        assert!(!error.message().contains("context_shift"), "{error}");
    }

    #[test]
    fn it_does_not_matter_which_comes_first() {
        for a in FEATURES {
            assert_eq!(conflict(a, a), None, "{a:?}");
            for b in FEATURES {
                assert_eq!(conflict(a, b), conflict(b, a), "{a:?} {b:?}");
            }
        }
    }
}
