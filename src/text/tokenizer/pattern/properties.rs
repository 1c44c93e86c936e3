//! Unicode properties: `\p{L}`, `\pL`, `\p{Script=Han}`, `\p{Han}`, `\P{…}`. Names may be written loosely, and JavaScript wants them exact.

use super::scan::{Parsed, Scanner, refuse};
use super::syntax::Property;

/// Properties and categories: as JavaScript writes them, and their other names, without case, blanks, `_` and `-`. As in `regex-syntax`
/// a name is first looked for among the properties, then among the categories; scripts come last.
const NAMES: &[(&str, &[&str])] = &[
    ("Alphabetic", &["alphabetic", "alpha"]),
    ("Lowercase", &["lowercase", "lower"]),
    ("Uppercase", &["uppercase", "upper"]),
    ("White_Space", &["whitespace", "space", "wspace"]),
    ("ASCII_Hex_Digit", &["asciihexdigit", "ahex"]),
    ("Hex_Digit", &["hexdigit", "hex"]),
    ("Cased", &["cased"]),
    ("Case_Ignorable", &["caseignorable", "ci"]),
    ("Dash", &["dash"]),
    ("Default_Ignorable_Code_Point", &["defaultignorablecodepoint", "di"]),
    ("Diacritic", &["diacritic", "dia"]),
    ("Emoji", &["emoji"]),
    ("Emoji_Component", &["emojicomponent", "ecomp"]),
    ("Emoji_Modifier", &["emojimodifier", "emod"]),
    ("Emoji_Modifier_Base", &["emojimodifierbase", "ebase"]),
    ("Emoji_Presentation", &["emojipresentation", "epres"]),
    ("Extended_Pictographic", &["extendedpictographic", "extpict"]),
    ("Extender", &["extender", "ext"]),
    ("Grapheme_Base", &["graphemebase", "grbase"]),
    ("Grapheme_Extend", &["graphemeextend", "grext"]),
    ("ID_Continue", &["idcontinue", "idc"]),
    ("ID_Start", &["idstart", "ids"]),
    ("Ideographic", &["ideographic", "ideo"]),
    ("Join_Control", &["joincontrol", "joinc"]),
    ("Math", &["math"]),
    ("Quotation_Mark", &["quotationmark", "qmark"]),
    ("Regional_Indicator", &["regionalindicator", "ri"]),
    ("Sentence_Terminal", &["sentenceterminal", "sterm"]),
    ("Terminal_Punctuation", &["terminalpunctuation", "term"]),
    ("Unified_Ideograph", &["unifiedideograph", "uideo"]),
    ("Variation_Selector", &["variationselector", "vs"]),
    ("XID_Continue", &["xidcontinue", "xidc"]),
    ("XID_Start", &["xidstart", "xids"]),
    ("Any", &["any"]),
    ("ASCII", &["ascii"]),
    ("Assigned", &["assigned"]),
    ("C", &["c", "other"]),
    ("Cc", &["cc", "control", "cntrl"]),
    ("Cf", &["cf", "format"]),
    ("Cn", &["cn", "unassigned"]),
    ("Co", &["co", "privateuse"]),
    ("L", &["l", "letter"]),
    ("LC", &["lc", "casedletter"]),
    ("Ll", &["ll", "lowercaseletter"]),
    ("Lm", &["lm", "modifierletter"]),
    ("Lo", &["lo", "otherletter"]),
    ("Lt", &["lt", "titlecaseletter"]),
    ("Lu", &["lu", "uppercaseletter"]),
    ("M", &["m", "mark", "combiningmark"]),
    ("Mc", &["mc", "spacingmark"]),
    ("Me", &["me", "enclosingmark"]),
    ("Mn", &["mn", "nonspacingmark"]),
    ("N", &["n", "number"]),
    ("Nd", &["nd", "decimalnumber", "digit"]),
    ("Nl", &["nl", "letternumber"]),
    ("No", &["no", "othernumber"]),
    ("P", &["p", "punctuation", "punct"]),
    ("Pc", &["pc", "connectorpunctuation"]),
    ("Pd", &["pd", "dashpunctuation"]),
    ("Pe", &["pe", "closepunctuation"]),
    ("Pf", &["pf", "finalpunctuation"]),
    ("Pi", &["pi", "initialpunctuation"]),
    ("Po", &["po", "otherpunctuation"]),
    ("Ps", &["ps", "openpunctuation"]),
    ("S", &["s", "symbol"]),
    ("Sc", &["sc", "currencysymbol"]),
    ("Sk", &["sk", "modifiersymbol"]),
    ("Sm", &["sm", "mathsymbol"]),
    ("So", &["so", "othersymbol"]),
    ("Z", &["z", "separator"]),
    ("Zl", &["zl", "lineseparator"]),
    ("Zp", &["zp", "paragraphseparator"]),
    ("Zs", &["zs", "spaceseparator"]),
];

/// The property whose name or opening brace is at a position, and where what follows begins.
pub(super) fn parse(scan: &Scanner, at: usize, negated: bool) -> Parsed<(usize, Property)> {
    let letter = scan.char(at)?;
    if letter != '{' {
        return match known(letter.encode_utf8(&mut [0; 4])) {
            Some(name) => Ok((at + letter.len_utf8(), Property { name, negated })),
            None => refuse("an unknown property", at),
        };
    }
    let Some((inside, _)) = scan.rest(at + 1).split_once('}') else { return refuse("a property without an end", at) };
    let end = at + inside.len() + 2;
    let (name, differs) = if let Some((key, value)) = inside.split_once("!=") {
        (valued(key, value), true)
    } else if let Some((key, value)) = inside.split_once(':').or_else(|| inside.split_once('=')) {
        (valued(key, value), false)
    } else {
        (named(inside), false)
    };
    match name {
        Some(name) => Ok((end, Property { name, negated: negated != differs })),
        None => refuse("an unknown property", at),
    }
}

/// `name` without what a loosely written name may have besides.
fn loose(name: &str) -> String {
    let plain: String = name.chars().filter(|c| !matches!(c, ' ' | '_' | '-')).collect();
    let plain = plain.to_ascii_lowercase();
    match plain.strip_prefix("is") {
        Some(rest) if !rest.is_empty() => rest.to_owned(),
        _ => plain,
    }
}

fn known(name: &str) -> Option<String> {
    let name = loose(name);
    NAMES.iter().find(|(_, others)| others.contains(&name.as_str())).map(|(exact, _)| (*exact).to_owned())
}

fn named(name: &str) -> Option<String> {
    known(name).or_else(|| script("Script", name))
}

fn valued(key: &str, value: &str) -> Option<String> {
    match loose(key).as_str() {
        "gc" | "generalcategory" => known(value).filter(|name| name.len() <= 2),
        "sc" | "script" => script("Script", value),
        "scx" | "scriptextensions" => script("Script_Extensions", value),
        _ => None,
    }
}

/// Which scripts there are the engine knows: an unknown one is its error.
fn script(key: &str, name: &str) -> Option<String> {
    let mut words = Vec::new();
    for word in name.strip_prefix("Is").unwrap_or(name).split([' ', '_', '-']) {
        let mut letters = word.chars();
        let first = letters.next()?;
        if !word.bytes().all(|letter| letter.is_ascii_alphabetic()) {
            return None;
        }
        words.push(format!("{}{}", first.to_ascii_uppercase(), letters.as_str()));
    }
    Some(format!("{key}={}", words.join("_")))
}
