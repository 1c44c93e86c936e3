//! Which file of a repository is the model, or the adapter.

use super::Wanted;
use crate::error::{Error, Result};
use crate::model::gguf::SplitName;

/// Preferred, in this order, if a repository has several GGUF files and the reference names none.
const PREFERRED: &[&str] = &["Q4_K_M", "Q8_0"];
const SAFETENSORS: &[&str] = &["model.safetensors.index.json", "model.safetensors"];
const ADAPTER: &str = "adapter_model.safetensors";
/// The most files that a message lists.
const MAX_LISTED: usize = 40;

/// The path of the model's file: the one asked for, or else the only GGUF file, or that of a preferred quantisation, or the safetensors
/// model. If several fit, an error lists them.
pub fn choose(repository: &str, files: &[String], wanted: &Wanted) -> Result<String> {
    let ggufs: Vec<&String> = files.iter().filter(|file| is_model(file)).collect();
    let safetensors = SAFETENSORS.iter().find(|name| files.iter().any(|file| file == *name));
    let listed = || list(&ggufs, safetensors.is_some());
    let none = |what: String| -> Error { err!(NotFound, "hf:{repository}: {what}; there are: {}", listed()) };
    match wanted {
        Wanted::File(path) if files.contains(path) => Ok(path.clone()),
        Wanted::File(path) => {
            let folder = format!("{path}/");
            let inside: Vec<&String> = ggufs.iter().copied().filter(|file| file.starts_with(&folder)).collect();
            match inside[..] {
                [only] => Ok(only.clone()),
                [] => Err(none(format!("there is no file {path:?}"))),
                _ => bail!(
                    InvalidRequest,
                    "hf:{repository}: {path:?} holds several models, name one: {}",
                    list(&inside, false)
                ),
            }
        }
        Wanted::Quantization(name) if name.eq_ignore_ascii_case("safetensors") => match safetensors {
            Some(file) => Ok((*file).to_owned()),
            None => Err(none("there is no model in safetensors".to_owned())),
        },
        Wanted::Quantization(name) => match of_quantization(&ggufs, name)[..] {
            [only] => Ok(only.clone()),
            [] => Err(none(format!("there is no GGUF file of {name:?}"))),
            ref several => {
                bail!(InvalidRequest, "hf:{repository}: several files are {name:?}, name one: {}", list(several, false))
            }
        },
        Wanted::Any => match (&ggufs[..], safetensors) {
            ([only], _) => Ok((*only).clone()),
            ([], Some(file)) => Ok((*file).to_owned()),
            ([], None) => bail!(
                NotFound,
                "hf:{repository}: there is no GGUF file and no model.safetensors among {} files; choose a repository with one of \
                 them",
                files.len()
            ),
            _ => {
                for name in PREFERRED {
                    if let [only] = of_quantization(&ggufs, name)[..] {
                        return Ok(only.clone());
                    }
                }
                bail!(
                    InvalidRequest,
                    "hf:{repository}: there are several models, name one by /FILE or :QUANTISATION: {}",
                    listed()
                )
            }
        },
    }
}

/// The path of an adapter's file: the one asked for, PEFT's in the folder asked for or at the root, or the only GGUF file.
pub fn choose_adapter(repository: &str, files: &[String], wanted: &Wanted) -> Result<String> {
    let has = |path: &str| files.iter().any(|file| file == path);
    let folder = match wanted {
        Wanted::File(path) if has(path) => return Ok(path.clone()),
        Wanted::File(path) => format!("{path}/"),
        Wanted::Any => String::new(),
        Wanted::Quantization(name) => {
            bail!(InvalidRequest, "hf:{repository}: {name:?} is a quantisation, and an adapter has none: name its file")
        }
    };
    let of_peft = format!("{folder}{ADAPTER}");
    if has(&of_peft) {
        return Ok(of_peft);
    }
    let inside: Vec<&String> = files.iter().filter(|file| is_model(file) && file.starts_with(&folder)).collect();
    match inside[..] {
        [only] => Ok(only.clone()),
        [] => bail!(
            NotFound,
            "hf:{repository}: there is no {of_peft:?} and no GGUF file of an adapter among {} files",
            files.len()
        ),
        _ => bail!(
            InvalidRequest,
            "hf:{repository}: there are several GGUF files, name one by /FILE: {}",
            list(&inside, false)
        ),
    }
}

/// A GGUF file that is a model, or the first file of one. Repositories also hold projectors for pictures, and calibration data.
fn is_model(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let name = lower.rsplit('/').next().unwrap_or(&lower);
    lower.ends_with(".gguf")
        && !name.contains("mmproj")
        && !name.contains("imatrix")
        && SplitName::parse(path).is_none_or(|name| name.number == 0)
}

fn of_quantization<'f>(files: &[&'f String], name: &str) -> Vec<&'f String> {
    files.iter().copied().filter(|file| has_quantization(file, name)).collect()
}

/// Whether a file's name has this quantisation, not only as a part of a longer one: `Q4_K` is not in `Q4_K_M`.
fn has_quantization(path: &str, name: &str) -> bool {
    let (path, name) = (path.to_ascii_lowercase(), name.to_ascii_lowercase());
    let file = path.rsplit('/').next().unwrap_or(&path);
    let starts = file.match_indices(&name).any(|(at, _)| {
        let before = file[..at].chars().next_back();
        let mut after = file[at + name.len()..].chars();
        let (next, second) = (after.next(), after.next());
        let ends = match next {
            Some('_') => !second.is_some_and(char::is_alphanumeric),
            Some(next) => !next.is_alphanumeric(),
            None => true,
        };
        !before.is_some_and(char::is_alphanumeric) && ends
    });
    !name.is_empty() && starts
}

fn list(files: &[&String], has_safetensors: bool) -> String {
    let mut names: Vec<&str> = files.iter().take(MAX_LISTED).map(|file| file.as_str()).collect();
    if has_safetensors {
        names.push("safetensors");
    }
    match (names.is_empty(), files.len() > MAX_LISTED) {
        (true, _) => "no models".to_owned(),
        (_, true) => format!("{} and {} more", names.join(", "), files.len() - MAX_LISTED),
        (_, false) => names.join(", "),
    }
}
