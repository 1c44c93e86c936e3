//! Rewrites a template's syntax where minijinja has no interface to add it. Line numbers, whitespace control, comments, raw blocks and
//! string literals stay as they are.
//!
//! Training templates mark the assistant's words with `{% generation %}` … `{% endgeneration %}`. These become `with` blocks: transformers
//! adds the tags to Jinja, and without its tracker they only open a scope.
//!
//! A product `a * b` becomes `a * __one__ * b`, where that is 1: minijinja computes what is constant when it reads a template, without
//! limits, and a variable is no constant.
//!
//! Slices with a step, `x[a:b:c]`, become calls of our own method: minijinja 3.0.5 panics if `[::-1]` reverses an empty list, and its
//! bounds for negative steps differ from Python's.

/// The method that replaces slices with a step: `x.__slice__(start, stop, step)`.
pub(super) const SLICE_METHOD: &str = "__slice__";

/// A variable that is 1.
pub(super) const ONE: &str = "__one__";

/// The template in a form that minijinja can read.
pub(super) fn rewrite(source: &str) -> String {
    let mut rewritten = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    while let Some(at) = rest.find('{') {
        rewritten.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = match rest.as_bytes().get(1) {
            Some(b'%') => tag_end(rest, "%}"),
            Some(b'{') if !raw => tag_end(rest, "}}"),
            Some(b'#') if !raw => rest.find("#}").map_or(rest.len(), |end| end + 2),
            _ => 1,
        };
        let (tag, after) = rest.split_at(end);
        rest = after;
        if let Some((before_word, word, after_word)) = statement_word(tag) {
            match word {
                "raw" => raw = true,
                "endraw" => raw = false,
                _ => {}
            }
            if raw {
                rewritten.push_str(tag);
                continue;
            }
            rewritten.push_str(before_word);
            rewritten.push_str(match word {
                "generation" => "with",
                "endgeneration" => "endwith",
                word => word,
            });
            rewrite_slices(after_word, &mut rewritten);
        } else if !raw && tag.starts_with("{{") {
            rewrite_slices(tag, &mut rewritten);
        } else {
            rewritten.push_str(tag);
        }
    }
    rewritten.push_str(rest);
    rewritten
}

/// Where a tag at the start of `text` ends: after the first `close` that is not inside a string.
fn tag_end(text: &str, close: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if character == '\\' => escaped = true,
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if text[at..].starts_with(close) => return at + close.len(),
            None if matches!(character, '"' | '\'') => quote = Some(character),
            None => {}
        }
    }
    text.len()
}

/// A bracket that is still open, with its places in the rewritten text.
struct OpenBracket {
    start: usize,
    is_square: bool,
    colons: Vec<usize>,
}

/// Appends an expression with its slices rewritten. A bracket with two colons of its own is a slice: lists have no colons, and a dict's
/// colons are in braces.
fn rewrite_slices(expression: &str, rewritten: &mut String) {
    let mut open: Vec<OpenBracket> = Vec::new();
    let mut quote = None;
    let mut escaped = false;
    let mut characters = expression.chars().peekable();
    // The last character that is no space: one of an operand, of a bracket or of an operator.
    let mut last = '(';
    while let Some(character) = characters.next() {
        if let Some(end) = quote {
            rewritten.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if character == end => quote = None,
                _ => {}
            }
            continue;
        }
        match character {
            '"' | '\'' => quote = Some(character),
            '[' | '(' | '{' => {
                open.push(OpenBracket { start: rewritten.len(), is_square: character == '[', colons: Vec::new() });
            }
            // Not `**`, nor the star of `call(*arguments)`.
            '*' if characters.peek() != Some(&'*') && !matches!(last, '*' | '(' | ',') => {
                rewritten.push_str(&format!("*{ONE}"));
            }
            ':' => {
                if let Some(bracket) = open.last_mut() {
                    bracket.colons.push(rewritten.len());
                }
            }
            ']' | ')' | '}' => {
                let closed = open.pop();
                if let Some(OpenBracket { start, is_square: true, colons }) = closed
                    && let [first, second] = colons[..]
                {
                    let or_none = |part: &str| if part.trim().is_empty() { "none".to_owned() } else { part.to_owned() };
                    let bounds = [
                        or_none(&rewritten[start + 1..first]),
                        or_none(&rewritten[first + 1..second]),
                        or_none(&rewritten[second + 1..]),
                    ];
                    rewritten.truncate(start);
                    rewritten.push_str(&format!(".{SLICE_METHOD}({})", bounds.join(", ")));
                    last = ')';
                    continue;
                }
            }
            _ => {}
        }
        rewritten.push(character);
        if !character.is_whitespace() {
            last = character;
        }
    }
}

/// Splits `{%- word … %}` before and after the word.
fn statement_word(tag: &str) -> Option<(&str, &str, &str)> {
    let body = tag.strip_prefix("{%")?;
    let body = body.strip_prefix(['-', '+']).unwrap_or(body).trim_start();
    let start = tag.len() - body.len();
    let len = body.find(|character: char| !character.is_ascii_alphanumeric() && character != '_').unwrap_or(body.len());
    Some((&tag[..start], &tag[start..start + len], &tag[start + len..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_rewritten_with_their_whitespace_control() {
        assert_eq!(rewrite("{%- generation -%}{{ x }}{%+endgeneration\n%}{"), "{%- with -%}{{ x }}{%+endwith\n%}{");
    }

    #[test]
    fn slices_with_a_step_become_calls() {
        for (source, wanted) in [
            ("{{ x[::-1] }}", "{{ x.__slice__(none, none, -1) }}"),
            ("{% for m in a.b[1:n[0]:2] %}", "{% for m in a.b.__slice__(1, n[0], 2) %}"),
            ("{{ x[a[::2][0]::-1][0] }}", "{{ x.__slice__(a.__slice__(none, none, 2)[0], none, -1)[0] }}"),
            ("{%- if y[':':'::':1] -%}", "{%- if y.__slice__(':', '::', 1) -%}"),
        ] {
            assert_eq!(rewrite(source), wanted);
        }
    }

    #[test]
    fn products_have_a_factor_that_is_no_constant() {
        for (source, wanted) in [
            ("{{ 'x' * 9 }}", "{{ 'x' *__one__* 9 }}"),
            ("{% set y = f(2*3)*(4) %}", "{% set y = f(2*__one__*3)*__one__*(4) %}"),
            ("{{ x[1:a*2:3] }}", "{{ x.__slice__(1, a*__one__*2, 3) }}"),
        ] {
            assert_eq!(rewrite(source), wanted);
        }
    }

    #[test]
    fn everything_else_stays() {
        for source in [
            "{# {% generation %} #}",
            "{{ '{% generation %}' }}",
            "{{ \"\\\"{% generation %}\" }}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% set generation = 'a %}' %}{{ generation }}",
            "{% if generation %}é{% endif",
            "{{ {'a': {}} }} {",
            "{{ x[1:] + x[:-1] + x[a:b] + [{'a': 1, 'b': 2}] }}",
            "{{ f(*a, **b) }}{{ f(a, *b) }}{{ 2 ** 3 }}{{ 2**3 }} * {{ '*' }}{# 1 * 2 #}",
            "{{ '[::-1]' }}[::-1]{# x[::-1] #}{% raw %}{{ x[::-1] }}{% endraw %}",
        ] {
            assert_eq!(rewrite(source), source);
        }
    }
}
