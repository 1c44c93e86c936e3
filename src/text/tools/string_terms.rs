//! A JSON schema's keywords for a text without quotes, as terms of a terminal in llguidance's Lark. The text must match all of them.
//!
//! Sources: https://json-schema.org/draft/2020-12/json-schema-validation (6.3 and 7.3), ECMA-262 for patterns.

use serde_json::{Map, Value};

use super::regex::{ANY, escaped};
use super::schema::{Values, refused};
use super::string_formats;
use crate::error::Result;

/// The terms for a schema's texts; none if it allows any text.
pub(super) fn terms(texts: &Values) -> Result<Vec<String>> {
    let keywords = &texts.keywords;
    let mut terms = Vec::new();
    let (least, most) = (length(keywords, "minLength")?, length(keywords, "maxLength")?);
    if let (Some(least), Some(most)) = (least, most)
        && least > most
    {
        bail!(InvalidRequest, "the schema's minLength, {least}, is greater than its maxLength, {most}");
    }
    let (least, longest) = (least.unwrap_or(0), most.unwrap_or(u32::MAX));
    match texts.choices() {
        Some(choices) => {
            let has_length = |text: &&str| (least as usize..=longest as usize).contains(&text.chars().count());
            let choices: Vec<&str> = choices.iter().filter_map(Value::as_str).filter(has_length).collect();
            if choices.is_empty() {
                bail!(
                    InvalidRequest,
                    "no value of the schema's enum has the length that minLength and maxLength require"
                );
            }
            let choices: Vec<String> = choices.into_iter().map(escaped).collect();
            terms.push(format!("/(?:{})/", choices.join("|")));
        }
        None if least == 0 && most.is_none() => {}
        None => {
            let most = most.map(|most| most.to_string()).unwrap_or_default();
            terms.push(format!("/(?s:.{{{least},{most}}})/"));
        }
    }
    match keywords.get("pattern") {
        None => {}
        Some(Value::String(pattern)) => terms.push(format!("/{}/", searched(pattern)?)),
        Some(_) => return refused("pattern"),
    }
    match keywords.get("format") {
        None => {}
        Some(Value::String(name)) => match string_formats::expression(name) {
            Some(expression) => terms.push(format!("/(?:{})/", expression.replace('/', "\\/"))),
            None => bail!(
                InvalidRequest,
                "the schema keyword \"format\" is {name:?}, wanted one of {}",
                string_formats::NAMES.join(", ")
            ),
        },
        Some(_) => return refused("format"),
    }
    Ok(terms)
}

fn length(keywords: &Map<String, Value>, name: &str) -> Result<Option<u32>> {
    match keywords.get(name) {
        None => Ok(None),
        Some(value) => match value.as_u64().and_then(|length| u32::try_from(length).ok()) {
            Some(length) => Ok(Some(length)),
            None => bail!(InvalidRequest, "the schema keyword {name:?} is {value}, wanted a number of characters"),
        },
    }
}

/// Turns a JSON schema's regular expression, which finds its pattern anywhere, into one that matches a whole text. Anchors must be at the
/// ends of alternatives, because the grammar engine has none.
fn searched(pattern: &str) -> Result<String> {
    let unsupported = |what: &str| -> Result<String> {
        bail!(InvalidRequest, "the schema keyword \"pattern\" has {what}, which grammars do not know: {pattern:?}")
    };
    let mut alternatives = Vec::new();
    let (mut body, mut anchored_start, mut anchored_end) = (String::new(), false, false);
    let (mut depth, mut in_class) = (0usize, false);
    let mut characters = pattern.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            _ if anchored_end && (c != '|' || depth > 0) => return unsupported("an anchor amid the expression"),
            '\\' => match characters.next() {
                None => return unsupported("a backslash at its end"),
                // Digits and words are only ASCII.
                Some('d') => body.push_str("[0-9]"),
                Some('D') => body.push_str("[^0-9]"),
                Some('w') => body.push_str("[0-9A-Za-z_]"),
                Some('W') => body.push_str("[^0-9A-Za-z_]"),
                Some('b') if in_class => body.push_str("\\x08"),
                Some('b' | 'B') => return unsupported("a word boundary"),
                Some('0') if !characters.peek().is_some_and(char::is_ascii_digit) => body.push_str("\\x00"),
                Some('k' | '0'..='9') => return unsupported("a back-reference"),
                Some(escaped) if escaped.is_ascii_alphabetic() && !"fnrtvsSpPxu".contains(escaped) => {
                    return unsupported(&format!("the escape \\{escaped}"));
                }
                // The engine gives these another meaning.
                Some(escaped @ ('<' | '>')) => body.push(escaped),
                Some(escaped) => body.extend(['\\', escaped]),
            },
            ']' if in_class => {
                in_class = false;
                body.push(']');
            }
            // In the engine's classes these could mean more than a character.
            '[' | '&' | '~' if in_class => body.extend(['\\', c]),
            '[' => {
                in_class = true;
                body.push('[');
                if characters.next_if_eq(&'^').is_some() {
                    body.push('^');
                }
                if characters.peek() == Some(&']') {
                    return unsupported("an empty class");
                }
            }
            '/' => body.push_str("\\/"),
            '\n' => body.push_str("\\n"),
            '\r' => body.push_str("\\r"),
            '\t' => body.push_str("\\t"),
            _ if in_class => body.push(c),
            '(' => {
                depth += 1;
                body.push_str("(?:");
                if characters.next_if_eq(&'?').is_some() {
                    match (characters.next(), characters.peek()) {
                        (Some(':'), _) => {}
                        (Some('<'), Some(next)) if !matches!(next, '=' | '!') => {
                            while characters.next().is_some_and(|c| c != '>') {}
                        }
                        _ => return unsupported("a look-around or a flag"),
                    }
                }
            }
            ')' => {
                let Some(outer) = depth.checked_sub(1) else { return unsupported("a closing parenthesis too many") };
                depth = outer;
                body.push(')');
            }
            '^' if depth == 0 && body.is_empty() => anchored_start = true,
            '$' if depth == 0 => anchored_end = true,
            '^' | '$' => return unsupported("an anchor amid the expression"),
            '|' if depth == 0 => {
                alternatives.push(anywhere(&body, anchored_start, anchored_end));
                (body, anchored_start, anchored_end) = (String::new(), false, false);
            }
            '.' => body.push_str("[^\\n\\r\\u{2028}\\u{2029}]"),
            c => body.push(c),
        }
    }
    alternatives.push(anywhere(&body, anchored_start, anchored_end));
    Ok(format!("(?:{})", alternatives.join("|")))
}

fn anywhere(body: &str, anchored_start: bool, anchored_end: bool) -> String {
    let end = |is_anchored: bool| if is_anchored { "" } else { ANY };
    format!("{}{body}{}", end(anchored_start), end(anchored_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_found_anywhere() {
        for (pattern, expression) in [
            ("a", "(?:(?s:.*)a(?s:.*))"),
            ("^a$", "(?:a)"),
            ("^a|b$", "(?:a(?s:.*)|(?s:.*)b)"),
            ("^(a|b)/\\d$", "(?:(?:a|b)\\/[0-9])"),
            ("^[[&\\w-]+$", "(?:[\\[\\&[0-9A-Za-z_]-]+)"),
            ("^(?<name>a.)$", "(?:(?:a[^\\n\\r\\u{2028}\\u{2029}]))"),
            ("^\\^\\$[$^]$", "(?:\\^\\$[$^])"),
        ] {
            assert_eq!(searched(pattern).unwrap(), expression, "{pattern}");
        }
    }

    #[test]
    fn what_a_grammar_does_not_know_is_refused() {
        for (pattern, says) in [
            ("(^a)", "anchor"),
            ("a$b", "anchor"),
            ("a^", "anchor"),
            ("a$?", "anchor"),
            ("(?=a)", "look-around"),
            ("(?<!a)", "look-around"),
            ("(?i)a", "flag"),
            ("(a)\\1", "back-reference"),
            ("\\ba", "word boundary"),
            ("[]a]", "empty class"),
            ("a)", "parenthesis"),
            ("\\cA", "escape"),
            ("a\\", "backslash"),
        ] {
            let error = searched(pattern).unwrap_err();
            assert!(error.message().contains("\"pattern\"") && error.message().contains(says), "{pattern}: {error}");
        }
    }
}
