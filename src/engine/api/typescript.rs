//! Makes the package's TypeScript types from what crosses to JavaScript, and the guide's list of error codes. Both are committed: a test
//! fails if they are out of date, and `npm run types` writes them. A derive (ts-rs) reads the structs in tests only, so the shipped wasm
//! has nothing of this.

mod print;

pub(crate) use self::print::Role;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ts_rs::{Config, TS};

use self::print::{comment, declaration, names};
use super::chunk::{
    Chunk, CompletionTokensDetails, FinishReason, FunctionDelta, MalformedToolCall, PromptTokensDetails, StopReason,
    Timings, ToolCallDelta, Usage,
};
use super::embeddings::EmbeddingUsage;
use super::logprobs::{TokenLogprob, TokenLogprobs};
use super::request::*;
use super::scores::{Classification, ClassifiedText, RankedDocument, Ranking};
use super::session::{Session, SessionModel};
use crate::decode::{MemoryPressure, PressureAction};
use crate::engine::adapters::{LoadedAdapter, SessionAdapter};
use crate::engine::load::info::{AutotuneInfo, AutotuneState, DraftInfo, ModelInfo, Phase, Progress, Warning};
use crate::engine::load::inspect::{AdapterLimits, Inspection, Problem};
use crate::engine::load::options::{Autotune, DeviceReason, LoadOptions, PerLayerEmbeddings, Smoothness};
use crate::engine::memory::MemoryUse;
use crate::error::Code;
use crate::model::adapters::AdapterFormat;
use crate::model::{KvFormat, Precision};
use crate::tensor::{
    AdapterInfo, CacheStats, DeviceKind, Flushes, KernelTime, KernelUse, PowerPreference, Stats, SubgroupMatrix, Tuned,
};

/// Types that the package declares by hand and these types use, with their modules.
const BY_HAND: [(&str, &str); 5] = [
    ("ChatMessage", "../messages.js"),
    ("ErrorCode", "../errors.js"),
    ("Tool", "../messages.js"),
    ("ToolChoice", "../messages.js"),
    ("TrainingExample", "../train/types.js"),
];

/// A generated file: its name, what its first line says about it, and its text.
pub(crate) struct File {
    pub name: &'static str,
    pub about: &'static str,
    pub text: String,
}

/// Files that layers above make of their structs.
const OF_OTHER_LAYERS: [&str; 1] = ["training"];

macro_rules! types {
    ($role:ident: $($ty:ty),* $(,)?) => { [$(one::<$ty>(Role::$role)),*].join("\n") };
}

fn declared<T: TS>() -> String {
    T::decl(&Config::new().with_large_int("number"))
}

pub(crate) fn one<T: TS>(role: Role) -> String {
    declaration(T::docs().as_deref(), &declared::<T>(), role)
}

fn files() -> Vec<File> {
    let load_options = declared::<LoadOptions>();
    let load_options: String = names(&load_options).iter().map(|name| format!("  '{name}',\n")).collect();
    let codes: String =
        Code::ALL.iter().map(|code| format!("{}  '{}',\n", comment(&[code.meaning()], "  "), code.as_str())).collect();
    vec![
        File {
            name: "requests",
            about: "What a loaded model can be asked.",
            text: types![
                Request: SamplingFields, PenaltyFields, EndingFields, Stop, StructuredFields, ResponseFormat, NamedSchema,
                StructuredOutputs, SpeculationFields, SpeculationRequest, ContextFields, ContextShiftRequest, Sinks,
                ChoicesFields, AdapterFields, ChatFields, ReasoningFields, ReasoningFormat, ChatLogprobsFields, CompletionFields, Prompt, ForcedBos,
                CompletionLogprobsFields, EmbeddingRequest, Input, RerankRequest, RerankDocument, DocumentText,
                ClassifyRequest, ClassifyInput, ClassifyText, TextPair,
            ] + "\n"
                + &types![Options: TokenizeOptions],
        },
        File {
            name: "answers",
            about: "What a loaded model answers.",
            text: types![
                Answer: FinishReason, Usage, PromptTokensDetails, CompletionTokensDetails, Timings, Chunk, TokenLogprobs,
                TokenLogprob, StopReason, ToolCallDelta, FunctionDelta, MalformedToolCall, EmbeddingUsage,
                Ranking, RankedDocument, Classification, ClassifiedText,
            ],
        },
        File {
            name: "loading",
            about: "What a model is loaded with, and what it says of itself.",
            text: types![Options: LoadOptions, DeviceKind, Autotune, Smoothness, PerLayerEmbeddings, PowerPreference, Precision, KvFormat]
                + &format!(
                    "\n/** The names of these options. */\nexport const LOAD_OPTIONS = [\n{load_options}] as const;\n\n"
                )
                + &types![
                    Answer: Progress, Phase, ModelInfo, DeviceReason, Warning, DraftInfo, AutotuneInfo, AutotuneState, Tuned, AdapterInfo,
                    SubgroupMatrix, Inspection, AdapterLimits, Problem, MemoryPressure, PressureAction, LoadedAdapter, AdapterFormat,
                ],
        },
        File {
            name: "sessions",
            about: "What is saved of a conversation.",
            text: types![Answer: Session, SessionModel, SessionAdapter],
        },
        File {
            name: "stats",
            about: "The counters of the GPU runtime.",
            text: types![Answer: Stats, Flushes, CacheStats, KernelTime, KernelUse, MemoryUse],
        },
        File {
            name: "errors",
            about: "What can go wrong.",
            text: format!(
                "{}export const ERROR_CODES = [\n{codes}] as const;\n",
                comment(
                    &["What went wrong, as a stable name that programs may compare. Messages may change, codes don't."],
                    ""
                )
            ),
        },
    ]
}

/// The types that a text exports.
fn exported(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("export interface ").or_else(|| line.strip_prefix("export type ")))
        .filter_map(|rest| rest.split([' ', '<']).next())
        .collect()
}

/// Whether a text names a type outside of comments.
fn uses(text: &str, name: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with(['*', '/']));
    let mut words = code.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_')));
    words.any(|word| word == name)
}

/// The whole text of a file, with its imports from the others.
fn whole(file: &File, files: &[File]) -> String {
    let others = files.iter().filter(|other| other.name != file.name);
    let generated =
        others.flat_map(|other| exported(&other.text).into_iter().map(|name| (name, format!("./{}.js", other.name))));
    let by_hand = BY_HAND.iter().map(|(name, module)| (*name, (*module).to_owned()));
    let used: Vec<(&str, String)> = by_hand.chain(generated).filter(|(name, _)| uses(&file.text, name)).collect();
    let modules: BTreeSet<&String> = used.iter().map(|(_, module)| module).collect();
    let imports: String = modules
        .into_iter()
        .map(|module| {
            let names: BTreeSet<&str> = used.iter().filter(|(_, of)| of == module).map(|(name, _)| *name).collect();
            format!("import type {{ {} }} from '{module}';\n", names.into_iter().collect::<Vec<_>>().join(", "))
        })
        .collect();
    let gap = if imports.is_empty() { "" } else { "\n" };
    format!(
        "// {} Made from the Rust structs by `npm run types`: change those.\n\n{imports}{gap}{}",
        file.about, file.text
    )
}

/// The guide's page of errors with each code and what it means as it is now. What to do about a code is written there by hand, and stays.
fn errors_page(old: &str) -> String {
    let mut sections = old.split("\n### `");
    let head = sections.next().unwrap_or_default().trim_end();
    let advice: BTreeMap<&str, &str> = sections
        .filter_map(|section| {
            let (code, rest) = section.split_once("`\n\n")?;
            let (_meaning, advice) = rest.split_once("\n\n").unwrap_or((rest, ""));
            Some((code, advice.trim_end()))
        })
        .collect();
    let sections = Code::ALL.iter().map(|code| {
        let advice = advice.get(code.as_str()).copied().unwrap_or_default();
        format!("\n\n### `{code}`\n\n{}\n\n{advice}", code.meaning())
    });
    format!("{head}{}\n", sections.collect::<String>().trim_end())
}

/// The codes about which the page says nothing but what they mean.
fn without_advice(page: &str) -> Vec<&str> {
    let sections = page.split("\n### `").skip(1);
    sections
        .filter(|section| section.trim().split("\n\n").count() < 3)
        .filter_map(|section| section.split('`').next())
        .collect()
}

/// Where generated files are.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pkg-template/src/generated")
}

/// Fails if a text is out of date, or writes it.
fn check_text(path: &Path, text: &str) {
    if std::env::var_os("RILLM_WRITE_TYPES").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == *text, "{} is out of date: run `npm run types`", path.display());
}

/// Fails if a file of the package is out of date, or writes it. It may use types of `files`.
pub(crate) fn check_file(file: &File, files: &[File]) {
    check_text(&folder().join(format!("{}.ts", file.name)), &whole(file, files));
}

#[test]
fn what_is_generated_is_up_to_date() {
    let folder = folder();
    let files = files();
    files.iter().for_each(|file| check_file(file, &files));
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/guide/errors.md");
    check_text(&page, &errors_page(&fs::read_to_string(&page).unwrap()));
    let page = fs::read_to_string(&page).unwrap();
    assert_eq!(without_advice(&page), Vec::<&str>::new(), "docs/guide/errors.md has to say what to do about these");
    let known: Vec<String> =
        files.iter().map(|file| file.name).chain(OF_OTHER_LAYERS).map(|name| format!("{name}.ts")).collect();
    for file in fs::read_dir(&folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "{} is of no struct", folder.join(name).display());
    }
}
