//! Finds markers in text that is still incomplete.

/// The first marker of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::text) enum Found {
    /// The marker with index `marker` is at `start`; it is the first one.
    Marker { start: usize, marker: usize },
    /// No marker is before this byte, but one may begin there.
    NoneBefore(usize),
}

/// The first marker; if several are at one place, the longest. `ended` means that the text is complete.
pub(in crate::text) fn find(text: &str, markers: &[&str], ended: bool) -> Found {
    for (start, byte) in text.bytes().enumerate() {
        if !markers.iter().any(|marker| marker.as_bytes().first() == Some(&byte)) {
            continue;
        }
        match beginning(&text[start..], markers, ended) {
            Beginning::Undecided => return Found::NoneBefore(start),
            Beginning::Marker(marker) => return Found::Marker { start, marker },
            Beginning::Other => {}
        }
    }
    Found::NoneBefore(text.len())
}

/// A marker that must begin within a certain number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Near {
    Marker {
        start: usize,
        marker: usize,
    },
    /// More text is needed.
    Undecided,
    TooFar,
}

/// The first marker, if it begins within `most` bytes.
pub(super) fn find_near(text: &str, markers: &[&str], most: usize) -> Near {
    let longest = markers.iter().map(|marker| marker.len()).max().unwrap_or(0);
    let enough = (most + longest..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    match find(&text[..enough], markers, false) {
        Found::Marker { start, marker } if start <= most => Near::Marker { start, marker },
        Found::NoneBefore(certain) if certain <= most => Near::Undecided,
        _ => Near::TooFar,
    }
}

/// Whether the text could become a marker if it went on.
fn is_beginning(text: &str, markers: &[&str]) -> bool {
    markers.iter().any(|marker| marker.len() > text.len() && marker.starts_with(text))
}

/// What a text begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    Marker(usize),
    /// More text is needed.
    Undecided,
    Other,
}

/// The marker at the beginning of a text; if several match, the longest.
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

/// How many bytes of white space are at the beginning.
pub(super) fn space(text: &str) -> usize {
    text.len() - text.trim_start().len()
}
