//! Writes an expression for JavaScript's `RegExp` with the flag `v`.
//!
//! What a class escape means differs in JavaScript, so each is written as Unicode properties. Possessive and atomic groups become a
//! look-ahead and a reference back to what it found. Groups in any case become classes of both cases, because flags inside of an expression
//! are newer than WebGPU.

use super::syntax::{Assertion, Class, Item, Node, Operation, Property, Set};

/// The characters of words, as Rust's `\w` has them.
const WORD: &str = r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]";

/// Properties whose members have their other case among them.
pub(super) const SAME_IN_ANY_CASE: &[&str] = &[
    "Any",
    "ASCII_Hex_Digit",
    "N",
    "Nd",
    "P",
    "Pc",
    "Pd",
    "Pe",
    "Pf",
    "Pi",
    "Po",
    "Ps",
    "S",
    "White_Space",
    "Z",
    "Zs",
];

/// An expression for `RegExp`, and whether it takes every letter in any case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JavaScript {
    pub source: String,
    pub any_case: bool,
}

/// Writes an expression; an error names what has no form in JavaScript.
pub(super) fn write(node: &Node) -> Result<JavaScript, &'static str> {
    let any_case = has_case(node, true) && !has_case(node, false);
    let mut writer = Writer {
        source: String::new(),
        fold: !any_case,
        n_atomic: 0,
        wanted: Vec::new(),
        matched: Vec::new(),
        behind: false,
    };
    back_references(node, &mut writer.wanted);
    if may_be_empty(node) {
        // V8 finds nothing also in the middle of a surrogate pair. There is no character before, and no beginning either.
        writer.source.push_str(r"(?:^|(?<=\p{Any}))");
        writer.bracketed("(?:", node)?;
    } else {
        writer.write(node)?;
    }
    Ok(JavaScript { source: writer.source, any_case })
}

/// Whether something in an expression depends on case and is, or is not, to be taken in any.
fn has_case(node: &Node, any: bool) -> bool {
    match node {
        Node::Char { value, any_case } => *any_case == any && is_cased(*value),
        Node::Class { class, any_case } => *any_case == any && set_has_case(&class.set),
        Node::Sequence(nodes) | Node::Either(nodes) => nodes.iter().any(|node| has_case(node, any)),
        Node::Group(_, inner) | Node::Atomic(inner) => has_case(inner, any),
        Node::Around { inner, .. } | Node::Repeat { inner, .. } => has_case(inner, any),
        Node::Empty | Node::Any | Node::Assertion(_) | Node::Back(_) => false,
    }
}

fn set_has_case(set: &Set) -> bool {
    match set {
        Set::Operation(_, left, right) => set_has_case(left) || set_has_case(right),
        Set::Union(items) => items.iter().any(|item| match item {
            Item::Range(first, last) => (*first..=*last).any(is_cased),
            Item::Property(property) => !is_same_in_any_case(property),
            Item::Class(class) => set_has_case(&class.set),
        }),
    }
}

fn is_same_in_any_case(property: &Property) -> bool {
    property.name == Property::WORD || SAME_IN_ANY_CASE.contains(&property.name.as_str())
}

/// Whether a character has another case, in one or in several characters.
fn is_cased(character: char) -> bool {
    !character.to_lowercase().eq([character]) || !character.to_uppercase().eq([character])
}

/// Whether a node can match no characters.
fn may_be_empty(node: &Node) -> bool {
    match node {
        Node::Char { .. } | Node::Class { .. } | Node::Any => false,
        Node::Empty | Node::Assertion(_) | Node::Around { .. } | Node::Back(_) => true,
        Node::Sequence(nodes) => nodes.iter().all(may_be_empty),
        Node::Either(nodes) => nodes.iter().any(may_be_empty),
        Node::Group(_, inner) | Node::Atomic(inner) => may_be_empty(inner),
        Node::Repeat { inner, least, .. } => *least == 0 || may_be_empty(inner),
    }
}

/// Whether a node may take no characters although it could take some.
fn may_prefer_nothing(node: &Node) -> bool {
    match node {
        Node::Either(nodes) => {
            let earlier = nodes.split_last().map_or(&[][..], |(_, earlier)| earlier);
            earlier.iter().any(may_be_empty) || nodes.iter().any(may_prefer_nothing)
        }
        Node::Sequence(nodes) => nodes.iter().any(may_prefer_nothing),
        Node::Group(_, inner) | Node::Atomic(inner) => may_prefer_nothing(inner),
        Node::Repeat { inner, greedy, .. } => (!greedy && may_be_empty(node)) || may_prefer_nothing(inner),
        _ => false,
    }
}

/// How many characters a node matches, if that is always the same.
fn length(node: &Node) -> Option<usize> {
    match node {
        Node::Char { .. } | Node::Class { .. } | Node::Any => Some(1),
        Node::Empty | Node::Assertion(_) | Node::Around { .. } => Some(0),
        Node::Back(_) => None,
        Node::Sequence(nodes) => nodes.iter().map(length).sum(),
        Node::Either(nodes) => {
            let first = length(nodes.first()?)?;
            nodes.iter().all(|node| length(node) == Some(first)).then_some(first)
        }
        Node::Group(_, inner) | Node::Atomic(inner) => length(inner),
        Node::Repeat { inner, least, most, .. } => {
            (*most == Some(*least)).then_some(()).and(length(inner)).map(|length| length * *least as usize)
        }
    }
}

/// Whether a node has something in it that looks around.
fn looks_around(node: &Node) -> bool {
    match node {
        Node::Around { .. } | Node::Assertion(_) | Node::Atomic(_) | Node::Back(_) => true,
        Node::Sequence(nodes) | Node::Either(nodes) => nodes.iter().any(looks_around),
        Node::Group(_, inner) | Node::Repeat { inner, .. } => looks_around(inner),
        Node::Empty | Node::Any | Node::Char { .. } | Node::Class { .. } => false,
    }
}

/// The groups that an expression refers back to.
fn back_references(node: &Node, groups: &mut Vec<usize>) {
    match node {
        Node::Back(group) => groups.push(*group),
        Node::Sequence(nodes) | Node::Either(nodes) => nodes.iter().for_each(|node| back_references(node, groups)),
        Node::Group(_, inner) | Node::Atomic(inner) => back_references(inner, groups),
        Node::Around { inner, .. } | Node::Repeat { inner, .. } => back_references(inner, groups),
        Node::Empty | Node::Any | Node::Char { .. } | Node::Class { .. } | Node::Assertion(_) => {}
    }
}

struct Writer {
    source: String,
    /// Whether what is in any case gets its other letters here.
    fold: bool,
    n_atomic: usize,
    /// Groups that the expression refers back to; the others need no number.
    wanted: Vec<usize>,
    /// Groups that have matched wherever the writer is.
    matched: Vec<usize>,
    /// Inside of a look-behind, which JavaScript matches from its end.
    behind: bool,
}

impl Writer {
    fn write(&mut self, node: &Node) -> Result<(), &'static str> {
        match node {
            Node::Empty => {}
            Node::Any => self.source.push_str(r"\p{Any}"),
            Node::Char { value, any_case } => {
                if *any_case && self.fold && is_cased(*value) {
                    self.class(&Class::of(vec![Item::Range(*value, *value)]), true)?;
                } else {
                    push(&mut self.source, *value);
                }
            }
            Node::Class { class, any_case } => self.class(class, *any_case && self.fold)?,
            Node::Assertion(assertion) => self.assertion(*assertion),
            Node::Sequence(nodes) => {
                for node in nodes {
                    // Either alone holds all that is around it.
                    let bare = !matches!(node, Node::Either(_));
                    self.bracketed(if bare { "" } else { "(?:" }, node)?;
                }
            }
            Node::Either(nodes) => {
                let matched = self.matched.clone();
                for (n, node) in nodes.iter().enumerate() {
                    if n > 0 {
                        self.source.push('|');
                    }
                    self.write(node)?;
                    self.matched.clone_from(&matched);
                }
            }
            Node::Group(number, inner) => {
                let open = if self.wanted.contains(number) { format!("(?<g{number}>") } else { "(?:".to_owned() };
                self.bracketed(&open, inner)?;
                self.matched.push(*number);
            }
            Node::Around { inner, ahead, negated } => {
                if !ahead && length(inner).is_none() && looks_around(inner) {
                    // fancy-regex has no engine for it.
                    return Err("an assertion in a look-behind of several lengths");
                }
                let (matched, behind) = (self.matched.clone(), self.behind);
                self.behind = behind || !ahead;
                self.bracketed(
                    match (ahead, negated) {
                        (true, false) => "(?=",
                        (true, true) => "(?!",
                        (false, false) => "(?<=",
                        (false, true) => "(?<!",
                    },
                    inner,
                )?;
                (self.matched, self.behind) = (matched, behind);
            }
            Node::Repeat { inner, least, most, greedy } => {
                if *most != Some(*least) && may_be_empty(inner) && may_prefer_nothing(inner) {
                    // JavaScript would go on where Rust ends.
                    return Err("a repeat of what prefers to match nothing");
                }
                let matched = self.matched.clone();
                let single = matches!(**inner, Node::Char { .. } | Node::Class { .. } | Node::Any | Node::Group(..));
                self.bracketed(if single { "" } else { "(?:" }, inner)?;
                self.matched = matched;
                let count = match (least, most) {
                    (0, None) => "*".to_owned(),
                    (1, None) => "+".to_owned(),
                    (0, Some(1)) => "?".to_owned(),
                    (least, None) => format!("{{{least},}}"),
                    (least, Some(most)) => format!("{{{least},{most}}}"),
                };
                self.source.push_str(&count);
                if !greedy {
                    self.source.push('?');
                }
            }
            Node::Atomic(inner) => {
                if self.behind {
                    return Err("an atomic group in a look-behind");
                }
                self.n_atomic += 1;
                let name = format!("a{}", self.n_atomic);
                self.bracketed(&format!("(?:(?=(?<{name}>"), inner)?;
                self.source.push_str(&format!(")\\k<{name}>)"));
            }
            Node::Back(group) => {
                // Where its group did not match, JavaScript takes nothing and Rust fails.
                if self.behind || !self.matched.contains(group) {
                    return Err("a back reference to a group that may not have matched");
                }
                self.source.push_str(&format!("\\k<g{group}>"));
            }
        }
        Ok(())
    }

    /// A node after an opening bracket, if there is one, and its closing one.
    fn bracketed(&mut self, open: &str, node: &Node) -> Result<(), &'static str> {
        self.source.push_str(open);
        self.write(node)?;
        if !open.is_empty() {
            self.source.push(')');
        }
        Ok(())
    }

    fn assertion(&mut self, assertion: Assertion) {
        let w = WORD;
        let written = match assertion {
            Assertion::TextStart => "^".to_owned(),
            Assertion::TextEnd => "$".to_owned(),
            Assertion::TextEndBeforeBreaks => r"(?=\n*$)".to_owned(),
            Assertion::LineStart => r"(?<![^\n])".to_owned(),
            Assertion::LineEnd => r"(?![^\n])".to_owned(),
            Assertion::WordEdge => format!("(?:(?<={w})(?!{w})|(?<!{w})(?={w}))"),
            Assertion::NoWordEdge => format!("(?:(?<={w})(?={w})|(?<!{w})(?!{w}))"),
            Assertion::WordStart => format!("(?<!{w})(?={w})"),
            Assertion::WordEnd => format!("(?<={w})(?!{w})"),
            Assertion::NoWordBefore => format!("(?<!{w})"),
            Assertion::NoWordAfter => format!("(?!{w})"),
        };
        self.source.push_str(&written);
    }

    /// A class, and with `fold` also the other cases of what is in it.
    fn class(&mut self, class: &Class, fold: bool) -> Result<(), &'static str> {
        // A property alone needs no brackets.
        if let (false, Set::Union(items)) = (class.negated, &class.set)
            && let ([Item::Property(property)], false) = (&items[..], fold)
        {
            self.property(property);
            return Ok(());
        }
        self.source.push_str(if class.negated { "[^" } else { "[" });
        self.set(&class.set, fold)?;
        self.source.push(']');
        Ok(())
    }

    fn set(&mut self, set: &Set, fold: bool) -> Result<(), &'static str> {
        match set {
            Set::Union(items) => items.iter().try_for_each(|item| self.item(item, fold)),
            Set::Operation(Operation::SymmetricDifference, left, right) => {
                self.operation(left, "--", right, fold)?;
                self.operation(right, "--", left, fold)
            }
            Set::Operation(Operation::Intersection, left, right) => self.operation(left, "&&", right, fold),
            Set::Operation(Operation::Difference, left, right) => self.operation(left, "--", right, fold),
        }
    }

    /// A class of its own, since JavaScript has no union beside an operation.
    fn operation(&mut self, left: &Set, sign: &str, right: &Set, fold: bool) -> Result<(), &'static str> {
        self.source.push_str("[[");
        self.set(left, fold)?;
        self.source.push(']');
        self.source.push_str(sign);
        self.source.push('[');
        self.set(right, fold)?;
        self.source.push_str("]]");
        Ok(())
    }

    fn item(&mut self, item: &Item, fold: bool) -> Result<(), &'static str> {
        match item {
            Item::Class(class) => self.class(class, fold),
            Item::Property(property) => {
                self.property(property);
                if fold && property.name == "L" && !property.negated {
                    // The one mark that is a case of a letter: the iota below.
                    self.source.push_str(r"\u{345}");
                } else if fold && !is_same_in_any_case(property) {
                    return Err("a property of letters in any case");
                }
                Ok(())
            }
            Item::Range(first, last) => {
                self.range(*first, *last);
                if fold {
                    if (*first.max(&'\u{80}')..=*last).any(is_cased) {
                        return Err("a letter outside of ASCII in any case");
                    }
                    self.other_cases(*first, *last);
                }
                Ok(())
            }
        }
    }

    /// The other cases of the ASCII letters in a range. `k` and `s` have one more outside of ASCII.
    fn other_cases(&mut self, first: char, last: char) {
        for (from, to) in [('a', 'z'), ('A', 'Z')] {
            let (from, to) = (from.max(first), to.min(last));
            if from > to {
                continue;
            }
            let other = |letter: char| char::from(letter as u8 ^ 0x20);
            self.range(other(from), other(to));
            for (letter, more) in [('k', '\u{212A}'), ('s', '\u{17F}')] {
                if [letter, other(letter)].iter().any(|letter| (from..=to).contains(letter)) {
                    push(&mut self.source, more);
                }
            }
        }
    }

    fn range(&mut self, first: char, last: char) {
        push(&mut self.source, first);
        if first < last {
            self.source.push('-');
            push(&mut self.source, last);
        }
    }

    fn property(&mut self, property: &Property) {
        if property.name == Property::WORD {
            self.source.push_str(if property.negated { "[^" } else { "" });
            self.source.push_str(WORD);
            self.source.push_str(if property.negated { "]" } else { "" });
        } else {
            self.source.push_str(if property.negated { "\\P{" } else { "\\p{" });
            self.source.push_str(&property.name);
            self.source.push('}');
        }
    }
}

/// A character that stands for itself, in a class too.
fn push(source: &mut String, character: char) {
    match character {
        ' ' | '0'..='9' | 'A'..='Z' | 'a'..='z' => source.push(character),
        '\n' => source.push_str(r"\n"),
        '\r' => source.push_str(r"\r"),
        _ => source.push_str(&format!("\\u{{{:X}}}", character as u32)),
    }
}
