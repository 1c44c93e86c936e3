//! The state of a training as bytes, from which it goes on as if it had never ended. All numbers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `RILLMTRN` |
//! | 4 | version of the format, u32: 1 |
//! | 4 + n | n as u32, and a [`Header`] as JSON |
//! | 4 | CRC-32 (ISO-HDLC) of everything before it |
//! | rest | f32: the losses of all steps so far, those of what is held out, and what the trainer has |
//! | 4 | CRC-32 of the rest |

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::source::ByteSource;
use crate::error::Result;
use crate::json;
use crate::model::adapters::reserve;
use crate::model::source_reader::SourceReader;

const MAGIC: &[u8; 8] = b"RILLMTRN";
const VERSION: u32 = 1;

/// A training that is under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Checkpoint {
    /// Steps that were made.
    pub step: usize,
    /// Of each of them.
    pub losses: Vec<f32>,
    /// Of what is held out, of the epochs that have begun.
    pub held_out: Vec<f32>,
    /// The numbers of the trainer (`Trainer::state`).
    pub state: Vec<Vec<f32>>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    /// What the training does, by which another one is known.
    settings: Map<String, Value>,
    step: usize,
    /// How many numbers each array has.
    lengths: Vec<usize>,
}

impl Checkpoint {
    /// As bytes, of a training that does this.
    pub fn write(&self, settings: &Map<String, Value>) -> Result<Vec<u8>> {
        let arrays = || [&self.losses, &self.held_out].into_iter().chain(&self.state);
        let lengths = arrays().map(Vec::len).collect();
        let header = Header { settings: settings.clone(), step: self.step, lengths };
        let text = serde_json::to_vec(&header).map_err(|error| err!(Internal, "the checkpoint: {error}"))?;
        let numbers = arrays().map(Vec::len).sum::<usize>();
        let mut bytes = Vec::new();
        reserve(&mut bytes, 24 + text.len() + 4 * numbers)?;
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        let begin = bytes.len();
        arrays().flatten().for_each(|number| bytes.extend(number.to_le_bytes()));
        let sum = crc32fast::hash(bytes.get(begin..).unwrap_or_default());
        bytes.extend(sum.to_le_bytes());
        Ok(bytes)
    }

    /// What was written. `invalid_file` if it is damaged or no checkpoint, `checkpoint_mismatch` if it is of a training that does something else.
    pub async fn read(source: &dyn ByteSource, settings: &Map<String, Value>) -> Result<Self> {
        let mut reader = SourceReader::new(source, 0);
        if reader.left() < MAGIC.len() as u64 || reader.take(MAGIC.len() as u64).await? != MAGIC {
            bail!(InvalidFile, "this is no checkpoint of a training: it does not begin with RILLMTRN");
        }
        let version = reader.u32().await?;
        if version != VERSION {
            bail!(InvalidFile, "the checkpoint is of version {version}, wanted {VERSION}; begin the training anew");
        }
        let length = reader.u32().await?;
        let text = reader.take(length.into()).await?;
        reader.check_sum().await?;
        let header: Header =
            json::from_slice(&text).map_err(|error| err!(InvalidFile, "the checkpoint can't be read: {error}"))?;
        check_same(&header.settings, settings)?;
        let mut arrays = Vec::with_capacity(header.lengths.len().min(1 << 16));
        for length in header.lengths {
            let Some(bytes) = (length as u64).checked_mul(4) else {
                bail!(InvalidFile, "the checkpoint names an array of {length} numbers")
            };
            let bytes = reader.take(bytes).await?;
            arrays.push(bytemuck::pod_collect_to_vec::<u8, f32>(&bytes));
        }
        reader.check_sum().await?;
        let mut arrays = arrays.into_iter();
        let (Some(losses), Some(held_out)) = (arrays.next(), arrays.next()) else {
            bail!(InvalidFile, "the checkpoint holds no losses")
        };
        if losses.len() != header.step {
            bail!(InvalidFile, "the checkpoint holds {} losses of {} steps", losses.len(), header.step);
        }
        Ok(Self { step: header.step, losses, held_out, state: arrays.collect() })
    }
}

/// The steps that were made and the numbers that are kept of them, of a checkpoint of whatever training. Errors are those of [`Checkpoint::read`].
pub async fn read_checkpoint(source: &dyn ByteSource) -> Result<(usize, usize)> {
    let Checkpoint { step, losses, held_out, state } = Checkpoint::read(source, &Map::new()).await?;
    Ok((step, losses.len() + held_out.len() + state.iter().map(Vec::len).sum::<usize>()))
}

/// An error that names the first setting which differs.
fn check_same(saved: &Map<String, Value>, own: &Map<String, Value>) -> Result<()> {
    for (name, own) in own {
        let saved = saved.get(name).unwrap_or(&Value::Null);
        if saved != own {
            bail!(
                CheckpointMismatch,
                "the checkpoint is of another training: its {name} is {saved}, and that of this one {own}; begin anew, or train as before"
            );
        }
    }
    Ok(())
}

/// A number that other tokens, or others of them to be learnt, do not have (FNV-1a, 64 bits).
pub(super) fn fingerprint(words: impl Iterator<Item = u32>) -> String {
    let hash = words
        .flat_map(u32::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}
