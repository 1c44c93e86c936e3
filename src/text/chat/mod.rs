//! Chat templates: the Jinja sources that models ship, rendered as Hugging Face transformers renders them.
//!
//! minijinja does the work. This module sets it up like transformers' environment (`trim_blocks`, `lstrip_blocks`, `raise_exception`,
//! `strftime_now`, its own `tojson`, the `generation` tags) and adds Python's methods of strings, lists and dicts. Must not know what
//! messages mean, and has no clock: the caller passes the time.

mod continued;
mod date;
mod filters;
mod json;
mod python;
mod rewrite;
mod source;

pub use source::{ChatTemplates, TemplateFiles};
pub(crate) use source::{DEFAULT_TEMPLATE_NAME, TOOL_TEMPLATE_NAME};

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error as TemplateError, ErrorKind, UndefinedBehavior, Value, context};

use crate::error::Result;

/// ChatML, for models without a template: every message as `<|im_start|>role\ncontent<|im_end|>\n`.
pub const DEFAULT_CHAT_TEMPLATE: &str = "{% for message in messages %}\
    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
    {% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Steps of a rendering: loops multiply, and a template that never ends would stop everything else. A chat of 10,000 messages takes about a
/// quarter of them, and all of them a second or two.
const MOST_STEPS: u64 = 5_000_000;

/// Bytes of a rendered text, which are far more than fit a context.
const LONGEST_TEXT: usize = 64 << 20;

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
        environment.set_syntax(syntax.map_err(|cause| err!(Internal, "the template syntax: {cause}"))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_fuel(Some(MOST_STEPS));
        environment.add_function("raise_exception", raise_exception);
        filters::install(&mut environment);
        python::install(&mut environment);
        // Jinja reads every kind of line end as \n.
        let source = rewrite::rewrite(&source.replace("\r\n", "\n").replace('\r', "\n"));
        environment.add_template_owned(NAME, source).map_err(|cause| failed("does not compile", &cause))?;
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
        if !variables.is_object() {
            bail!(
                ChatTemplate,
                "the variables for the chat template are not an object, wanted {{\"messages\": [...]}}"
            );
        }
        let strftime_now = Value::from_function(move |format: String| match local_unix_seconds {
            Some(seconds) => date::strftime(&format, seconds),
            None => Err(TemplateError::new(
                ErrorKind::InvalidOperation,
                "the template asks for today's date, and no time was given",
            )),
        });
        let template = self.environment.get_template(NAME).map_err(|cause| failed("is not there", &cause))?;
        let mut text = BoundedText::default();
        let rendered =
            template.render_captured_to(context! { strftime_now, ..Value::from(Serde(variables)) }, &mut text);
        if text.is_over {
            bail!(ChatTemplate, "the chat template writes more than {LONGEST_TEXT} bytes");
        }
        rendered.map_err(|cause| failed("failed", &cause))?;
        String::from_utf8(text.bytes).map_err(|_| err!(Internal, "a chat template wrote what is not UTF-8"))
    }
}

/// Text that can't grow without end.
#[derive(Default)]
struct BoundedText {
    bytes: Vec<u8>,
    is_over: bool,
}

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > LONGEST_TEXT - self.bytes.len() {
            self.is_over = true;
            return Err(io::Error::other("the text is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
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
