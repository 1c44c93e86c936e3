//! The translator alone, and what fancy-regex finds, written down for the browser's engine: `tests/golden/text/expressions.json`. After a
//! change of the translator, `UPDATE_GOLDEN=1 cargo test --lib pattern::` writes it anew.

mod golden;

use fancy_regex::Regex;
use proptest::prelude::*;

use super::*;
use crate::error::Code;

fn source(expression: &str) -> String {
    translated(expression).unwrap().source
}

#[test]
fn expressions_are_written_as_javascript_reads_them() {
    for (expression, wanted) in [
        ("", r"(?:^|(?<=\p{Any}))(?:)"),
        ("a.b", r"a[^\n]b"),
        (r"\s\S\d\D", r"\p{White_Space}\P{White_Space}\p{Nd}\P{Nd}"),
        (r"\p{L}\pN\P{han}\p{sc=Han}\p{old_italic}", r"\p{L}\p{N}\P{Script=Han}\p{Script=Han}\p{Script=Old_Italic}"),
        (r"\p{letter}\p{gc!=Lu}\p{White Space}", r"\p{L}\P{Lu}\p{White_Space}"),
        (r"[a-z&&[^m]--x~~[0]]", r"[[[[[[[a-z]&&[[^m]]]]--[x]]]--[[0]]][[[0]]--[[[[[a-z]&&[[^m]]]]--[x]]]]]"),
        ("[]a-]x]", r"[\u{5D}a\u{2D}]x\u{5D}"),
        (r"[^\h\-.]", r"[^[0-9A-Fa-f]\u{2D}\u{2E}]"),
        ("[[:^alpha:]_]", r"[[^A-Za-z]\u{5F}]"),
        ("a{b}{2,3}{,4}?c{,5}?", r"a\u{7B}b\u{7D}{2,3}\u{7B}\u{2C}4\u{7D}?c{0,5}?"),
        ("a++b*+(?>c)", r"(?:(?=(?<a1>a+))\k<a1>)(?:(?=(?<a2>b*))\k<a2>)(?:(?=(?<a3>c))\k<a3>)"),
        ("(?i:'s|k)x", r"(?:\u{27}[sS\u{17F}]|[kK\u{212A}])x"),
        ("(?i:[b-t])x", r"[b-tB-T\u{212A}\u{17F}]x"),
        (r"(?i:\p{L}\d)x", r"[\p{L}\u{345}][\p{Nd}]x"),
        (r"^\A$\z\Z(?m)^$", r"(?:^|(?<=\p{Any}))(?:^^$$(?=\n*$)(?<![^\n])(?![^\n]))"),
        (r"(a)(b)\2", r"(?:a)(?<g2>b)\k<g2>"),
        (r"(?<x>a)(?'y'b)(?P<z>c)\k<x>(?P=y)\k'z'", r"(?<g1>a)(?<g2>b)(?<g3>c)\k<g1>\k<g2>\k<g3>"),
        (r"(?x) a # b", "a"),
        (r"a(?#)b(?s).(?U)c+d+?", r"ab\p{Any}c+?d+"),
        (r"\x41\x{1F469}\u0042\U00000043\a\e", r"A\u{1F469}BC\u{7}\u{1B}"),
        (r"(?<=a)(?<!b)(?=c)(?!d)e", "(?<=a)(?<!b)(?=c)(?!d)e"),
    ] {
        assert_eq!(source(expression), wanted, "{expression}");
    }
    assert!(source(r"\w\b").starts_with(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}](?:(?<=["));
    assert!(translated("(?i)a[b-d]é").unwrap().any_case);
    assert!(!translated("(?i)a|(?-i)b").unwrap().any_case);
}

#[test]
fn what_has_no_form_in_javascript_is_a_typed_error_that_names_it() {
    for (expression, what) in [
        (r"a\Kb", "\\K"),
        (r"\Ga", "\\G"),
        (r"(a)\g<1>", "call of a group"),
        (r"(a)?(?(1)b|c)", "conditional"),
        (r"(?:(a)|b)\1", "back reference"),
        (r"(?i)(a)\1", "back reference"),
        (r"(?:|a)*", "prefers to match nothing"),
        (r"(?:a??)+", "prefers to match nothing"),
        (r"(?<=(?>ab))c", "look-behind"),
        (r"(?<=a|\bbc)d", "look-behind of several lengths"),
        (r"(?i:é)a", "outside of ASCII"),
        (r"(?i:\p{Lu})a", "property of letters"),
        (r"(?i:[^\p{M}])a", "property of letters"),
    ] {
        let error = translated(expression).err().unwrap_or_else(|| panic!("{expression} was taken"));
        assert_eq!(error.code(), Code::UnsupportedTokenizer);
        assert!(error.message().contains(what) && error.message().contains(&format!("{expression:?}")), "{error}");
    }
}

#[test]
fn what_fancy_regex_refuses_is_refused() {
    for expression in [
        "(",
        ")",
        "a)",
        "(?",
        "(?:",
        "[",
        "[]",
        "[a",
        "[[]a]]",
        "*",
        "+a",
        "?",
        "a**",
        "(?=a)*",
        "(?i)*",
        "a{3,2}",
        "\\",
        "[\\",
        r"\p",
        r"\p{",
        r"\p{}",
        r"\p{^L}",
        r"\pX",
        r"\p{Nothing=L}",
        r"\p{Lu=L}",
        r"\y",
        r"\R",
        r"\X",
        r"[\Z]",
        r"[\y]",
        r"[\1]",
        r"\1",
        r"\0",
        r"(a)\2",
        r"\k<a>",
        r"(?P=a)",
        r"\kx",
        "(?<a",
        "(?<>a)",
        "(?<a-b>c)",
        "(?z)",
        "(?)",
        "(?-)",
        "(?-:a)",
        "(?--i)",
        "(?-u)",
        r"\xG",
        r"\x",
        r"\x{}",
        r"\x{110000}",
        r"\x{D800}",
        r"\u12",
        r"\x{123456789}",
        "[z-a]",
        r"[a-\d]",
        r"[\d-a]",
        r"\b{nothing}",
        r"\B{start}",
        "(?#",
        "[a&&",
        "[[:alpha:]",
        "a{1,99999999}",
        r"(?<n>a)(b)\1",
    ] {
        let error = translated(expression).err().unwrap_or_else(|| panic!("{expression} was taken"));
        assert_eq!(error.code(), Code::UnsupportedTokenizer);
        assert!(Regex::new(expression).is_err(), "{expression} is refused without need");
    }
    assert!(translated(&"(?:".repeat(100)).is_err());
    assert!(translated(&format!("{}a{}", "[".repeat(100), "]".repeat(100))).is_err());
    assert!(translated(&"a".repeat(LONGEST_EXPRESSION + 1)).is_err());
}

/// The characters that an expression matches one at a time.
fn members(expression: &str) -> Vec<char> {
    let all: String = ('\0'..=char::MAX).collect();
    let regex = Regex::new(expression).unwrap();
    regex.find_iter(&all).flat_map(|found| found.unwrap().as_str().chars().collect::<Vec<_>>()).collect()
}

#[test]
fn properties_that_are_taken_in_any_case_have_their_other_cases() {
    for property in javascript::SAME_IN_ANY_CASE {
        let (plain, folded) = (format!(r"\p{{{property}}}"), format!(r"(?i:\p{{{property}}})"));
        assert!(members(&plain) == members(&folded), "{property}");
    }
    assert!(members(r"\w") == members(r"(?i:\w)"));
    assert!(members(r"[\p{L}\x{345}]") == members(r"(?i:\p{L})"));
    for letter in 'a'..='z' {
        let JavaScript { source, .. } = translated(&format!("(?i:{letter})0|(?i:[{letter}])A")).unwrap();
        let other_cases = members(&format!("(?i:{letter})")).into_iter().filter(|c| !c.is_ascii());
        assert!(
            other_cases
                .eq([('k', '\u{212A}'), ('s', '\u{17F}')].into_iter().filter(|(of, _)| *of == letter).map(|(_, c)| c))
        );
        assert_eq!(source.contains("\\u{"), matches!(letter, 'k' | 's'), "{source}");
    }
}

#[test]
fn characters_without_case_are_their_own_only_case() {
    // What the translator takes for caseless by the standard library, fancy-regex has to.
    let caseless: Vec<char> =
        ('\u{80}'..=char::MAX).filter(|c| c.to_lowercase().eq([*c]) && c.to_uppercase().eq([*c])).collect();
    assert!(caseless.len() > 1_000_000);
    let class = |characters: &[char]| {
        let mut class = String::from("(?i:[");
        let mut from = 0;
        for at in 0..characters.len() {
            if at + 1 == characters.len() || characters[at + 1] as u32 != characters[at] as u32 + 1 {
                class.push_str(&format!("\\x{{{:X}}}-\\x{{{:X}}}", characters[from] as u32, characters[at] as u32));
                from = at + 1;
            }
        }
        class + "])"
    };
    assert!(members(&class(&caseless)) == caseless);
}

#[test]
fn places_are_those_of_the_text() {
    let places = |pattern: Pattern, text: &str| -> Vec<(usize, usize)> {
        pattern.find_all(text).unwrap().into_iter().map(|place| (place.start, place.end)).collect()
    };
    let text = |text: &str| Pattern::Text(text.to_owned());
    assert_eq!(places(text("aa"), "aaaéaa"), [(0, 2), (5, 7)]);
    // An empty text is found everywhere, as an empty expression is.
    assert_eq!(places(text(""), "é"), places(Pattern::new("").unwrap(), "é"));
    assert_eq!(places(Pattern::new("a*").unwrap(), "baaé"), [(0, 0), (1, 3), (5, 5)]);
}

fn any_expression() -> impl Strategy<Value = String> {
    let part = prop::sample::select(golden::PARTS);
    prop::collection::vec(part, 0..9).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..Default::default() })]

    #[test]
    fn fancy_regex_takes_whatever_is_translated(expression in any_expression()) {
        if translated(&expression).is_ok() {
            prop_assert!(Regex::new(&expression).is_ok(), "{expression}");
        }
    }
}
