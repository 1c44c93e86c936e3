//! A sequence as bytes: its tokens, and what the model's layers keep of them. All numbers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `RILLMSEQ` |
//! | 4 | version of the format, u32: 1 |
//! | 4 + n | n as u32, and a text that describes the model and its caches: it must match |
//! | 4 + 4n | n as u32, and the tokens, u32 each |
//! | 4 | how many of them were computed by passes over several tokens, u32 |
//! | 4 | CRC-32 (ISO-HDLC) of everything before it |
//! | rest | the states (`model/state/saved.rs`) |
//! | 4 | CRC-32 of the states |

use super::adapters::AdapterKey;
use super::slot::Slot;
use crate::error::Result;
use crate::model::source::ByteSource;
use crate::model::source_reader::SourceReader;
use crate::model::{Transformer, state};

const MAGIC: &[u8; 8] = b"RILLMSEQ";
const VERSION: u32 = 1;

/// What must be the same in the model that restores a sequence.
fn description(transformer: &Transformer, slot: &Slot) -> String {
    let (config, states) = (transformer.config(), slot.layer_states());
    let adapters = match slot.adapter_key() {
        AdapterKey(0) => String::new(),
        AdapterKey(key) => format!(", adapters {key:016x}"),
    };
    format!(
        "{} {} layers {} embd {} vocab {} parameters {} {} bytes, keys {} {}, weights {:016x}{adapters}",
        config.arch.name,
        config.n_layers,
        config.n_embd,
        config.vocab_size,
        transformer.parameters(),
        transformer.quantization(),
        transformer.bytes_of_all(),
        states.kv().dtype().name(),
        states.recurrent().bytes(),
        transformer.fingerprint(),
    )
}

/// Saves a slot's first `length` tokens, a recoverable length: `write` gets the bytes in order, in pieces.
pub async fn save(
    transformer: &Transformer,
    slot: &Slot,
    length: usize,
    write: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    let description = description(transformer, slot);
    let mut head = MAGIC.to_vec();
    let number = |number: usize| (number as u32).to_le_bytes();
    head.extend(VERSION.to_le_bytes());
    head.extend(number(description.len()));
    head.extend(description.as_bytes());
    head.extend(number(length));
    head.extend(slot.tokens()[..length].iter().flat_map(|token| token.to_le_bytes()));
    head.extend(number(slot.prefill_computed_len().min(length)));
    head.extend(crc32fast::hash(&head).to_le_bytes());
    write(head)?;
    let mut sum = crc32fast::Hasher::new();
    let mut summed = |bytes: Vec<u8>| {
        sum.update(&bytes);
        write(bytes)
    };
    state::save(transformer.context(), slot.layer_states(), length, &mut summed).await?;
    write(sum.finalize().to_le_bytes().to_vec())
}

/// Fills a slot, which runs with the adapters of what was saved, from `offset` of a source to its end, in place of what the slot held. After an
/// error it holds nothing.
pub async fn restore(transformer: &Transformer, slot: &mut Slot, source: &dyn ByteSource, offset: u64) -> Result<()> {
    let mut reader = SourceReader::new(source, offset);
    if reader.take(MAGIC.len() as u64).await? != MAGIC {
        bail!(InvalidFile, "this is no saved sequence: it does not begin with RILLMSEQ");
    }
    let version = reader.u32().await?;
    if version != VERSION {
        bail!(InvalidFile, "the saved sequence is of version {version}, wanted {VERSION}");
    }
    let length = reader.u32().await?;
    let saved = reader.take(length.into()).await?;
    let count = reader.u32().await?;
    let tokens: Vec<u32> = bytemuck::pod_collect_to_vec(&reader.take(4 * u64::from(count)).await?);
    let prefill_computed_len = reader.u32().await? as usize;
    reader.check_sum().await?;
    let own = description(transformer, slot);
    if saved != own.as_bytes() {
        bail!(
            SessionMismatch,
            "what was saved is of another model, or of other adapters: {:?}, and this is {own:?}",
            String::from_utf8_lossy(&saved)
        );
    }
    slot.restore(transformer, tokens, prefill_computed_len, &mut reader).await
}
