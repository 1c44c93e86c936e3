//! Parses `hf:owner/name[@revision][/file or :quantisation]`.

use crate::error::{Error, Result};

/// A repository, and which of its files is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `owner/name`.
    pub repository: String,
    revision: Option<String>,
    /// What follows `/` or `:`.
    pub wanted: Wanted,
}

/// Which file of a repository is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The reference names none.
    Any,
    /// A file, or a folder with one model.
    File(String),
    /// A quantisation as in names of files, such as `Q4_K_M`, or `safetensors`.
    Quantization(String),
}

impl Reference {
    /// Parses a reference that starts with `hf:`. Anything else is `invalid_request`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |what: &str| -> Error {
            err!(InvalidRequest, "{text:?}: {what}, wanted hf:owner/name[@revision][/file or :quantisation]")
        };
        let rest = text.strip_prefix("hf:").ok_or_else(|| wrong("not a reference to the hub"))?;
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (owner, rest) = rest.split_once('/').ok_or_else(|| wrong("no owner and name"))?;
        let end = rest.find(['@', '/', ':']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        for part in [owner, name] {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if part.is_empty() || !part.bytes().all(allowed) || part.len() > 96 || part.bytes().all(|byte| byte == b'.')
            {
                return Err(wrong("owner and name have letters, digits, - _ and ."));
            }
        }
        let (revision, rest) = match rest.strip_prefix('@') {
            Some(rest) => {
                let (revision, rest) = rest.split_at(revision_end(rest));
                let revision = revision.replace("%2F", "/").replace("%2f", "/");
                if revision.is_empty() || revision.split('/').any(|part| matches!(part, "" | "." | "..")) {
                    return Err(wrong("the revision is no branch, tag or commit"));
                }
                (Some(revision), rest)
            }
            None => (None, rest),
        };
        let wanted = match rest.chars().next() {
            None => Wanted::Any,
            Some(':') if rest.len() > 1 && !rest[1..].contains(['/', ':']) => {
                Wanted::Quantization(rest[1..].to_owned())
            }
            Some('/') => {
                let path = rest[1..].trim_end_matches('/');
                if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
                    return Err(wrong("the file is no relative path"));
                }
                Wanted::File(path.to_owned())
            }
            _ => return Err(wrong("a quantisation has no / and no :")),
        };
        Ok(Self { repository: format!("{owner}/{name}"), revision, wanted })
    }

    /// A branch, a tag or a commit. Default: `main`.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

/// A revision ends at the next `/` or `:`; those of pull requests and conversions (`refs/pr/1`) have slashes of their own.
fn revision_end(text: &str) -> usize {
    let skip = ["refs/pr/", "refs/convert/"].into_iter().find(|kind| text.starts_with(kind)).map_or(0, str::len);
    text[skip..].find(['/', ':']).map_or(text.len(), |at| at + skip)
}
