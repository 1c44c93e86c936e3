//! Hugging Face folders that transformers wrote, run on a native GPU against its logits (`scripts/golden/huggingface_folders.py`).

use std::path::{Path, PathBuf};

use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::DirectoryFolder;
use rillm::model::{KvFormat, Layout, Logits, Precision, Transformer, Weights};
use rillm::tensor::quant::Format;
use rillm::tensor::{Context, Desc, HostTensor};

use crate::support::adapter;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/folders")
}

fn npy(path: PathBuf) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    bytes[header..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn logits(context: &Context, name: &str, joined: bool, quantize: Option<&'static Format>, ids: &[u32]) -> Vec<f32> {
    pollster::block_on(async {
        let folder = DirectoryFolder::new(golden().join(name));
        let checkpoint = Checkpoint::open(&folder, None).await.unwrap();
        let config = Config::of(&checkpoint).unwrap();
        let layout = Layout { join: joined, quantize };
        let (mut last, mut total) = (0, 0);
        let mut progress = |done, of| {
            assert!(done >= last && done <= of);
            (last, total) = (done, of);
            Ok(())
        };
        let weights = Weights::load(context, &checkpoint, &config, &layout, &mut progress).await.unwrap();
        assert!(last == total && total > 0);
        let transformer = Transformer::new(context, config, &weights, ids.len(), Precision::Exact).unwrap();
        let cache = transformer.layer_states(ids.len(), 1, KvFormat::F32).unwrap();
        let state = context.zeros(Desc::u32(&[4])).unwrap();
        let tokens = context.tensor(&HostTensor::u32(&[ids.len()], ids)).unwrap();
        let logits = transformer.forward(&tokens, &state, &cache, Logits::All).unwrap();
        context.readback(&[&logits]).await.unwrap()[0].to_f32().unwrap()
    })
}

/// As they are, and with all matrices quantised while they are loaded.
#[test]
fn folders_give_the_logits_of_transformers() {
    let context = adapter::context(true);
    for name in ["llama_sharded_f16", "qwen2_bf16"] {
        let ids: Vec<u32> =
            serde_json::from_slice(&std::fs::read(golden().join(name).join("ids.json")).unwrap()).unwrap();
        let own = npy(golden().join(name).join("logits.npy"));
        for (quantize, file) in
            [(None, "logits.npy"), (Some("q8_0"), "logits.q8_0.npy"), (Some("q4_0"), "logits.q4_0.npy")]
        {
            let wanted = npy(golden().join(name).join(file));
            assert!(quantize.is_none() || relative_error(&wanted, &own) > 1e-3);
            let columns = wanted.len() / ids.len();
            for joined in [true, false] {
                let got = logits(&context, name, joined, quantize.and_then(Format::by_name), &ids);
                assert_eq!(got.len(), wanted.len());
                for (row, (got, wanted)) in got.chunks_exact(columns).zip(wanted.chunks_exact(columns)).enumerate() {
                    let error = relative_error(got, wanted);
                    assert!(error < 1e-4, "{name} as {quantize:?}, joined {joined}, position {row}: {error:.2e}");
                }
            }
        }
    }
}

/// ‖a − b‖ / ‖b‖
fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let difference: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (difference / b.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>()).sqrt()
}
