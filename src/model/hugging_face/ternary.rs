//! Ternary weights in folders of BitNet, as transformers packs them: a byte has two bits of each of four weights of a column, whose rows are a
//! quarter of the matrix apart, and a number beside multiplies them all. Inputs of such products are rounded to 8 bits.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::config_json::shortened;
use crate::error::Result;
use crate::model::checkpoint::{TensorInfo, TensorValues};
use crate::model::gguf::GgmlType;
use crate::model::ternary::IN_BYTE;
use crate::tensor::quant::Format;

/// `quant_method`.
pub(super) const METHOD: &str = "bitnet";

/// Whether weights are ternary. Refuses what another form of them would change.
pub(super) fn is_packed(config: &Map<String, Json>) -> Result<bool> {
    let Some(how @ Json::Object(fields)) = config.get("quantization_config") else { return Ok(false) };
    if how.get("quant_method").and_then(Json::as_str) != Some(METHOD) {
        return Ok(false);
    }
    // Norms and exceptions may be left out.
    for (key, wanted, may_lack) in [
        ("linear_class", Json::from("autobitlinear"), false),
        ("quantization_mode", Json::from("offline"), false),
        ("use_rms_norm", Json::Bool(false), true),
        ("modules_to_not_convert", Json::Null, true),
    ] {
        let found = fields.get(key).unwrap_or(&Json::Null);
        if *found != wanted && !(found.is_null() && may_lack) {
            bail!(
                UnsupportedTensorType,
                "config.json has quantization_config with {key:?}: {}; supported is {wanted}: choose a model packed so, or a GGUF file of it",
                shortened(found)
            );
        }
    }
    Ok(true)
}

/// The tensors with each matrix and its factor as one.
pub(super) fn joined(tensors: Vec<TensorInfo>) -> Result<Vec<TensorInfo>> {
    let Some(ty) = Format::by_name("q4_0").and_then(|format| GgmlType::from_id(format.gguf_type?)) else {
        bail!(Internal, "there is no format Q4_0")
    };
    let is_scale = |tensor: &TensorInfo| tensor.name.ends_with(".weight_scale");
    let (scales, tensors): (Vec<_>, Vec<_>) = tensors.into_iter().partition(is_scale);
    let mut scales: HashMap<String, TensorInfo> = scales.into_iter().map(|scale| (scale.name.clone(), scale)).collect();
    let mut joined = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        if tensor.ty != GgmlType::I8 {
            joined.push(tensor);
            continue;
        }
        let Some(scale) = scales.remove(&format!("{}_scale", tensor.name)) else {
            bail!(MissingTensor, "the ternary weights {:?} have no factor beside them (weight_scale)", tensor.name)
        };
        let (TensorValues::Stored { parts: packed, .. }, TensorValues::Stored { parts: factor, .. }) =
            (&tensor.values, &scale.values)
        else {
            bail!(Internal, "{:?} is not stored", tensor.name)
        };
        let ([columns, rows], [packed], [factor], 1) = (&tensor.dims[..], &packed[..], &factor[..], scale.elements())
        else {
            bail!(
                ShapeMismatch,
                "{:?} has the dimensions {:?} and its factor {:?}, wanted a matrix and one number",
                tensor.name,
                tensor.dims,
                scale.dims
            );
        };
        let dims = vec![*columns, rows.saturating_mul(IN_BYTE as u64)];
        let values = TensorValues::Ternary { packed: *packed, factor: *factor, factor_ty: scale.ty };
        joined.push(TensorInfo { name: tensor.name, dims, ty, values });
    }
    match scales.into_keys().next() {
        Some(name) => bail!(InvalidFile, "the model has {name:?} and no ternary weights that it is for"),
        None => Ok(joined),
    }
}
