//! The engine's bindings for JavaScript.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::{Float32Array, Function, Promise, Uint8Array, Uint32Array};
use wasm_bindgen::prelude::*;
use web_sys::{AbortSignal, Blob};

use super::abort::unless;
use super::blob::BlobSource;
use super::convert::{from_js, js_error, js_number, json_from_js, to_js};
use super::grammar::LoadedGrammars;
use super::logits_processor::JsLogitsProcessor;
use super::remote::RemoteFiles;
use super::source;
use super::team::team_of;
use super::thrown::js_message;
use crate::engine::request::{ChatRequest, CompletionRequest, TokenizeOptions};
use crate::engine::{
    Canceller, ChatTemplate, ClassifyRequest, EmbeddingRequest, Engine, EngineTensor, Generation, LoadOptions, Phase,
    PressureListener, Progress, RerankRequest, Smoothness, file_bytes, inspect,
};
use crate::error::{Error, Result};
use crate::gpu::DeviceOptions;

#[wasm_bindgen]
pub struct WasmEngine {
    engine: RefCell<Option<Rc<Engine>>>,
}

#[wasm_bindgen]
impl WasmEngine {
    pub async fn load(source: JsValue, options: JsValue, on_progress: Option<Function>) -> Result<WasmEngine, JsValue> {
        load(source, options, on_progress).await.map_err(js_error)
    }

    pub fn info(&self) -> Result<JsValue, JsValue> {
        to_js(self.engine()?.info())
    }

    /// New results of autotuning, for the option `tunings` of the next load.
    pub fn tunings(&self) -> Result<Option<String>, JsValue> {
        Ok(self.engine()?.tunings().map(str::to_owned))
    }

    /// Resolves when the request is accepted and its grammar is compiled. `replay` is what is known of the answer, if it is generated again.
    pub async fn chat(
        &self,
        request: JsValue,
        logits_processor: Option<Function>,
        replay: JsValue,
    ) -> Result<WasmGeneration, JsValue> {
        let start = || self.get()?.chat(ChatRequest::parse(json_from_js("the chat request", &request)?)?);
        accepted(start(), logits_processor, replay).await.map_err(js_error)
    }

    pub async fn complete(
        &self,
        request: JsValue,
        logits_processor: Option<Function>,
        replay: JsValue,
    ) -> Result<WasmGeneration, JsValue> {
        let start =
            || self.get()?.complete(CompletionRequest::parse(json_from_js("the completion request", &request)?)?);
        accepted(start(), logits_processor, replay).await.map_err(js_error)
    }

    /// Embeddings of texts: `{values, dimensions, usage}`, with the vectors of all inputs in order. When `stopped` resolves, it ends with `aborted`.
    pub async fn embed(&self, request: JsValue, stopped: Option<Promise>) -> Result<JsValue, JsValue> {
        let parse = || EmbeddingRequest::parse(json_from_js("the embedding request", &request)?);
        let request = parse().map_err(js_error)?;
        let engine = self.engine()?;
        let embedding = engine.embed(request);
        let embeddings = match stopped {
            Some(stopped) => unless(stopped, "the embedding", embedding).await,
            None => embedding.await,
        };
        let embeddings = embeddings.map_err(js_error)?;
        let result = js_sys::Object::new();
        let set = |key: &str, value: &JsValue| js_sys::Reflect::set(&result, &key.into(), value);
        set("values", &Float32Array::from(&embeddings.values[..]))?;
        set("dimensions", &(embeddings.dimensions as f64).into())?;
        set("usage", &to_js(&embeddings.usage)?)?;
        Ok(result.into())
    }

    /// Ranks documents (`rerank`) or labels texts (`classify`). When `stopped` resolves, it ends with `aborted`.
    pub async fn score(&self, kind: &str, request: JsValue, stopped: Promise) -> Result<JsValue, JsValue> {
        let engine = self.engine()?;
        match kind {
            "rerank" => {
                let parse = || RerankRequest::parse(json_from_js("the rerank request", &request)?);
                let scoring = engine.rerank(parse().map_err(js_error)?);
                to_js(&unless(stopped, "the ranking", scoring).await.map_err(js_error)?)
            }
            _ => {
                let parse = || ClassifyRequest::parse(json_from_js("the classify request", &request)?);
                let scoring = engine.classify(parse().map_err(js_error)?);
                to_js(&unless(stopped, "the classification", scoring).await.map_err(js_error)?)
            }
        }
    }

    pub fn tokenize(&self, text: &str, options: JsValue) -> Result<Uint32Array, JsValue> {
        let encode = || {
            let options: TokenizeOptions = if options.is_undefined() || options.is_null() {
                TokenizeOptions::default()
            } else {
                from_js("the options of tokenize", options)?
            };
            self.get()?.tokenizer().encode(text, options.add_special, options.parse_special)
        };
        encode().map(|ids| Uint32Array::from(&ids[..])).map_err(js_error)
    }

    /// Control tokens are written out, so that `tokenize` gives the ids again.
    pub fn detokenize(&self, ids: &[u32]) -> Result<String, JsValue> {
        self.engine()?.detokenize(ids).map_err(js_error)
    }

    /// Logits, then the hidden states after these numbers of layers.
    pub async fn forward(&self, ids: Uint32Array, layers: Vec<u32>) -> Result<Vec<WasmTensor>, JsValue> {
        let engine = self.engine()?;
        let layers: Vec<usize> = layers.iter().map(|layer| *layer as usize).collect();
        let passed = engine.forward_with_hidden_states(&ids.to_vec(), &layers).await;
        let (logits, hidden_states) = passed.map_err(js_error)?;
        Ok(std::iter::once(logits).chain(hidden_states).map(WasmTensor::new).collect())
    }

    /// The embeddings of texts as a tensor [inputs, dimensions].
    #[wasm_bindgen(js_name = embedTensor)]
    pub async fn embed_tensor(&self, request: JsValue) -> Result<WasmTensor, JsValue> {
        let parse = || EmbeddingRequest::parse(json_from_js("the embedding request", &request)?);
        let request = parse().map_err(js_error)?;
        self.engine()?.embed_tensor(request).await.map(WasmTensor::new).map_err(js_error)
    }

    /// The GPUDevice that it runs on.
    #[wasm_bindgen(js_name = gpuDevice)]
    pub fn gpu_device(&self) -> Result<JsValue, JsValue> {
        self.engine()?.context().device().export().map_err(js_error)
    }

    /// Saves a conversation: `write` gets its bytes in order, each as a Uint8Array of its own. Resolves to the session. When `stopped`
    /// resolves, it ends with `aborted`.
    #[wasm_bindgen(js_name = saveSession)]
    pub async fn save_session(
        &self,
        conversation: JsValue,
        attachment: JsValue,
        write: Function,
        stopped: Promise,
    ) -> Result<JsValue, JsValue> {
        let engine = self.engine()?;
        let conversation = json_from_js("the conversation", &conversation).map_err(js_error)?;
        let attachment = if attachment.is_undefined() {
            None
        } else {
            Some(json_from_js("the attachment", &attachment).map_err(js_error)?)
        };
        let mut write = |bytes: Vec<u8>| match write.call1(&JsValue::UNDEFINED, &Uint8Array::from(&bytes[..])) {
            Ok(_) => Ok(()),
            Err(thrown) => bail!(Internal, "the session could not be written: {}", js_message(&thrown)),
        };
        let saving = engine.save_session(&conversation, attachment, &mut write);
        to_js(&unless(stopped, "saving the session", saving).await.map_err(js_error)?)
    }

    /// Takes over what `saveSession` wrote. When `stopped` resolves, it ends with `aborted`.
    #[wasm_bindgen(js_name = restoreSession)]
    pub async fn restore_session(&self, blob: Blob, stopped: Promise) -> Result<JsValue, JsValue> {
        let engine = self.engine()?;
        let source = BlobSource::new(blob, None);
        let restoring = engine.restore_session(&source);
        to_js(&unless(stopped, "restoring the session", restoring).await.map_err(js_error)?)
    }

    pub async fn sync(&self) -> Result<(), JsValue> {
        self.engine()?.sync().await.map_err(js_error)
    }

    pub fn stats(&self) -> Result<JsValue, JsValue> {
        to_js(&self.engine()?.stats())
    }

    #[wasm_bindgen(js_name = resetStats)]
    pub fn reset_stats(&self) -> Result<(), JsValue> {
        self.engine()?.reset_stats();
        Ok(())
    }

    #[wasm_bindgen(js_name = setSmoothness)]
    pub fn set_smoothness(&self, smoothness: JsValue) -> Result<(), JsValue> {
        let smoothness: Smoothness = from_js("the smoothness", smoothness).map_err(js_error)?;
        self.engine()?.set_smoothness(smoothness);
        Ok(())
    }

    #[wasm_bindgen(js_name = setProfiling)]
    pub fn set_profiling(&self, on: bool) -> Result<(), JsValue> {
        self.engine()?.set_profiling(on).map_err(js_error)
    }

    #[wasm_bindgen(js_name = kernelTimes)]
    pub async fn kernel_times(&self) -> Result<JsValue, JsValue> {
        let times = self.engine()?.kernel_times().await.map_err(js_error)?;
        to_js(&times)
    }

    pub fn dispose(&self) {
        if let Some(engine) = self.engine.take() {
            engine.dispose();
        }
    }
}

impl WasmEngine {
    fn get(&self) -> Result<Rc<Engine>> {
        self.engine.borrow().clone().ok_or_else(|| err!(Disposed, "the engine was disposed of; load the model again"))
    }

    /// The engine, for other bindings; an error after it was disposed of.
    pub fn engine(&self) -> Result<Rc<Engine>, JsValue> {
        self.get().map_err(js_error)
    }
}

/// Tells all engines of this thread whether anybody sees their page.
#[wasm_bindgen(js_name = setPageHidden)]
pub fn set_page_hidden(is_hidden: bool) {
    crate::gpu::set_page_hidden(is_hidden);
}

/// The options of `load` and `inspect`, and the abort signal.
fn load_options(options: JsValue) -> Result<(LoadOptions, Option<AbortSignal>)> {
    // The signal, the draft model's source and the grammars are objects of the browser, and the tunings are not from the caller; the rest
    // is data.
    let signal = js_sys::Reflect::get(&options, &"signal".into()).ok();
    let signal = signal.and_then(|signal| signal.dyn_into::<AbortSignal>().ok());
    let tunings = js_sys::Reflect::get(&options, &"tunings".into()).ok().and_then(|tunings| tunings.as_string());
    let data: LoadOptions = if options.is_undefined() || options.is_null() {
        LoadOptions::default()
    } else {
        serde_json::from_value(json_from_js("the options of load", &without_objects(&options))?)
            .map_err(|error| err!(InvalidRequest, "the options of load: {error}"))?
    };
    let utc_offset_seconds = js_sys::Date::new_0().get_timezone_offset() as i64 * -60;
    let listener = js_sys::Reflect::get(&options, &"onMemoryPressure".into()).ok();
    let listener = listener.and_then(|listener| listener.dyn_into::<Function>().ok());
    let on_memory_pressure = listener.map(memory_listener).unwrap_or_default();
    let device = DeviceOptions { team: team_of(&options), ..data.device };
    let options = LoadOptions { tunings, utc_offset_seconds, on_memory_pressure, device, ..data };
    Ok((options, signal))
}

/// Hands what happens to a function of JavaScript's, which handles its own errors.
fn memory_listener(listener: Function) -> PressureListener {
    PressureListener::new(move |pressure| {
        if let Ok(pressure) = to_js(pressure) {
            // Whoever listens must not break what runs.
            let _ = listener.call1(&JsValue::UNDEFINED, &pressure);
        }
    })
}

/// What reads from servers.
fn remote_files(options: &JsValue) -> Result<RemoteFiles> {
    let files = js_sys::Reflect::get(options, &"files".into()).unwrap_or(JsValue::UNDEFINED);
    if files.is_object() { Ok(files.unchecked_into()) } else { bail!(Internal, "the options hold no files") }
}

/// Reads the headers of a model: its properties and the memory to run it.
#[wasm_bindgen(js_name = inspectModel)]
pub async fn inspect_model(source: JsValue, options: JsValue) -> Result<JsValue, JsValue> {
    let inspect = async {
        let files = remote_files(&options)?;
        let (options, signal) = load_options(options)?;
        let (folder, file) = source::open(&source, files, signal).await?;
        inspect(&*folder, file.as_deref(), &options).await
    };
    to_js(&inspect.await.map_err(js_error)?)
}

/// Opens all files of a model, for whoever wants them to be kept; returns their bytes.
#[wasm_bindgen(js_name = openModel)]
pub async fn open_model(source: JsValue, options: JsValue) -> Result<f64, JsValue> {
    let open = async {
        let files = remote_files(&options)?;
        let (_, signal) = load_options(options)?;
        let (folder, file) = source::open(&source, files, signal).await?;
        file_bytes(&*folder, file.as_deref()).await
    };
    open.await.map(js_number).map_err(js_error)
}

async fn load(source: JsValue, options: JsValue, on_progress: Option<Function>) -> Result<WasmEngine> {
    let draft = js_sys::Reflect::get(&options, &"draft".into()).ok().filter(|draft| !draft.is_undefined());
    let grammars = js_sys::Reflect::get(&options, &"grammars".into()).ok().filter(|grammars| !grammars.is_undefined());
    let files = remote_files(&options)?;
    let (options, signal) = load_options(options)?;
    if draft.is_some() {
        options.per_layer_embeddings.check_draft()?;
    }
    let (folder, file) = source::open(&source, files.clone(), signal.clone()).await?;
    let draft = match draft {
        Some(draft) => Some(source::open(&draft, files, signal.clone()).await?),
        None => None,
    };
    let draft_bytes = match &draft {
        Some((folder, file)) => file_bytes(&**folder, file.as_deref()).await?,
        None => 0,
    };
    let report = |progress: Progress| {
        if let Some(callback) = &on_progress {
            let value = to_js(&progress).unwrap_or(JsValue::UNDEFINED);
            if let Err(thrown) = callback.call1(&JsValue::UNDEFINED, &value) {
                bail!(InvalidRequest, "onProgress threw: {}", js_message(&thrown));
            }
        }
        if signal.as_ref().is_some_and(AbortSignal::aborted) {
            bail!(Aborted, "loading was aborted");
        }
        Ok(())
    };
    // Both models are one load: their bytes are added, and only the end of the second is the end.
    let mut own_bytes = 0;
    let mut progress = |progress: Progress| {
        let phase = match progress.phase {
            Phase::Ready if draft.is_some() => Phase::Weights,
            phase => phase,
        };
        own_bytes = progress.total;
        let total = if progress.total == 0 { 0 } else { progress.total + draft_bytes };
        report(Progress { phase, total, ..progress })
    };
    let mut engine = Engine::load_from(&*folder, file.as_deref(), &options, &mut progress).await?;
    if let Some((folder, file)) = &draft {
        let mut progress = |progress: Progress| {
            let (loaded, total) = (own_bytes + progress.loaded, own_bytes + draft_bytes);
            report(Progress { phase: progress.phase, loaded, total })
        };
        engine = engine.with_draft(&**folder, file.as_deref(), &mut progress).await?;
    }
    if let Some(grammars) = grammars {
        engine.set_grammars(Rc::new(LoadedGrammars(grammars.unchecked_into())));
    }
    Ok(WasmEngine { engine: RefCell::new(Some(Rc::new(engine))) })
}

async fn accepted(
    generation: Result<Generation>,
    logits_processor: Option<Function>,
    replay: JsValue,
) -> Result<WasmGeneration> {
    let mut generation = generation?;
    if let Some(function) = logits_processor {
        generation = generation.with_logits_processor(Rc::new(JsLogitsProcessor(function)))?;
    }
    if !replay.is_undefined() {
        generation = generation.with_replay(from_js("the replay", replay)?)?;
    }
    generation.prepare().await?;
    Ok(WasmGeneration::new(generation))
}

/// A shallow copy without the fields that are not data of the caller.
fn without_objects(options: &JsValue) -> JsValue {
    let copy = js_sys::Object::assign(&js_sys::Object::new(), options.unchecked_ref());
    for name in ["signal", "draft", "files", "grammars", "team", "tunings", "onMemoryPressure"] {
        // Deleting a missing field does nothing.
        let _ = js_sys::Reflect::delete_property(&copy, &name.into());
    }
    copy.into()
}

/// A running generation. `cancel` may be called while `next` is pending; the generation ends with the next chunk.
#[wasm_bindgen]
pub struct WasmGeneration {
    /// Taken out while `next` is pending.
    generation: Rc<RefCell<Option<Generation>>>,
    canceller: Canceller,
}

#[wasm_bindgen]
impl WasmGeneration {
    /// The next chunk; `undefined` after the last one.
    pub async fn next(&self) -> Result<JsValue, JsValue> {
        let slot = self.generation.clone();
        let taken = slot.borrow_mut().take();
        let Some(mut generation) = taken else {
            return Err(js_error(err!(InvalidRequest, "next was called while the last call was pending")));
        };
        let chunk = generation.next().await;
        *slot.borrow_mut() = Some(generation);
        match chunk {
            Ok(Some(chunk)) => to_js(&chunk),
            Ok(None) => Ok(JsValue::UNDEFINED),
            Err(error) => Err(js_error(error)),
        }
    }

    pub fn cancel(&self) {
        self.canceller.cancel();
    }
}

impl WasmGeneration {
    fn new(generation: Generation) -> Self {
        let canceller = generation.canceller();
        Self { generation: Rc::new(RefCell::new(Some(generation))), canceller }
    }
}

/// A tensor on the GPU, until it is read.
#[wasm_bindgen]
pub struct WasmTensor {
    tensor: RefCell<Option<Rc<EngineTensor>>>,
}

#[wasm_bindgen]
impl WasmTensor {
    #[wasm_bindgen(getter)]
    pub fn shape(&self) -> Result<JsValue, JsValue> {
        to_js(&self.get().map_err(js_error)?.shape())
    }

    #[wasm_bindgen(getter)]
    pub fn dtype(&self) -> Result<String, JsValue> {
        Ok(self.get().map_err(js_error)?.dtype().to_owned())
    }

    pub async fn readback(&self) -> Result<Float32Array, JsValue> {
        let tensor = self.get().map_err(js_error)?;
        let values = tensor.readback().await.map_err(js_error)?;
        Ok(Float32Array::from(&values[..]))
    }

    /// The GPUBuffer that it lies in, and its first byte there.
    pub fn buffer(&self) -> Result<js_sys::Array, JsValue> {
        let export = || {
            let tensor = self.get()?;
            tensor.context().device().export_slice(&tensor.tensor().slice())
        };
        let (buffer, offset) = export().map_err(js_error)?;
        Ok(js_sys::Array::of(&[buffer, js_number(offset).into()]))
    }

    /// Frees its memory on the GPU.
    pub fn dispose(&self) {
        self.tensor.take();
    }
}

impl WasmTensor {
    fn new(tensor: EngineTensor) -> Self {
        Self { tensor: RefCell::new(Some(Rc::new(tensor))) }
    }

    fn get(&self) -> Result<Rc<EngineTensor>> {
        self.tensor.borrow().clone().ok_or_else(|| err!(Disposed, "the tensor was disposed of"))
    }
}

/// Renders a chat template with its variables.
#[wasm_bindgen(js_name = renderTemplate)]
pub fn render_template(template: &str, context: JsValue) -> Result<String, JsValue> {
    let render = || -> Result<String, Error> {
        let template = ChatTemplate::new(template)?;
        let date = js_sys::Date::new_0();
        let local_seconds = (date.get_time() / 1e3 - date.get_timezone_offset() * 60.0) as i64;
        template.render_at(&json_from_js("the variables of the template", &context)?, local_seconds)
    };
    render().map_err(js_error)
}
