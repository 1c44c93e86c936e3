//! Regular expressions for terminals of llguidance's Lark, which are written in slashes.

/// Any text.
pub(super) const ANY: &str = "(?s:.*)";

/// A term for texts that don't contain a part.
pub(super) fn without(part: &str) -> String {
    format!("~/{ANY}{}{ANY}/", escaped(part))
}

/// An expression that matches a text literally.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            c if r"\.+*?()|[]{}^$/".contains(c) => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}
