//! JSON schema's formats of texts, as regular expressions that match a whole text. The grammar engine knows the same formats for texts in
//! JSON.
//!
//! Sources: RFC 3339 (dates, times, durations), RFC 5321 4.1.2 (email), RFC 1123 2.1 (hostname), RFC 4291 2.2 (IPv6 addresses), RFC
//! 4122 3 (UUIDs), RFC 3986 appendix A (URIs).

const DATE: &str = "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|[12][0-9]))";
const TIME: &str =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
const LABEL: &str = "[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?";
/// A part of an address's domain, of any length.
const SUB_DOMAIN: &str = "[0-9A-Za-z](?:[0-9A-Za-z-]*[0-9A-Za-z])?";
const ATOM: &str = "[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]+";
const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const UUID: &str = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";

pub(super) const NAMES: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// The expression for a format; `None` if the format is unknown.
pub(super) fn expression(name: &str) -> Option<String> {
    Some(match name {
        "date-time" => format!("{DATE}[tT]{TIME}"),
        "time" => TIME.to_owned(),
        "date" => DATE.to_owned(),
        "duration" => duration(),
        "email" => format!("{ATOM}(?:\\.{ATOM})*@(?:{SUB_DOMAIN}(?:\\.{SUB_DOMAIN})*|\\[{}\\])", ipv4()),
        "hostname" => format!("{LABEL}(?:\\.{LABEL})*"),
        "ipv4" => ipv4(),
        "ipv6" => ipv6(),
        "uuid" => UUID.to_owned(),
        "uri" => uri(),
        _ => return None,
    })
}

/// Units must follow each other without a gap.
fn duration() -> String {
    let day = "[0-9]+D";
    let month = format!("[0-9]+M(?:{day})?");
    let date = format!("(?:[0-9]+Y(?:{month})?|{month}|{day})");
    let second = "[0-9]+S";
    let minute = format!("[0-9]+M(?:{second})?");
    let time = format!("T(?:[0-9]+H(?:{minute})?|{minute}|{second})");
    format!("P(?:{date}(?:{time})?|{time}|[0-9]+W)")
}

fn ipv4() -> String {
    format!("{OCTET}(?:\\.{OCTET}){{3}}")
}

/// Eight groups; or fewer, and `::` for the missing ones.
fn ipv6() -> String {
    const GROUP: &str = "[0-9A-Fa-f]{1,4}";
    let groups = |most: usize| match most {
        0 => String::new(),
        most => format!("(?:{GROUP}(?::{GROUP}){{0,{}}})?", most - 1),
    };
    let mut forms = vec![format!("(?:{GROUP}:){{7}}{GROUP}"), format!("::{}", groups(7))];
    for before in 1..=7 {
        forms.push(format!("{GROUP}(?::{GROUP}){{{}}}::{}", before - 1, groups(7 - before)));
    }
    forms.join("|")
}

fn uri() -> String {
    const PLAIN: &str = "0-9A-Za-z._~!$&'()*+,;=-";
    let characters = |more: &str| format!("(?:[{more}{PLAIN}]|%[0-9A-Fa-f]{{2}})");
    let (segment, name) = (characters(":@"), characters(""));
    let authority =
        format!("(?:{}*@)?(?:\\[(?:{}|v[0-9A-Fa-f]+\\.[:{PLAIN}]+)\\]|{name}*)(?::[0-9]*)?", characters(":"), ipv6());
    let rest = format!("(?:/{segment}*)*");
    let path = format!("(?://{authority}{rest}|/(?:{segment}+{rest})?|{segment}+{rest})?");
    let more = characters(":@/?");
    format!("[A-Za-z][0-9A-Za-z+.-]*:{path}(?:\\?{more}*)?(?:#{more}*)?")
}
