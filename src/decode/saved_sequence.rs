//! A sequence as bytes: its tokens, and what the model's layers keep of them. All numbers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `RILLMSEQ` |
//! | 4 | version of the format, u32: 1 |
//! | 4 + n | n as u32, and a text that describes the model and its caches: it must match |
//! | 4 + 4n | n as u32, and the tokens, u32 each |
//! | 4 | how many of them were computed by passes over several tokens, u32 |
//! | rest | the states (`model/state/saved.rs`) |
//! | 4 | CRC-32 (ISO-HDLC) of everything before it |

use super::slot::Slot;
use crate::error::Result;
use crate::model::state::{self, SequenceState};
use crate::model::{LayerStates, Transformer};
use crate::tensor::Context;

const MAGIC: &[u8; 8] = b"RILLMSEQ";
const VERSION: u32 = 1;

/// What is saved of a sequence. It does not change when the sequence goes on.
pub struct Snapshot {
    head: Vec<u8>,
    states: LayerStates,
    length: usize,
}

/// What must be the same in the model that restores a sequence.
fn description(transformer: &Transformer, states: &LayerStates) -> String {
    let (config, (k, _)) = (transformer.config(), states.kv().layer(0));
    format!(
        "{} {} layers {} embd {} vocab {} parameters {} {} bytes, keys {} {}",
        config.arch.name,
        config.n_layers,
        config.n_embd,
        config.vocab_size,
        transformer.parameters(),
        transformer.quantization(),
        transformer.weight_bytes(),
        k.dtype().name(),
        states.recurrent().bytes(),
    )
}

impl Snapshot {
    /// Takes as many of a slot's first tokens as its states can return to.
    pub fn new(transformer: &Transformer, slot: &Slot) -> Self {
        let states = slot.layer_states().clone();
        let length = states.recoverable(slot.reusable().len());
        let description = description(transformer, &states);
        let mut head = MAGIC.to_vec();
        let number = |number: usize| (number as u32).to_le_bytes();
        head.extend(number(VERSION as usize));
        head.extend(number(description.len()));
        head.extend(description.as_bytes());
        head.extend(number(length));
        head.extend(slot.tokens()[..length].iter().flat_map(|token| token.to_le_bytes()));
        head.extend(number(slot.prefill_computed_len().min(length)));
        Self { head, states, length }
    }

    /// Reads the states back. Their values are those at the first poll.
    pub async fn bytes(self, context: &Context) -> Result<Vec<u8>> {
        let Self { mut head, states, length } = self;
        head.extend(state::save(context, &states, length).await?);
        head.extend(crc32fast::hash(&head).to_le_bytes());
        Ok(head)
    }
}

/// Reads the fields before the states.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            bail!(InvalidFile, "the saved sequence is cut off: {count} more bytes wanted, {} there", self.0.len())
        };
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<usize> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    }
}

/// Fills a slot with what was saved, in place of what it held. After an error the slot holds nothing.
pub fn restore(transformer: &Transformer, slot: &mut Slot, bytes: &[u8]) -> Result<()> {
    slot.forget();
    let mut reader = Reader(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        bail!(InvalidFile, "this is no saved sequence: it does not begin with RILLMSEQ");
    }
    let version = reader.number()?;
    if version != VERSION as usize {
        bail!(InvalidFile, "the saved sequence is of version {version}, wanted {VERSION}");
    }
    let length = reader.number()?;
    let (saved, own) = (reader.take(length)?, description(transformer, slot.layer_states()));
    if saved != own.as_bytes() {
        bail!(
            InvalidFile,
            "the saved sequence is of another model: {:?}, and this is {own:?}",
            String::from_utf8_lossy(saved)
        );
    }
    let count = reader.number()?;
    let Some(size) = count.checked_mul(4) else { bail!(InvalidFile, "the saved sequence has {count} tokens") };
    let tokens: Vec<u32> = bytemuck::pod_collect_to_vec(reader.take(size)?);
    let prefill_computed_len = reader.number()?;
    let states = reader.0;
    let Some((states, sum)) = states.split_last_chunk::<4>() else {
        bail!(InvalidFile, "the saved sequence is cut off: it has no checksum")
    };
    if crc32fast::hash(&bytes[..bytes.len() - sum.len()]) != u32::from_le_bytes(*sum) {
        bail!(InvalidFile, "the saved sequence is damaged, or cut off: its checksum is another");
    }
    slot.restore(transformer, tokens, prefill_computed_len, states)
}
