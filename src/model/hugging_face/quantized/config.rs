//! By which library weights are quantised, as config.json says.

use serde_json::{Map, Value as Json};

use super::said::Said;
use super::{Method, compressed_tensors, fp8, gptq, mlx};
use crate::error::Result;

type Config = Map<String, Json>;

/// The method by which a folder's weights were quantised; `None` if they are not, or by one of `methods`, which the architecture reads itself.
pub(in crate::model::hugging_face) fn method_of(config: &Config, methods: &[&str]) -> Result<Option<Method>> {
    // The first is transformers', the second compressed-tensors' old one, the third MLX'.
    for key in ["quantization_config", "compression_config", "quantization"] {
        let Some(how) = config.get(key).filter(|how| !how.is_null()) else { continue };
        let said = Said { key, how };
        let Json::Object(object) = how else { return Err(said.unsupported("")) };
        return match how.get("quant_method").and_then(Json::as_str) {
            Some(method) if methods.contains(&method) => continue,
            Some("gptq") => gptq::Options::of(&said, false).map(Method::Gptq).map(Some),
            Some("awq") => gptq::Options::of(&said, true).map(Method::Awq).map(Some),
            Some("bitsandbytes") => Ok(Some(Method::Bitsandbytes)),
            Some("compressed-tensors") => {
                compressed_tensors::Options::of(&said).map(Method::CompressedTensors).map(Some)
            }
            Some("fp8" | "fbgemm_fp8") => fp8::Options::of(&said).map(Method::Fp8).map(Some),
            None if object.contains_key("bits") && object.contains_key("group_size") => {
                mlx::Options::of(&said, object).map(Method::Mlx).map(Some)
            }
            _ => Err(said.unsupported("")),
        };
    }
    Ok(None)
}
