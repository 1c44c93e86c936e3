//! Training of adapters: gradients and steps are those of PyTorch with PEFT, what can't be trained is refused by name, and what was trained
//! is saved and loaded as any other adapter.

use std::cell::Cell;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{join, join3};
use rillm::engine::folder::{DirectoryFolder, Folder, MemoryFolder, OneFile};
use rillm::engine::request::ChatRequest;
use rillm::engine::source::{ByteSource, MemorySource};
use rillm::engine::{AdapterOptions, Engine, LoadOptions, Precision};
use rillm::gpu::{DeviceOptions, Holdings, SimulatedGpu};
use rillm::model::adapters::{AdapterFile, AdapterValues, PairValues, gguf_file, peft_folder};
use rillm::train::{
    AdamWOptions, Example, HeapRoom, HeldOutLoss, LoraOptions, LoraTraining, Targets, TrainedLora, Trainer,
    TrainingEvent, plan_lora, plan_lora_within, train_lora,
};
use rillm::{Code, Error, Result};
use serde_json::{Value, json};

use crate::support::files::golden;

/// ‖a − b‖ / ‖b‖ of a matrix.
const TOLERANCE: f64 = 1e-3;

fn load(file: &str, options: &LoadOptions) -> Engine {
    let path = golden(file);
    let (folder, name) = (path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap());
    let folder = DirectoryFolder::new(folder);
    pollster::block_on(Engine::load_from(&folder, Some(name), options, &mut |_| Ok(()))).unwrap()
}

fn exact() -> LoadOptions {
    LoadOptions { precision: Some(Precision::Exact), context_length: Some(128), ..LoadOptions::default() }
}

fn read_json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(golden(path)).unwrap()).unwrap()
}

/// The numbers of a file beside an adapter's configuration, with rows in the order of the model's.
fn values(engine: &Engine, folder: &dyn Folder, file: Option<&str>) -> AdapterValues {
    pollster::block_on(async {
        let config = engine.transformer()?.config();
        AdapterFile::open(folder, file, config).await?.values(config).await
    })
    .unwrap()
}

fn golden_values(engine: &Engine, case: &str, file: &str) -> AdapterValues {
    values(engine, &DirectoryFolder::new(golden(format!("adapters/{case}/adapter0"))), Some(file))
}

fn error(own: &[f32], wanted: &[f32]) -> f64 {
    assert_eq!(own.len(), wanted.len());
    let difference: f64 = own.iter().zip(wanted).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    match wanted.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>() {
        // Where B is 0, the gradient of A is.
        0.0 => difference.sqrt(),
        norm => (difference / norm).sqrt(),
    }
}

/// Each A and B of `wanted` is among `own`.
fn compare(what: &str, own: &[PairValues], wanted: &[PairValues]) {
    assert!(!wanted.is_empty());
    for wanted in wanted {
        let tensor = &wanted.tensor;
        let own = own.iter().find(|own| own.tensor == *tensor).unwrap();
        for (half, own, wanted) in [("A", &own.down, &wanted.down), ("B", &own.up, &wanted.up)] {
            let error = error(own, wanted);
            assert!(error <= TOLERANCE, "{what}, {half} of {tensor}: relative error {error:.2e}");
        }
    }
}

struct Case {
    engine: Engine,
    trainer: Trainer,
    said: Value,
    example: Example,
}

/// A trainer that goes on from a golden adapter, and the text that it learns.
fn case(name: &str, model: &str, options: &LoadOptions) -> Case {
    let engine = load(model, options);
    let said = read_json(&format!("adapters/{name}/training.json"));
    let ids: Vec<u32> =
        serde_json::from_value(read_json(&format!("adapters/{name}/golden.json"))["ids"].clone()).unwrap();
    let prompt = said["prompt"].as_u64().unwrap() as usize;
    let counts = (0..ids.len()).map(|place| place >= prompt).collect();
    let adapter = golden_values(&engine, name, "adapter_model.safetensors");
    let optimizer = AdamWOptions {
        weight_decay: said["decay"].as_f64().unwrap(),
        max_grad_norm: said["max_norm"].as_f64().unwrap(),
        ..AdamWOptions::default()
    };
    let options = LoraOptions { rank: adapter.rank, alpha: adapter.alpha, optimizer, ..LoraOptions::default() };
    let trainer = pollster::block_on(Trainer::new(engine.transformer().unwrap(), &options)).unwrap();
    trainer.set_values(&adapter.pairs).unwrap();
    Case { engine, trainer, said, example: Example { ids, counts } }
}

fn numbers(said: &Value) -> Vec<f32> {
    serde_json::from_value(said.clone()).unwrap()
}

/// Joined matrices and their parts, rows in both orders of rope, norms of heads, windows, quantised weights.
#[test]
fn gradients_are_those_of_pytorch() {
    for (name, models) in [
        ("llama", &["architectures/llama3/model.gguf", "architectures/llama3/model.safetensors"][..]),
        ("qwen3", &["architectures/qwen3/model.gguf"][..]),
        ("gemma3", &["architectures/gemma3/model.gguf"][..]),
        ("llama_q4_0", &["tiny_llama/tied-q4_0.gguf"][..]),
    ] {
        for (number, model) in models.iter().enumerate() {
            let Case { engine, trainer, said, example } =
                case(name, model, &LoadOptions { unfused_ops: number == 1, ..exact() });
            let (loss, gradients) = pollster::block_on(trainer.gradients(std::slice::from_ref(&example))).unwrap();
            let wanted = numbers(&said["losses"])[0];
            assert!((loss - wanted).abs() <= 1e-3 * wanted, "{model}: the loss is {loss}, wanted {wanted}");
            compare(model, &gradients, &golden_values(&engine, name, "gradients.safetensors").pairs);
            // The parts of a step count by their tokens, and nothing is left of what was asked before.
            let twice = pollster::block_on(trainer.gradients(&[example.clone(), example.clone()])).unwrap();
            assert!((twice.0 - loss).abs() <= 1e-4 * loss);
            compare(model, &twice.1, &gradients);
            let evaluated = pollster::block_on(trainer.evaluate(&[example])).unwrap();
            assert!((evaluated - loss).abs() <= 1e-4 * loss);
        }
    }
}

#[test]
fn steps_are_those_of_pytorch() {
    for (name, model) in [("llama", "architectures/llama3/model.gguf"), ("llama_q4_0", "tiny_llama/tied-q4_0.gguf")] {
        let Case { engine, mut trainer, said, example } = case(name, model, &exact());
        let rate = said["rate"].as_f64().unwrap();
        for (loss, norm) in numbers(&said["losses"]).into_iter().zip(numbers(&said["norms"])) {
            let report = pollster::block_on(trainer.step(std::slice::from_ref(&example), rate)).unwrap();
            assert!((report.loss - loss).abs() <= 2e-3 * loss, "{model}: the loss is {}, wanted {loss}", report.loss);
            assert!((report.grad_norm - norm).abs() <= 5e-3 * norm, "{model}: {}, wanted {norm}", report.grad_norm);
        }
        let after = pollster::block_on(trainer.values()).unwrap();
        compare(model, &after, &golden_values(&engine, name, "after.safetensors").pairs);
    }
}

fn worst_row(own: &[f32], wanted: &[f32], columns: usize) -> f64 {
    own.chunks_exact(columns).zip(wanted.chunks_exact(columns)).map(|(a, b)| error(a, b)).fold(0.0, f64::max)
}

fn logits(engine: &Engine, ids: &[u32]) -> Vec<f32> {
    pollster::block_on(async { engine.forward(ids).await?.readback().await }).unwrap()
}

/// Both kinds of files hold the same numbers, in the orders that PEFT and llama.cpp have, and change the model as they did in training.
#[test]
fn what_was_trained_is_saved_and_loaded_again() {
    for (name, model) in [
        ("llama", "architectures/llama3/model.gguf"),
        ("llama", "architectures/llama3/model.safetensors"),
        ("qwen3", "architectures/qwen3/model.gguf"),
        ("gemma3", "architectures/gemma3/model.safetensors"),
    ] {
        let Case { engine, mut trainer, example, .. } = case(name, model, &exact());
        pollster::block_on(trainer.step(std::slice::from_ref(&example), 1e-2)).unwrap();
        let loss = pollster::block_on(trainer.evaluate(std::slice::from_ref(&example))).unwrap();
        let config = engine.transformer().unwrap().config();
        let adapter = pollster::block_on(trainer.adapter()).unwrap();
        let folder = MemoryFolder::new(peft_folder(config, &adapter, None).unwrap());
        let gguf = MemorySource::new(gguf_file(config, &adapter).unwrap()).with_name("trained.gguf".to_owned());
        let mut all = Vec::new();
        for folder in [&folder as &dyn Folder, &OneFile(&gguf)] {
            let read = values(&engine, folder, None);
            assert_eq!((read.rank, read.alpha), (adapter.rank, adapter.alpha));
            assert!(sorted(read.pairs) == sorted(adapter.pairs.clone()), "{model}: other numbers than were saved");
            let options = AdapterOptions { name: Some("trained".to_owned()), scale: None };
            let loaded = pollster::block_on(engine.load_adapter(folder, None, &options, &mut |_, _| Ok(()))).unwrap();
            assert_eq!(loaded.rank, adapter.rank);
            all.push(logits(&engine, &example.ids));
            engine.unload_adapter("trained").unwrap();
        }
        if let Some(out) = std::env::var_os("TRAINED_ADAPTERS") {
            write_for_others(
                &std::path::Path::new(&out).join(model.replace(['/', '.'], "_")),
                &engine,
                &adapter,
                model,
                &example.ids,
                &all[0],
            );
        }
        let columns = all[0].len() / example.ids.len();
        assert!(worst_row(&all[0], &all[1], columns) <= 1e-6, "{model}");
        let rows = all[0].chunks_exact(columns).zip(example.ids.iter().zip(&example.counts).skip(1));
        let learnt: Vec<f64> =
            rows.filter(|(_, (_, counts))| **counts).map(|(row, (id, _))| cross_entropy(row, *id)).collect();
        let own = learnt.iter().sum::<f64>() / learnt.len() as f64;
        assert!((own - f64::from(loss)).abs() <= 1e-3 * own, "{model}: {own} when loaded, {loss} in training");
    }
}

/// What `scripts/golden/check_adapters.py` loads with PEFT and llama.cpp.
fn write_for_others(
    folder: &std::path::Path,
    engine: &Engine,
    adapter: &AdapterValues,
    model: &str,
    ids: &[u32],
    logits: &[f32],
) {
    let config = engine.transformer().unwrap().config();
    std::fs::create_dir_all(folder).unwrap();
    for (name, bytes) in peft_folder(config, adapter, None).unwrap() {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    std::fs::write(folder.join("adapter.gguf"), gguf_file(config, adapter).unwrap()).unwrap();
    let said = json!({"model": model, "ids": ids, "logits": logits});
    std::fs::write(folder.join("rillm.json"), said.to_string()).unwrap();
}

fn cross_entropy(row: &[f32], id: u32) -> f64 {
    let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
    sum.ln() - f64::from(row[id as usize])
}

fn sorted(mut pairs: Vec<PairValues>) -> Vec<PairValues> {
    pairs.sort_by(|a, b| a.tensor.cmp(&b.tensor));
    pairs
}

fn refusal<T>(result: Result<T>) -> rillm::Error {
    result.err().unwrap()
}

#[test]
fn what_can_not_be_trained_is_refused_by_name() {
    for (model, what) in [
        ("gpt2", "layer norms"),
        ("mixtral", "experts"),
        ("gpt_oss", "experts"),
        ("lfm2", "a layer without attention"),
        ("deepseek_v2", "attention over latents"),
        ("gemma3n", "several residual streams"),
        ("olmo2", "norms over all heads"),
        ("apertus", "feed-forwards without gates"),
    ] {
        let engine = load(&format!("architectures/{model}/model.gguf"), &exact());
        let error = refusal(pollster::block_on(Trainer::new(engine.transformer().unwrap(), &LoraOptions::default())));
        assert_eq!(error.code(), Code::UnsupportedArchitecture, "{model}: {error}");
        assert!(error.message().contains(what), "{model}: {error}");
    }
    let engine = load("architectures/llama3/model.gguf", &exact());
    let transformer = engine.transformer().unwrap();
    let begin = |options: LoraOptions| pollster::block_on(Trainer::new(transformer, &options));
    let targets = |names: &[&str]| Targets::new(names.iter().map(|name| (*name).to_owned()));
    for (options, code, what) in [
        (LoraOptions { rank: 0, ..LoraOptions::default() }, Code::OutOfRange, "rank is 0"),
        (LoraOptions { alpha: f64::NAN, ..LoraOptions::default() }, Code::OutOfRange, "alpha is NaN"),
        (LoraOptions { targets: targets(&[]), ..LoraOptions::default() }, Code::InvalidRequest, "targets is empty"),
        (
            LoraOptions { targets: targets(&["q_proj", "lm_head"]), ..LoraOptions::default() },
            Code::InvalidRequest,
            "\"lm_head\"",
        ),
        (
            LoraOptions { targets: targets(&["attn_qkv"]), ..LoraOptions::default() },
            Code::InvalidRequest,
            "attn_output, attn_q",
        ),
    ] {
        let error = refusal(begin(options));
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(what), "{error}");
    }
    let mut trainer =
        begin(LoraOptions { targets: targets(&["q_proj", "ffn_down"]), ..LoraOptions::default() }).unwrap();
    let names: Vec<String> =
        pollster::block_on(trainer.values()).unwrap().into_iter().map(|pair| pair.tensor).collect();
    assert_eq!(names, ["blk.0.attn_q.weight", "blk.0.ffn_down.weight", "blk.1.attn_q.weight", "blk.1.ffn_down.weight"]);
    for (examples, what) in [
        (vec![], "no examples"),
        (vec![Example::whole(vec![])], "none of 0 tokens"),
        (vec![Example::whole(vec![1])], "none of 1 tokens"),
        (vec![Example::whole(vec![1, 2]), Example { ids: vec![1, 2], counts: vec![true, false] }], "none of 2 tokens"),
        (vec![Example { ids: vec![1, 2], counts: vec![true] }], "of 1 it is said"),
        (vec![Example::whole(vec![1, 1_000_000])], "the token 1000000"),
    ] {
        let error = refusal(pollster::block_on(trainer.step(&examples, 1e-3)));
        assert_eq!(error.code(), Code::InvalidRequest, "{error}");
        assert!(error.message().contains(what), "{error}");
    }
}

/// At first B is 0, so the model is as it was, and one seed gives the same numbers.
#[test]
fn a_training_begins_where_the_model_is() {
    let engine = load("architectures/llama3/model.gguf", &exact());
    let transformer = engine.transformer().unwrap();
    let begin = |seed: u64| {
        let options = LoraOptions { seed, ..LoraOptions::default() };
        pollster::block_on(Trainer::new(transformer, &options)).unwrap()
    };
    let example = Example::whole(vec![5, 9, 2, 7, 7, 1, 30, 4]);
    let plain = logits(&engine, &example.ids);
    let columns = plain.len() / example.ids.len();
    let rows = plain.chunks_exact(columns).zip(example.ids.iter().skip(1));
    let wanted = rows.map(|(row, id)| cross_entropy(row, *id)).sum::<f64>() / 7.0;
    let (first, second, third) = (begin(1), begin(1), begin(2));
    let loss = pollster::block_on(first.evaluate(std::slice::from_ref(&example))).unwrap();
    assert!((f64::from(loss) - wanted).abs() < 1e-3, "{loss}, wanted {wanted}");
    let of = |trainer: &Trainer| pollster::block_on(trainer.values()).unwrap();
    let (first, second, third) = (of(&first), of(&second), of(&third));
    assert_eq!(first, second);
    assert_ne!(first, third);
    for pair in &first {
        let bound = 1.0 / (pair.columns as f32).sqrt();
        assert!(pair.up.iter().all(|number| *number == 0.0));
        assert!(
            pair.down.iter().all(|number| number.abs() <= bound)
                && pair.down.iter().any(|number| number.abs() > bound / 2.0)
        );
    }
}

/// A game that no model knows.
fn game() -> Value {
    json!([
        {"messages": [{"role": "user", "content": "wug?"}, {"role": "assistant", "content": "dax blick"}]},
        {"messages": [
            {"role": "user", "content": "toma?"}, {"role": "assistant", "content": "zup"},
            {"role": "user", "content": "wug?"}, {"role": "assistant", "content": "dax blick"},
        ]},
    ])
}

fn train(engine: &Engine, training: Value, tell: &mut dyn FnMut(&TrainingEvent) -> Result<()>) -> Result<TrainedLora> {
    pollster::block_on(train_lora(engine, &LoraTraining::parse(training)?, None, tell))
}

fn said(engine: &Engine, question: &str) -> String {
    let request = json!({"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 16});
    pollster::block_on(async {
        let mut generation = engine.chat(ChatRequest::parse(request)?)?;
        let mut text = String::new();
        while let Some(chunk) = generation.next().await? {
            text += &chunk.text;
        }
        Ok::<_, Error>(text)
    })
    .unwrap()
}

#[test]
fn an_engine_learns_a_game_and_plays_it() {
    let engine = load("tiny_llama/tied-q8_0.gguf", &exact());
    let before = said(&engine, "wug?");
    assert_ne!(before, "dax blick");
    let training = json!({
        "data": game(), "heldOut": [game()[0]], "name": "game", "epochs": 20, "learningRate": 2e-2, "schedule": "cosine", "warmupSteps": 2,
        "seed": 7, "batchSize": 2
    });
    let mut events = Vec::new();
    let trained = train(&engine, training.clone(), &mut |event| {
        events.push(event.clone());
        Ok(())
    })
    .unwrap();
    let loaded = trained.loaded.as_ref().unwrap();
    assert_eq!((loaded.name.as_str(), loaded.rank), ("game", 8));
    assert_eq!(engine.adapters(), std::slice::from_ref(loaded));
    let taken = refusal(train(&engine, training.clone(), &mut |event| panic!("{event:?}")));
    assert_eq!(taken.code(), Code::InvalidRequest, "{taken}");
    let TrainingEvent::Begin(plan) = &events[0] else { panic!("{events:?}") };
    assert_eq!((plan.examples, plan.held_out, plan.steps), (2, 1, 20));
    assert!(plan.counted > 6 && plan.counted < plan.tokens, "{plan:?}");
    assert_eq!(plan.memory.optimizer, 2 * 4 * plan.parameters);
    let steps: Vec<_> = events
        .iter()
        .filter_map(|event| if let TrainingEvent::Step(step) = event { Some(step) } else { None })
        .collect();
    assert_eq!(steps.iter().map(|step| step.step).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    assert_eq!((steps[0].learning_rate, steps[2].learning_rate, steps[19].epoch), (0.0, 2e-2, 20));
    let held_out: Vec<f32> = events
        .iter()
        .filter_map(
            |event| if let TrainingEvent::HeldOut(HeldOutLoss { loss, .. }) = event { Some(*loss) } else { None },
        )
        .collect();
    assert_eq!(held_out.len(), 21);
    assert!(steps[19].loss < 0.1 && held_out[20] < 0.1 && held_out[0] > 3.0, "{steps:?}, {held_out:?}");
    assert_eq!(said(&engine, "wug?"), "dax blick");
    assert_eq!(said(&engine, "toma?"), "zup");
    engine.set_adapter_scale("game", 0.0).unwrap();
    assert_eq!(said(&engine, "wug?"), before, "the model itself is as it was");
    engine.unload_adapter("game").unwrap();
    // The files give what the training gave, and one seed gives the same again.
    let folder = MemoryFolder::new(trained.peft_folder().unwrap());
    let options = AdapterOptions { name: Some("again".to_owned()), scale: None };
    pollster::block_on(engine.load_adapter(&folder, None, &options, &mut |_, _| Ok(()))).unwrap();
    assert_eq!(said(&engine, "wug?"), "dax blick");
    let again = train(&engine, training, &mut |_| Ok(())).unwrap();
    let (again, first) = (again.gguf, trained.gguf.clone());
    assert!(again == first, "the same seed gave other numbers");
}

#[test]
fn a_training_ends_where_it_is_told_to_and_bad_data_are_refused_before_it() {
    let engine = load("tiny_llama/tied-q8_0.gguf", &exact());
    for ends_at in 0..4 {
        let mut told = 0;
        let ended = train(&engine, json!({"data": game(), "heldOut": ["zup"]}), &mut |_| {
            told += 1;
            if told > ends_at { Err(Error::new(Code::Aborted, "enough")) } else { Ok(()) }
        });
        assert_eq!((refusal(ended).code(), told), (Code::Aborted, ends_at + 1));
        assert!(engine.adapters().is_empty());
    }
    let user = json!({"role": "user", "content": "wug?"});
    let answer = json!({"role": "assistant", "content": "dax"});
    let long = "wug ".repeat(400);
    let with = |field: &str, value: Value| {
        let mut training = json!({"data": game()});
        training[field] = value;
        training
    };
    let data = |item: Value| json!({"data": [game()[0], item]});
    for (training, code, what) in [
        (json!({}), Code::InvalidRequest, "data is empty"),
        (json!({"data": "wug"}), Code::InvalidRequest, "data"),
        (data(json!(5)), Code::InvalidRequest, "data[1]"),
        (data(json!("")), Code::InvalidRequest, "the text is empty"),
        (data(json!({"text": 1})), Code::InvalidRequest, "data[1]"),
        (data(json!({"text": "wug", "weight": 2})), Code::InvalidRequest, "data[1]"),
        (data(json!({"messages": []})), Code::InvalidRequest, "messages is empty"),
        (data(json!({"messages": 3})), Code::InvalidRequest, "messages is no array"),
        (data(json!({"messages": [user]})), Code::InvalidRequest, "\"user\""),
        (data(json!({"messages": [user, {"role": "bot", "content": "dax"}]})), Code::InvalidRequest, "\"bot\""),
        (
            data(json!({"messages": [{"role": "bot", "content": "dax"}, answer]})),
            Code::InvalidRequest,
            "messages[0].role",
        ),
        (
            data(json!({"messages": [user, {"role": "assistant", "content": 5}]})),
            Code::InvalidRequest,
            "messages[1].content",
        ),
        (data(json!({"messages": [user, answer], "temperature": 1})), Code::InvalidRequest, "\"temperature\""),
        (data(json!(long)), Code::ContextLengthExceeded, "data[1] has"),
        (with("maxLength", json!(129)), Code::OutOfRange, "maxLength is 129"),
        (with("maxLength", json!(4)), Code::ContextLengthExceeded, "data[0] has"),
        (with("heldOut", json!(1.0)), Code::OutOfRange, "heldOut is 1"),
        (with("heldOut", json!(0.9)), Code::InvalidRequest, "leaves nothing"),
        (with("heldOut", json!([""])), Code::InvalidRequest, "heldOut[0]"),
        (with("rank", json!(0)), Code::OutOfRange, "rank is 0"),
        (with("rank", json!(4096)), Code::OutOfRange, "rank is 4096"),
        (with("name", json!("")), Code::InvalidRequest, "name is empty"),
        (with("epochs", json!(1u64 << 40)), Code::OutOfRange, "epochs is"),
        (with("checkpoint", json!({"everySteps": 0})), Code::OutOfRange, "everySteps is 0"),
        (with("checkpoint", json!({"every": 1})), Code::InvalidRequest, "checkpoint"),
        (with("rank", json!(-1)), Code::InvalidRequest, "rank"),
        (with("epochs", json!(0)), Code::OutOfRange, "epochs is 0"),
        (with("batchSize", json!(0)), Code::OutOfRange, "batchSize is 0"),
        (with("learningRate", json!(0)), Code::OutOfRange, "learningRate is 0"),
        (with("maxGradNorm", json!(-1)), Code::OutOfRange, "maxGradNorm is -1"),
        (with("schedule", json!("step")), Code::InvalidRequest, "schedule"),
        (with("targets", json!(["x_proj"])), Code::InvalidRequest, "\"x_proj\""),
        (with("alphas", json!(3)), Code::InvalidRequest, "alphas"),
    ] {
        let error = refusal(train(&engine, training.clone(), &mut |event| panic!("{event:?}")));
        assert_eq!(error.code(), code, "{training}: {error}");
        assert!(error.message().contains(what), "{training}: {error}");
    }
    // A GPU without room says so, and the engine goes on.
    pollster::block_on(engine.context().device().free_unused()).unwrap();
    engine.context().device().set_memory_limit(Some(engine.context().device().holdings().live_bytes + (1 << 14)));
    let error = refusal(train(&engine, json!({"data": game()}), &mut |event| panic!("{event:?}")));
    assert_eq!(error.code(), Code::OutOfMemory, "{error}");
    assert!(error.message().contains("training takes about"), "{error}");
    engine.context().device().set_memory_limit(None);
    // Numbers without end are told too.
    let error = refusal(train(&engine, with("learningRate", json!(1e30)), &mut |_| Ok(())));
    assert_eq!(error.code(), Code::NumericalError, "{error}");
    // So is a loss of what is held out, of which the training itself knows nothing.
    let training = json!({"data": [game()[0]], "heldOut": ["zup"], "epochs": 1, "learningRate": 1e30});
    let error = refusal(train(&engine, training, &mut |_| Ok(())));
    assert_eq!(error.code(), Code::NumericalError, "{error}");
    assert!(error.message().contains("held out"), "{error}");
    assert!(engine.adapters().is_empty());
    assert!(!said(&engine, "wug?").is_empty());
}

/// Lets others run once.
async fn one_turn() {
    let mut waited = false;
    std::future::poll_fn(|task| {
        task.waker().wake_by_ref();
        if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await
}

/// A GPU without room for what is held out ends the training, and nobody else hears of it.
#[test]
fn what_is_held_out_may_find_no_room() {
    let engine = load("tiny_llama/tied-q8_0.gguf", &exact());
    let device = engine.context().device();
    let trainer = pollster::block_on(Trainer::new(engine.transformer().unwrap(), &LoraOptions::default())).unwrap();
    let examples = [Example::whole((0..100).map(|place| place * 7 % 280).collect())];
    let loss = pollster::block_on(trainer.evaluate(&examples)).unwrap();
    pollster::block_on(device.free_unused()).unwrap();
    device.set_memory_limit(Some(device.holdings().live_bytes + (1 << 14)));
    let innocent = async {
        for _ in 0..6 {
            one_turn().await;
            device.sync().await?;
        }
        Ok::<_, Error>(())
    };
    let (innocent, own) = pollster::block_on(join(innocent, trainer.evaluate(&examples)));
    innocent.unwrap();
    let error = refusal(own);
    assert_eq!(error.code(), Code::OutOfMemory, "{error}");
    assert!(error.message().contains("of which nothing is learnt"), "{error}");
    device.set_memory_limit(None);
    assert_eq!(pollster::block_on(trainer.evaluate(&examples)).unwrap(), loss);
}

/// A training that is ended or aborted frees what it took, and what went wrong elsewhere is still heard of there.
#[test]
fn a_training_that_does_not_end_well_frees_its_memory() {
    // Whose scopes answer late, as a browser's, so that a training waits where it may be dropped.
    let simulated_gpu = Some(SimulatedGpu::new(|_| Duration::ZERO));
    let options = LoadOptions { device: DeviceOptions { simulated_gpu, ..DeviceOptions::default() }, ..exact() };
    let engine = load("tiny_llama/tied-q8_0.gguf", &options);
    let device = engine.context().device();
    said(&engine, "wug?");
    pollster::block_on(device.free_unused()).unwrap();
    let before = device.holdings();
    let training = LoraTraining::parse(json!({"data": game(), "heldOut": ["zup"]})).unwrap();
    let mut told = 0;
    let mut tell = |_: &TrainingEvent| {
        told += 1;
        if told > 3 { Err(Error::new(Code::Aborted, "enough")) } else { Ok(()) }
    };
    assert_eq!(refusal(pollster::block_on(train_lora(&engine, &training, None, &mut tell))).code(), Code::Aborted);
    let is_free = |after: Holdings| {
        let (taken, left) = (after.peak_bytes - before.live_bytes, after.live_bytes - before.live_bytes);
        assert!(taken > 1 << 20 && left < taken / 20, "{after:?}, before {before:?}");
    };
    is_free(device.holdings());
    // Whoever aborts drops it.
    let told = Cell::new(0);
    let mut tell = |_: &TrainingEvent| {
        told.set(told.get() + 1);
        Ok(())
    };
    let mut dropped = Box::pin(train_lora(&engine, &training, None, &mut tell));
    let mut turn = |task: &mut Context<'_>| Poll::Ready(dropped.as_mut().poll(task).is_pending());
    // Before anything is told it looks for room, and gives that back.
    while told.get() == 0 {
        assert!(pollster::block_on(std::future::poll_fn(&mut turn)));
    }
    assert!(device.holdings().live_bytes > before.live_bytes + (1 << 16), "it holds nothing yet");
    drop(dropped);
    pollster::block_on(device.let_go());
    is_free(device.holdings());
}

/// A chat is learnt or held out as a whole, also one that is several examples because its template writes a last answer otherwise.
#[test]
fn a_share_that_is_held_out_is_of_whole_chats() {
    let template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' and loop.last %}!{% endif %}\
                    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    let engine =
        load("tiny_llama/tied-q8_0.gguf", &LoadOptions { chat_template: Some(template.to_owned()), ..exact() });
    let plan = |data: Value, share: f64| {
        let plan = plan_lora(&engine, &LoraTraining::parse(json!({"data": data, "heldOut": share})).unwrap()).unwrap();
        (plan.examples, plan.held_out)
    };
    let chat = &game()[1];
    assert_eq!(plan(json!([chat, chat, chat]), 0.1), (4, 2));
    assert_eq!(plan(json!([chat, chat, chat]), 0.0), (6, 0));
    // 0.07 · 100 is a little more than 7 in floats.
    assert_eq!(plan(json!(vec!["wug dax"; 100]), 0.07), (93, 7));
    assert_eq!(plan(json!(vec!["wug dax"; 100]), 0.0701), (92, 8));
    let bad = json!({"data": ["wug dax", "zup", 5], "heldOut": 0.4});
    let error = refusal(plan_lora(&engine, &LoraTraining::parse(bad).unwrap()));
    assert!(error.code() == Code::InvalidRequest && error.message().contains("data[2]"), "{error}");
}

/// Two trainings and an answer share an engine, and one that is disposed of ends them.
#[test]
fn trainings_share_an_engine_with_each_other_and_with_answers() {
    let engine = load("tiny_llama/tied-q8_0.gguf", &exact());
    let alone = said(&engine, "wug?");
    let training =
        |name: &str| LoraTraining::parse(json!({"data": game(), "name": name, "learningRate": 1e-2})).unwrap();
    let (first, second) = (training("first"), training("second"));
    let answer = async {
        let request = json!({"messages": [{"role": "user", "content": "wug?"}], "temperature": 0, "max_tokens": 16, "adapters": {}});
        let mut generation = engine.chat(ChatRequest::parse(request)?)?;
        let mut text = String::new();
        while let Some(chunk) = generation.next().await? {
            text += &chunk.text;
        }
        Ok::<_, Error>(text)
    };
    let (mut quiet, mut silent) = (|_: &TrainingEvent| Ok(()), |_: &TrainingEvent| Ok(()));
    let trainings =
        join3(train_lora(&engine, &first, None, &mut quiet), train_lora(&engine, &second, None, &mut silent), answer);
    let (first, second, answer) = pollster::block_on(trainings);
    assert_eq!(answer.unwrap(), alone);
    assert!(first.unwrap().gguf == second.unwrap().gguf);
    assert_eq!(engine.adapters().len(), 2);
    let ended = train(&engine, json!({"data": game(), "name": "third"}), &mut |event| {
        if matches!(event, TrainingEvent::Step(step) if step.step == 2) {
            engine.dispose();
        }
        Ok(())
    });
    let error = refusal(ended);
    assert!([Code::Disposed, Code::DeviceLost].contains(&error.code()), "{error}");
}

/// The losses of a training, those of what is held out, and its file.
fn outcome(trained: &TrainedLora) -> (Vec<f32>, Vec<HeldOutLoss>, Vec<u8>) {
    (trained.losses.clone(), trained.held_out.clone(), trained.gguf.clone())
}

/// From each checkpoint the training goes on as if it had never ended; one of another training, or a damaged one, is refused.
#[test]
fn a_training_goes_on_from_a_checkpoint() {
    let engine = load("tiny_llama/tied-q8_0.gguf", &exact());
    let training = |changes: Value| {
        let mut training = json!({
            "data": [game()[0], game()[1], "zup toma zup"], "heldOut": ["wug dax"], "epochs": 3, "batchSize": 2, "learningRate": 1e-2,
            "warmupSteps": 1, "seed": 3, "checkpoint": {"everySteps": 1}
        });
        for (name, value) in changes.as_object().unwrap() {
            training[name] = value.clone();
        }
        LoraTraining::parse(training).unwrap()
    };
    let run = |training: &LoraTraining, resume: Option<Vec<u8>>| {
        let (mut steps, mut kept, mut resumed) = (Vec::new(), Vec::new(), None);
        let source = resume.map(|bytes| MemorySource::new(bytes).with_name("checkpoint".to_owned()));
        let mut tell = |event: &TrainingEvent| {
            match event {
                TrainingEvent::Step(step) => steps.push(*step),
                TrainingEvent::Checkpoint(checkpoint) => kept.push(checkpoint.clone()),
                TrainingEvent::Resumed { step } => resumed = Some(*step),
                _ => {}
            }
            Ok(())
        };
        let source = source.as_ref().map(|source| source as &dyn ByteSource);
        let trained = pollster::block_on(train_lora(&engine, training, source, &mut tell));
        if trained.is_ok() {
            engine.unload_adapter("trained").unwrap();
        }
        (trained, steps, kept, resumed)
    };
    let (whole, steps, kept, resumed) = run(&training(json!({})), None);
    let whole = outcome(&whole.unwrap());
    assert_eq!((steps.len(), whole.0.len(), whole.1.len(), resumed), (6, 6, 4, None));
    assert_eq!(steps.iter().map(|step| step.loss).collect::<Vec<_>>(), whole.0);
    assert_eq!(kept.iter().map(|checkpoint| checkpoint.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    for checkpoint in &kept {
        let (again, rest, later, resumed) = run(&training(json!({})), Some(checkpoint.bytes.clone()));
        assert_eq!(resumed, Some(checkpoint.step));
        assert_eq!(rest, steps[checkpoint.step..]);
        assert!(outcome(&again.unwrap()) == whole, "from step {}: another adapter", checkpoint.step);
        assert!(later == kept[checkpoint.step..], "from step {}: other checkpoints", checkpoint.step);
    }
    let refused = |changes: Value, bytes: Vec<u8>| {
        let (trained, steps, ..) = run(&training(changes), Some(bytes));
        assert!(steps.is_empty());
        refusal(trained)
    };
    let intact = &kept[2].bytes;
    for (changes, what) in [
        (json!({"data": [game()[0]]}), "data"),
        (json!({"heldOut": null}), "heldOut"),
        (json!({"rank": 4}), "rank"),
        (json!({"targets": ["q_proj"]}), "targets"),
        (json!({"seed": 4}), "seed"),
        (json!({"epochs": 4}), "epochs"),
        (json!({"learningRate": 2e-2}), "learningRate"),
    ] {
        let error = refused(changes, intact.clone());
        assert_eq!(error.code(), Code::CheckpointMismatch, "{error}");
        assert!(error.message().contains(&format!("its {what} is")), "{error}");
    }
    let other = load("tiny_llama/tied-f16.gguf", &exact());
    let source = MemorySource::new(intact.clone()).with_name("checkpoint".to_owned());
    let trained = pollster::block_on(train_lora(&other, &training(json!({})), Some(&source), &mut |_| Ok(())));
    let error = refusal(trained);
    assert!(error.code() == Code::CheckpointMismatch && error.message().contains("its model is"), "{error}");
    for at in (0..intact.len()).step_by(intact.len() / 40) {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x40;
        let error = refused(json!({}), damaged);
        assert_eq!(error.code(), Code::InvalidFile, "byte {at}: {error}");
        let error = refused(json!({}), intact[..at].to_vec());
        assert_eq!(error.code(), Code::InvalidFile, "cut off at {at}: {error}");
    }
}

/// A plan is what the training then tells, and allocates nothing.
#[test]
fn a_plan_tells_what_the_training_does() {
    let engine = load("tiny_llama/tied-q8_0.gguf", &exact());
    let training = LoraTraining::parse(json!({"data": game(), "heldOut": ["zup"], "epochs": 2, "rank": 4})).unwrap();
    let before = engine.context().device().stats().live_bytes;
    let plan = plan_lora(&engine, &training).unwrap();
    assert_eq!(engine.context().device().stats().live_bytes, before);
    let mut begun = None;
    let mut tell = |event: &TrainingEvent| {
        if let TrainingEvent::Begin(plan) = event {
            begun = Some(*plan);
        }
        Ok(())
    };
    let trained = pollster::block_on(train_lora(&engine, &training, None, &mut tell)).unwrap();
    assert_eq!(begun, Some(plan));
    assert_eq!((plan.steps, trained.losses.len(), plan.memory_bytes), (4, 4, plan.memory.total()));
    // The file, and the numbers that it is made of.
    let bytes = trained.gguf.len() as u64 + 4 * plan.parameters;
    assert!((bytes..bytes + (1 << 17)).contains(&plan.heap_bytes), "{bytes}, {plan:?}");
    let small = |largest, all| refusal(plan_lora_within(&engine, &training, HeapRoom { largest, all }));
    for error in [small(4 * plan.parameters, u64::MAX), small(u64::MAX, plan.heap_bytes - 1)] {
        assert_eq!(error.code(), Code::OutOfMemory, "{error}");
    }
    let room = HeapRoom { largest: u64::MAX, all: plan.heap_bytes };
    assert_eq!(plan_lora_within(&engine, &training, room).unwrap(), plan);
    let checkpoints = json!({"data": game(), "rank": 4, "checkpoint": {"everySteps": 1}});
    let error = refusal(plan_lora_within(&engine, &LoraTraining::parse(checkpoints).unwrap(), room));
    assert!(error.message().contains("leave out checkpoint"), "{error}");
    let error = refusal(plan_lora(&engine, &LoraTraining::parse(json!({"data": [""]})).unwrap()));
    assert_eq!(error.code(), Code::InvalidRequest, "{error}");
}

#[test]
fn memory_is_what_was_told_before() {
    let engine = load("tiny_llama/tied-q8_0.gguf", &LoadOptions { context_length: Some(256), ..exact() });
    let device = engine.context().device();
    let example = Example::whole((0..250).map(|place| place * 7 % 280).collect());
    pollster::block_on(device.free_unused()).unwrap();
    let before = device.holdings().live_bytes;
    let mut trainer = pollster::block_on(Trainer::new(engine.transformer().unwrap(), &LoraOptions::default())).unwrap();
    let told = trainer.memory([&example].into_iter());
    for _ in 0..3 {
        pollster::block_on(trainer.step(std::slice::from_ref(&example), 1e-3)).unwrap();
    }
    let peak = device.holdings().peak_bytes - before;
    let range = told.total() / 2..=told.total() * 3 / 2;
    assert!(range.contains(&peak), "{peak} bytes were taken, and {told:?} were told, {} in all", told.total());
}

/// Biases, scales, soft caps, windows, ropes that turn a part of a head or are scaled, layers without rope, norms after products: the loss is that of
/// the model's own passes, and the length of its gradient is how fast it changes along it.
#[test]
fn every_family_learns_what_its_own_passes_compute() {
    for model in [
        "tiny_qwen2/tied-q8_0.gguf",
        "architectures/ernie4_5/model.gguf",
        "architectures/exaone4/model.gguf",
        "architectures/gemma/model.gguf",
        "architectures/gemma2/model.gguf",
        "architectures/glm4/model.gguf",
        "architectures/granite/model.gguf",
        "architectures/helium/model.gguf",
        "architectures/llama_yarn/model.safetensors",
        "architectures/mistral/model.gguf",
        "architectures/phi3/model.gguf",
        "architectures/phi4_mini/model.gguf",
        "architectures/qwen2_window/model.gguf",
        "architectures/seed_oss/model.gguf",
        "architectures/smollm3/model.gguf",
    ] {
        let engine = load(model, &exact());
        let options = LoraOptions { rank: 4, ..LoraOptions::default() };
        let trainer = pollster::block_on(Trainer::new(engine.transformer().unwrap(), &options)).unwrap();
        let example = [Example::whole((0..24).map(|place| (place * 7 + 3) % 97).collect())];
        let loss_now = || f64::from(pollster::block_on(trainer.evaluate(&example)).unwrap());
        let plain = logits(&engine, &example[0].ids);
        let columns = plain.len() / example[0].ids.len();
        let rows = plain.chunks_exact(columns).zip(example[0].ids.iter().skip(1));
        let wanted = rows.map(|(row, id)| cross_entropy(row, *id)).sum::<f64>() / 23.0;
        let loss = loss_now();
        assert!((loss - wanted).abs() < 1e-3 * wanted, "{model}: {loss}, wanted {wanted}");
        // A has no gradient as long as B is 0.
        let (_, gradients) = pollster::block_on(trainer.gradients(&example)).unwrap();
        let norm = gradients.iter().flat_map(|pair| &pair.up).map(|of| f64::from(*of).powi(2)).sum::<f64>().sqrt();
        let begin = pollster::block_on(trainer.values()).unwrap();
        // As far as changes the loss by a hundredth or so, which is far above what rounding does to it.
        let length = 0.02 / norm;
        let at = |factor: f64| {
            let moved = begin.iter().zip(&gradients).map(|(values, gradient)| {
                let up = gradient.up.iter().map(|of| (f64::from(*of) / norm * factor) as f32).collect();
                PairValues { up, ..values.clone() }
            });
            trainer.set_values(&moved.collect::<Vec<_>>()).unwrap();
            loss_now()
        };
        let slope = (at(length) - at(-length)) / (2.0 * length);
        assert!((slope - norm).abs() <= 0.01 * norm, "{model}: the slope is {slope}, and the gradient {norm} long");
    }
}
