//! The state of a sequence as bytes: for each tensor its length in bytes (u64, little-endian) and its elements as on the GPU. The parts of
//! positions come first, then the rest.

use super::SequenceState;
use crate::error::Result;
use crate::model::source_reader::SourceReader;
use crate::tensor::{Context, Desc, HostTensor, Tensor};

/// So many bytes are in memory at a time, on the way to the GPU or from it; one tensor may have more on the way from it.
const MOST_AT_ONCE: u64 = 16 << 20;
/// After this number of bytes a restore waits for the GPU, which limits the browser's copies in flight.
const BYTES_IN_FLIGHT: u64 = 64 << 20;

/// Saves the state of the first `length` tokens, a recoverable length: `write` gets its bytes in order, in pieces. Nothing may change the
/// state meanwhile.
pub async fn save(
    context: &Context,
    state: &dyn SequenceState,
    length: usize,
    write: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut tensors = state.positions(0..length)?;
    tensors.extend(state.snapshot(length)?);
    let mut rest: Vec<&Tensor> = tensors.iter().rev().collect();
    while !rest.is_empty() {
        let (mut group, mut bytes) = (Vec::new(), 0);
        while let Some(tensor) = rest.pop_if(|tensor| bytes == 0 || bytes + tensor.bytes() <= MOST_AT_ONCE) {
            bytes += tensor.bytes();
            group.push(tensor);
        }
        for host in context.readback(&group).await? {
            write((host.bytes.len() as u64).to_le_bytes().to_vec())?;
            write(host.bytes)?;
        }
    }
    Ok(())
}

/// Loads the state that `save` wrote at this length; 4 bytes follow it. After an error the state is undefined.
pub async fn restore(
    context: &Context,
    state: &dyn SequenceState,
    length: usize,
    reader: &mut SourceReader<'_>,
) -> Result<()> {
    state.roll_back(context, 0)?;
    let mut in_flight = 0;
    for tensor in state.positions(0..length)? {
        let mut left = piece(reader).await?;
        if left != tensor.bytes() {
            bail!(InvalidFile, "a part of the saved state has {left} bytes, wanted {}: it is damaged", tensor.bytes());
        }
        let mut first = 0;
        while left > 0 {
            let bytes = reader.take(left.min(MOST_AT_ONCE)).await?;
            context.write(&tensor, first, &bytes)?;
            // What is held back for the sake of frames is in memory.
            context.device().sent().await;
            first += bytes.len() / 4;
            left -= bytes.len() as u64;
            in_flight += bytes.len() as u64;
            if in_flight >= BYTES_IN_FLIGHT {
                in_flight = 0;
                context.device().sync().await?;
            }
        }
    }
    let mut snapshot = Vec::new();
    while reader.left() > 4 {
        let length = piece(reader).await?;
        let numbers: Vec<f32> = bytemuck::pod_collect_to_vec(&reader.take(length).await?);
        snapshot.push(context.tensor(&HostTensor::f32(Desc::f32(&[numbers.len()]).shape.dims(), &numbers))?);
    }
    // Refuses another number of layers, or layers of another size.
    state.load(context, length, &snapshot)
}

/// The length of the next tensor.
async fn piece(reader: &mut SourceReader<'_>) -> Result<u64> {
    let length = reader.u64().await?;
    if length > reader.left() {
        bail!(InvalidFile, "the saved state is cut off: {length} bytes announced, {} there", reader.left());
    }
    if !length.is_multiple_of(4) {
        bail!(InvalidFile, "a part of the saved state has {length} bytes, wanted a multiple of 4");
    }
    Ok(length)
}
