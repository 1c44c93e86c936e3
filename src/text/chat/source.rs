//! Where a model's chat templates come from: the files of a Hugging Face folder, or pairs of name and text.
//!
//! The files' order is that of transformers: a separate file comes before a field of tokenizer_config.json.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::Result;
use crate::json;

/// The template for chats, unless the caller names another one.
pub const DEFAULT_TEMPLATE_NAME: &str = "default";
/// The template for chats with tools, if a model has one.
pub const TOOL_TEMPLATE_NAME: &str = "tool_use";
/// More than any published template has.
const LARGEST_TEMPLATE: usize = 1 << 20;

/// Files of a Hugging Face folder that may hold templates; `None` for a file that the folder doesn't have.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateFiles<'f> {
    /// tokenizer_config.json; its field `chat_template` is read.
    pub tokenizer_config: Option<&'f [u8]>,
    /// chat_template.jinja: one template, which replaces the default one of the others.
    pub chat_template_jinja: Option<&'f [u8]>,
    /// chat_template.json; its field `chat_template` is read.
    pub chat_template_json: Option<&'f [u8]>,
}

/// A model's templates by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTemplates(BTreeMap<String, String>);

#[derive(Deserialize)]
struct Config {
    chat_template: Option<Section>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Section {
    One(String),
    Many(Vec<Named>),
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

impl ChatTemplates {
    /// The templates of a folder; there may be none.
    pub fn from_files(files: &TemplateFiles) -> Result<Self> {
        let mut templates = Self::default();
        for (name, bytes) in
            [("tokenizer_config.json", files.tokenizer_config), ("chat_template.json", files.chat_template_json)]
        {
            let config: Option<Config> = bytes.map(|bytes| read(name, bytes)).transpose()?;
            match config.and_then(|config| config.chat_template) {
                None => {}
                Some(Section::One(template)) => templates.insert(DEFAULT_TEMPLATE_NAME, &template),
                Some(Section::Many(named)) => {
                    for Named { name, template } in &named {
                        templates.insert(name, template);
                    }
                }
            }
        }
        if let Some(bytes) = files.chat_template_jinja {
            let Ok(text) = std::str::from_utf8(bytes) else {
                bail!(ChatTemplate, "chat_template.jinja is not UTF-8");
            };
            templates.insert(DEFAULT_TEMPLATE_NAME, text);
        }
        if let Some((name, template)) = templates.0.iter().find(|(_, template)| template.len() > LARGEST_TEMPLATE) {
            bail!(ChatTemplate, "template {name:?} has {} bytes, wanted at most {LARGEST_TEMPLATE}", template.len());
        }
        Ok(templates)
    }

    /// Adds a template, or replaces the one with this name.
    pub fn insert(&mut self, name: &str, template: &str) {
        self.0.insert(name.to_owned(), template.to_owned());
    }

    /// The template with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there are no templates.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn read<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T> {
    json::from_slice(bytes).map_err(|cause| err!(ChatTemplate, "{name}: {cause}"))
}
