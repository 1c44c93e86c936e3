//! Folders in browsers: an address, a repository of a hub, a list of files, a folder that the user chose.

mod directory;
mod files;
mod hub;
mod url;

pub use directory::{DirectoryHandleFolder, open_opfs};
pub use files::FilesFolder;
pub use hub::{Choose, open_hub};
pub use url::UrlFolder;
