//! The state of a sequence as bytes: for each tensor its length in bytes (u64, little-endian) and its elements as on the GPU. The parts of
//! positions come first, then the rest.

use super::SequenceState;
use crate::error::Result;
use crate::tensor::{Context, Desc, HostTensor, Tensor};

const LENGTH: usize = size_of::<u64>();

/// The state of the first `length` tokens, a recoverable length.
pub async fn save(context: &Context, state: &dyn SequenceState, length: usize) -> Result<Vec<u8>> {
    let mut tensors = state.positions(0..length)?;
    tensors.extend(state.snapshot(length)?);
    let tensors: Vec<&Tensor> = tensors.iter().collect();
    let mut bytes = Vec::new();
    for host in context.readback(&tensors).await? {
        bytes.extend((host.bytes.len() as u64).to_le_bytes());
        bytes.extend(host.bytes);
    }
    Ok(bytes)
}

/// Loads the state that `save` wrote at this length. If it fails, the state has length 0.
pub fn restore(context: &Context, state: &dyn SequenceState, length: usize, bytes: &[u8]) -> Result<()> {
    state.roll_back(context, 0)?;
    let mut pieces = pieces(bytes)?.into_iter();
    let positions = state.positions(0..length)?;
    let own = pieces.by_ref().take(positions.len());
    let own: Vec<(&Tensor, &[u8])> = positions.iter().zip(own).collect();
    let fits = |(tensor, piece): &(&Tensor, &[u8])| tensor.bytes() == piece.len() as u64;
    if own.len() < positions.len() || !own.iter().all(fits) {
        bail!(InvalidFile, "the saved state is of another model, or of another format of the KV cache");
    }
    let snapshot: Vec<Tensor> = pieces
        .map(|piece| {
            let numbers: Vec<f32> = bytemuck::pod_collect_to_vec(piece);
            context.tensor(&HostTensor::f32(Desc::f32(&[numbers.len()]).shape.dims(), &numbers))
        })
        .collect::<Result<_>>()?;
    // Refuses another number of layers, or layers of another size, before it writes anything.
    state.load(context, length, &snapshot)?;
    own.into_iter().try_for_each(|(tensor, piece)| context.write(tensor, 0, piece))
}

fn pieces(mut bytes: &[u8]) -> Result<Vec<&[u8]>> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() else {
            bail!(InvalidFile, "the saved state is cut off")
        };
        let length = u64::from_le_bytes(*length);
        let Some((piece, rest)) = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length)) else {
            bail!(InvalidFile, "the saved state is cut off: {length} bytes announced, {} there", rest.len())
        };
        if !piece.len().is_multiple_of(4) {
            bail!(InvalidFile, "a part of the saved state has {} bytes, wanted a multiple of 4", piece.len());
        }
        pieces.push(piece);
        bytes = rest;
    }
    Ok(pieces)
}
