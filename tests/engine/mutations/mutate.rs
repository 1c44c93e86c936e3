//! Damage: what a file of a model becomes by one change, which follows from a seed.

use rillm::model::gguf::Gguf;
use rillm::model::source::MemorySource;
use rillm::tensor::Rng;
use serde_json::{Map, Value, json};

/// The files of a model by their names.
pub type Files = Vec<(String, Vec<u8>)>;

/// Changes one of the files; says which and how.
pub fn mutate(files: &mut Files, rng: &mut Rng) -> String {
    let which = rng.below(files.len());
    let (name, bytes) = &mut files[which];
    let how = match name.rsplit('.').next() {
        Some("json") => json_file(bytes, rng),
        Some("safetensors") => safetensors(bytes, rng),
        Some("gguf") => gguf(bytes, rng),
        _ => raw(bytes, 0, rng),
    };
    format!("{name}: {how}")
}

fn pick<T: Clone>(of: &[T], rng: &mut Rng) -> T {
    of[rng.below(of.len())].clone()
}

/// A place in bytes from `start` on, of which there is at least one.
fn place(bytes: &[u8], start: usize, rng: &mut Rng) -> usize {
    start + rng.below((bytes.len() - start).max(1))
}

/// Changes bytes from `start` on without a look at what they mean.
fn raw(bytes: &mut Vec<u8>, start: usize, rng: &mut Rng) -> String {
    if bytes.len() <= start {
        return "nothing, as it is empty".to_owned();
    }
    let at = place(bytes, start, rng);
    match rng.below(4) {
        0 => {
            bytes.truncate(at);
            format!("cut after {at}")
        }
        1 => {
            let count = 1 + rng.below(64);
            let end = (at + count).min(bytes.len());
            bytes.splice(end..end, bytes[at..end].to_vec());
            format!("{at} to {end} doubled")
        }
        2 => {
            let end = (at + 1 + rng.below(64)).min(bytes.len());
            bytes.drain(at..end);
            format!("{at} to {end} left out")
        }
        _ => {
            let bit = rng.below(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
    }
}

/// Values that few expect.
fn extreme(rng: &mut Rng) -> Value {
    let long = "x".repeat(70_000);
    pick(
        &[
            json!(0),
            json!(-1),
            json!(1),
            json!(3),
            json!(1u64 << 31),
            json!(1u64 << 32),
            json!(1u64 << 63),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e308),
            json!(-1e-308),
            json!(0.5),
            json!(true),
            json!(false),
            Value::Null,
            json!(""),
            json!("\u{0}"),
            json!("awq"),
            json!(long),
            json!([]),
            json!({}),
            json!([[]]),
            json!([1, 2, 3]),
            json!({"a": 1}),
        ],
        rng,
    )
}

/// Goes to a value in the tree, mostly not far from its root.
fn somewhere<'v>(value: &'v mut Value, rng: &mut Rng, path: &mut String) -> &'v mut Value {
    let count = match value {
        Value::Object(object) => object.len(),
        Value::Array(array) => array.len(),
        _ => 0,
    };
    if count == 0 || (!path.is_empty() && rng.below(3) == 0) {
        return value;
    }
    let index = rng.below(count);
    match value {
        Value::Object(object) => match object.iter_mut().nth(index) {
            Some((key, inner)) => {
                path.push_str(&format!("/{key}"));
                somewhere(inner, rng, path)
            }
            None => unreachable!("the object has {count} keys"),
        },
        Value::Array(array) => {
            path.push_str(&format!("/{index}"));
            somewhere(&mut array[index], rng, path)
        }
        _ => unreachable!("a value without parts has none"),
    }
}

/// Keys that change what a model is, or what its files are taken for.
fn switch(rng: &mut Rng) -> (&'static str, Value) {
    pick(
        &[
            ("quantization_config", json!({"quant_method": "gptq"})),
            ("architectures", json!(["QwenForSequenceClassification"])),
            ("text_config", json!({"model_type": "llama"})),
            ("model_type", json!("gemma2")),
            ("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0})),
            ("is_causal", json!(false)),
            ("sliding_window", json!(4)),
            ("num_local_experts", json!(8)),
            ("pooling_mode_max_tokens", json!(true)),
            ("tie_word_embeddings", Value::Null),
            ("weight_map", json!({"a": "../b.safetensors"})),
            ("added_tokens", json!([{"id": 4_000_000_000u32, "content": "x"}])),
        ],
        rng,
    )
}

fn json_value(value: &mut Value, rng: &mut Rng) -> String {
    let mut path = String::new();
    if rng.below(8) == 0
        && let Value::Object(object) = value
    {
        let (key, new) = switch(rng);
        let how = format!("{key}: {new}");
        object.insert(key.to_owned(), new);
        return how;
    }
    let found = somewhere(value, rng, &mut path);
    match (rng.below(6), &mut *found) {
        (0, Value::Object(object)) if !object.is_empty() => {
            let index = rng.below(object.len());
            let key = object.keys().nth(index).cloned().unwrap_or_default();
            object.remove(&key);
            format!("{path}/{key} removed")
        }
        (0, Value::Array(array)) if !array.is_empty() => {
            let index = rng.below(array.len());
            array.remove(index);
            format!("{path}/{index} removed")
        }
        (1, Value::Array(array)) => {
            array.extend(array.clone());
            format!("{path} doubled")
        }
        (1, Value::Object(object)) => {
            let more: Map<String, Value> =
                object.iter().map(|(key, value)| (format!("{key}_"), value.clone())).collect();
            object.extend(more);
            format!("{path} doubled with other keys")
        }
        (2, found) => {
            let depth = pick(&[1, 2, 100, 200], rng);
            for _ in 0..depth {
                let inner = found.take();
                *found = if rng.below(2) == 0 { json!([inner]) } else { json!({"a": inner}) };
            }
            format!("{path} nested {depth} deep")
        }
        (3, Value::Number(number)) => {
            let new = pick(&[2.0, 0.5, -1.0, 1e9], rng) * number.as_f64().unwrap_or(0.0);
            *found = if new.fract() == 0.0 && new.abs() < 1e15 { json!(new as i64) } else { json!(new) };
            format!("{path} is {found}")
        }
        (_, found) => {
            *found = extreme(rng);
            format!("{path} is {}", found.to_string().chars().take(40).collect::<String>())
        }
    }
}

fn json_file(bytes: &mut Vec<u8>, rng: &mut Rng) -> String {
    match rng.below(10) {
        0 | 1 => raw(bytes, 0, rng),
        // A text that a reader of nested values would follow down its stack.
        2 => {
            let at = place(bytes, 0, rng);
            let open: &[u8] = pick(&[&b"["[..], b"{\"a\":"], rng);
            bytes.splice(at..at, open.repeat(100_000));
            format!("100000 brackets at {at}")
        }
        3 => {
            // The first key once more, with another value.
            let text = String::from_utf8_lossy(bytes).into_owned();
            let Some(key) = text.split('"').nth(1).filter(|_| text.starts_with('{')) else { return raw(bytes, 0, rng) };
            let twice = format!("{{\"{key}\": {}, {}", extreme(rng), &text[1..]);
            *bytes = twice.into_bytes();
            format!("{key} twice")
        }
        _ => match serde_json::from_slice::<Value>(bytes) {
            Ok(mut value) => {
                let how = json_value(&mut value, rng);
                *bytes = value.to_string().into_bytes();
                how
            }
            Err(_) => raw(bytes, 0, rng),
        },
    }
}

fn safetensors(bytes: &mut Vec<u8>, rng: &mut Rng) -> String {
    let length = bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length)) as usize;
    match (rng.below(4), bytes.get(8..8 + length)) {
        (0, _) => {
            let new: u64 = pick(&[0, 1, 2, 99_999_999, 1 << 31, 1 << 40, 1 << 63, u64::MAX], rng);
            bytes[..8].copy_from_slice(&new.to_le_bytes());
            format!("a header of {new} bytes")
        }
        (1, Some(_)) => {
            let mut header = bytes[..8 + length].to_vec();
            let how = raw(&mut header, 0, rng);
            bytes.splice(..8 + length, header);
            how
        }
        (_, Some(header)) => {
            let mut header = header.to_vec();
            let how = json_file(&mut header, rng);
            let file = [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[8 + length..]].concat();
            *bytes = file;
            how
        }
        _ => raw(bytes, 0, rng),
    }
}

fn gguf(bytes: &mut Vec<u8>, rng: &mut Rng) -> String {
    let source = MemorySource::new(bytes.clone());
    let header = pollster::block_on(Gguf::read(&source)).map_or(bytes.len(), |gguf| gguf.header_bytes() as usize);
    // Some of a file's beginning, where the counts are, and some of the whole header.
    let header = if rng.below(2) == 0 { header } else { header.min(1200) };
    let at = rng.below(header.saturating_sub(8).max(1));
    match rng.below(4) {
        0 => {
            let new: u32 = pick(&[0, 1, 2, 9, 1 << 16, 1 << 31, u32::MAX, 0x7F80_0000, 0x7FC0_0000], rng);
            bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
            format!("u32 {new:#x} at {at}")
        }
        1 => {
            let new: u64 = pick(&[0, 1, 1 << 31, 1 << 32, 1 << 40, 1 << 63, u64::MAX, u64::MAX - 7], rng);
            bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
            format!("u64 {new:#x} at {at}")
        }
        _ => {
            let mut start = bytes[..header].to_vec();
            let how = raw(&mut start, 0, rng);
            if how.starts_with("cut") {
                *bytes = start;
            } else {
                bytes.splice(..header, start);
            }
            how
        }
    }
}
