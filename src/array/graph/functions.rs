//! The functions of elements, as texts of WGSL by name.

use std::collections::BTreeSet;

/// All functions.
const TEXT: &str = crate::shader!("../kernels/functions.wgsl");

/// The functions with these names and those that they call, each once, in the order of the file. `calls` is WGSL; names that are no
/// functions of the file are left out.
pub(super) fn called_by(calls: &str) -> String {
    let all: Vec<(&str, &str)> = functions().collect();
    let mut wanted = BTreeSet::new();
    let mut open = vec![calls];
    while let Some(text) = open.pop() {
        for name in names(text) {
            if let Some(index) = all.iter().position(|(other, _)| *other == name)
                && wanted.insert(index)
            {
                open.push(all[index].1);
            }
        }
    }
    wanted.iter().map(|index| all[*index].1).collect()
}

/// Each function's name and text.
fn functions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let starts = TEXT.match_indices("fn ").map(|(at, _)| at).filter(|at| *at == 0 || TEXT[..*at].ends_with('\n'));
    let starts: Vec<usize> = starts.chain([TEXT.len()]).collect();
    let texts: Vec<&'static str> = starts.windows(2).map(|pair| &TEXT[pair[0]..pair[1]]).collect();
    texts.into_iter().filter_map(|text| Some((text.strip_prefix("fn ")?.split('(').next()?, text)))
}

/// What is followed by a parenthesis.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('(').filter_map(|(at, _)| {
        let before = &text[..at];
        let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        (start < at).then(|| &before[start..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_brings_those_that_it_calls() {
        let text = called_by("let a = softplus_f32(b);");
        for name in ["is_nan", "is_infinite", "log_f32", "max_f32", "softplus_f32"] {
            assert_eq!(text.matches(&format!("fn {name}(")).count(), 1, "{name}");
        }
        assert!(!text.contains("fn add_f32("));
        assert_eq!(called_by("other(1)"), "");
    }
}
