//! Files of a web server under one address. Such a folder can't be listed.

use web_sys::{AbortSignal, Url};

use super::super::remote::{RemoteFile, RemoteFiles};
use crate::engine::folder::{Folder, OpenFile, check_path};
use crate::engine::hub::encoded;
use crate::engine::source::LocalFuture;
use crate::error::Result;

pub struct UrlFolder {
    /// The address as the caller gave it, for messages.
    url: String,
    /// Ends in `/`; `None` for addresses without a folder (`blob:`, `data:`).
    base: Option<String>,
    /// The query with its `?`; a server that requires a key in it requires it for every file.
    query: String,
    /// The requested file, with its whole address.
    file: Option<String>,
    files: RemoteFiles,
    signal: Option<AbortSignal>,
}

impl UrlFolder {
    /// From an absolute address: of a folder if its path ends in `/`, otherwise of a file in the folder.
    pub fn new(address: &str, files: RemoteFiles, signal: Option<AbortSignal>) -> Result<Self> {
        let Ok(url) = Url::new(address) else {
            bail!(InvalidRequest, "{address:?} is not an address of a model, wanted an absolute URL");
        };
        let path = url.pathname();
        let folder = Self { url: address.to_owned(), base: None, query: url.search(), file: None, files, signal };
        if !matches!(url.protocol().as_str(), "http:" | "https:") {
            return Ok(Self { file: Some("model".to_owned()), ..folder });
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let base = Some(format!("{}{parent}/", url.origin()));
        match name {
            "" => Ok(Self { base, ..folder }),
            name => {
                let decoded = js_sys::decode_uri_component(name).map(String::from).unwrap_or_else(|_| name.to_owned());
                Ok(Self { base, file: Some(decoded), ..folder })
            }
        }
    }

    /// The file of the address.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    fn remote(&self, path: &str) -> Result<Option<RemoteFile>> {
        let url = match (&self.base, &self.file) {
            (_, Some(file)) if file == path => self.url.clone(),
            (Some(base), _) => {
                check_path(path)?;
                format!("{base}{}{}", encoded(path), self.query)
            }
            (None, _) => return Ok(None),
        };
        Ok(Some(RemoteFile::new(url)))
    }
}

impl Folder for UrlFolder {
    fn name(&self) -> String {
        self.url.clone()
    }

    fn open<'f>(&'f self, path: String) -> LocalFuture<'f, Result<Option<OpenFile<'f>>>> {
        Box::pin(async move {
            let Some(remote) = self.remote(&path)? else { return Ok(None) };
            let missing = remote.missing();
            let opened = remote.open(&self.files, self.signal.clone()).await?;
            if self.file.as_ref() == Some(&path) { Ok(Some(opened.ok_or(missing)?)) } else { Ok(opened) }
        })
    }

    fn read<'f>(&'f self, path: String, limit: u64) -> LocalFuture<'f, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            match self.remote(&path)? {
                Some(remote) => remote.read_whole(&self.files, self.signal.clone(), limit).await,
                None => Ok(None),
            }
        })
    }

    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>>> {
        Box::pin(async { Ok(None) })
    }
}
