//! Puts the final text of a shader together from a template, the modules that it imports and its constants.
//!
//! A template is plain WGSL with four directives:
//!
//! - `#import "name"`: the module's text, once, however often it is imported
//! - `#ifdef NAME` / `#ifndef NAME` / `#else` / `#endif`: text that depends on whether the define is given
//! - `#require subgroups` or `#require f16`: the directive `enable …;`, placed at the very top
//! - each define with a number also becomes a WGSL `const` of that name
//!
//! `enable` lines are added last, because targets differ: browsers require `enable subgroups;`, naga (native) rejects it, and
//! both take `enable f16;`.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::error::Result;

/// The value of a define.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Define {
    /// Only for `#ifdef`.
    Flag,
    /// A `const` of WGSL's type `u32`.
    U32(u32),
    /// A `const` of WGSL's type `f32`.
    F32(f32),
}

/// A shader's text, and how the cache of pipelines may recognise it.
#[derive(Clone, Copy, Debug)]
pub enum Template<'a> {
    /// A text of the program itself, which its address names.
    Static(&'static str),
    /// Any text, compared whole. It is used as it is, without directives.
    Text(&'a str),
}

/// A shader before it is put together: everything that its final text depends on.
#[derive(Clone, Debug)]
pub struct Shader<'a> {
    /// Names the pipeline in error messages and labels.
    pub label: &'a str,
    /// Its text, with directives.
    pub template: Template<'a>,
    /// Modules that `#import` finds, by name.
    pub modules: &'a [(&'a str, &'static str)],
    /// Names and values for `#ifdef`, which become constants as well.
    pub defines: &'a [(&'a str, Define)],
}

impl Shader<'_> {
    /// The final WGSL text.
    pub(super) fn assemble(&self, enable_subgroups_line: bool) -> Result<String> {
        let mut output = Output { body: String::new(), requires: BTreeSet::new(), imported: BTreeSet::new() };
        match self.template {
            Template::Static(text) => self.expand(self.label, text, &mut output)?,
            Template::Text(text) => output.body.push_str(text),
        }

        let mut text = String::new();
        for feature in &output.requires {
            if feature != "subgroups" || enable_subgroups_line {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "enable {feature};");
            }
        }
        for (name, define) in self.defines {
            let _ = match define {
                Define::Flag => Ok(()),
                Define::U32(value) => writeln!(text, "const {name}: u32 = {value}u;"),
                Define::F32(value) => writeln!(text, "const {name}: f32 = {value:?}f;"),
            };
        }
        text.push_str(&output.body);
        Ok(text)
    }

    fn expand(&self, file: &str, source: &str, output: &mut Output) -> Result<()> {
        // One entry per open `#ifdef`: whether its lines are taken.
        let mut taken: Vec<bool> = Vec::new();
        for (index, line) in source.lines().enumerate() {
            let at = || format!("{file}, line {}", index + 1);
            let Some(directive) = line.trim_start().strip_prefix('#') else {
                if taken.iter().all(|taken| *taken) {
                    output.body.push_str(line);
                    output.body.push('\n');
                }
                continue;
            };
            let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
            let rest = rest.trim();
            match word.trim() {
                "ifdef" => taken.push(self.is_defined(rest)),
                "ifndef" => taken.push(!self.is_defined(rest)),
                "else" => match taken.last_mut() {
                    Some(last) => *last = !*last,
                    None => bail!(Internal, "{}: #else without #ifdef", at()),
                },
                "endif" => {
                    if taken.pop().is_none() {
                        bail!(Internal, "{}: #endif without #ifdef", at());
                    }
                }
                "import" | "require" if !taken.iter().all(|taken| *taken) => {}
                "import" => {
                    let name = rest.trim_matches('"');
                    if output.imported.insert(name.to_owned()) {
                        let Some((_, module)) = self.modules.iter().find(|(module, _)| *module == name) else {
                            bail!(Internal, "{}: there is no module {name:?} to import", at());
                        };
                        self.expand(name, module, output)?;
                    }
                }
                "require" => {
                    output.requires.insert(rest.to_owned());
                }
                _ => bail!(Internal, "{}: unknown directive #{directive}", at()),
            }
        }
        if !taken.is_empty() {
            bail!(Internal, "{file}: #ifdef without #endif");
        }
        Ok(())
    }

    fn is_defined(&self, name: &str) -> bool {
        self.defines.iter().any(|(define, _)| *define == name)
    }
}

struct Output {
    body: String,
    requires: BTreeSet<String>,
    imported: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble(template: &'static str, defines: &[(&str, Define)]) -> Result<String> {
        let modules = [("a", "#import \"b\"\nfn a() {}"), ("b", "fn b() {}")];
        Shader { label: "test", template: Template::Static(template), modules: &modules, defines }.assemble(true)
    }

    #[test]
    fn imports_once_and_in_order() {
        let text = assemble("#import \"a\"\n#import \"b\"\nfn main() {}", &[]).unwrap();
        assert_eq!(text, "fn b() {}\nfn a() {}\nfn main() {}\n");
    }

    #[test]
    fn chooses_by_defines() {
        let template = "#ifdef X\nx\n#ifdef Y\nxy\n#endif\n#else\nnot x\n#endif\n#ifndef Y\nnot y\n#endif";
        assert_eq!(assemble(template, &[("X", Define::Flag), ("Y", Define::Flag)]).unwrap(), "x\nxy\n");
        assert_eq!(assemble(template, &[("Y", Define::Flag)]).unwrap(), "not x\n");
        assert_eq!(assemble(template, &[("X", Define::Flag)]).unwrap(), "x\nnot y\n");
    }

    #[test]
    fn constants_and_enables_come_first() {
        let template = "#ifdef N\n#require subgroups\n#endif\n#require f16\nfn main() {}";
        let defines = [("N", Define::U32(4)), ("E", Define::F32(1.0))];
        let text = assemble(template, &defines).unwrap();
        let head = "enable f16;\nenable subgroups;\nconst N: u32 = 4u;\nconst E: f32 = 1.0f;\n";
        assert_eq!(text, format!("{head}fn main() {{}}\n"));
        let shader = Shader { label: "test", template: Template::Static(template), modules: &[], defines: &defines };
        assert!(!shader.assemble(false).unwrap().contains("subgroups"));
    }

    #[test]
    fn a_text_of_somebody_else_stays_as_it_is() {
        let template = "/*\n# a heading\n*/\nfn main() {}";
        let shader = Shader {
            label: "test",
            template: Template::Text(template),
            modules: &[],
            defines: &[("N", Define::U32(4))],
        };
        assert_eq!(shader.assemble(true).unwrap(), format!("const N: u32 = 4u;\n{template}"));
    }

    #[test]
    fn mistakes_are_errors() {
        for template in ["#import \"missing\"", "#ifdef A", "#endif", "#else", "#elseif A"] {
            assert!(assemble(template, &[]).is_err(), "{template}");
        }
    }
}
