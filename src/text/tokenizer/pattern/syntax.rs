//! The parts of an expression, after parsing.

/// What an expression is made of.
#[derive(Debug)]
pub(super) enum Node {
    Empty,
    /// Any character, line breaks included.
    Any,
    Char {
        value: char,
        any_case: bool,
    },
    Class {
        class: Class,
        any_case: bool,
    },
    Assertion(Assertion),
    Sequence(Vec<Node>),
    Either(Vec<Node>),
    /// A capture group and its number.
    Group(usize, Box<Node>),
    Around {
        inner: Box<Node>,
        ahead: bool,
        negated: bool,
    },
    Repeat {
        inner: Box<Node>,
        least: u32,
        /// `None` for any number.
        most: Option<u32>,
        greedy: bool,
    },
    /// What matched once is not tried another way.
    Atomic(Box<Node>),
    /// What the group with this number matched.
    Back(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Assertion {
    TextStart,
    TextEnd,
    /// Only line breaks are left.
    TextEndBeforeBreaks,
    LineStart,
    LineEnd,
    WordEdge,
    NoWordEdge,
    WordStart,
    WordEnd,
    NoWordBefore,
    NoWordAfter,
}

/// A set of characters.
#[derive(Debug)]
pub(super) struct Class {
    pub negated: bool,
    pub set: Set,
}

#[derive(Debug)]
pub(super) enum Set {
    Union(Vec<Item>),
    Operation(Operation, Box<Set>, Box<Set>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Intersection,
    Difference,
    /// What is in one of the two.
    SymmetricDifference,
}

#[derive(Debug)]
pub(super) enum Item {
    Range(char, char),
    Property(Property),
    Class(Class),
}

/// Characters that Unicode gives a property.
#[derive(Clone, Debug)]
pub(super) struct Property {
    /// As JavaScript writes it between the braces of `\p{…}`; [`Property::WORD`] for `\w`.
    pub name: String,
    pub negated: bool,
}

impl Property {
    /// No property has this name: `\w` is a union of several.
    pub(super) const WORD: &str = "w";
}

impl Class {
    /// A class of some items.
    pub(super) fn of(items: Vec<Item>) -> Self {
        Self { negated: false, set: Set::Union(items) }
    }

    /// All characters but one.
    pub(super) fn all_but(character: char) -> Self {
        Self { negated: true, set: Set::Union(vec![Item::Range(character, character)]) }
    }
}

/// Why an expression is not taken: what is in it, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub what: &'static str,
    pub at: usize,
}
