//! Every architecture against transformers: tiny models in both containers, by the fused ops and by one op at a time
//! (`tests/golden/README.md`). Prompts pass the windows and the contexts before rope's scaling.

use std::path::{Path, PathBuf};

use crate::support::adapter;
use crate::support::engines::exact_on_cpu;
use crate::support::soak::is_soak;
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::FileSource;
use rillm::engine::{Engine, LoadOptions, inspect};
use rillm::model::arch::{ARCHS, Need, expected_tensors};
use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::DirectoryFolder;
use rillm::model::{KvFormat, LayerStates, Layout, Logits, Precision, Transformer, Weights};
use rillm::tensor::quant::Format;
use rillm::tensor::{Context, DeviceOptions, HostTensor, Tensor};
use serde_json::{Value, json};

const TOLERANCE: f64 = 1e-4;
/// What runs one op at a time, since the fused ops don't compute it: gates with biases, attention and feed-forward side by side, ALiBi,
/// clamps, queries scaled by position, norms of heads after rope or with biases before them, xIELU, experts beside one that
/// every token uses, several residual streams, attention over latents, norms before the last product of attention and feed-forward.
const UNFUSED: [&str; 31] = [
    "apertus",
    "bitnet",
    "bitnet_packed",
    "bloom",
    "cohere",
    "cohere2",
    "deepseek_v2",
    "deepseek_v3",
    "dots1",
    "ernie4_5_moe",
    "falcon",
    "falcon_groups",
    "gemma3n",
    "glm4_moe",
    "glm4_moe_lite",
    "gptneox",
    "granite4_moe",
    "hunyuan_dense",
    "hunyuan_moe",
    "llama_linear",
    "minicpm3",
    "ministral3",
    "nemotron_h_moe",
    "olmo",
    "phi2",
    "phimoe",
    "qwen2_moe",
    "qwen3_5_moe",
    "qwen3_next",
    "stablelm_parallel",
    "youtu",
];
/// Architectures that llama.cpp does not know.
const NOT_IN_GGUF: [&str; 2] = ["lfm3", "opt"];
const GGUF: &str = "model.gguf";
const SAFETENSORS: &str = "model.safetensors";

/// Kernels for software adapters or for GPUs, a container, and matrices apart or joined.
struct Setting<'a> {
    kernels: &'static str,
    context: &'a Context,
    file: &'static str,
    joined: bool,
}

impl std::fmt::Display for Setting<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}, {} kernels, joined {}", self.file, self.kernels, self.joined)
    }
}

/// Settings in which each value of one meets each value of the others, which are half of all; or all. Models that run one op at a time are the
/// same with matrices apart and joined.
fn settings<'a>(model: &Golden, contexts: &'a [(&'static str, Context)]) -> Vec<Setting<'a>> {
    let (files, unfused) = (files(model), UNFUSED.contains(&&*model.name));
    let setting = |kernels: usize, file: &'static str, joined| Setting {
        kernels: contexts[kernels].0,
        context: &contexts[kernels].1,
        file,
        joined,
    };
    let (first, last) = (files[0], files[files.len() - 1]);
    let mut all = vec![setting(0, last, true), setting(1, first, true)];
    if !unfused {
        all.extend([setting(0, first, false), setting(1, last, false)]);
    }
    if is_soak() && first != last {
        all.extend([setting(0, first, true), setting(1, last, true)]);
        if !unfused {
            all.extend([setting(0, last, false), setting(1, first, false)]);
        }
    }
    all
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/architectures")
}

/// What transformers answered.
struct Golden {
    name: String,
    ids: Vec<u32>,
    /// What greedy decoding appends; nothing where rope would change with each token.
    greedy: Vec<u32>,
    /// [ids, vocabulary]
    logits: Vec<f32>,
    /// The logits of the first tokens in a context of no more.
    short: Option<Vec<f32>>,
}

fn npy(path: PathBuf) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    bytes[header..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// The models whose name contains the text in RILLM_MODEL, if it is set.
fn models() -> Vec<Golden> {
    let wanted = std::env::var("RILLM_MODEL").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let models: Vec<Golden> = folders.iter().map(|folder| read(folder)).filter(|m| m.name.contains(&wanted)).collect();
    assert!(!models.is_empty());
    models
}

fn read(folder: &Path) -> Golden {
    let answers: Value = serde_json::from_slice(&std::fs::read(folder.join("golden.json")).unwrap()).unwrap();
    let ids = |key: &str| answers[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    Golden {
        name: folder.file_name().unwrap().to_str().unwrap().to_owned(),
        ids: ids("ids"),
        greedy: ids("greedy"),
        logits: npy(folder.join("logits.npy")),
        short: answers.get("short").map(|_| npy(folder.join("short.logits.npy"))),
    }
}

/// A model that is loaded, and its cache.
struct Loaded {
    context: Context,
    transformer: Transformer,
    cache: LayerStates,
}

impl Loaded {
    fn new(context: &Context, model: &str, file: &str, joined: bool, capacity: usize) -> Loaded {
        Self::for_texts_of(context, model, file, joined, capacity, (None, Precision::Exact))
    }

    /// With ropes made for texts of a length, or of the context's.
    fn for_texts_of(
        context: &Context,
        model: &str,
        file: &str,
        joined: bool,
        capacity: usize,
        (length, precision): (Option<usize>, Precision),
    ) -> Loaded {
        pollster::block_on(async {
            let folder = DirectoryFolder::new(golden().join(model));
            let checkpoint = Checkpoint::open(&folder, Some(file)).await.unwrap();
            let mut config = Config::of(&checkpoint).unwrap_or_else(|error| panic!("{model}/{file}: {error}"));
            config.rope_context = length;
            assert!(config.context_length >= capacity);
            let weights =
                Weights::load(context, &checkpoint, &config, &Layout { join: joined, quantize: None }, &mut |_, _| {
                    Ok(())
                })
                .await
                .unwrap();
            let transformer = Transformer::new(context, config, &weights, capacity, precision).unwrap();
            assert_eq!(transformer.is_fused(), joined && !UNFUSED.contains(&model), "{model}/{file}");
            let cache = transformer.layer_states(capacity, 1, KvFormat::F32).unwrap();
            Loaded { context: context.clone(), transformer, cache }
        })
    }

    /// The logits [ids, vocabulary] of a pass over `ids`, the first at `position`.
    fn forward(&self, ids: &[u32], position: usize) -> Vec<f32> {
        self.pass(ids, position, Logits::All)
    }

    /// Those of some of the tokens.
    fn pass(&self, ids: &[u32], position: usize, which: Logits) -> Vec<f32> {
        let state = self.context.tensor(&HostTensor::u32(&[4], &[position as u32, 0, 0, 0])).unwrap();
        let tokens = self.context.tensor(&HostTensor::u32(&[ids.len()], ids)).unwrap();
        let logits: Tensor = self.transformer.forward(&tokens, &state, &self.cache, which).unwrap();
        pollster::block_on(self.context.readback(&[&logits])).unwrap()[0].to_f32().unwrap()
    }
}

/// ‖a − b‖ / ‖b‖ of the worst row.
#[track_caller]
fn worst_row(a: &[f32], b: &[f32], columns: usize) -> f64 {
    assert_eq!(a.len(), b.len());
    let rows = a.chunks_exact(columns).zip(b.chunks_exact(columns));
    let error = |(a, b): (&[f32], &[f32])| {
        let difference: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        (difference / b.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>()).sqrt()
    };
    // A NaN is worse than anything.
    rows.map(error).fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst })
}

fn files(model: &Golden) -> Vec<&'static str> {
    let mut files: Vec<&str> = [GGUF, SAFETENSORS].into_iter().collect();
    files.retain(|file| golden().join(&model.name).join(file).exists());
    if Format::by_name("bf16").is_none() {
        println!("skipped: {} in safetensors, there is no format bf16", model.name);
        files.retain(|file| *file != SAFETENSORS);
    }
    files
}

/// Through the engine: a plan that was recorded once, sampling on the GPU, and a prompt that is found in the cache.
#[test]
fn the_engine_answers_the_same() {
    for model in models() {
        if !golden().join(&model.name).join(GGUF).exists() {
            continue;
        }
        let source = FileSource::open(golden().join(&model.name).join(GGUF)).unwrap();
        let options = LoadOptions { precision: Some(Precision::Exact), ..Default::default() };
        let engine = pollster::block_on(Engine::load(&source, &exact_on_cpu(&options), &mut |_| Ok(()))).unwrap();
        let tokens = |request: Value| {
            let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
            let mut tokens = Vec::new();
            while let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
                tokens.extend(chunk.token_ids);
            }
            tokens
        };
        let request = |more: Value| {
            let mut request =
                json!({"prompt": model.ids, "max_tokens": model.greedy.len(), "temperature": 0, "ignore_eos": true});
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            request
        };
        assert_eq!(tokens(request(json!({}))), model.greedy, "{}", model.name);
        assert_eq!(tokens(request(json!({}))), model.greedy, "{}, from the cache", model.name);
        let drafted = request(json!({"speculation": {"type": "prompt_lookup"}}));
        assert_eq!(tokens(drafted), model.greedy, "{}, with drafts", model.name);
    }
}

/// A file without one of its tensors, or with one of another shape, is refused by the name of the tensor.
#[test]
fn tensors_are_held_against_the_configuration() {
    for model in models() {
        for file in files(&model) {
            let folder = DirectoryFolder::new(golden().join(&model.name));
            let open = || pollster::block_on(Checkpoint::open(&folder, Some(file))).unwrap();
            let config = Config::of(&open()).unwrap();
            for expected in expected_tensors(&config) {
                let name = &expected.name;
                let Some(at) = open().tensors.iter().position(|tensor| tensor.name == *name) else { continue };
                let mut without = open();
                without.tensors.remove(at);
                match Config::of(&without) {
                    Ok(_) => assert!(expected.need != Need::Required, "{}: {name}", model.name),
                    // Keys may speak of rope's factors, which the architecture can be without.
                    Err(error) if name.starts_with("rope_factors") => {
                        assert_eq!(error.code(), Code::UnsupportedArchitecture, "{}: {error}", model.name);
                    }
                    Err(error) => assert_eq!(error.code(), Code::MissingTensor, "{}: {error}", model.name),
                }
                let mut wrong = open();
                wrong.tensors[at].dims[0] += 1;
                let error = Config::of(&wrong).unwrap_err();
                assert_eq!(error.code(), Code::ShapeMismatch, "{}: {error}", model.name);
                assert!(error.message().contains(name.as_str()), "{}: {error}", model.name);
            }
        }
    }
}

/// Where an adapter binds little at once, matrices lie in several parts: attention, feed-forward, experts, positions and the vocabulary.
/// Passes over one token, few and many give what they give with whole matrices, and `inspect` knows the bytes.
#[test]
fn matrices_in_parts_give_the_same() {
    const TOLERANCE: f64 = 1e-5;
    let contexts = contexts();
    for model in models() {
        // Bytes that the largest matrices are several times as large as, and that a few tokens' activations fit. An expert is not
        // divided.
        // Nor is the state of a recurrent layer.
        let binding = match &*model.name {
            "falcon_h1" | "falcon_h1_norm" | "mixtral" | "nemotron_h" | "nemotron_h_moe" | "qwen3_5"
            | "qwen3_5_moe" | "qwen3_next" => 8200,
            "gpt_oss" => 8800,
            _ => 5000,
        };
        let device = DeviceOptions { storage_binding: Some(binding), ..Default::default() };
        let limited = adapter::context_with(&device);
        let columns = model.logits.len() / model.ids.len();
        for setting in settings(&model, &contexts).iter().filter(|setting| setting.kernels == "software") {
            let &Setting { context: whole, file, joined, .. } = setting;
            let [parts, whole] = [&limited, whole].map(|context| Loaded::new(context, &model.name, file, joined, 16));
            let passes = [(0, 6, Logits::Last), (6, 4, Logits::All), (10, 1, Logits::All), (11, 1, Logits::All)];
            for (position, length, which) in passes {
                let ids = &model.ids[position..position + length];
                let [got, wanted] = [&parts, &whole].map(|loaded| loaded.pass(ids, position, which));
                let error = worst_row(&got, &wanted, columns);
                assert!(
                    error <= TOLERANCE,
                    "{}/{setting}, {length} from {position}: relative error {error:.2e}",
                    model.name
                );
            }
            let options = LoadOptions {
                // That of the pass, on every adapter.
                precision: Some(Precision::Exact),
                device: device.clone(),
                context_length: Some(16),
                unfused_ops: !joined,
                ..Default::default()
            };
            let folder = DirectoryFolder::new(golden().join(&model.name));
            let said = pollster::block_on(inspect(&folder, Some(file), &options)).unwrap();
            assert!(said.problem.is_none(), "{}: {:?}", model.name, said.problem);
            assert_eq!(said.weight_bytes, Some(parts.transformer.weight_bytes()), "{}/{file}", model.name);
        }
    }
}

/// A layer's part of a decode step is few dispatches, whatever norms and biases it has and whatever mixes its tokens.
#[test]
fn a_step_is_few_dispatches() {
    let [_, (_, context)] = &contexts()[..] else { panic!("two sets of kernels") };
    // In each layer, and besides: the embedding and the head, scales, positions and a soft cap.
    let wanted = [
        ("llama3", 5, 2),
        ("mistral", 5, 2),
        ("qwen2_yarn", 5, 2),
        ("phi3", 5, 2),
        ("smollm3", 5, 2),
        ("granite", 5, 4),
        ("stablelm", 5, 2),
        ("gpt2", 5, 3),
        ("qwen3", 6, 2),
        ("gemma2", 7, 4),
        ("gemma3", 8, 3),
        // Eight of a layer, and three for the token's vector for it, whose last one scales the stream; five for the vectors of all layers.
        ("gemma4_e", 11, 9),
        ("olmo2", 9, 2),
        ("olmo3", 9, 2),
        // One op at a time: eleven for latents, six for the feed-forward.
        ("youtu", 17, 3),
    ];
    // Of all layers: five of one with a short convolution, seven with Mamba-2 and its norm, five and four of the parts that add to the
    // residual stream by themselves, seven and two of a Mamba mixer and a feed-forward.
    let wanted_in_all = [
        ("lfm2", 5 + 6 + 5 + 2),
        // Of a layer with a gated delta net six, with gated attention nine.
        ("qwen3_5", 2 * (6 + 9) + 2),
        // Nine of a layer, with the scale at its end; where values are keys two more: their copy, and the cache.
        ("gemma4", 4 * 9 + 2 * 2 + 4),
        ("granite4", 7 + 5 + 7 + 4),
        ("falcon_h1", 2 * (4 + 3 + 2) + 2),
        ("nemotron_h", 5 + 2 + 3 + 5 + 2 + 2),
        ("mamba2", 3 * 5 + 2),
        ("mamba", 3 * 6 + 2),
    ];
    for model in models() {
        let per_layer = wanted.iter().find(|(name, ..)| *name == model.name);
        let in_all = wanted_in_all.iter().find(|(name, _)| *name == model.name);
        if per_layer.is_none() && in_all.is_none() {
            continue;
        }
        let loaded = Loaded::new(context, &model.name, GGUF, true, 64);
        let before = context.device().stats().dispatches;
        loaded.forward(&model.ids[..1], 0);
        let layers = loaded.transformer.config().n_layers as u64;
        let dispatches = context.device().stats().dispatches - before;
        let wanted = per_layer.map(|(_, per_layer, besides)| per_layer * layers + besides);
        assert_eq!(Some(dispatches), wanted.or(in_all.map(|(_, all)| *all)), "{}", model.name);
        if in_all.is_some() {
            // Recurrences take a prompt's tokens inside of their dispatches.
            let counts = [31, 64].map(|length| {
                let before = context.device().stats().dispatches;
                loaded.pass(&model.ids[..length], 0, Logits::Last);
                context.device().stats().dispatches - before
            });
            assert_eq!(counts[0], counts[1], "{}", model.name);
        }
    }
}

/// The tokens of a prompt are grouped by expert: as many dispatches however long it is. And what a token has from its experts is the
/// same with many others and with few.
#[test]
fn a_prompt_goes_through_experts_in_few_dispatches() {
    for (kernels, context) in contexts() {
        for model in models().iter().filter(|model| ["mixtral", "qwen3_moe"].contains(&&*model.name)) {
            let loaded = Loaded::new(&context, &model.name, GGUF, true, model.ids.len());
            let columns = model.logits.len() / model.ids.len();
            let mut counts = Vec::new();
            for length in [31, model.ids.len()] {
                let before = context.device().stats().dispatches;
                let got = loaded.pass(&model.ids[..length], 0, Logits::Last);
                counts.push(context.device().stats().dispatches - before);
                let few = loaded.pass(&model.ids[length - 3..length], length - 3, Logits::Last);
                let error = worst_row(&few, &got, columns);
                assert!(error <= 1e-5, "{}, {kernels} kernels, {length} tokens: {error:.2e}", model.name);
            }
            let layers = loaded.transformer.config().n_layers as u64;
            // Norm, projections, norms of heads, rope, attention and output; norm, router, choice, groups, gate, up, activation, down
            // and sum. Then a last row, a norm and the head.
            assert_eq!(counts[0], counts[1], "{}, {kernels} kernels", model.name);
            assert!(counts[0] <= 15 * layers + 4, "{}, {kernels} kernels: {counts:?}", model.name);
        }
    }
}

/// With the precision `fast` what experts read is rounded to 8 bits, once for gate and up, if their weights are quantised.
#[test]
fn a_fast_prompt_of_experts_is_close() {
    let [_, (_, context)] = &contexts()[..] else { panic!("two sets of kernels") };
    for model in models().iter().filter(|model| model.name == "gpt_oss") {
        let [(exact, of_exact), (fast, of_fast)] = [Precision::Exact, Precision::Fast].map(|precision| {
            let length = model.ids.len();
            let loaded = Loaded::for_texts_of(context, &model.name, GGUF, true, length, (None, precision));
            let before = context.device().stats().dispatches;
            let logits = loaded.forward(&model.ids, 0);
            (logits, context.device().stats().dispatches - before)
        });
        let error = worst_row(&fast, &exact, model.logits.len() / model.ids.len());
        println!("{}: {error:.1e}", model.name);
        assert!(error > 1e-6 && error < 0.05, "{}: relative error {error:.2e}", model.name);
        // Of each of two layers, what gate and up read and what down reads.
        assert_eq!(of_fast, of_exact + 2 * 2, "{}", model.name);
    }
}

fn contexts() -> Vec<(&'static str, Context)> {
    let gpu = DeviceOptions { software_kernels: Some(false), ..Default::default() };
    vec![("software", adapter::context(true)), ("gpu", adapter::context_with(&gpu))]
}

#[test]
fn every_architecture_has_a_model_in_both_containers() {
    let names: Vec<String> = models().iter().map(|model| model.name.clone()).collect();
    if std::env::var("RILLM_MODEL").is_ok() {
        return;
    }
    // Those of encoders: tests/engine/embeddings.rs.
    // Those that have one: encoder_decoders.rs.
    for arch in
        ARCHS.iter().filter(|arch| !arch.is_encoder && arch.encoder.is_none() && !NOT_IN_GGUF.contains(&arch.name))
    {
        let of_arch = |name: &&String| {
            let folder = DirectoryFolder::new(golden().join(name));
            golden().join(name).join(GGUF).exists()
                && pollster::block_on(Checkpoint::open(&folder, Some(GGUF)))
                    .is_ok_and(|checkpoint| checkpoint.metadata.str("general.architecture").unwrap() == arch.name)
        };
        assert!(names.iter().any(|name| of_arch(&name)), "no golden model of {}", arch.name);
    }
}

#[test]
fn logits_agree_at_every_position() {
    let contexts = contexts();
    for model in models() {
        let columns = model.logits.len() / model.ids.len();
        for setting in settings(&model, &contexts) {
            let Setting { context, file, joined, .. } = setting;
            // The greedy answer's room; where rope depends on the context, it was as long as the prompt.
            let capacity = model.ids.len() + model.greedy.len();
            let loaded = Loaded::new(context, &model.name, file, joined, capacity);
            let got = loaded.forward(&model.ids, 0);
            let error = worst_row(&got, &model.logits, columns);
            let what = format!("{}/{setting}", model.name);
            println!("{what}: {error:.1e}");
            assert!(error <= TOLERANCE, "{what}: relative error {error:.2e}");
            if let Some(short) = &model.short {
                let length = short.len() / columns;
                // A context of that length, and a longer one with ropes for it.
                for (capacity, rope_context) in [(length, None), (capacity, Some(length))] {
                    let loaded = Loaded::for_texts_of(
                        context,
                        &model.name,
                        file,
                        joined,
                        capacity,
                        (rope_context, Precision::Exact),
                    );
                    let error = worst_row(&loaded.forward(&model.ids[..length], 0), short, columns);
                    assert!(error <= TOLERANCE, "{what}, short texts in {capacity}: relative error {error:.2e}");
                }
            }
        }
    }
}

/// Token by token, and few at a time, the cache holds what a pass over all of them puts there; and the answer is the same.
#[test]
fn decode_agrees_with_prefill() {
    let contexts = contexts();
    for model in models() {
        let columns = model.logits.len() / model.ids.len();
        for setting in settings(&model, &contexts) {
            let what = format!("{}/{setting}", model.name);
            let capacity = model.ids.len() + model.greedy.len();
            let loaded = Loaded::new(setting.context, &model.name, setting.file, setting.joined, capacity);
            // A long part, some of few tokens, then one at a time. For GPUs each small number of tokens has kernels of its own, which take longest
            // to compile: the cases of the ops have them all, and here is one.
            let parts: &[usize] = if setting.kernels == "software" { &[29, 2, 5, 8, 11] } else { &[29, 3, 23] };
            let mut position = 0;
            for &length in parts {
                let got = loaded.forward(&model.ids[position..position + length], position);
                let wanted = &model.logits[position * columns..][..length * columns];
                let error = worst_row(&got, wanted, columns);
                assert!(error <= TOLERANCE, "{what}, {length} from {position}: relative error {error:.2e}");
                position += length;
            }
            let mut last = Vec::new();
            for position in position..model.ids.len() {
                last = loaded.forward(&model.ids[position..=position], position);
                let error = worst_row(&last, &model.logits[position * columns..][..columns], columns);
                assert!(error <= TOLERANCE, "{what}, decoding {position}: relative error {error:.2e}");
            }
            // The engine's answer is that of the other container (`the_engine_answers_the_same`).
            if setting.kernels != "software" || setting.file == GGUF {
                continue;
            }
            let mut answer = Vec::new();
            for step in 0..model.greedy.len() {
                let best = last.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as u32;
                answer.push(best);
                if step + 1 < model.greedy.len() {
                    last = loaded.forward(&[best], model.ids.len() + step);
                }
            }
            assert_eq!(answer, model.greedy, "{what}");
        }
    }
}

/// With keys and values in f16, the one rounding that is not of the weights, over a prompt that is read from the cache.
#[test]
fn an_f16_cache_costs_little() {
    let (_, context) = contexts().pop().unwrap();
    for model in models() {
        let file = files(&model)[0];
        let mut loaded = Loaded::new(&context, &model.name, file, true, model.ids.len() + model.greedy.len());
        let capacity = model.ids.len() + model.greedy.len();
        loaded.cache = loaded.transformer.layer_states(capacity, 1, KvFormat::F16).unwrap();
        let mut got = Vec::new();
        for (part, ids) in model.ids.chunks(19).enumerate() {
            got.extend(loaded.forward(ids, part * 19));
        }
        let error = worst_row(&got, &model.logits, got.len());
        let worst = worst_row(&got, &model.logits, got.len() / model.ids.len());
        println!("{}: {error:.1e}, at the worst position {worst:.1e}", model.name);
        // Where the inputs of products are rounded to 8 bits, a little makes a step more or less. With keys and values in f16 transformers itself
        // moves by 5e-3, at the worst position by 1.5e-2, and by half as much again where random numbers of that size are added instead.
        let rounds = loaded.transformer.config().rounds_activations;
        let (most, most_of_worst) = if rounds { (1e-2, 4e-2) } else { (3e-3, 2e-2) };
        let is_little = (1e-7..most).contains(&error) && worst < most_of_worst;
        assert!(is_little, "{}: {error:.2e}, {worst:.2e}", model.name);
    }
}
