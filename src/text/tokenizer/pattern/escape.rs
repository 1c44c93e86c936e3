//! Escapes that stand for a character or for several, inside of a class and outside.

use super::properties;
use super::scan::{Parsed, Scanner, refuse};
use super::syntax::{Class, Item, Property, Refusal};

/// What an escape stands for.
pub(super) enum Escape {
    Char(char),
    Class(Item),
    /// Something else, whose letter this is. There is none in a class.
    Other(char),
}

/// What the backslash at a place begins, and where what follows begins.
pub(super) fn parse(scan: &Scanner, at: usize, in_class: bool) -> Parsed<(usize, Escape)> {
    let Ok(letter) = scan.char(at + 1) else { return refuse("a backslash at the end", at) };
    let end = at + 1 + letter.len_utf8();
    let char = |character| Ok((end, Escape::Char(character)));
    let property =
        |name: &str, negated| Ok((end, Escape::Class(Item::Property(Property { name: name.to_owned(), negated }))));
    match letter {
        'd' | 'D' => property("Nd", letter == 'D'),
        's' | 'S' => property("White_Space", letter == 'S'),
        'w' | 'W' => property(Property::WORD, letter == 'W'),
        'h' | 'H' => {
            let mut class = Class::of(vec![Item::Range('0', '9'), Item::Range('A', 'F'), Item::Range('a', 'f')]);
            class.negated = letter == 'H';
            Ok((end, Escape::Class(Item::Class(class))))
        }
        'x' => hex(scan, end, 2),
        'u' => hex(scan, end, 4),
        'U' => hex(scan, end, 8),
        'p' | 'P' if end < scan.text.len() => {
            let (end, property) = properties::parse(scan, end, letter == 'P')?;
            Ok((end, Escape::Class(Item::Property(property))))
        }
        'a' => char('\u{7}'),
        'e' => char('\u{1B}'),
        'f' => char('\u{C}'),
        'n' => char('\n'),
        'r' => char('\r'),
        't' => char('\t'),
        'v' => char('\u{B}'),
        '0'..='9' if in_class => refuse("a back reference in a class", at),
        'b' if in_class => char('\u{8}'),
        // Letters without a meaning in a class, which fancy-regex takes for themselves.
        'k' | 'A' | 'z' | 'B' | 'K' | 'G' if in_class => char(letter),
        letter if in_class && letter.is_ascii_alphabetic() => refuse("an unknown escape", at),
        letter if letter.is_ascii_alphanumeric() || !in_class && "<>".contains(letter) => {
            Ok((end, Escape::Other(letter)))
        }
        letter => char(letter),
    }
}

/// The digits of a character's number, some or in braces.
fn hex(scan: &Scanner, at: usize, n_digits: usize) -> Parsed<(usize, Escape)> {
    let wrong = Refusal { what: "a wrong number of a character", at };
    let at = scan.blanks(at)?;
    let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let (digits, end) = match scan.text.get(at..at + n_digits).filter(is_hex) {
        Some(digits) => (digits, at + n_digits),
        None => {
            let inside = scan.rest(at).strip_prefix('{').and_then(|rest| rest.split_once('}'));
            match inside.filter(|(digits, _)| (1..=8).contains(&digits.len())).map(|(digits, _)| digits) {
                Some(digits) if is_hex(&digits) => (digits, at + digits.len() + 2),
                _ => return Err(wrong),
            }
        }
    };
    let character = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
    character.map(|character| (end, Escape::Char(character))).ok_or(wrong)
}
