//! GPTQ (`qweight`, `qzeros`, `scales` and `g_idx`, as AutoGPTQ writes them) and AWQ (as AutoAWQ's `gemm` does).
//!
//! A weight is `(quant − zero) · scale`. GPTQ's files of version 1 hold the zero points less one.

use serde_json::Value as Json;

use super::said::Said;
use super::{Entries, FLOATS, Source, matrix, of_type};
use crate::error::Result;
use crate::model::checkpoint::{Groups, Order, PackedMatrix, Places, Side, Zeros};
use crate::model::safetensors::Dtype;
use crate::tensor::quant::packed::{Kind, packing::Packing};

pub(in crate::model::hugging_face) struct Options {
    bits: u64,
    /// Without one, a row is a group.
    group: Option<u64>,
    is_ordered: bool,
    /// What is added to zero points.
    plus: u8,
}

impl Options {
    pub(super) fn of(said: &Said<'_>, is_awq: bool) -> Result<Self> {
        let bits = match said.integer("bits")?.or(said.integer("w_bit")?) {
            None | Some(4) => 4,
            Some(8) if !is_awq => 8,
            Some(other) => return Err(said.unsupported(&format!(" with {other} bits"))),
        };
        let form = said.text("checkpoint_format")?.or(said.text("version")?).or(said.text("format")?);
        let form = form.unwrap_or_default();
        let plus = match form.as_str() {
            "gemm" | "" if is_awq => 0,
            "gptq" | "" if !is_awq => 1,
            "gptq_v2" if !is_awq => 0,
            other => return Err(said.unsupported(&format!(" of the form {other:?}"))),
        };
        // GPTQModel's rules for modules that are quantised in another way; those that begin with a minus name modules that are not.
        let rules = said.how.get("dynamic").and_then(Json::as_object);
        if let Some(rule) = rules.and_then(|rules| rules.keys().find(|rule| !rule.starts_with('-'))) {
            return Err(said.unsupported(&format!(" with the rule {rule:?} (dynamic)")));
        }
        let group = match said.integer("group_size")?.or(said.integer("q_group_size")?) {
            // The default of transformers for both methods.
            None => Some(128),
            Some(-1) => None,
            Some(group) => match u64::try_from(group).ok().filter(|group| *group > 0) {
                Some(group) => Some(group),
                None => return Err(said.unsupported(&format!(" in groups of {group}"))),
            },
        };
        Ok(Self { bits, group, is_ordered: said.is_set("desc_act")?, plus })
    }
}

pub(super) fn collect(entries: &mut Entries<'_>, options: &Options, is_awq: bool) -> Result<Vec<Source>> {
    entries.stems(".qweight").into_iter().map(|stem| source(entries, options, is_awq, &stem)).collect()
}

fn source(entries: &mut Entries<'_>, options: &Options, is_awq: bool, stem: &str) -> Result<Source> {
    let of_word = 32 / options.bits;
    let quants = entries.wanted(&format!("{stem}.qweight"))?;
    of_type(quants.1, &[Dtype::I32])?;
    let [first, second] = matrix(quants.1)?;
    let [columns, rows] =
        if is_awq { [first, second.saturating_mul(of_word)] } else { [first.saturating_mul(of_word), second] };
    let group = options.group.unwrap_or(columns);
    let count = columns.div_ceil(group);
    let scales = entries.wanted(&format!("{stem}.scales"))?.1;
    let zeros = entries.wanted(&format!("{stem}.qzeros"))?.1;
    if matrix(scales)? != [count, rows] || matrix(zeros)? != [count, rows / of_word] {
        bail!(
            ShapeMismatch,
            "{stem:?} is a matrix [{rows}, {columns}] in groups of {group}, with scales {:?} and zero points {:?}, wanted [{count}, {rows}] and \
             [{count}, {}]",
            scales.shape,
            zeros.shape,
            rows / of_word
        );
    }
    let mut sides = vec![
        entries.side(Side::Scales, &format!("{stem}.scales"), FLOATS)?,
        entries.side(Side::Zeros, &format!("{stem}.qzeros"), &[Dtype::I32])?,
    ];
    let order = format!("{stem}.g_idx");
    // Without it nothing says in which order the columns are.
    let is_needed = options.is_ordered && count > 1;
    let has_order = !is_awq && (is_needed || entries.get(&order).is_some());
    if has_order {
        sides.push(entries.side_of(Side::ColumnGroups, &order, &[Dtype::I32], columns)?);
    }
    let is_ordered = has_order && is_needed;
    let (kind, packing) = match (options.bits, is_ordered, is_awq) {
        (8, true, _) => (Kind::Ordered8, Packing::ColumnBytes),
        (8, false, _) => (Kind::Uint8, Packing::ColumnBytes),
        (_, true, _) => (Kind::Ordered4, Packing::ColumnNibbles),
        (_, false, true) => (Kind::Int4, Packing::Awq),
        (_, false, false) => (Kind::Int4, Packing::ColumnNibbles),
    };
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let zeros = Zeros::Words {
        order: if is_awq { Order::Awq } else { Order::Plain },
        strides: [size(rows / of_word), 1],
        plus: options.plus,
    };
    let scales = Places::Table { shared: [1, size(group)], strides: [1, size(rows)] };
    Ok(Source {
        name: format!("{stem}.weight"),
        rows,
        columns: Some(columns),
        method: if is_awq { "AWQ" } else { "GPTQ" },
        kind,
        packing,
        group,
        groups: Groups { scales, are_maxima: false, zeros },
        matrix: PackedMatrix { quants: entries.take(quants), sides },
    })
}
