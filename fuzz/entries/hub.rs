//! References to the hub and its answers: the first line is a reference, the rest an answer about the repository.

use rillm::engine::hub::{HUB, Reference, Repository, choose};

pub fn run(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return };
    let Ok(reference) = Reference::parse(text) else { return };
    let url = Repository::listing_url(HUB, &reference);
    assert!(url.starts_with("https://huggingface.co/api/models/") && !url.contains("/../"), "{url}");
    let Ok(repository) = Repository::parse(HUB, &reference, &bytes[(end + 1).min(bytes.len())..]) else { return };
    if let Ok(path) = choose(repository.id(), repository.files(), &reference.wanted) {
        assert!(repository.holds(&path));
        assert!(repository.resolve_url(&path).starts_with("https://huggingface.co/"));
    }
}
