//! Errors for what the hub refuses, which say what to do.

use super::Reference;
use crate::error::Error;

/// An answer of the hub other than what was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The header `X-Error-Code`, if the hub sends it.
    pub code: Option<&'a str>,
    /// Whether the request had an access token.
    pub with_token: bool,
}

/// The error for a refusal about a repository, or a file of it.
pub fn refusal(endpoint: &str, reference: &Reference, file: Option<&str>, refused: Refused<'_>) -> Error {
    let Refused { status, code, with_token } = refused;
    let repository = &reference.repository;
    let page = format!("{}/{repository}", endpoint.trim_end_matches('/'));
    let what = match file {
        Some(file) => format!("hf:{repository}/{file}: the hub answered {status}"),
        None => format!("hf:{repository}: the hub answered {status}"),
    };
    match (status, code) {
        (401 | 403, Some("GatedRepo")) if with_token => err!(
            AccessDenied,
            "{what}: the repository is gated and this token may not read it; accept its conditions at {page} with the account of \
             the token, and give the token the right to read gated repositories"
        ),
        (401 | 403, Some("GatedRepo")) => err!(
            AccessDenied,
            "{what}: the repository is gated; accept its conditions at {page} and pass an access token (the option hub.token)"
        ),
        // The hub doesn't tell strangers which repositories exist.
        (401, _) if with_token => {
            err!(AccessDenied, "{what}: the token is not valid, or the repository does not exist; check both")
        }
        (401, _) => err!(
            AccessDenied,
            "{what}: the repository does not exist or is private; check the name, or pass an access token that may read it (the \
             option hub.token)"
        ),
        (403, _) => err!(
            AccessDenied,
            "{what}: access is denied{}; check the rights at {page}",
            if with_token { " with this token" } else { "; an access token (the option hub.token) may be needed" }
        ),
        (404, Some("RevisionNotFound")) => {
            err!(NotFound, "{what}: there is no revision {:?}; see {page}", reference.revision())
        }
        (404, Some("RepoNotFound")) => err!(NotFound, "{what}: there is no such repository; check the name"),
        (404, _) => err!(
            NotFound,
            "{what}: there is no such {} at the revision {:?}; see {page}",
            if file.is_some() { "file" } else { "repository" },
            reference.revision()
        ),
        (429, _) => err!(Http, "{what}: too many requests; wait, or pass an access token (the option hub.token)"),
        (500.., _) => err!(Http, "{what}; try again later"),
        _ => err!(Http, "{what}; check the reference and the hub's address"),
    }
}
