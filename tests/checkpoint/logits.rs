//! Hugging Face folders that transformers wrote, run on a native GPU against its logits (`scripts/golden/huggingface_folders.py`).

use std::path::{Path, PathBuf};

use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::DirectoryFolder;
use rillm::model::{KvCache, KvFormat, Layout, Logits, Precision, Transformer, Weights};
use rillm::tensor::quant::Format;
use rillm::tensor::{Context, Desc, HostTensor};

use crate::adapter;

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
        let cache = KvCache::new(context, transformer.config(), ids.len(), 1, KvFormat::F32).unwrap();
        let state = context.zeros(Desc::u32(&[4])).unwrap();
        let tokens = context.tensor(&HostTensor::u32(&[ids.len()], ids)).unwrap();
        let logits = transformer.forward(&tokens, &state, &cache, Logits::All).unwrap().unwrap();
        context.readback(&[&logits]).await.unwrap()[0].to_f32().unwrap()
    })
}

#[test]
fn folders_give_the_logits_of_transformers() {
    let context = adapter::context(true);
    for name in ["llama_sharded_f16", "qwen2_bf16"] {
        let ids: Vec<u32> =
            serde_json::from_slice(&std::fs::read(golden().join(name).join("ids.json")).unwrap()).unwrap();
        let wanted = npy(golden().join(name).join("logits.npy"));
        let columns = wanted.len() / ids.len();
        for joined in [true, false] {
            let got = logits(&context, name, joined, None, &ids);
            assert_eq!(got.len(), wanted.len());
            for (row, (got, wanted)) in got.chunks_exact(columns).zip(wanted.chunks_exact(columns)).enumerate() {
                let difference: f64 = got.iter().zip(wanted).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                let norm: f64 = wanted.iter().map(|b| f64::from(*b).powi(2)).sum();
                let error = (difference / norm).sqrt();
                assert!(error < 1e-4, "{name}, joined {joined}, position {row}: relative error {error:.2e}");
            }
        }
    }
}
