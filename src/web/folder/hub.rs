//! A repository of a Hugging Face hub, or of a mirror.

use std::rc::Rc;

use serde::Deserialize;
use web_sys::{AbortSignal, Url};

use super::super::fetch::{HubFile, Server, Token, open, read_whole};
use crate::engine::folder::{Folder, OpenFile};
use crate::engine::hub::{HUB, MAX_LISTING_BYTES, Reference, Repository, choose};
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
    signal: Option<AbortSignal>,
}

/// Reads the list of a repository's files; returns the repository and the selected file.
pub async fn open_hub(
    reference: &str,
    options: HubOptions,
    signal: Option<AbortSignal>,
) -> Result<(Box<dyn Folder>, Option<String>)> {
    let reference = Rc::new(Reference::parse(reference)?);
    let endpoint = options.endpoint.unwrap_or_else(|| HUB.to_owned());
    let Ok(url) = Url::new(&endpoint) else {
        bail!(InvalidRequest, "the hub's address is {endpoint:?}, wanted a URL such as {HUB}");
    };
    let token = options.token.map(|value| Token { value, origin: url.origin() });
    let mut server = Server::new(Repository::listing_url(&endpoint, &reference), signal.clone());
    server.token = token.clone();
    server.hub = Some(HubFile { endpoint: endpoint.clone(), reference: reference.clone(), path: None });
    let Some(listing) = read_whole(&server, MAX_LISTING_BYTES).await? else { return Err(server.missing()) };
    let repository = Repository::parse(&endpoint, &reference, &listing)?;
    let file = choose(repository.id(), repository.files(), &reference.wanted)?;
    Ok((Box::new(HubFolder { endpoint, reference, repository, token, signal }), Some(file)))
}

impl HubFolder {
    fn server(&self, path: &str) -> Server {
        let mut server = Server::new(self.repository.resolve_url(path), self.signal.clone());
        server.token = self.token.clone();
        server.hub = Some(HubFile {
            endpoint: self.endpoint.clone(),
            reference: self.reference.clone(),
            path: Some(path.to_owned()),
        });
        server
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
            let server = self.server(&path);
            let missing = server.missing();
            Ok(Some(open(server).await?.ok_or(missing)?))
        })
    }

    fn read<'f>(&'f self, path: String, limit: u64) -> LocalFuture<'f, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            if !self.repository.holds(&path) {
                return Ok(None);
            }
            read_whole(&self.server(&path), limit).await
        })
    }

    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>>> {
        Box::pin(async { Ok(Some(self.repository.files().to_vec())) })
    }
}
