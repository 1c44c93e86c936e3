//! The corpora of the fuzz targets: an archive each.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The files of a target's corpus by their names, in order.
pub fn files(target: &str) -> Vec<(String, Vec<u8>)> {
    static UNPACKED: AtomicUsize = AtomicUsize::new(0);
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/corpus/{target}.tar.gz"));
    // Of this call alone: other processes and threads unpack too.
    let number = UNPACKED.fetch_add(1, Ordering::Relaxed);
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("corpus-{target}-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let tar = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&folder).status();
    assert!(tar.is_ok_and(|status| status.success()), "tar could not unpack {}", archive.display());
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    std::fs::remove_dir_all(&folder).unwrap();
    files.sort();
    files
}
