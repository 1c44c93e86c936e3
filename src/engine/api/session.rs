//! Sessions: a conversation with what the model's layers keep of it, as bytes. Whoever restores it goes on without taking the conversation in
//! again. All numbers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `RILLMSES` |
//! | 4 | version of the format, u32: 1 |
//! | 4 + n | n as u32, and a [`Session`] as JSON |
//! | 4 | CRC-32 (ISO-HDLC) of everything before it |
//! | rest | the states (`decode/saved_sequence.rs`) |

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use web_time::SystemTime;

use super::request::{AdapterFields, ChatFields, Fields};
use crate::engine::adapters::SessionAdapter;
use crate::engine::engine::Engine;
use crate::engine::source::ByteSource;
use crate::error::Result;
use crate::json;
use crate::model::source_reader::SourceReader;

const MAGIC: &[u8; 8] = b"RILLMSES";
const VERSION: u32 = 1;

/// A conversation that was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Session {
    /// What it was saved for.
    #[cfg_attr(test, ts(as = "ChatFields"))]
    pub conversation: Value,
    /// How many tokens need not be taken in again. The last few of the conversation may be left out.
    pub tokens: usize,
    /// When it was saved, in seconds since 1970.
    pub created: u64,
    /// The model that it is of; no other can restore it.
    pub model: SessionModel,
    /// The adapters that it was saved with, which have to be loaded to restore it. Requests with these scales go on from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<Vec<SessionAdapter>>,
    /// What whoever saved it wants back with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(skip))]
    pub attachment: Option<Value>,
}

/// The model of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct SessionModel {
    /// The name that the file gives itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// As GGUF files call it.
    pub architecture: String,
    /// The type that most bytes of the matrices have.
    pub quantization: String,
    /// How keys and values are stored.
    pub kv_cache: String,
    /// Of the weights and the rope: those of other models, also of the same kind, differ.
    pub fingerprint: String,
}

impl SessionModel {
    /// For messages: `Qwen2.5 0.5B Instruct (qwen2, Q8_0)`.
    fn title(&self) -> String {
        let Self { name, architecture, quantization, .. } = self;
        match name {
            Some(name) => format!("{name:?} ({architecture}, {quantization})"),
            None => format!("a model without a name ({architecture}, {quantization})"),
        }
    }
}

impl Engine {
    /// Saves a conversation: `messages`, and what else a chat request has of tools and template. `attachment` goes with it. `write` gets the
    /// bytes in order, in pieces; an error from it ends the saving. What the caches don't hold of the conversation is computed before.
    pub async fn save_session(
        &self,
        conversation: &Value,
        attachment: Option<Value>,
        write: &mut dyn FnMut(Vec<u8>) -> Result<()>,
    ) -> Result<Session> {
        let decoder = self.0.chat_decoder()?;
        let mut fields = Fields::of("the conversation", conversation.clone())?;
        let mut chat: ChatFields = fields.group()?;
        let AdapterFields { adapters } = fields.group()?;
        fields.finish()?;
        let adapters = self.0.adapter_set(adapters.as_ref())?;
        // What comes next is not known: a message of the user's, mostly.
        chat.add_generation_prompt.get_or_insert(false);
        let tokens = self.encode_chat(&self.prompt(&chat)?)?;
        let capacity = self.info().context_length;
        if tokens.is_empty() {
            bail!(InvalidRequest, "the conversation has no tokens, wanted at least one");
        }
        if tokens.len() > capacity {
            bail!(
                ContextLengthExceeded,
                "the conversation has {} tokens, and the context holds {capacity}; load with a larger contextLength",
                tokens.len()
            );
        }
        let held = decoder.hold(&tokens, &adapters).await.map_err(|error| self.0.explain(error))?;
        let session = Session {
            conversation: conversation.clone(),
            tokens: held.len(),
            created: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs()),
            model: self.session_model()?,
            adapters: self.0.adapters.of_session(&adapters),
            attachment,
        };
        let text = serde_json::to_vec(&session).map_err(|error| err!(Internal, "the session: {error}"))?;
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend((text.len() as u32).to_le_bytes());
        head.extend(text);
        head.extend(crc32fast::hash(&head).to_le_bytes());
        write(head)?;
        held.save(write).await?;
        Ok(session)
    }

    /// Takes over a session: requests that begin with its conversation need not take that in again. `invalid_file` if it is damaged or
    /// none, `session_mismatch` if it is of another model or of adapters that are not loaded; then only the slot that was used longest ago may
    /// have lost what it held.
    pub async fn restore_session(&self, source: &dyn ByteSource) -> Result<Session> {
        let decoder = self.0.chat_decoder()?;
        let mut reader = SourceReader::new(source, 0);
        let session = read(&mut reader).await?;
        let own = self.session_model()?;
        if session.model != own {
            return Err(mismatch(&session.model, &own));
        }
        let adapters = self.0.adapters.set_of_session(decoder, session.adapters.as_deref())?;
        let restored = decoder.restore(source, reader.position(), &adapters).await;
        let tokens = restored.map_err(|error| self.0.explain(error))?;
        // They may be called otherwise by now, and the next request names them.
        let adapters = self.0.adapters.of_session(&adapters);
        let mut conversation = session.conversation;
        if let Some(named @ Value::Object(_)) = conversation.get_mut("adapters") {
            let scales = adapters.iter().flatten().map(|adapter| (adapter.name.clone(), json!(adapter.scale)));
            *named = Value::Object(scales.collect());
        }
        Ok(Session { conversation, tokens, adapters, ..session })
    }

    fn session_model(&self) -> Result<SessionModel> {
        let info = self.info();
        let kv_cache = serde_json::to_value(info.kv_cache).map_err(|error| err!(Internal, "the KV cache: {error}"))?;
        Ok(SessionModel {
            name: info.name.clone(),
            architecture: info.architecture.clone(),
            quantization: info.quantization.clone(),
            kv_cache: kv_cache.as_str().unwrap_or_default().to_owned(),
            fingerprint: format!("{:016x}", self.0.decoder()?.transformer.fingerprint()),
        })
    }
}

/// Reads what is before the states.
async fn read(reader: &mut SourceReader<'_>) -> Result<Session> {
    if reader.left() < MAGIC.len() as u64 || reader.take(MAGIC.len() as u64).await? != MAGIC {
        bail!(InvalidFile, "this is no session: it does not begin with RILLMSES");
    }
    let version = reader.u32().await?;
    if version != VERSION {
        bail!(InvalidFile, "the session is of version {version}, wanted {VERSION}; save it again with this rillm");
    }
    let length = reader.u32().await?;
    let text = reader.take(length.into()).await?;
    reader.check_sum().await?;
    json::from_slice(&text).map_err(|error| err!(InvalidFile, "the session can't be read: {error}"))
}

fn mismatch(saved: &SessionModel, own: &SessionModel) -> crate::Error {
    let (theirs, ours) = (saved.title(), own.title());
    if theirs != ours {
        err!(SessionMismatch, "the session is of {theirs}, and this engine runs {ours}: load that model to restore it")
    } else if saved.kv_cache != own.kv_cache {
        err!(
            SessionMismatch,
            "the session has a KV cache in {}, and this engine's is in {}: load with kvCache: {:?} to restore it",
            saved.kv_cache,
            own.kv_cache,
            saved.kv_cache
        )
    } else {
        err!(
            SessionMismatch,
            "the session is of other weights, or of a context length with another rope, than those of this engine ({ours}): load the \
             same file with the same contextLength to restore it"
        )
    }
}
