//! Shaders as they are in the program: their files without comments and indents, which would be a quarter of what a page downloads of
//! them. A macro of its own crate, as a `const fn` that did this took ten seconds of each compilation.

use std::path::PathBuf;

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// The text of a WGSL file without comments and indents; its lines keep their numbers. The file is named as for `include_str!`.
#[proc_macro]
pub fn shader_text(input: TokenStream) -> TokenStream {
    match text_of(input) {
        Ok((name, text)) => expression(name, &text),
        Err(problem) => error(&problem),
    }
}

fn text_of(input: TokenStream) -> Result<(Literal, String), String> {
    let name = literal(input).ok_or("the name of a file is wanted, as a literal")?;
    let written = name.to_string();
    let file = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).filter(|name| !name.contains('\\'));
    let file = file.ok_or_else(|| format!("{written} is not the name of a file"))?;
    let caller: PathBuf = name.span().local_file().ok_or("the file that names the shader is not known")?;
    let path = caller.with_file_name(file);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((name, without_comments(&text)))
}

/// The literal that a macro was given, by itself or by another macro.
fn literal(input: TokenStream) -> Option<Literal> {
    let mut tokens = input.into_iter();
    let first = tokens.next()?;
    if tokens.next().is_some() {
        return None;
    }
    match first {
        TokenTree::Literal(literal) => Some(literal),
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => literal(group.stream()),
        _ => None,
    }
}

/// `{ const _: &str = ::core::include_str!(name); "text" }`: by the inclusion the compiler knows of the file and looks whether it changed.
fn expression(name: Literal, text: &str) -> TokenStream {
    let at = name.span();
    let included = [
        ident("const"),
        ident("_"),
        punct(':', Spacing::Alone),
        punct('&', Spacing::Alone),
        ident("str"),
        punct('=', Spacing::Alone),
        punct(':', Spacing::Joint),
        punct(':', Spacing::Alone),
        ident("core"),
        punct(':', Spacing::Joint),
        punct(':', Spacing::Alone),
        Ident::new("include_str", at).into(),
        punct('!', Spacing::Alone),
        group(Delimiter::Parenthesis, [TokenTree::Literal(name)]),
        punct(';', Spacing::Alone),
        TokenTree::Literal(Literal::string(text)),
    ];
    group(Delimiter::Brace, included).into()
}

/// `compile_error!(problem)`.
fn error(problem: &str) -> TokenStream {
    let text = TokenTree::Literal(Literal::string(problem));
    [ident("compile_error"), punct('!', Spacing::Alone), group(Delimiter::Parenthesis, [text])].into_iter().collect()
}

fn ident(name: &str) -> TokenTree {
    Ident::new(name, Span::call_site()).into()
}

fn punct(sign: char, spacing: Spacing) -> TokenTree {
    Punct::new(sign, spacing).into()
}

fn group(delimiter: Delimiter, tokens: impl IntoIterator<Item = TokenTree>) -> TokenTree {
    Group::new(delimiter, tokens.into_iter().collect()).into()
}

/// A text without `//` and what follows on its line, and without blanks at both ends of lines.
fn without_comments(text: &str) -> String {
    let stripped = |line: &str| line.split("//").next().unwrap_or_default().trim_matches(' ').to_string();
    text.split('\n').map(stripped).collect::<Vec<_>>().join("\n")
}
