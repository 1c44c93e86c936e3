//! Models on a Hugging Face hub: what a reference names, what a repository holds, which of its files is meant, where they are and what
//! a refusal means. `web` sends the requests; nothing here reads a network.
//!
//! Source: the hub's API (https://huggingface.co/docs/hub/api) and `huggingface_hub`, which resolve the same way.

mod choose;
mod reference;
mod refusal;

use serde::Deserialize;

pub use choose::{choose, choose_adapter};
pub use reference::{Reference, Wanted};
pub use refusal::{Refused, refusal};

use crate::error::Result;
use crate::json;

/// The default address; mirrors have others.
pub const HUB: &str = "https://huggingface.co";
/// The longest list of files that is read: enough for tens of thousands.
pub const MAX_LISTING_BYTES: u64 = 32 << 20;

/// A repository at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    endpoint: String,
    id: String,
    /// The commit, so that all files are of one state; the revision if the hub names no commit.
    commit: String,
    files: Vec<String>,
    /// Of each of them.
    facts: Vec<FileFacts>,
}

/// What a listing says of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// In bytes.
    pub size: Option<u64>,
    /// 64 hexadecimal digits, in lower case. The hub names it for files that it keeps with Git LFS.
    pub sha256: Option<String>,
}

#[derive(Deserialize)]
struct Listing {
    sha: Option<String>,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
    size: Option<u64>,
}

impl Sibling {
    fn facts(&self) -> FileFacts {
        let is_digest = |text: &&String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let sha256 = self.lfs.as_ref().and_then(|lfs| lfs.sha256.as_ref()).filter(is_digest);
        let size = self.lfs.as_ref().and_then(|lfs| lfs.size).or(self.size);
        FileFacts { size, sha256: sha256.map(|text| text.to_ascii_lowercase()) }
    }
}

impl Repository {
    /// The URL of a repository's list of files; the answer goes to `parse`.
    pub fn listing_url(endpoint: &str, reference: &Reference) -> String {
        format!(
            "{}/api/models/{}/revision/{}?blobs=true",
            endpoint.trim_end_matches('/'),
            encoded(&reference.repository),
            encoded_segment(reference.revision())
        )
    }

    /// Reads a repository's list of files. Anything else is `invalid_file`.
    pub fn parse(endpoint: &str, reference: &Reference, listing: &[u8]) -> Result<Self> {
        let listing: Listing = json::from_slice(listing).map_err(|error| {
            err!(
                InvalidFile,
                "hf:{}: {endpoint} answered about the repository with something else than a list of files ({error}); check the \
                 address of the hub",
                reference.repository
            )
        })?;
        let is_commit = |sha: &String| sha.len() == 40 && sha.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            id: reference.repository.clone(),
            commit: listing.sha.filter(is_commit).unwrap_or_else(|| reference.revision().to_owned()),
            facts: listing.siblings.iter().map(Sibling::facts).collect(),
            files: listing.siblings.into_iter().map(|sibling| sibling.rfilename).collect(),
        })
    }

    /// `owner/name`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The paths of all files, from the root of the repository.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Whether `path` is one of the files.
    pub fn holds(&self, path: &str) -> bool {
        self.files.iter().any(|file| file == path)
    }

    /// What the listing says of a file; nothing for one that it does not hold.
    pub fn facts(&self, path: &str) -> FileFacts {
        let place = self.files.iter().position(|file| file == path);
        place.and_then(|place| self.facts.get(place)).cloned().unwrap_or_default()
    }

    /// The URL of a file. The hub answers with the file or a redirect to it.
    pub fn resolve_url(&self, path: &str) -> String {
        format!("{}/{}/resolve/{}/{}", self.endpoint, encoded(&self.id), encoded_segment(&self.commit), encoded(path))
    }
}

/// A path for a URL: its segments percent-encoded.
pub fn encoded(path: &str) -> String {
    path.split('/').map(encoded_segment).collect::<Vec<_>>().join("/")
}

/// All but RFC 3986's unreserved characters as %XX.
fn encoded_segment(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
