//! The KV cache: its formats, and what happens when it is full.

mod context_shift;
mod formats;
mod turned_keys;

use std::path::{Path, PathBuf};

use crate::support::adapter;
use crate::support::engines::exact_on_cpu;
use rillm::engine::source::FileSource;
use rillm::engine::{Engine, LoadOptions, Precision};
use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::DirectoryFolder;
use rillm::model::{KvFormat, LayerStates, Layout, Logits, Transformer, Weights};
use rillm::tensor::{Context, HostTensor};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Models whose contexts can't be shifted, which they say: learned positions, norms of keys after rope, recurrent layers.
const NOT_SHIFTED: [&str; 19] = [
    "falcon_h1",
    "falcon_h1_norm",
    "falcon_mamba",
    "gpt2",
    "granite4",
    "granite4_moe",
    "hunyuan_dense",
    "hunyuan_moe",
    "jamba",
    "lfm2",
    "lfm2_moe",
    "mamba",
    "mamba2",
    "nemotron_h",
    "nemotron_h_moe",
    "opt",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
];

/// Every architecture's tiny model that lies in a GGUF file, by the name of its folder; those whose name contains the text in RILLM_MODEL, if it
/// is set.
fn models() -> Vec<String> {
    let wanted = std::env::var("RILLM_MODEL");
    let folders = std::fs::read_dir(golden().join("architectures")).unwrap().map(|entry| entry.unwrap().path());
    let mut models: Vec<String> = folders
        .filter(|folder| folder.join("model.gguf").exists())
        .map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    models.sort();
    assert!(models.len() > 10);
    models.retain(|model| wanted.as_ref().map_or(true, |wanted| model.contains(wanted)));
    models
}

fn file_of(model: &str) -> PathBuf {
    golden().join("architectures").join(model).join("model.gguf")
}

fn exact() -> LoadOptions {
    LoadOptions { precision: Some(Precision::Exact), ..Default::default() }
}

fn load(file: &Path, options: &LoadOptions) -> rillm::Result<Engine> {
    pollster::block_on(Engine::load(&FileSource::open(file).unwrap(), &exact_on_cpu(options), &mut |_| Ok(())))
}

/// A prompt of so many tokens, which every golden model has.
fn prompt(length: usize) -> Vec<u32> {
    (0..length).map(|i| (i * i * 7 + i * 3 + 5) as u32 % 60 + 4).collect()
}

/// Largest ‖a − b‖ / ‖b‖ over the rows; a NaN is worse than anything.
fn worst_row(a: &[f32], b: &[f32], columns: usize) -> f64 {
    assert_eq!(a.len(), b.len());
    let rows = a.chunks_exact(columns).zip(b.chunks_exact(columns));
    let error = |(a, b): (&[f32], &[f32])| {
        let difference: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        (difference / b.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>()).sqrt()
    };
    rows.map(error).fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst })
}

/// A golden model without an engine.
struct Loaded {
    context: Context,
    transformer: Transformer,
    cache: LayerStates,
}

impl Loaded {
    /// `window`: every layer sees at most so many tokens.
    fn new(
        context: &Context,
        model: &str,
        joined: bool,
        format: KvFormat,
        capacity: usize,
        window: Option<usize>,
    ) -> Loaded {
        pollster::block_on(async {
            let folder = DirectoryFolder::new(golden().join("architectures").join(model));
            let checkpoint = Checkpoint::open(&folder, Some("model.gguf")).await.unwrap();
            let mut config = Config::of(&checkpoint).unwrap();
            for layer in &mut config.layers {
                layer.window = [layer.window, window].into_iter().flatten().min();
            }
            let layout = Layout { join: joined, quantize: None };
            let weights =
                Weights::load(context, &checkpoint, &config, &layout.of(&config), &mut |_, _| Ok(())).await.unwrap();
            let transformer = Transformer::new(context, config, &weights, capacity, Precision::Exact).unwrap();
            let cache = transformer.layer_states(capacity, 1, format).unwrap();
            Loaded { context: context.clone(), transformer, cache }
        })
    }

    /// The logits of a pass over `ids`, the first at `position`, on a cache.
    fn forward_on(&self, cache: &LayerStates, ids: &[u32], position: usize) -> Vec<f32> {
        let state = self.context.tensor(&HostTensor::u32(&[4], &[position as u32, 0, 0, 0])).unwrap();
        let tokens = self.context.tensor(&HostTensor::u32(&[ids.len()], ids)).unwrap();
        let logits = self.transformer.forward(&tokens, &state, cache, Logits::All).unwrap();
        pollster::block_on(self.context.readback(&[&logits])).unwrap()[0].to_f32().unwrap()
    }

    fn forward(&self, ids: &[u32], position: usize) -> Vec<f32> {
        self.forward_on(&self.cache, ids, position)
    }
}
