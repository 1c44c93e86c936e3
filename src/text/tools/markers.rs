//! Finds markers in text of which more may come.

/// What a text holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::text) enum Found {
    /// Marker number `marker` stands at `start`, before all others.
    Marker { start: usize, marker: usize },
    /// Before this byte there is none; behind it one may begin.
    NoneBefore(usize),
}

/// The first marker; of those that begin at the same place the longest. With `ended` nothing follows.
pub(in crate::text) fn find(text: &str, markers: &[&str], ended: bool) -> Found {
    let first =
        markers.iter().enumerate().filter_map(|(marker, text_of)| text.find(text_of).map(|start| (start, marker)));
    let first = first.min_by_key(|(start, marker)| (*start, std::cmp::Reverse(markers[*marker].len())));
    let undecided = if ended { None } else { first_beginning(text, markers) };
    match (first, undecided) {
        (Some((start, marker)), undecided) if undecided.is_none_or(|undecided| start < undecided) => {
            Found::Marker { start, marker }
        }
        (_, Some(undecided)) => Found::NoneBefore(undecided),
        (_, None) => Found::NoneBefore(text.len()),
    }
}

/// Where a proper beginning of a marker stands that reaches to the end of the text.
fn first_beginning(text: &str, markers: &[&str]) -> Option<usize> {
    let longest = markers.iter().map(|marker| marker.len()).max().unwrap_or(0);
    let earliest = text.len().saturating_sub(longest.saturating_sub(1));
    (earliest..text.len()).filter(|at| text.is_char_boundary(*at)).find(|at| is_beginning(&text[*at..], markers))
}

/// Whether more text could make a marker of it.
pub(in crate::text) fn is_beginning(text: &str, markers: &[&str]) -> bool {
    markers.iter().any(|marker| marker.len() > text.len() && marker.starts_with(text))
}

/// What stands at the beginning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    Marker(usize),
    /// More text decides.
    Undecided,
    Other,
}

/// Which marker a text begins with; of several the longest.
pub(super) fn beginning(text: &str, markers: &[&str], ended: bool) -> Beginning {
    if !ended && is_beginning(text, markers) {
        return Beginning::Undecided;
    }
    let which = markers.iter().enumerate().filter(|(_, marker)| text.starts_with(**marker));
    match which.max_by_key(|(_, marker)| marker.len()) {
        Some((marker, _)) => Beginning::Marker(marker),
        None => Beginning::Other,
    }
}

/// Bytes of white space at the beginning.
pub(super) fn space(text: &str) -> usize {
    text.len() - text.trim_start().len()
}
