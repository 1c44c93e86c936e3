//! Classes of characters in brackets: `[a-z]`, `[^\s\p{L}]`, `[\p{L}&&[^\p{Han}]]`, `[[:alpha:]]`.
//!
//! As in fancy-regex, two readers one after the other: the first finds the end and resolves escapes, the second is that of the crate
//! `regex-syntax`, for which only some escaped characters differ from bare ones.

use super::escape::{self, Escape};
use super::scan::{Parsed, Scanner, refuse};
use super::syntax::{Class, Item, Operation, Property, Set};

enum Token {
    /// A character with whatever meaning it has in a class.
    Bare(char),
    /// A character that was escaped, and means itself.
    Escaped(char),
    Property(Property),
}

/// Characters whose escaped form is another thing than the bare one.
const META: &str = r"\.+*?()|[]{}^$#&-~";

/// The class whose opening bracket is at a position, and where what follows begins.
pub(super) fn parse(scan: &Scanner, from: usize) -> Parsed<(usize, Class)> {
    let mut at = from + 1;
    let mut tokens = vec![Token::Bare('[')];
    let mut depth = 1;
    for first in ['^', ']'] {
        // Here a closing bracket means itself.
        if scan.byte(at) == Some(first as u8) {
            tokens.push(Token::Bare(first));
            at += 1;
        }
    }
    while depth > 0 {
        if scan.byte(at).is_none() {
            return refuse("a class without an end", from);
        }
        match scan.char(at)? {
            '\\' => {
                let (end, escape) = escape::parse(scan, at, true)?;
                match escape {
                    Escape::Char(value) if META.contains(value) => tokens.push(Token::Escaped(value)),
                    Escape::Char(value) => tokens.push(Token::Bare(value)),
                    Escape::Class(item) => push(&item, &mut tokens),
                    Escape::Other(_) => return refuse("an unknown escape", at),
                }
                at = end;
            }
            character => {
                match character {
                    '[' => depth += 1,
                    ']' => depth -= 1,
                    _ => {}
                }
                tokens.push(Token::Bare(character));
                at += character.len_utf8();
            }
        }
    }
    let mut reader = Reader { tokens: &tokens, at: 0, from };
    let class = reader.class(0)?;
    // Brackets were counted above without the second reader's exceptions.
    if reader.at < tokens.len() { refuse("a class without an end", from) } else { Ok((at, class)) }
}

/// A part of a class as it would be written there.
fn push(item: &Item, tokens: &mut Vec<Token>) {
    match item {
        Item::Range(first, last) => tokens.extend([*first, '-', *last].map(Token::Bare)),
        Item::Property(property) => tokens.push(Token::Property(property.clone())),
        Item::Class(Class { negated, set }) => {
            tokens.push(Token::Bare('['));
            if *negated {
                tokens.push(Token::Bare('^'));
            }
            if let Set::Union(items) = set {
                items.iter().for_each(|item| push(item, tokens));
            }
            tokens.push(Token::Bare(']'));
        }
    }
}

/// Classes inside classes.
const DEEPEST: usize = 64;

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
    /// Where the class begins in the expression.
    from: usize,
}

impl Reader<'_> {
    fn bare(&self, ahead: usize) -> Option<char> {
        match self.tokens.get(self.at + ahead) {
            Some(Token::Bare(character)) => Some(*character),
            _ => None,
        }
    }

    fn refuse<T>(&self, what: &'static str) -> Parsed<T> {
        refuse(what, self.from)
    }

    /// The class whose opening bracket is next.
    fn class(&mut self, depth: usize) -> Parsed<Class> {
        if depth > DEEPEST {
            return self.refuse("too many classes in one another");
        }
        self.at += 1;
        let negated = self.bare(0) == Some('^');
        self.at += usize::from(negated);
        let mut items = Vec::new();
        while self.bare(0) == Some('-') {
            items.push(Item::Range('-', '-'));
            self.at += 1;
        }
        if items.is_empty() && self.bare(0) == Some(']') {
            items.push(Item::Range(']', ']'));
            self.at += 1;
        }
        // The operations have no precedence among them: from left to right.
        let mut left: Option<(Set, Operation)> = None;
        let close = |left: &mut Option<(Set, Operation)>, items: &mut Vec<Item>| {
            let right = Set::Union(std::mem::take(items));
            match left.take() {
                None => right,
                Some((set, operation)) => Set::Operation(operation, Box::new(set), Box::new(right)),
            }
        };
        loop {
            let operation = match (self.bare(0), self.bare(1)) {
                (Some('&'), Some('&')) => Some(Operation::Intersection),
                (Some('-'), Some('-')) => Some(Operation::Difference),
                (Some('~'), Some('~')) => Some(Operation::SymmetricDifference),
                _ => None,
            };
            match (operation, self.bare(0)) {
                (Some(operation), _) => {
                    self.at += 2;
                    left = Some((close(&mut left, &mut items), operation));
                }
                (None, Some('[')) => match self.posix() {
                    Some(item) => items.push(item),
                    None => items.push(Item::Class(self.class(depth + 1)?)),
                },
                (None, Some(']')) => {
                    self.at += 1;
                    return Ok(Class { negated, set: close(&mut left, &mut items) });
                }
                _ => items.push(self.range()?),
            }
        }
    }

    /// One character or property, or a range of characters.
    fn range(&mut self) -> Parsed<Item> {
        let first = self.primitive()?;
        let is_range = self.bare(0) == Some('-') && !matches!(self.bare(1), Some(']' | '-'));
        match (first, is_range) {
            (Ok(first), true) => {
                self.at += 1;
                match self.primitive()? {
                    Ok(last) if first <= last => Ok(Item::Range(first, last)),
                    _ => self.refuse("a range that ends before it begins, or with no character"),
                }
            }
            (Ok(character), false) => Ok(Item::Range(character, character)),
            (Err(property), false) => Ok(Item::Property(property)),
            (Err(_), true) => self.refuse("a range that begins with no character"),
        }
    }

    fn primitive(&mut self) -> Parsed<Result<char, Property>> {
        let found = match self.tokens.get(self.at) {
            Some(Token::Bare(character) | Token::Escaped(character)) => Ok(*character),
            Some(Token::Property(property)) => Err(property.clone()),
            None => return self.refuse("a class without an end"),
        };
        self.at += 1;
        Ok(found)
    }

    /// `[:alpha:]` and the like, whose letters are ASCII; anything else in brackets is an ordinary class.
    fn posix(&mut self) -> Option<Item> {
        let negated = self.bare(2) == Some('^');
        let start = 2 + usize::from(negated);
        if self.bare(1) != Some(':') {
            return None;
        }
        let name: String = (start..).map_while(|ahead| self.bare(ahead).filter(|c| *c != ':')).collect();
        let end = start + name.len();
        if self.bare(end) != Some(':') || self.bare(end + 1) != Some(']') {
            return None;
        }
        let ranges: &[(char, char)] = match name.as_str() {
            "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
            "alpha" => &[('A', 'Z'), ('a', 'z')],
            "ascii" => &[('\0', '\x7F')],
            "blank" => &[('\t', '\t'), (' ', ' ')],
            "cntrl" => &[('\0', '\x1F'), ('\x7F', '\x7F')],
            "digit" => &[('0', '9')],
            "graph" => &[('!', '~')],
            "lower" => &[('a', 'z')],
            "print" => &[(' ', '~')],
            "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
            "space" => &[('\t', '\r'), (' ', ' ')],
            "upper" => &[('A', 'Z')],
            "word" => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
            "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
            _ => return None,
        };
        self.at += end + 2;
        let items = ranges.iter().map(|&(first, last)| Item::Range(first, last)).collect();
        Some(Item::Class(Class { negated, set: Set::Union(items) }))
    }
}
