//! The golden file: expressions, texts, and what fancy-regex finds.

use std::path::Path;

use serde_json::{Value, json};

use super::super::super::pre;
use super::*;

/// Texts that a tokenizer may meet, and some that it should not.
const TEXTS: &[&str] = &[
    "",
    " ",
    "Hello world, it's MY'S don'T we'LL! '\u{17F} \u{212A}g",
    "  Héllo,   wörld!\r\n\r\n\tif (x == 10) {\n    return a[1234567];\n}   \n",
    "e\u{301}\u{345}ς ΑΣ İ ẞ ß ǅ Ⅳ ½ ٣٤٥ ४५६ 1 12 123 1234 1234567890",
    "日本語テキスト、漢字。한국어 ไทย ພາສາ ខ្មែរ မြန်မာ ｱｲｳ ㄅㄆ …“”‘’",
    "👩‍👩‍👧🇩🇪\u{200D}👍🏽 a\u{200D}b\u{FE0F}\u{20E3}",
    "\u{85}\u{FEFF}\u{180E}\u{2028}\u{2029}\u{200B}\u{A0}\u{3000}\0\u{1}\u{F0000}\u{10FFFF}\u{7F}x",
    "aaaaaaaaaaaaaaaaaaaaaaab baab abab",
    "<sentinel:12>IMGIMGABZ<|im_end|>[x]{y}(z)-^$.*+?|\\/&&~~``__",
    "foo\nbar\n\nbaz\r\n \n",
    "αβγ ΩΩÅÅ K k ſ s ﬁ ǆ ᾳ Ⓐⓐ",
];

/// Expressions of published tokenizer.json files that `pre` has not, and one or more for every construct.
const EXPRESSIONS: &[&str] = &[
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"(?=(\d{3})+(?!\d))",
    r"\w+|[^\w\s]+",
    r"^\s+|\s+$",
    " {2,}",
    "^ | $",
    "[^\n]+|\n+",
    "[一-龥]+|[^一-龥]",
    r"\s+",
    r"[0-9]",
    r"\d|\d+",
    r"(\p{Lu}\p{Ll}*|\p{Ll}+)+?",
    r"(?:\r?\n)+(?!\r?\n)",
    "",
    "a*",
    "a*?",
    "x*|y",
    "(?=b)",
    "(?<=a)",
    "^",
    "$",
    r"\z|\A",
    r"\Z",
    "(?m)^",
    "(?m)$",
    "(?m)^.*$",
    "(?s)o.*b",
    r"\b",
    r"\B",
    r"\bb\w*",
    r"\<|\>",
    r"\b{start}\w",
    r"\w\b{end-half}",
    r"\h+|\H",
    r"[\h_]+",
    r"\x41|\x{61}|\u0062|\u{1F469}|\U0001F467",
    r"[\x{41}-\x{5A}\u{3B1}-\u{3C9}]+",
    r"\a|\e|\f|\v|\t|[\b]",
    r"[[:alpha:]]+|[[:digit:][:punct:]]",
    "[[:^alnum:]]+",
    r"[\w&&[^\d_]]+",
    r"[\p{L}--[a-m]]+",
    r"[a-z~~m-zA-C]+",
    r"[^\p{L}&&\p{Lu}]",
    "[]a]+|[^]a]",
    "[-a]|[a-]",
    r"[\[\]\-\\^&~]+",
    "[&a]|[~b]",
    "{|}|]",
    "a{2}b|a{,2}|a{3,}?",
    "(?>a+)b|(?>a*)",
    "a++|b*+a",
    "a{2,3}+",
    "(?<=b)a+|(?<!b)a",
    r"(?<!\S)\w|\S(?!\S)",
    r"(?<x>a+)b\k<x>",
    r"(a)(b)?\1",
    "(?i)hello|K|[r-t]|É",
    r"(?i)\p{Lu}+",
    r"(?i)[^\p{Lu}]+",
    r"(?i)[^a-s]+",
    "(?i:S|k)|x",
    "(?i:[^a-z ])|x",
    r"(?i:[\p{L}&&[^a-m]])+0?|x",
    "(?U)a+|b+?",
    r"(?x) a b # c
      | \  \d",
    "(?:a|ab)(?:c|bcd)?",
    "(?:a*)*b",
    r"\p{Greek}+|\p{Han}+|\p{Script_Extensions=Hira}+",
    r"\p{Emoji_Presentation}|\p{ExtPict}",
    r"\P{ASCII}+",
    r"\p{LC}+",
    r".",
    r"\O",
];

/// Sets of characters, each compared character by character below U+3100.
const SETS: &[&str] = &[
    r"\w",
    r"\s",
    r"\d",
    r"\h",
    ".",
    r"\p{L}",
    r"\p{P}",
    r"[[:punct:]]",
    "(?i:[a-z])|\0",
    "(?i)[^j-t]",
    r"(?i)\p{Ll}",
    r"(?i)\P{Ll}",
    r"(?i)[^\P{Ll}]",
    r"[^\w\s]",
    r"\b.\b",
    r"(?i:\p{L})|\x00",
];

/// What odd expressions are put together from.
pub(super) const PARTS: &[&str] = &[
    "a",
    "b",
    "é",
    " ",
    "0",
    ".",
    "|",
    "|",
    "*",
    "+",
    "?",
    "{1,2}",
    "{",
    "}",
    "(",
    ")",
    "(?:",
    ")",
    "(?=",
    "(?!",
    "(?<=a)",
    "(?<!",
    "(?>",
    "[",
    "]",
    "[^",
    "-",
    "&&",
    "~~",
    "--",
    "^",
    "$",
    "(?i)",
    "(?i:",
    "(?m)",
    "(?s)",
    "(?x)",
    "(?U)",
    "(?-i)",
    r"\w",
    r"\S",
    r"\d",
    r"\pL",
    r"\p{Han}",
    r"\b",
    r"\B",
    r"\h",
    r"\1",
    r"\x{61}",
    r"\A",
    r"\z",
    r"\Z",
    "[:alpha:]",
    "[a-c]",
    "(?<n>",
    r"\k<n>",
    "a+",
    "b*",
    "a??",
    "#",
    "\n",
    r"\]",
    r"\-",
    r"\{",
    r"\<",
    r"\b{end}",
    "[ab]+",
    "(a|b)",
    "k",
    "S",
];

/// Odd expressions, always the same ones, of those that are taken.
fn odd(wanted: usize) -> Vec<String> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let mut all = Vec::new();
    while all.len() < wanted {
        let n = 1 + next(8);
        let expression: String = (0..n).map(|_| PARTS[next(PARTS.len())]).collect();
        if translated(&expression).is_ok() && !all.contains(&expression) {
            all.push(expression);
        }
    }
    all
}

/// What odd expressions search.
const ODD_TEXTS: &[&str] = &["", "a", "aab a\nbaé0", "ab  K\u{212A}ſS漢-]}{^&~a\n", "bababa0é\n\n"];

/// The lengths of gaps and matches in turn, a gap first.
fn lengths(expression: &str, text: &str) -> Value {
    let mut lengths = Vec::new();
    let mut done = 0;
    for Range { start, end } in Pattern::new(expression).unwrap().find_all(text).unwrap() {
        lengths.extend([start - done, end - start]);
        done = end;
    }
    json!(lengths)
}

fn entries(expressions: &[String], texts: &[&str]) -> Vec<Value> {
    let entry = |expression: &String| {
        let JavaScript { source, any_case } = translated(expression).unwrap();
        let found: Vec<Value> = texts.iter().map(|text| lengths(expression, text)).collect();
        json!({"expression": expression, "source": source, "any_case": any_case, "found": found})
    };
    expressions.iter().map(entry).collect()
}

fn golden() -> Value {
    let mut expressions: Vec<String> = EXPRESSIONS.iter().map(|expression| (*expression).to_owned()).collect();
    for name in pre::supported() {
        for pattern in pre::pre_tokenizer(Some(name)).unwrap().patterns {
            if !expressions.iter().any(|known| known == pattern) {
                expressions.push((*pattern).to_owned());
            }
        }
    }
    let characters: Vec<char> = ('\0'..'\u{3100}').collect();
    let in_set = |expression: &str| {
        let pattern = Pattern::new(expression).unwrap();
        let is_member = |character: &char| !pattern.find_all(&character.to_string()).unwrap().is_empty();
        let members: Vec<bool> = characters.iter().map(is_member).collect();
        let is_in = |at: usize| members.get(at).copied().unwrap_or(false);
        // Where members begin and end.
        (0..=members.len()).filter(|&at| is_in(at) != (at > 0 && is_in(at - 1))).collect::<Vec<usize>>()
    };
    let sets: Vec<Value> = SETS
        .iter()
        .map(|set| {
            let JavaScript { source, any_case } = translated(set).unwrap();
            json!({"expression": set, "source": source, "any_case": any_case, "changes": in_set(set)})
        })
        .collect();
    let n_odd = std::env::var("ODD_EXPRESSIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    json!({
        "texts": TEXTS,
        "expressions": entries(&expressions, TEXTS),
        "odd_texts": ODD_TEXTS,
        "odd_expressions": entries(&odd(n_odd), ODD_TEXTS),
        "assigned": in_set(r"\P{Cn}"),
        "sets": sets,
    })
}

#[test]
fn the_golden_file_holds_what_fancy_regex_finds() {
    let path = std::env::var("GOLDEN_EXPRESSIONS").unwrap_or_else(|_| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/text/expressions.json").to_string_lossy().into_owned()
    });
    let golden = golden();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        // One line for each expression.
        let text = golden.to_string().replace("{\"expression\"", "\n{\"expression\"");
        std::fs::write(&path, text + "\n").unwrap();
    }
    let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for part in ["texts", "expressions", "odd_texts", "odd_expressions", "assigned", "sets"] {
        assert!(written[part] == golden[part], "{part} of {path} is out of date: UPDATE_GOLDEN=1 writes it anew");
    }
}
