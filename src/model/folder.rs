//! A folder with the files of a model, opened by name: a folder on a disk, a repository on a server, or a single file, which counts as a
//! folder with one file.

use std::path::{Component, Path, PathBuf};

use super::source::{ByteSource, FileSource, LocalFuture, MemorySource};
use crate::error::Result;

/// An open file of a folder; it lives as long as the folder.
pub type OpenFile<'f> = Box<dyn ByteSource + 'f>;

/// Files by name. Names are relative and separate their parts by `/`.
pub trait Folder {
    /// A path or an address, for messages.
    fn name(&self) -> String;

    /// Opens a file; `None` if there is no such file.
    fn open<'f>(&'f self, path: String) -> LocalFuture<'f, Result<Option<OpenFile<'f>>>>;

    /// The contents of a file of at most `limit` bytes; `None` if there is no such file.
    fn read<'f>(&'f self, path: String, limit: u64) -> LocalFuture<'f, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            let Some(file) = self.open(path).await? else { return Ok(None) };
            check_size(&file.name(), file.size(), limit)?;
            Ok(Some(file.read(0, file.size() as usize).await?))
        })
    }

    /// The names of all files; `None` if they can't be listed, as on a simple web server.
    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>>>;
}

/// Refuses a name that leads out of the folder. Files by other authors may contain such names.
pub fn check_path(path: &str) -> Result<()> {
    let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
    if path.is_empty() || path.contains(['\\', '\0', '?', '#', ':']) || !Path::new(path).components().all(normal) {
        bail!(InvalidFile, "{path:?} can't be a file of the model's folder, wanted a relative path");
    }
    Ok(())
}

/// Checks the size before a whole file is read.
pub fn check_size(name: &str, size: u64, limit: u64) -> Result<()> {
    if size > limit {
        bail!(InvalidFile, "{name}: the file has {size} bytes, wanted at most {limit}");
    }
    Ok(())
}

/// A single file as a folder.
pub struct OneFile<'s>(pub &'s dyn ByteSource);

impl Folder for OneFile<'_> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn open<'f>(&'f self, path: String) -> LocalFuture<'f, Result<Option<OpenFile<'f>>>> {
        Box::pin(async move { Ok((path == self.0.name()).then(|| Box::new(self.0) as OpenFile<'f>)) })
    }

    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>>> {
        Box::pin(async move { Ok(Some(vec![self.0.name()])) })
    }
}

/// Files in memory.
#[derive(Default)]
pub struct MemoryFolder {
    files: Vec<(String, MemorySource)>,
}

impl MemoryFolder {
    /// Files by their names and contents.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let source = |(name, bytes): (String, Vec<u8>)| {
            let source = MemorySource::new(bytes).with_name(name.clone());
            (name, source)
        };
        Self { files: files.into_iter().map(source).collect() }
    }
}

impl Folder for MemoryFolder {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn open<'f>(&'f self, path: String) -> LocalFuture<'f, Result<Option<OpenFile<'f>>>> {
        let file = self.files.iter().find(|(name, _)| *name == path);
        Box::pin(async move { Ok(file.map(|(_, source)| Box::new(source) as OpenFile<'f>)) })
    }

    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>>> {
        Box::pin(async move { Ok(Some(self.files.iter().map(|(name, _)| name.clone()).collect())) })
    }
}

/// A folder of the operating system. Files of its sub-folders can be opened but are not listed.
pub struct DirectoryFolder {
    path: PathBuf,
}

impl DirectoryFolder {
    /// The folder at `path`. It is not opened here: a missing one is an error only when files are listed.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned() }
    }
}

impl Folder for DirectoryFolder {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn open<'f>(&'f self, path: String) -> LocalFuture<'f, Result<Option<OpenFile<'f>>>> {
        Box::pin(async move {
            check_path(&path)?;
            let path = self.path.join(path);
            if !path.exists() {
                return Ok(None);
            }
            Ok(Some(Box::new(FileSource::open(path)?) as OpenFile<'f>))
        })
    }

    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>>> {
        Box::pin(async move {
            let failed = |error| err!(Read, "{}: the folder can't be read: {error}", self.path.display());
            let mut names = Vec::new();
            for entry in std::fs::read_dir(&self.path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                if entry.path().is_file() {
                    names.extend(entry.file_name().into_string().ok());
                }
            }
            names.sort();
            Ok(Some(names))
        })
    }
}
