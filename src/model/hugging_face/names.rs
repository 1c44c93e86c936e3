//! Tensor names of transformers → ours.

use std::borrow::Cow;

use crate::model::arch::HuggingFace;

/// What a tensor of a file becomes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Translated {
    Name(String),
    /// The matrix of the expert with this number; those of all experts become one tensor.
    Expert(String, u32),
    Ignored,
    /// Of a part outside the text model, with this prefix.
    OtherPart(&'static str),
    /// Of a head for another task.
    OtherHead,
    Unknown,
}

/// `head` has the names of the head's tensors, ours and theirs.
pub(super) fn translate(hf: &'static HuggingFace, head: &[(&str, &str)], name: &str) -> Translated {
    let names = || head.iter().chain(hf.names.iter().copied().flatten());
    for name in without_prefixes(hf, name) {
        let whole =
            hf.whole_names.iter().copied().flatten().find_map(|(ours, theirs)| Some((ours, matches(theirs, &name)?)));
        if let Some((ours, numbers)) = whole {
            return Translated::Name(ours.replacen("{}", &numbers.first().map(u32::to_string).unwrap_or_default(), 1));
        }
    }
    let (stem, suffix) = name.rsplit_once('.').unwrap_or((name, ""));
    for stem in without_prefixes(hf, stem) {
        for (ours, theirs) in names() {
            let Some(numbers) = matches(theirs, &stem) else { continue };
            let layer = numbers.first().map(u32::to_string).unwrap_or_default();
            let ours = format!("{}.{suffix}", ours.replacen("{}", &layer, 1));
            return match numbers.get(1) {
                Some(expert) => Translated::Expert(ours, *expert),
                None => Translated::Name(ours),
            };
        }
        if hf.ignored.iter().any(|ignored| matches(ignored, &stem).is_some()) {
            return Translated::Ignored;
        }
    }
    if hf.other_heads.iter().any(|head| name.starts_with(head)) {
        return Translated::OtherHead;
    }
    if let Some(part) = hf.other_parts.iter().find(|part| name.starts_with(**part)) {
        return Translated::OtherPart(part);
    }
    // Some ignored tensors have no suffix.
    if without_prefixes(hf, name).any(|name| hf.ignored.iter().any(|ignored| matches(ignored, &name).is_some())) {
        Translated::Ignored
    } else {
        Translated::Unknown
    }
}

/// The name as it is, without each of the prefixes that it has, and with the beginnings that theirs stand for.
fn without_prefixes<'n>(hf: &HuggingFace, name: &'n str) -> impl Iterator<Item = Cow<'n, str>> {
    let stripped = hf.prefixes.iter().filter_map(move |prefix| name.strip_prefix(prefix)).map(Cow::Borrowed);
    let moved = hf
        .moved
        .iter()
        .filter_map(move |(theirs, ours)| Some(Cow::Owned(format!("{ours}{}", name.strip_prefix(theirs)?))));
    std::iter::once(Cow::Borrowed(name)).chain(stripped).chain(moved)
}

/// A name without its last part.
pub(super) fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// The numbers in the places of `{}`, if the name matches the pattern.
pub(super) fn matches(pattern: &str, name: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    let (mut wanted, mut found) = (pattern.split('.'), name.split('.'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return Some(numbers),
            (Some("{}"), Some(number)) => {
                // "+1" and "01" would parse as numbers but are not used in names.
                let parsed: u32 = number.parse().ok()?;
                if parsed.to_string() != number {
                    return None;
                }
                numbers.push(parsed);
            }
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => return None,
        }
    }
}

/// Whether a tensor, under our name or under its own, is of a layer with this number or a larger one.
pub(super) fn is_of_layer_from(name: &str, first: u32) -> bool {
    let rest = name.strip_prefix("blk.").or(name.strip_prefix("model.layers."));
    let number = rest.and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    number.is_some_and(|layer| layer >= first)
}
