//! A repository of a Hugging Face hub, or of a mirror.

use std::rc::Rc;

use serde::Deserialize;
use web_sys::{AbortSignal, Url};

use super::super::remote::{HubFile, RemoteFile, RemoteFiles, Token};
use crate::engine::folder::{Folder, OpenFile};
use crate::engine::hub::{HUB, MAX_LISTING_BYTES, Reference, Repository, Wanted};
use crate::engine::source::LocalFuture;
use crate::error::Result;

/// The options of requests to a hub.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct HubOptions {
    endpoint: Option<String>,
    token: Option<String>,
}

struct HubFolder {
    endpoint: String,
    reference: Rc<Reference>,
    repository: Repository,
    token: Option<Token>,
    files: RemoteFiles,
    signal: Option<AbortSignal>,
}

/// Which file of a repository is meant, by its name and the paths of its files.
pub type Choose = fn(&str, &[String], &Wanted) -> Result<String>;

/// Reads the list of a repository's files; returns the repository and the file that `choose` selects.
pub async fn open_hub(
    reference: &str,
    options: HubOptions,
    choose: Choose,
    files: RemoteFiles,
    signal: Option<AbortSignal>,
) -> Result<(Box<dyn Folder>, Option<String>)> {
    let reference = Rc::new(Reference::parse(reference)?);
    let endpoint = options.endpoint.unwrap_or_else(|| HUB.to_owned());
    let Ok(url) = Url::new(&endpoint) else {
        bail!(InvalidRequest, "the hub's address is {endpoint:?}, wanted a URL such as {HUB}");
    };
    let token = options.token.map(|value| Token { value, origin: url.origin() });
    let mut listing = RemoteFile::new(Repository::listing_url(&endpoint, &reference));
    listing.token = token.clone();
    listing.hub = Some(HubFile { endpoint: endpoint.clone(), reference: reference.clone(), path: None });
    let missing = listing.missing();
    let listing = listing.read_whole(&files, signal.clone(), MAX_LISTING_BYTES).await?.ok_or(missing)?;
    let repository = Repository::parse(&endpoint, &reference, &listing)?;
    let file = choose(repository.id(), repository.files(), &reference.wanted)?;
    Ok((Box::new(HubFolder { endpoint, reference, repository, token, files, signal }), Some(file)))
}

impl HubFolder {
    fn remote(&self, path: &str) -> RemoteFile {
        RemoteFile {
            url: self.repository.resolve_url(path),
            token: self.token.clone(),
            hub: Some(HubFile {
                endpoint: self.endpoint.clone(),
                reference: self.reference.clone(),
                path: Some(path.to_owned()),
            }),
            facts: self.repository.facts(path),
        }
    }
}

impl Folder for HubFolder {
    fn name(&self) -> String {
        format!("hf:{}", self.repository.id())
    }

    fn open<'f>(&'f self, path: String) -> LocalFuture<'f, Result<Option<OpenFile<'f>>>> {
        Box::pin(async move {
            if !self.repository.holds(&path) {
                return Ok(None);
            }
            let remote = self.remote(&path);
            let missing = remote.missing();
            Ok(Some(remote.open(&self.files, self.signal.clone()).await?.ok_or(missing)?))
        })
    }

    fn read<'f>(&'f self, path: String, limit: u64) -> LocalFuture<'f, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            if !self.repository.holds(&path) {
                return Ok(None);
            }
            self.remote(&path).read_whole(&self.files, self.signal.clone(), limit).await
        })
    }

    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>>> {
        Box::pin(async { Ok(Some(self.repository.files().to_vec())) })
    }
}
