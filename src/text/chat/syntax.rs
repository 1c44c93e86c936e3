//! What a template is held to before it is parsed.
//!
//! minijinja's parser limits how deep brackets and blocks are nested, but not how many operators follow each other: `a ~ a ~ a …` gives a
//! tree as deep as it is long, which its compiler walks by recursion. It also computes whatever is constant again at each level.

use minijinja::Error;
use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::budget::refused;

/// Operators, brackets and attributes in one expression, between two commas.
const LONGEST_CHAIN: usize = 250;
/// Items of a list, a dict or a call.
const MOST_ITEMS: usize = 10_000;
/// `elif` of blocks in each other.
const MOST_BRANCHES: usize = 200;
/// Bytes that are copied to compute constants, by the worst that can be.
const MOST_CONSTANT_WORK: u64 = 4 << 30;

/// The bracket, or the tag, that tokens stand in.
#[derive(Default)]
struct Level {
    chain: usize,
    items: usize,
}

/// Refuses what the parser or the compiler would not survive.
pub(super) fn check(source: &str, syntax: SyntaxConfig) -> Result<(), Error> {
    let mut levels = vec![Level::default()];
    // Of the tag: the longest chain, and bytes of texts.
    let (mut longest, mut constants) = (0_usize, 0_u64);
    let mut work = 0_u64;
    let mut branches = Vec::new();
    let mut begins = false;
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        let refused = |what: String| Err(refused(format!("{what} in line {}", span.start_line)));
        let was_begun = std::mem::replace(&mut begins, matches!(token, Token::BlockStart));
        let mut chain = 0;
        match token {
            Token::VariableStart | Token::BlockStart => {
                levels.clear();
                levels.push(Level::default());
                (longest, constants) = (0, 0);
            }
            Token::VariableEnd | Token::BlockEnd => {
                work = work.saturating_add((longest * longest) as u64 * constants);
                if work > MOST_CONSTANT_WORK {
                    return refused("expressions are too long for the texts that they hold".to_owned());
                }
            }
            Token::Ident("if") if was_begun => branches.push(0_usize),
            Token::Ident("endif") if was_begun => {
                branches.pop();
            }
            Token::Ident("elif") if was_begun => {
                if let Some(branches) = branches.last_mut() {
                    *branches += 1;
                }
                if branches.iter().sum::<usize>() > MOST_BRANCHES {
                    return refused(format!("more than {MOST_BRANCHES} elif are nested"));
                }
            }
            Token::Comma => {
                if let Some(level) = levels.last_mut() {
                    level.chain = 0;
                    level.items += 1;
                    if level.items > MOST_ITEMS {
                        return refused(format!("a list, a dict or a call has more than {MOST_ITEMS} items"));
                    }
                }
            }
            Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => {
                chain = 1;
                levels.push(Level::default());
            }
            Token::BracketClose | Token::ParenClose | Token::BraceClose if levels.len() > 1 => {
                levels.pop();
                // It may be called or indexed again.
                chain = 1;
            }
            Token::Str(text) => constants += text.len() as u64,
            Token::String(text) => constants += text.len() as u64,
            Token::Ident("not" | "and" | "or" | "is" | "in" | "if" | "else")
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::FloorDiv
            | Token::Pow
            | Token::Mod
            | Token::Dot
            | Token::Tilde
            | Token::Pipe
            | Token::Eq
            | Token::Ne
            | Token::Gt
            | Token::Gte
            | Token::Lt
            | Token::Lte => chain = 1,
            _ => {}
        }
        if let Some(level) = levels.last_mut() {
            level.chain += chain;
        }
        if chain > 0 {
            let deep = levels.iter().map(|level| level.chain).sum();
            longest = longest.max(deep);
            if deep > LONGEST_CHAIN {
                return refused(format!("an expression has more than {LONGEST_CHAIN} operators"));
            }
        }
    }
    Ok(())
}
