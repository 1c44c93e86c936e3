//! The tokenizer of a Hugging Face folder: tokenizer.json, and what tokenizer_config.json, special_tokens_map.json,
//! generation_config.json and config.json say about its special tokens.
//!
//! The rules for special tokens are those of transformers' `PreTrainedTokenizerFast`. A tokenizer.json may also have BPE dropout,
//! truncation and padding, which matter for training and batches; they are ignored. So is `clean_up_tokenization_spaces`, which would
//! change text that was already returned.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::AddedToken;

use super::added::Added;
use super::decoding::Decoding;
use super::json_model::{ModelSection, put};
use super::normalizers::Normalizers;
use super::pair::{PairForm, PairPiece};
use super::parts::Parts;
use super::pipeline::Pipeline;
use super::pre_tokenizers::PreTokenizers;
use super::special;
use super::steps::{kind, parts, section};
use super::vocabulary::TokenType;
use crate::error::Result;
use crate::json;

/// More than any published tokenizer.json (Gemma 3: 33 MB).
const LARGEST_TOKENIZER: usize = 128 << 20;
/// The largest vocabularies have 260 thousand tokens and 510 thousand merges (Gemma 3), which are 1.3 million values.
const MOST_VALUES: usize = 1 << 22;
/// The other files have a few hundred kilobytes at most.
const LARGEST_CONFIG: usize = 16 << 20;

/// The files of a Hugging Face folder for a tokenizer, as bytes; `None` for a file that the folder doesn't have.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenizerFiles<'f> {
    /// tokenizer.json; at most 128 MiB.
    pub tokenizer: &'f [u8],
    /// tokenizer_config.json: special tokens, and whether BOS and EOS are added.
    pub tokenizer_config: Option<&'f [u8]>,
    /// special_tokens_map.json: special tokens.
    pub special_tokens_map: Option<&'f [u8]>,
    /// generation_config.json: tokens that end an answer.
    pub generation_config: Option<&'f [u8]>,
    /// config.json: tokens that end an answer.
    pub config: Option<&'f [u8]>,
}

#[derive(Deserialize)]
struct TokenizerSection {
    #[serde(default)]
    added_tokens: Vec<AddedEntry>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    model: ModelSection,
}

#[derive(Deserialize)]
struct AddedEntry {
    id: u32,
    #[serde(flatten)]
    token: AddedSection,
}

#[derive(Deserialize)]
struct AddedSection {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    normalized: Option<bool>,
    #[serde(default)]
    special: bool,
}

impl AddedSection {
    fn token(self) -> AddedToken {
        AddedToken::from(self.content, self.special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized.unwrap_or(!self.special))
    }
}

/// A special token in a config file: its text, or an object with the text.
#[derive(Deserialize)]
#[serde(untagged)]
enum SpecialToken {
    Text(String),
    Added { content: String },
}

impl SpecialToken {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Added { content } => content,
        }
    }
}

/// The fields of tokenizer_config.json and special_tokens_map.json that are read.
#[derive(Default, Deserialize)]
pub(super) struct SpecialSection {
    bos_token: Option<SpecialToken>,
    eos_token: Option<SpecialToken>,
    unk_token: Option<SpecialToken>,
    pad_token: Option<SpecialToken>,
    sep_token: Option<SpecialToken>,
    cls_token: Option<SpecialToken>,
    mask_token: Option<SpecialToken>,
    #[serde(default)]
    additional_special_tokens: Option<Vec<SpecialToken>>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
    #[serde(default)]
    added_tokens_decoder: Option<BTreeMap<u32, AddedSection>>,
    /// Of Marian: the two languages have a vocabulary each.
    pub separate_vocabs: Option<bool>,
}

/// The texts of special tokens that the two files name. tokenizer_config.json comes first.
pub(super) struct Special {
    pub bos: Option<String>,
    pub eos: Option<String>,
    pub pad: Option<String>,
    pub unk: Option<String>,
    /// Those of encoders, and those without a role.
    pub others: Vec<String>,
}

impl Special {
    pub(super) fn of(config: &SpecialSection, map: &SpecialSection) -> Self {
        let name = |pick: fn(&SpecialSection) -> &Option<SpecialToken>| {
            pick(config).as_ref().or(pick(map).as_ref()).map(|token| token.text().to_owned())
        };
        let roles = [
            name(|section| &section.sep_token),
            name(|section| &section.cls_token),
            name(|section| &section.mask_token),
        ];
        let more = [config, map].into_iter().flat_map(|section| section.additional_special_tokens.iter().flatten());
        Self {
            bos: name(|section| &section.bos_token),
            eos: name(|section| &section.eos_token),
            pad: name(|section| &section.pad_token),
            unk: name(|section| &section.unk_token),
            others: roles.into_iter().flatten().chain(more.map(|token| token.text().to_owned())).collect(),
        }
    }
}

/// Ids in a config file: one number or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

#[derive(Default, Deserialize)]
pub(super) struct EndSection {
    eos_token_id: Option<Ids>,
}

impl EndSection {
    /// The tokens that end an answer, if the file names any.
    pub(super) fn ids(self) -> Option<Vec<u32>> {
        self.eos_token_id.map(|ids| match ids {
            Ids::One(id) => vec![id],
            Ids::Many(ids) => ids,
        })
    }
}

fn check_size(name: &str, bytes: &[u8], largest: usize) -> Result<()> {
    if bytes.len() > largest {
        bail!(UnsupportedTokenizer, "{name} has {} bytes, wanted at most {largest}", bytes.len());
    }
    Ok(())
}

pub(super) fn read_or_default<T: DeserializeOwned + Default>(name: &str, bytes: Option<&[u8]>) -> Result<T> {
    let Some(bytes) = bytes else { return Ok(T::default()) };
    check_size(name, bytes, LARGEST_CONFIG)?;
    json::from_slice(bytes).map_err(|cause| err!(UnsupportedTokenizer, "{name}: {cause}"))
}

/// The settings of all files together.
pub(super) fn parts_of(files: &TokenizerFiles) -> Result<Parts> {
    check_size("tokenizer.json", files.tokenizer, LARGEST_TOKENIZER)?;
    // Not by way of values, of which a vocabulary has hundreds of thousands.
    let file: TokenizerSection = json::check_values(files.tokenizer, MOST_VALUES)
        .and_then(|()| serde_json::from_slice(files.tokenizer))
        .map_err(|cause| err!(UnsupportedTokenizer, "tokenizer.json: {cause}"))?;
    let config: SpecialSection = read_or_default("tokenizer_config.json", files.tokenizer_config)?;
    let map: SpecialSection = read_or_default("special_tokens_map.json", files.special_tokens_map)?;
    let generation: EndSection = read_or_default("generation_config.json", files.generation_config)?;
    let model_config: EndSection = read_or_default("config.json", files.config)?;

    let normalizers = Normalizers::new(file.normalizer.as_ref())?;
    let pre_tokenizers = PreTokenizers::new(file.pre_tokenizer.as_ref())?;
    let decoding = Decoding::new(file.decoder.as_ref())?;

    let Special { bos: bos_text, eos: eos_text, pad: pad_text, unk, others } = Special::of(&config, &map);
    let named: Vec<String> = [&bos_text, &eos_text, &pad_text, &unk]
        .into_iter()
        .flatten()
        .chain(&others)
        .filter(|text| !text.is_empty())
        .cloned()
        .collect();

    let mut added: Vec<Added> =
        file.added_tokens.into_iter().map(|entry| Added { id: entry.id, token: entry.token.token() }).collect();
    for (id, section) in config.added_tokens_decoder.into_iter().flatten() {
        if !added.iter().any(|other| other.token.content == section.content) {
            added.push(Added { id, token: section.token() });
        }
    }
    let mut texts: HashSet<String> = added.iter().map(|added| added.token.content.clone()).collect();
    texts.extend(named.iter().cloned());
    let in_model = file.model.ids_of(&texts);
    for text in named {
        match added.iter_mut().find(|added| added.token.content == text) {
            Some(added) => added.token.special = true,
            None => {
                if let Some(&id) = in_model.get(&text) {
                    added.push(Added { id, token: AddedToken::from(text, true) });
                }
            }
        }
    }
    let special = added.iter().filter(|added| added.token.special);
    let mut model = file.model.build(&special.map(|added| added.token.content.clone()).collect())?;
    let n_entries = model.tokens.len() + added.len();
    for Added { id, token } in &mut added {
        // As in transformers, the vocabulary's id counts if it has the token.
        *id = in_model.get(&token.content).copied().unwrap_or(*id);
        put(&mut model.tokens, n_entries, *id, &token.content)?;
    }

    let tokens = std::mem::take(&mut model.tokens);
    let mut types: Vec<TokenType> =
        tokens.iter().map(|token| if token.is_some() { TokenType::Normal } else { TokenType::Unused }).collect();
    for Added { id, token } in &added {
        types[*id as usize] = if token.special { TokenType::Control } else { TokenType::UserDefined };
    }
    let pipeline = Pipeline::new(model, normalizers, pre_tokenizers, &added)?;
    let id_of = |text: &Option<String>| text.as_deref().and_then(|text| pipeline.token_id(text));
    let (bos, eos, pad) = (id_of(&bos_text), id_of(&eos_text), id_of(&pad_text));

    // The tokens around a text.
    let (mut before, mut after) = frame(file.post_processor.as_ref())?;
    let mut pair = pair_form(file.post_processor.as_ref())?;
    if config.add_bos_token.is_some() || config.add_eos_token.is_some() {
        before = bos.filter(|_| config.add_bos_token == Some(true)).into_iter().collect();
        after = eos.filter(|_| config.add_eos_token == Some(true)).into_iter().collect();
        pair = PairForm::of(&before, (&after, &before), &after, [0, 1]);
    }
    let mut ends: Vec<u32> = Vec::new();
    let listed = [generation, model_config].into_iter().find_map(EndSection::ids).unwrap_or_default();
    // Configs for padded vocabularies may name ids without tokens.
    ends.extend(eos.into_iter().chain(listed).filter(|&id| (id as usize) < types.len()));
    for id in before.iter().chain(&after) {
        if *id as usize >= types.len() {
            bail!(UnsupportedTokenizer, "the post-processor of the tokenizer adds id {id}, which is no token");
        }
    }
    let n_types = types.len();
    let texts = tokens.iter().map(|token| token.as_deref().unwrap_or(""));
    let end_of_generation = special::end_of_generation(texts, &mut types, &ends);
    Ok(Parts {
        pipeline,
        decoding,
        tokens,
        types,
        added,
        bos,
        eos: eos.or(ends.first().copied()),
        pad,
        before,
        after,
        pair: Some(pair).filter(|pair| pair.is_whole() && pair.tokens().all(|id| (id as usize) < n_types)),
        end_of_generation,
    })
}

enum Piece {
    Text,
    Token(u32),
}

#[derive(Deserialize)]
struct TemplateSection {
    single: Vec<TemplatePiece>,
    #[serde(default)]
    pair: Vec<TemplatePiece>,
    special_tokens: BTreeMap<String, TemplateToken>,
}

#[derive(Deserialize)]
enum TemplatePiece {
    Sequence {
        id: String,
        #[serde(default)]
        type_id: u32,
    },
    SpecialToken {
        id: String,
        #[serde(default)]
        type_id: u32,
    },
}

#[derive(Deserialize)]
struct TemplateToken {
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct BertSection {
    sep: (String, u32),
    cls: (String, u32),
}

const POST_PROCESSORS: &str = "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing";

/// The ids that the post-processor puts before and after a single text.
fn frame(post_processor: Option<&Value>) -> Result<(Vec<u32>, Vec<u32>)> {
    let mut pieces = vec![Piece::Text];
    if let Some(value) = post_processor {
        apply(value, &mut pieces)?;
    }
    let mut sides = pieces.split(|piece| matches!(piece, Piece::Text));
    let ids = |side: Option<&[Piece]>| -> Vec<u32> {
        let ids = side.unwrap_or_default().iter().map(|piece| match piece {
            Piece::Token(id) => *id,
            Piece::Text => 0,
        });
        ids.collect()
    };
    let (before, after) = (ids(sides.next()), ids(sides.next()));
    match pieces.iter().filter(|piece| matches!(piece, Piece::Text)).count() {
        1 => Ok((before, after)),
        n => bail!(UnsupportedTokenizer, "the post-processor of the tokenizer has the text {n} times, wanted it once"),
    }
}

fn apply(value: &Value, pieces: &mut Vec<Piece>) -> Result<()> {
    match kind("post-processor", value)? {
        // It trims offsets, which are not used here.
        "ByteLevel" => {}
        "Sequence" => {
            for part in parts("post-processor", value, "processors")? {
                apply(part, pieces)?;
            }
        }
        "BertProcessing" | "RobertaProcessing" => {
            let BertSection { sep, cls } = section("a post-processor", value.clone())?;
            pieces.insert(0, Piece::Token(cls.1));
            pieces.push(Piece::Token(sep.1));
        }
        "TemplateProcessing" => {
            let template: TemplateSection = section("a post-processor", value.clone())?;
            let mut framed = Vec::new();
            for piece in template.single {
                match piece {
                    TemplatePiece::Sequence { id, .. } if id == "A" && !pieces.is_empty() => framed.append(pieces),
                    TemplatePiece::Sequence { id, .. } => {
                        bail!(UnsupportedTokenizer, "the template for one text has a text {id:?}, wanted \"A\", once")
                    }
                    TemplatePiece::SpecialToken { id, .. } => match template.special_tokens.get(&id) {
                        Some(token) => framed.extend(token.ids.iter().map(|&id| Piece::Token(id))),
                        None => bail!(UnsupportedTokenizer, "the template has special token {id:?}, which has no ids"),
                    },
                }
            }
            *pieces = framed;
        }
        other => {
            bail!(
                UnsupportedTokenizer,
                "the tokenizer has a post-processor {other:?}, wanted one of: {POST_PROCESSORS}"
            )
        }
    }
    Ok(())
}

/// The form that the post-processor gives a pair of texts.
fn pair_form(post_processor: Option<&Value>) -> Result<PairForm> {
    let mut form = PairForm::plain();
    if let Some(value) = post_processor {
        apply_to_pair(value, &mut form)?;
    }
    Ok(form)
}

/// A pair that was put together is one text for what comes after.
fn apply_to_pair(value: &Value, form: &mut PairForm) -> Result<()> {
    let is_apart = *form == PairForm::plain();
    match kind("post-processor", value)? {
        "Sequence" => {
            for part in parts("post-processor", value, "processors")? {
                apply_to_pair(part, form)?;
            }
        }
        "BertProcessing" if is_apart => {
            let BertSection { sep, cls } = section("a post-processor", value.clone())?;
            *form = PairForm::of(&[cls.1], (&[sep.1], &[]), &[sep.1], [0, 1]);
        }
        "RobertaProcessing" if is_apart => {
            let BertSection { sep, cls } = section("a post-processor", value.clone())?;
            *form = PairForm::of(&[cls.1], (&[sep.1], &[sep.1]), &[sep.1], [0, 0]);
        }
        "TemplateProcessing" if is_apart => {
            let template: TemplateSection = section("a post-processor", value.clone())?;
            let mut pieces = Vec::new();
            for piece in template.pair {
                match piece {
                    TemplatePiece::Sequence { id, type_id } if id == "A" => pieces.push(PairPiece::First(type_id)),
                    TemplatePiece::Sequence { type_id, .. } => pieces.push(PairPiece::Second(type_id)),
                    TemplatePiece::SpecialToken { id, type_id } => match template.special_tokens.get(&id) {
                        Some(token) => pieces.extend(token.ids.iter().map(|&id| PairPiece::Token(id, type_id))),
                        None => bail!(UnsupportedTokenizer, "the template has special token {id:?}, which has no ids"),
                    },
                }
            }
            *form = PairForm(pieces);
        }
        // What has no tokens of its own, and what the form of one text refuses.
        _ => {}
    }
    Ok(())
}
