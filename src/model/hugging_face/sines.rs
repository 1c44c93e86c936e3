//! Positions that are sines (Vaswani et al. 2017): the sines of all frequencies, then the cosines. Most files don't hold them.

use crate::error::Result;
use crate::model::arch::Sines;
use crate::model::checkpoint::{TensorInfo, TensorValues};
use crate::model::gguf::{GgmlType, Metadata};

/// More numbers than any model's table has.
const MOST: usize = 1 << 24;

/// The tables of both halves of an encoder-decoder.
pub(super) fn tables(metadata: &Metadata, arch: &str, form: Sines) -> Result<Vec<TensorInfo>> {
    let number =
        |key: &str| Ok::<_, crate::Error>(metadata.optional_u32(&format!("{arch}.{key}"))?.unwrap_or(0) as usize);
    let (positions, width) = (number("context_length")?, number("embedding_length")?);
    if positions == 0 || width < 4 || !width.is_multiple_of(2) || positions.saturating_mul(width) > MOST {
        bail!(
            InvalidMetadata,
            "config.json has {positions} positions of {width} numbers, wanted an even number of 4 or more, and at most {MOST} in all"
        );
    }
    let half = width / 2;
    // In the precision of the references.
    let step = (10000f64.ln() / (half - 1) as f64) as f32;
    let angle = |position: usize, at: usize| {
        if form.reaches_slowest {
            f64::from(position as f32 * (at as f32 * -step).exp())
        } else {
            position as f64 / 10000f64.powf(2.0 * at as f64 / width as f64)
        }
    };
    let row = |position: usize| {
        let angles = (0..half).map(move |at| angle(position + form.first as usize, at));
        angles.clone().map(f64::sin).chain(angles.map(f64::cos)).map(|number| number as f32)
    };
    let values: Vec<f32> = (0..positions).flat_map(row).collect();
    let table = |name: &str| TensorInfo {
        name: name.to_owned(),
        dims: vec![width as u64, positions as u64],
        ty: GgmlType::F32,
        values: TensorValues::Computed(values.clone()),
    };
    Ok(vec![table("position_embd.weight"), table("enc.position_embd.weight")])
}
