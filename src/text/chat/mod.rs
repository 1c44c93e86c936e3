//! Chat templates: the Jinja sources that models ship, rendered as Hugging Face transformers renders them.
//!
//! minijinja does the work, held to limits of steps, bytes and depth (`budget.rs`, `values.rs`, `checked.rs`). This module sets it up like transformers' environment (`trim_blocks`, `lstrip_blocks`, `raise_exception`,
//! `strftime_now`, its own `tojson`, the `generation` tags) and adds Python's methods of strings, lists and dicts. Must not know what
//! messages mean, and has no clock: the caller passes the time.

mod budget;
mod checked;
mod continued;
mod date;
mod filters;
mod guarded;
mod json;
mod operators;
mod python;
mod rewrite;
mod source;
mod syntax;
mod values;

pub use source::{ChatTemplates, TemplateFiles};
pub(crate) use source::{DEFAULT_TEMPLATE_NAME, TOOL_TEMPLATE_NAME};

use std::collections::BTreeMap;

use minijinja::machinery::{eval, get_compiled_template, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error as TemplateError, ErrorKind, UndefinedBehavior, Value};

use crate::error::Result;

/// ChatML, for models without a template: every message as `<|im_start|>role\ncontent<|im_end|>\n`.
pub const DEFAULT_CHAT_TEMPLATE: &str = "{% for message in messages %}\
    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
    {% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Steps of a rendering: loops multiply, and a template that never ends would stop everything else. A chat of 10,000 messages takes about a
/// quarter of them, and all of them a second or two.
const MOST_STEPS: u64 = 5_000_000;

/// Macros, blocks and loops in each other, by minijinja's count, where a macro is five: each takes some of the stack of WebAssembly.
const MOST_NESTED: usize = 250;

/// Bytes of the time format that a template asks for.
const LONGEST_TIME_FORMAT: usize = 1_000;

/// Bytes of an error's message: a template may raise an error with whatever it holds.
const LONGEST_MESSAGE: usize = 4_000;

/// The template's name in the environment. It has no extension, which would switch escaping on.
const NAME: &str = "chat_template";

/// A compiled chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Compiles a template. `Code::ChatTemplate` if its syntax is not supported.
    pub fn new(source: &str) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|cause| err!(Internal, "the template syntax: {cause}"))?;
        environment.set_syntax(syntax.clone());
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_fuel(Some(MOST_STEPS));
        environment.set_recursion_limit(MOST_NESTED);
        environment.add_function("raise_exception", raise_exception);
        environment.add_global(rewrite::ONE, 1);
        guarded::install(&mut environment);
        filters::install(&mut environment);
        operators::install(&mut environment);
        python::install(&mut environment);
        // Jinja reads every kind of line end as \n.
        let source = rewrite::rewrite(&source.replace("\r\n", "\n").replace('\r', "\n"));
        let does_not_compile = |cause: TemplateError| failed("does not compile", &cause);
        syntax::check(&source, syntax).map_err(does_not_compile)?;
        environment.add_template_owned(NAME, source).map_err(does_not_compile)?;
        Ok(Self { environment })
    }

    /// Renders with the variables of `context`, an object: `messages`, `tools`, `add_generation_prompt`, `bos_token` …
    ///
    /// A template that asks for today's date fails here; use [`ChatTemplate::render_at`] for it.
    pub fn render(&self, context: &serde_json::Value) -> Result<String> {
        self.render_with(context, None)
    }

    /// Like [`ChatTemplate::render`], with the time for `strftime_now`: seconds since 1970 in local time, so the offset of the time zone is
    /// added.
    pub fn render_at(&self, context: &serde_json::Value, local_unix_seconds: i64) -> Result<String> {
        self.render_with(context, Some(local_unix_seconds))
    }

    fn render_with(&self, variables: &serde_json::Value, local_unix_seconds: Option<i64>) -> Result<String> {
        let Some(variables) = variables.as_object() else {
            bail!(
                ChatTemplate,
                "the variables for the chat template are not an object, wanted {{\"messages\": [...]}}"
            );
        };
        let strftime_now = Value::from_function(move |format: String| match local_unix_seconds {
            _ if format.len() > LONGEST_TIME_FORMAT => Err(budget::refused("the format of strftime_now is too long")),
            Some(seconds) => date::strftime(&format, seconds),
            None => Err(budget::refused("the template asks for today's date, and no time was given")),
        });
        let mut text = String::new();
        self.evaluate(variables, strftime_now, &mut text).map_err(|cause| failed("failed", &cause))?;
        Ok(text)
    }

    fn evaluate(
        &self,
        variables: &serde_json::Map<String, serde_json::Value>,
        strftime_now: Value,
        text: &mut String,
    ) -> std::result::Result<(), TemplateError> {
        let template = self.environment.get_template(NAME)?;
        let compiled = get_compiled_template(&template);
        let instructions = checked::checked(&compiled.instructions)?;
        let blocks = compiled.blocks.iter().map(|(name, block)| Ok((*name, checked::checked(block)?)));
        let blocks = blocks.collect::<std::result::Result<BTreeMap<_, _>, TemplateError>>()?;
        let mut root = Vec::with_capacity(variables.len() + 1);
        for (name, value) in variables {
            root.push((name.as_str(), values::from_json(value)?));
        }
        root.push(("strftime_now", strftime_now));
        let mut output = make_string_output(text);
        eval(&self.environment, &instructions, Value::from_pairs(root), &blocks, &mut output, AutoEscape::None)?;
        Ok(())
    }
}

fn raise_exception(message: String) -> std::result::Result<Value, TemplateError> {
    Err(TemplateError::new(ErrorKind::InvalidOperation, message))
}

/// The line and the whole chain of causes. A template's own `raise_exception` is such a cause.
fn failed(what: &str, cause: &TemplateError) -> crate::error::Error {
    let line = cause.line().map_or_else(String::new, |line| format!(" in line {line}"));
    let mut message = describe(cause);
    let mut next = std::error::Error::source(cause);
    while let Some(cause) = next {
        message.push_str(": ");
        message.push_str(&cause.downcast_ref::<TemplateError>().map_or_else(|| cause.to_string(), describe));
        next = cause.source();
    }
    if message.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    err!(ChatTemplate, "the chat template {what}{line}: {message}")
}

fn describe(cause: &TemplateError) -> String {
    match (cause.kind(), cause.detail()) {
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (ErrorKind::OutOfFuel, _) => format!("it takes more than {MOST_STEPS} steps"),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    }
}
