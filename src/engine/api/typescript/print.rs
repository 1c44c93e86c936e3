//! Writes what ts-rs declares as a person would: interfaces with one field a line, each with its comment, in the style of the other files.

/// How a field that may be missing is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Made by the engine, which leaves such fields out.
    Answer,
    /// Made by a caller. A field that is null or undefined counts as left out.
    Request,
    /// Made by a caller; null is not allowed.
    Options,
}

struct Field<'a> {
    docs: Vec<&'a str>,
    name: &'a str,
    is_optional: bool,
    ty: &'a str,
}

/// The longest line of a union, as the formatter of TypeScript has it (`biome.jsonc`).
const WIDTH: usize = 140;

/// A declaration of ts-rs (`type Name = …;`) with the comment of the type.
pub fn declaration(docs: Option<&str>, declared: &str, role: Role) -> String {
    let (name, body) = parts(declared);
    let comment = comment(&lines(docs.unwrap_or_default()), "");
    match object(body) {
        Some(fields) => format!("{comment}export interface {name} {{\n{}}}\n", members(&fields, "  ", role)),
        None => {
            let variants: Vec<&str> = split(body, '|');
            let has_comments = variants.iter().any(|variant| variant.contains("/**"));
            let line = format!("export type {name} = {};\n", ty(body, "", role));
            if !has_comments && line.trim_end().len() <= WIDTH {
                return comment + &line;
            }
            let body: String = variants.iter().map(|variant| format!("\n  | {}", ty(variant, "    ", role))).collect();
            format!("{comment}export type {name} ={body};\n")
        }
    }
}

/// The names of the fields of a declaration.
pub fn names(declared: &str) -> Vec<&str> {
    object(parts(declared).1).unwrap_or_default().iter().map(|field| field.name).collect()
}

/// A JSDoc comment, on one line if it has one.
pub fn comment(lines: &[&str], indent: &str) -> String {
    match lines {
        [] => String::new(),
        [line] => format!("{indent}/** {line} */\n"),
        lines => {
            let lines: String =
                lines.iter().map(|line| format!("{indent} * {line}").trim_end().to_owned() + "\n").collect();
            format!("{indent}/**\n{lines}{indent} */\n")
        }
    }
}

fn parts(declared: &str) -> (&str, &str) {
    let declared = declared.strip_prefix("type ").unwrap_or(declared).trim_end_matches(';');
    declared.split_once(" = ").unwrap_or((declared, "never"))
}

/// The lines of a comment.
fn lines(comment: &str) -> Vec<&str> {
    let inside = comment.trim().trim_start_matches("/**").trim_end_matches("*/");
    inside.trim().lines().map(|line| line.trim_start().trim_start_matches('*').trim()).collect()
}

fn members(fields: &[Field], indent: &str, role: Role) -> String {
    fields
        .iter()
        .map(|field| format!("{}{indent}{};\n", comment(&field.docs, indent), member(field, indent, role)))
        .collect()
}

fn member(field: &Field, indent: &str, role: Role) -> String {
    let mut variants = split(field.ty, '|');
    let count = variants.len();
    variants.retain(|variant| *variant != "null" || (role == Role::Answer && !field.is_optional));
    let is_optional = field.is_optional || (role != Role::Answer && variants.len() < count);
    let mut text: Vec<String> = variants.iter().map(|variant| ty(variant, indent, role)).collect();
    match role {
        Role::Request if is_optional => text.extend(["null".to_owned(), "undefined".to_owned()]),
        Role::Options if is_optional => text.push("undefined".to_owned()),
        _ => {}
    }
    format!("{}{}: {}", field.name, if is_optional { "?" } else { "" }, text.join(" | "))
}

/// A type in our style.
fn ty(text: &str, indent: &str, role: Role) -> String {
    let variants = split(text, '|');
    if variants.len() > 1 {
        return variants.iter().map(|variant| ty(variant, indent, role)).collect::<Vec<_>>().join(" | ");
    }
    let text = text.trim();
    if let Some(inner) = text.strip_prefix("Array<").and_then(|rest| rest.strip_suffix('>')) {
        let item = ty(inner, indent, role);
        return if split(inner, '|').len() > 1 { format!("({item})[]") } else { format!("{item}[]") };
    }
    if let Some(rest) = text.strip_prefix("{ [key in string]: ") {
        return format!("Record<string, {}>", ty(rest.trim_end_matches('}'), indent, role));
    }
    match object(text) {
        Some(fields) if fields.iter().all(|field| field.docs.is_empty()) => {
            let members: Vec<String> = fields.iter().map(|field| member(field, indent, role)).collect();
            format!("{{ {} }}", members.join("; "))
        }
        Some(fields) => format!("{{\n{}{indent}}}", members(&fields, &format!("{indent}  "), role)),
        None => text.replace('"', "'"),
    }
}

/// The fields of an object type; none for other types.
fn object(text: &str) -> Option<Vec<Field<'_>>> {
    let inside = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    if inside.trim_start().starts_with('[') || split(text, '|').len() > 1 {
        return None;
    }
    split(inside, ',').into_iter().filter(|field| !field.is_empty()).map(field).collect()
}

fn field(text: &str) -> Option<Field<'_>> {
    let (docs, rest) = match text.strip_prefix("/**").and_then(|rest| rest.find("*/")) {
        Some(end) => (lines(&text[..end + 5]), &text[end + 5..]),
        None => (Vec::new(), text),
    };
    let (name, ty) = rest.split_once(':')?;
    let name = name.trim();
    let is_optional = name.ends_with('?');
    let name = name.trim_end_matches('?').trim_matches('"');
    Some(Field { docs, name, is_optional, ty: ty.trim() })
}

/// The parts of a text between `separator`s, except those in brackets, strings and comments.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quoted, mut skip) = (Vec::new(), 0, 0, false, 0);
    for (at, c) in text.char_indices() {
        if at < skip {
            continue;
        }
        match c {
            '/' if text[at..].starts_with("/**") => skip = text[at..].find("*/").map_or(text.len(), |end| at + end + 2),
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' | '(' | '<' => depth += 1,
            '}' | ']' | ')' | '>' => depth -= 1,
            c if c == separator && depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_becomes_an_interface() {
        let declared = "type Load = { \n/**\n * Tokens, {not} a | type.\n * Default: 4.\n */\ncontextLength: number | null, level?: \"a\" | \"b\" | null, \
                        kind: string, list: Array<string | null>, by_type: { [key in string]: number }, pair: [number, number], };";
        let options = "/**\n * What is said.\n */\n";
        let text = |role| declaration(Some(options), declared, role);
        let whole = "/** What is said. */\nexport interface Load {\n  /**\n   * Tokens, {not} a | type.\n   * Default: 4.\n   */\n  contextLength?: number | null | \
                     undefined;\n  level?: 'a' | 'b' | null | undefined;\n  kind: string;\n  list: (string | null)[];\n  by_type: Record<string, number>;\n  \
                     pair: [number, number];\n}\n";
        assert_eq!(text(Role::Request), whole);
        assert_eq!(text(Role::Options), whole.replace(" | null | undefined", " | undefined"));
        let answer = whole.replace("contextLength?: number | null | undefined", "contextLength: number | null");
        assert_eq!(text(Role::Answer), answer.replace(" | null | undefined", ""));
        assert_eq!(names(declared), ["contextLength", "level", "kind", "list", "by_type", "pair"]);
    }

    #[test]
    fn an_enum_becomes_a_union() {
        let kinds = ["requested", "one", "two", "three"].map(|kind| format!("\"{kind}{}\"", "_longer".repeat(4)));
        let [a, b, c, d] = kinds.clone().map(|kind| kind.replace('"', "'"));
        assert_eq!(
            declaration(None, &format!("type Reason = {};", kinds.join(" | ")), Role::Request),
            format!("export type Reason =\n  | {a}\n  | {b}\n  | {c}\n  | {d};\n")
        );
        let text = |declared| declaration(None, declared, Role::Request);
        assert_eq!(text("type Stop = string | Array<string>;"), "export type Stop = string | string[];\n");
        assert_eq!(
            text("type Form = { \"type\": \"text\", } | { \"type\": \"json\", schema: Schema, };"),
            "export type Form = { type: 'text' } | { type: 'json'; schema: Schema };\n"
        );
        assert_eq!(
            text(
                "type Draft = { \"type\": \"lookup\", \n/**\n * The most.\n */\nmax: number | null, } | { \"type\": \"model\", };"
            ),
            "export type Draft =\n  | {\n      type: 'lookup';\n      /** The most. */\n      max?: number | null | undefined;\n    }\n  | { type: 'model' };\n"
        );
    }
}
