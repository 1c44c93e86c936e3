//! bitsandbytes: NF4 and FP4 in blocks of a matrix's weights, whose scales may be quantised as well (double quantisation), and LLM.int8 with a
//! scale for each row. The columns of 4-bit matrices stand in no header; they follow from the configuration.

use super::{Entries, Source, matrix, of_type};
use crate::error::Result;
use crate::model::checkpoint::{Groups, PackedMatrix, Places, Side, SidePart, Zeros};
use crate::model::gguf::Metadata;
use crate::model::safetensors::Dtype;
use crate::tensor::quant::packed::{Kind, packing::Packing};

/// Scales that share a factor where they are quantised.
const SCALES_OF_FACTOR: u64 = 256;

/// More than the JSON beside any matrix has.
const MAX_STATE_BYTES: u64 = 64 << 10;

pub(super) fn collect(entries: &mut Entries<'_>) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for (state, kind, method) in [("nf4", Kind::Nf4, "NF4"), ("fp4", Kind::Fp4, "FP4")] {
        let end = format!(".weight.quant_state.bitsandbytes__{state}");
        for stem in entries.stems(&end) {
            sources.push(four_bits(entries, &stem, &end, kind, method)?);
        }
    }
    for stem in entries.stems(".SCB") {
        sources.push(eight_bits(entries, &stem)?);
    }
    Ok(sources)
}

fn four_bits(entries: &mut Entries<'_>, stem: &str, state: &str, kind: Kind, method: &'static str) -> Result<Source> {
    let name = |end: &str| format!("{stem}.weight{end}");
    let quants = entries.wanted(&name(""))?;
    of_type(quants.1, &[Dtype::U8])?;
    let weights = quants.1.bytes.saturating_mul(2);
    let scales = entries.wanted(&name(".absmax"))?.1;
    let count: u64 = scales.shape.iter().product();
    let block = weights.checked_div(count).filter(|block| weights == block.saturating_mul(count) && *block > 0);
    let Some(block) = block else {
        bail!(
            UnsupportedTensorType,
            "{stem:?} has {weights} weights and {count} scales, wanted blocks of equal length; choose the model in F16, BF16 or F32"
        );
    };
    let is_nested = scales.dtype == Dtype::U8;
    let mut sides = vec![
        entries.side(Side::Scales, &name(".absmax"), &[Dtype::U8, Dtype::F32])?,
        entries.side_of(Side::Codebook, &name(".quant_map"), &[Dtype::F32], 16)?,
    ];
    let state = entries.wanted(&format!("{stem}{state}"))?;
    of_type(state.1, &[Dtype::U8])?;
    if state.1.bytes > MAX_STATE_BYTES {
        bail!(InvalidFile, "{:?} has {} bytes, wanted at most {MAX_STATE_BYTES}", state.1.name, state.1.bytes);
    }
    let state = entries.take(state);
    sides.push(SidePart { side: Side::State, part: state, dtype: Dtype::U8 });
    if is_nested {
        let factors = entries.wanted(&name(".nested_absmax"))?.1;
        if factors.shape.iter().product::<u64>() != count.div_ceil(SCALES_OF_FACTOR) {
            bail!(
                ShapeMismatch,
                "{:?} has the shape {:?} for {count} scales, wanted one for each {SCALES_OF_FACTOR}",
                factors.name,
                factors.shape
            );
        }
        sides.push(entries.side(Side::ScaleFactors, &name(".nested_absmax"), &[Dtype::F32])?);
        sides.push(entries.side_of(Side::ScaleCodes, &name(".nested_quant_map"), &[Dtype::F32], 256)?);
    }
    Ok(Source {
        name: name(""),
        rows: weights,
        columns: None,
        method,
        kind,
        packing: Packing::HighNibbles,
        group: block,
        groups: Groups {
            scales: Places::Flat(usize::try_from(block).unwrap_or(usize::MAX)),
            are_maxima: false,
            zeros: Zeros::All(0),
        },
        matrix: PackedMatrix { quants: entries.take(quants), sides },
    })
}

fn eight_bits(entries: &mut Entries<'_>, stem: &str) -> Result<Source> {
    let quants = entries.wanted(&format!("{stem}.weight"))?;
    of_type(quants.1, &[Dtype::I8])?;
    let [rows, columns] = matrix(quants.1)?;
    let scales = entries.wanted(&format!("{stem}.SCB"))?.1;
    if scales.shape.iter().product::<u64>() != rows {
        bail!(
            ShapeMismatch,
            "{:?} has the shape {:?}, wanted a number for each of {rows} rows",
            scales.name,
            scales.shape
        );
    }
    let mut sides = vec![entries.side(Side::Scales, &format!("{stem}.SCB"), &[Dtype::F32])?];
    let order = format!("{stem}.weight_format");
    if entries.get(&order).is_some() {
        sides.push(entries.side_of(Side::Order, &order, &[Dtype::U8], 1)?);
    }
    Ok(Source {
        name: format!("{stem}.weight"),
        rows,
        columns: Some(columns),
        method: "LLM.int8",
        kind: Kind::Int8,
        packing: Packing::Bytes,
        group: columns,
        groups: Groups {
            scales: Places::Table { shared: [1, usize::MAX], strides: [1, 0] },
            are_maxima: true,
            zeros: Zeros::All(0),
        },
        matrix: PackedMatrix { quants: entries.take(quants), sides },
    })
}

/// The columns of a matrix: what goes into it, by the configuration. The matrix says the same beside its data, which is compared when that is read.
pub(super) fn columns_of(name: &str, metadata: &Metadata, arch: &str) -> Result<u64> {
    let number = |key: &str| metadata.optional_u32(&format!("{arch}.{key}")).map(|number| number.map(u64::from));
    let width = number("embedding_length")?;
    let stem = name.strip_suffix(".weight").and_then(|name| name.rsplit('.').next()).unwrap_or(name);
    let columns = match stem {
        "ffn_down" => number("feed_forward_length")?,
        "ffn_down_exps" => number("expert_feed_forward_length")?.or(number("feed_forward_length")?),
        "ffn_down_shexp" => number("expert_shared_feed_forward_length")?,
        "attn_output" => {
            let heads = number("attention.head_count")?;
            let of_head = number("attention.key_length")?;
            match (heads, of_head) {
                (Some(heads), Some(of_head)) => Some(heads.saturating_mul(of_head)),
                _ => width,
            }
        }
        "attn_q" | "attn_k" | "attn_v" | "attn_qkv" | "ffn_up" | "ffn_gate" | "ffn_up_exps" | "ffn_gate_exps"
        | "ffn_up_shexp" | "ffn_gate_shexp" | "output" | "token_embd" => width,
        _ => None,
    };
    columns.filter(|columns| *columns > 0).ok_or_else(|| {
        err!(
            UnsupportedTensorType,
            "how many columns the quantised matrix {name:?} has is not known for this architecture: choose the model in F16, BF16 or F32, \
             or a GGUF file of it"
        )
    })
}
