//! Reads an expression as fancy-regex does, whose syntax tokenizers are written in: that of Rust's `regex` with look-around, atomic groups
//! and some of Oniguruma's escapes.
//!
//! Whatever fancy-regex would refuse is refused here, and so is what JavaScript has no form for. The steps and their order are those of
//! fancy-regex's `parse.rs`, because odd expressions (`{` alone, flags that outlive their group) get their meaning from it.

use super::class;
use super::escape::{self, Escape};
use super::scan::{Parsed, Scanner, refuse};
use super::syntax::{Assertion, Class, Node, Refusal};

/// Groups inside groups.
const DEEPEST: usize = 64;
/// Repeats more often than any tokenizer's (512), and fewer than an engine can't compile.
const MOST_REPEATS: u32 = 1 << 16;

/// The parts of an expression.
pub(super) fn parse(expression: &str) -> Parsed<Node> {
    let mut parser = Parser {
        scan: Scanner { text: expression, spaced: false },
        any_case: false,
        lines: false,
        dot_takes_breaks: false,
        lazy: false,
        names: Vec::new(),
        n_groups: 0,
        numbered: None,
    };
    let (at, node) = parser.alternatives(0, 0)?;
    if at < expression.len() {
        return refuse("a closing bracket without an opening one", at);
    }
    match parser.numbered {
        Some(at) if !parser.names.is_empty() => refuse("a back reference by number beside named groups", at),
        _ => Ok(node),
    }
}

/// A position and the flags there, which hold until they are changed, as in fancy-regex also beyond the end of a group.
struct Parser<'e> {
    scan: Scanner<'e>,
    any_case: bool,
    lines: bool,
    dot_takes_breaks: bool,
    lazy: bool,
    names: Vec<(&'e str, usize)>,
    n_groups: usize,
    /// Where the first back reference by number stands.
    numbered: Option<usize>,
}

impl<'e> Parser<'e> {
    fn alternatives(&mut self, at: usize, depth: usize) -> Parsed<(usize, Node)> {
        let (at, first) = self.sequence(at, depth)?;
        let mut at = self.scan.blanks(at)?;
        if self.scan.byte(at) != Some(b'|') {
            return Ok((at, first));
        }
        let mut nodes = vec![first];
        while self.scan.byte(at) == Some(b'|') {
            let (next, node) = self.sequence(at + 1, depth)?;
            nodes.push(node);
            at = self.scan.blanks(next)?;
        }
        Ok((at, Node::Either(nodes)))
    }

    fn sequence(&mut self, mut at: usize, depth: usize) -> Parsed<(usize, Node)> {
        let mut nodes = Vec::new();
        while at < self.scan.text.len() {
            let (next, node) = self.piece(at, depth)?;
            if next == at {
                break;
            }
            if !matches!(node, Node::Empty) {
                nodes.push(node);
            }
            at = next;
        }
        let node = if nodes.len() < 2 { nodes.pop().unwrap_or(Node::Empty) } else { Node::Sequence(nodes) };
        Ok((at, node))
    }

    /// An atom and how often it is repeated.
    fn piece(&mut self, at: usize, depth: usize) -> Parsed<(usize, Node)> {
        let (at, node) = self.atom(at, depth)?;
        let at = self.scan.blanks(at)?;
        let (next, least, most) = match self.scan.byte(at) {
            Some(b'?') => (at + 1, 0, Some(1)),
            Some(b'*') => (at + 1, 0, None),
            Some(b'+') => (at + 1, 1, None),
            Some(b'{') => match self.count(at)? {
                Some(count) => count,
                // It stands for itself.
                None => return Ok((at, node)),
            },
            _ => return Ok((at, node)),
        };
        if matches!(node, Node::Empty | Node::Around { .. })
            || matches!(node, Node::Assertion(Assertion::TextEndBeforeBreaks))
        {
            return refuse("a repeat of nothing", at);
        }
        if most.is_some_and(|most| most < least) || least.max(most.unwrap_or(0)) > MOST_REPEATS {
            return refuse("a repeat with a wrong count", at);
        }
        let mut at = self.scan.blanks(next)?;
        let mut greedy = true;
        if self.scan.byte(at) == Some(b'?') {
            greedy = false;
            at += 1;
        }
        let node = Node::Repeat { inner: Box::new(node), least, most, greedy: greedy != self.lazy };
        if self.scan.byte(at) == Some(b'+') {
            return Ok((at + 1, Node::Atomic(Box::new(node))));
        }
        Ok((at, node))
    }

    /// `{2}`, `{2,}`, `{,3}` or `{2,3}`: where it ends, and the least and most. `None` for anything else.
    fn count(&self, at: usize) -> Parsed<Option<(usize, u32, Option<u32>)>> {
        let number = |at: usize| {
            let digits = self.scan.rest(at).bytes().take_while(u8::is_ascii_digit).count();
            let number = self.scan.rest(at)[..digits].parse::<u64>().ok()?;
            Some((at + digits, u32::try_from(number).unwrap_or(u32::MAX)))
        };
        let at = self.scan.blanks(at + 1)?;
        let (at, least) = match number(at) {
            Some(found) => found,
            None if self.scan.byte(at) == Some(b',') => (at, 0),
            None => return Ok(None),
        };
        let at = self.scan.blanks(at)?;
        let (at, most) = match self.scan.byte(at) {
            Some(b'}') => (at, Some(least)),
            Some(b',') => {
                let at = self.scan.blanks(at + 1)?;
                number(at).map_or((at, None), |(at, most)| (at, Some(most)))
            }
            _ => return Ok(None),
        };
        let at = self.scan.blanks(at)?;
        Ok((self.scan.byte(at) == Some(b'}')).then_some((at + 1, least, most)))
    }

    fn atom(&mut self, at: usize, depth: usize) -> Parsed<(usize, Node)> {
        let at = self.scan.blanks(at)?;
        let assertion = |multi: bool, line, text| Node::Assertion(if multi { line } else { text });
        match self.scan.byte(at) {
            None | Some(b'+' | b'*' | b'?' | b'|' | b')') => Ok((at, Node::Empty)),
            Some(b'.') if self.dot_takes_breaks => Ok((at + 1, Node::Any)),
            Some(b'.') => Ok((at + 1, Node::Class { class: Class::all_but('\n'), any_case: self.any_case })),
            Some(b'^') => Ok((at + 1, assertion(self.lines, Assertion::LineStart, Assertion::TextStart))),
            Some(b'$') => Ok((at + 1, assertion(self.lines, Assertion::LineEnd, Assertion::TextEnd))),
            Some(b'(') => self.group(at, depth),
            Some(b'[') => {
                let (at, class) = class::parse(&self.scan, at)?;
                Ok((at, Node::Class { class, any_case: self.any_case }))
            }
            Some(b'\\') => {
                let any_case = self.any_case;
                let (end, escape) = escape::parse(&self.scan, at, false)?;
                let node = match escape {
                    Escape::Char(value) => Node::Char { value, any_case },
                    Escape::Class(item) => Node::Class { class: Class::of(vec![item]), any_case },
                    Escape::Other(letter) => return self.escape(at, letter),
                };
                Ok((end, node))
            }
            Some(_) => {
                let value = self.scan.char(at)?;
                Ok((at + value.len_utf8(), Node::Char { value, any_case: self.any_case }))
            }
        }
    }

    /// An escape that stands for no character and no class.
    fn escape(&mut self, at: usize, letter: char) -> Parsed<(usize, Node)> {
        let end = at + 1 + letter.len_utf8();
        let assertion = |assertion| Ok((end, Node::Assertion(assertion)));
        match letter {
            '0'..='9' => {
                let digits = self.scan.rest(at + 1).bytes().take_while(u8::is_ascii_digit).count();
                self.numbered.get_or_insert(at);
                let group = self.scan.rest(at + 1)[..digits].parse().unwrap_or(usize::MAX);
                Ok((at + 1 + digits, self.back(group, at)?))
            }
            'k' => {
                let close = match self.scan.byte(end) {
                    Some(b'\'') => '\'',
                    Some(b'<') => '>',
                    _ => return refuse("a back reference without a name", at),
                };
                self.named(end + 1, close, at)
            }
            'b' | 'B' => self.word_edge(at, end, letter == 'B'),
            'A' => assertion(Assertion::TextStart),
            'z' => assertion(Assertion::TextEnd),
            'Z' => assertion(Assertion::TextEndBeforeBreaks),
            '<' => assertion(Assertion::WordStart),
            '>' => assertion(Assertion::WordEnd),
            'O' => Ok((end, Node::Any)),
            'K' => refuse("\\K", at),
            'G' => refuse("\\G", at),
            'g' => refuse("a call of a group", at),
            _ => refuse("an unknown escape", at),
        }
    }

    /// `\b`, `\B`, `\b{start}` and the like.
    fn word_edge(&self, at: usize, end: usize, negated: bool) -> Parsed<(usize, Node)> {
        let found = |end, assertion| Ok((end, Node::Assertion(assertion)));
        let brace = self.scan.blanks(end)?;
        if self.scan.byte(brace) == Some(b'{') {
            let inside = self.scan.blanks(brace + 1)?;
            if !matches!(self.scan.byte(inside), Some(b'0'..=b'9' | b',')) {
                for (name, assertion) in [
                    ("{start}", Assertion::WordStart),
                    ("{end}", Assertion::WordEnd),
                    ("{start-half}", Assertion::NoWordBefore),
                    ("{end-half}", Assertion::NoWordAfter),
                ] {
                    if !negated && self.scan.rest(brace).starts_with(name) {
                        return found(brace + name.len(), assertion);
                    }
                }
                return refuse("an unknown escape", at);
            }
        }
        found(end, if negated { Assertion::NoWordEdge } else { Assertion::WordEdge })
    }

    fn back(&self, group: usize, at: usize) -> Parsed<Node> {
        match group {
            1.. if group <= self.n_groups && !self.any_case => Ok(Node::Back(group)),
            _ => refuse("a back reference in any case, or to no group before it", at),
        }
    }

    /// A back reference by name, whose name begins at `at`.
    fn named(&mut self, at: usize, close: char, from: usize) -> Parsed<(usize, Node)> {
        let Some((name, end)) = self.name(at, close) else { return refuse("a back reference without a name", from) };
        let group = self.names.iter().rev().find(|(known, _)| *known == name).map(|(_, group)| *group);
        let group = group.or_else(|| name.parse().ok()).unwrap_or(usize::MAX);
        Ok((end, self.back(group, from)?))
    }

    /// A name up to its closing character: the name, and where what follows begins.
    fn name(&self, at: usize, close: char) -> Option<(&'e str, usize)> {
        let (name, _) = self.scan.rest(at).split_once(close)?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        is_name.then_some((name, at + name.len() + close.len_utf8()))
    }

    fn group(&mut self, from: usize, depth: usize) -> Parsed<(usize, Node)> {
        let depth = depth + 1;
        if depth >= DEEPEST {
            return refuse("too many groups in one another", from);
        }
        let at = self.scan.blanks(from + 1)?;
        let rest = self.scan.rest(at);
        for (mark, ahead, negated) in
            [("?=", true, false), ("?!", true, true), ("?<=", false, false), ("?<!", false, true)]
        {
            if rest.starts_with(mark) {
                let (at, inner) = self.inside(at + mark.len(), depth, from)?;
                return Ok((at, Node::Around { inner: Box::new(inner), ahead, negated }));
            }
        }
        if rest.starts_with("?>") {
            let (at, inner) = self.inside(at + 2, depth, from)?;
            return Ok((at, Node::Atomic(Box::new(inner))));
        }
        if rest.starts_with("?P=") {
            return self.named(at + 3, ')', from);
        }
        for (mark, close) in [("?<", '>'), ("?P<", '>'), ("?'", '\'')] {
            if rest.starts_with(mark) {
                let Some((name, at)) = self.name(at + mark.len(), close) else {
                    return refuse("a group with a wrong name", from);
                };
                self.names.push((name, self.n_groups + 1));
                return self.captured(at, depth, from);
            }
        }
        if rest.starts_with("?(") {
            return refuse("a conditional group", from);
        }
        if rest.starts_with("?P>") {
            return refuse("a call of a group", from);
        }
        match rest.strip_prefix('?') {
            Some(_) => self.flags(at + 1, depth, from),
            None => self.captured(at, depth, from),
        }
    }

    fn captured(&mut self, at: usize, depth: usize, from: usize) -> Parsed<(usize, Node)> {
        self.n_groups += 1;
        let number = self.n_groups;
        let (at, inner) = self.inside(at, depth, from)?;
        Ok((at, Node::Group(number, Box::new(inner))))
    }

    /// The alternatives of a group, and its end.
    fn inside(&mut self, at: usize, depth: usize, from: usize) -> Parsed<(usize, Node)> {
        let (at, node) = self.alternatives(at, depth)?;
        let at = self.scan.blanks(at)?;
        match self.scan.byte(at) {
            Some(b')') => Ok((at + 1, node)),
            _ => refuse("a group without an end", from),
        }
    }

    /// `(?i)` and `(?i:…)`, from after the question mark.
    fn flags(&mut self, mut at: usize, depth: usize, from: usize) -> Parsed<(usize, Node)> {
        let unknown = Refusal { what: "an unknown kind of group", at: from };
        let before = (self.any_case, self.lines, self.dot_takes_breaks, self.lazy, self.scan.spaced);
        let (mut n_flags, mut on) = (0, true);
        loop {
            at = self.scan.blanks(at)?;
            match self.scan.byte(at) {
                Some(b'i') => self.any_case = on,
                Some(b'm') => self.lines = on,
                Some(b's') => self.dot_takes_breaks = on,
                Some(b'U') => self.lazy = on,
                Some(b'x') => self.scan.spaced = on,
                Some(b'u') if on => {}
                Some(b'-') if on => {
                    on = false;
                    at += 1;
                    continue;
                }
                Some(b')') if n_flags > 0 => return Ok((at + 1, Node::Empty)),
                Some(b':') if on || n_flags > 0 => {
                    let (end, node) = self.inside(at + 1, depth, from)?;
                    (self.any_case, self.lines, self.dot_takes_breaks, self.lazy, self.scan.spaced) = before;
                    return Ok((end, node));
                }
                _ => return Err(unknown),
            }
            n_flags += 1;
            at += 1;
        }
    }
}
