//! Compute pipelines, cached by their final source text: each unique text is compiled once in the device's life.
//!
//! Putting a text together costs more than a dispatch should, so a memo maps the template, its defines and its bindings to
//! the pipeline. The memo only saves work: two keys with one text share one pipeline. It is searched by a hash of what a
//! dispatch lends, so that a dispatch makes no key.
//!
//! A pipeline that is needed now is compiled now. Those that a step will need are compiled ahead, all at the same time and
//! without blocking the page (`Device::prepare`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::binding::Binding;
use super::compile::{BindingKind, Layout, Layouts, Signature, Source};
use super::cpu::{self, CpuKernel};
use super::platform::{ENABLE_SUBGROUPS_LINE, compile, compile_all};
use super::raw::RawDevice;
use super::stats::{CacheStats, add};
use super::wgsl::{Define, Shader, Template};
use crate::error::Result;

/// A compiled shader.
pub struct Pipeline {
    label: Rc<str>,
    pub(super) wgpu: wgpu::ComputePipeline,
    pub(super) layout: Rc<Layout>,
}

impl Pipeline {
    /// The name of its shader.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn shared_label(&self) -> &Rc<str> {
        &self.label
    }
}

#[derive(Clone)]
enum TemplateKey {
    Address(usize),
    Text(String),
}

#[derive(Clone)]
struct MemoKey {
    hash: u64,
    label: String,
    template: TemplateKey,
    modules: Vec<usize>,
    defines: Vec<(String, u64)>,
    signature: Signature,
}

/// A pipeline that is to be compiled ahead of its use.
pub(super) struct PipelineRequest {
    key: MemoKey,
    source: Source,
}

/// The pipelines of a device.
pub(super) struct Pipelines {
    raw: Rc<RawDevice>,
    layouts: Layouts,
    cache: RefCell<Cache>,
}

#[derive(Default)]
struct Cache {
    by_text: HashMap<(String, Signature), Rc<Pipeline>>,
    /// By the hashes of their keys.
    memo: HashMap<u64, Vec<(MemoKey, Rc<Pipeline>)>, FixedState>,
    hits: u64,
}

impl Cache {
    fn noted(&self, hash: u64, shader: &Shader<'_>, bindings: &[Binding<'_>]) -> Option<&Rc<Pipeline>> {
        let keys = self.memo.get(&hash)?;
        keys.iter().find(|(key, _)| key.is_of(shader, bindings)).map(|(_, pipeline)| pipeline)
    }

    fn note(&mut self, key: MemoKey, pipeline: Rc<Pipeline>) {
        self.memo.entry(key.hash).or_default().push((key, pipeline));
    }
}

impl Pipelines {
    pub fn new(raw: Rc<RawDevice>) -> Self {
        Self { raw, layouts: Layouts::default(), cache: RefCell::default() }
    }

    pub fn stats(&self) -> CacheStats {
        let cache = self.cache.borrow();
        let entries = cache.by_text.len() as u64;
        CacheStats { hits: cache.hits, misses: entries, evictions: 0, entries, bytes: 0 }
    }

    pub fn reset_stats(&self) {
        self.cache.borrow_mut().hits = 0;
    }

    /// The pipeline of a shader with these bindings; its entry point is `main`. A shader that does not compile is reported by
    /// the next read-back or sync, with the compiler's message.
    pub fn get(&self, shader: &Shader<'_>, bindings: &[Binding<'_>]) -> Result<Rc<Pipeline>> {
        self.raw.check_usable()?;
        let hash = hash_of(shader, bindings);
        {
            let mut cache = self.cache.borrow_mut();
            if let Some(pipeline) = cache.noted(hash, shader, bindings).cloned() {
                cache.hits += 1;
                return Ok(pipeline);
            }
        }
        let request = self.assemble(shader, MemoKey::new(hash, shader, bindings))?;
        if let Some(pipeline) = self.known(&request) {
            return Ok(pipeline);
        }
        let (device, source) = (&self.raw.wgpu, &request.source);
        let wgpu = self.raw.faults.watch_compilation(device, shader.label, || compile(device, source));
        Ok(self.keep(request, wgpu))
    }

    /// The pipeline of a function of the CPU's device, which is not kept.
    pub fn of_kernel(&self, label: &str, kernel: Arc<dyn CpuKernel>, bindings: &[Binding<'_>]) -> Result<Rc<Pipeline>> {
        let signature: Signature = kinds(bindings).collect();
        let layout = self.layouts.get(&self.raw.wgpu, &signature);
        let Some(wgpu) = cpu::pipeline(&self.raw.wgpu, label, &layout.pipeline, kernel) else {
            bail!(Internal, "{label} is a function of the CPU, and the device is a GPU")
        };
        Ok(Rc::new(Pipeline { label: label.into(), wgpu, layout }))
    }

    /// What a shader still needs compiled; `None` if its pipeline exists.
    pub fn request(&self, shader: &Shader<'_>, bindings: &[Binding<'_>]) -> Result<Option<PipelineRequest>> {
        let hash = hash_of(shader, bindings);
        if self.cache.borrow().noted(hash, shader, bindings).is_some() {
            return Ok(None);
        }
        self.assemble(shader, MemoKey::new(hash, shader, bindings)).map(Some)
    }

    /// Compiles pipelines, in browsers all at the same time. Returns the first error.
    pub async fn compile(&self, requests: Vec<PipelineRequest>, is_paced: bool) -> Result<()> {
        let mut new: Vec<PipelineRequest> = Vec::new();
        for request in requests {
            let is_twin = |other: &PipelineRequest| {
                other.source.text == request.source.text && other.key.signature == request.key.signature
            };
            if self.known(&request).is_none() && !new.iter().any(is_twin) {
                new.push(request);
            }
        }
        let sources: Vec<&Source> = new.iter().map(|request| &request.source).collect();
        let compiled = compile_all(&self.raw, &sources, is_paced).await?;
        for (request, wgpu) in new.into_iter().zip(compiled) {
            self.keep(request, wgpu);
        }
        Ok(())
    }

    fn assemble(&self, shader: &Shader<'_>, key: MemoKey) -> Result<PipelineRequest> {
        let text = shader.assemble(ENABLE_SUBGROUPS_LINE)?;
        let layout = self.layouts.get(&self.raw.wgpu, &key.signature);
        let source = Source { label: shader.label.to_owned(), text, layout, signature: key.signature.clone() };
        Ok(PipelineRequest { key, source })
    }

    /// The pipeline of the same text, which other defines or another template came to.
    fn known(&self, request: &PipelineRequest) -> Option<Rc<Pipeline>> {
        let mut cache = self.cache.borrow_mut();
        let pipeline = cache.by_text.get(&(request.source.text.clone(), request.key.signature.clone())).cloned()?;
        cache.note(request.key.clone(), pipeline.clone());
        Some(pipeline)
    }

    fn keep(&self, request: PipelineRequest, wgpu: wgpu::ComputePipeline) -> Rc<Pipeline> {
        add(&self.raw.counters.pipelines_created, 1);
        let PipelineRequest { key, source } = request;
        let pipeline = Rc::new(Pipeline { label: source.label.into(), wgpu, layout: source.layout });
        let mut cache = self.cache.borrow_mut();
        cache.by_text.insert((source.text, key.signature.clone()), pipeline.clone());
        cache.note(key, pipeline.clone());
        pipeline
    }
}

/// The signature of bindings, which is not put together.
fn kinds(bindings: &[Binding<'_>]) -> impl Iterator<Item = (u32, BindingKind)> {
    bindings.iter().map(Binding::number_and_kind)
}

/// The hash of what [`MemoKey::is_of`] compares.
fn hash_of(shader: &Shader<'_>, bindings: &[Binding<'_>]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    shader.label.hash(&mut hasher);
    match shader.template {
        Template::Static(text) => text.as_ptr().hash(&mut hasher),
        Template::Text(text) => text.hash(&mut hasher),
    }
    for (_, text) in shader.modules {
        text.as_ptr().hash(&mut hasher);
    }
    for (name, define) in shader.defines {
        (name, bits(*define)).hash(&mut hasher);
    }
    kinds(bindings).for_each(|kind| kind.hash(&mut hasher));
    hasher.finish()
}

impl MemoKey {
    fn new(hash: u64, shader: &Shader<'_>, bindings: &[Binding<'_>]) -> Self {
        Self {
            hash,
            label: shader.label.to_owned(),
            template: match shader.template {
                Template::Static(text) => TemplateKey::Address(text.as_ptr() as usize),
                Template::Text(text) => TemplateKey::Text(text.to_owned()),
            },
            // Modules are texts of the program itself, so their addresses name them.
            modules: shader.modules.iter().map(|(_, text)| text.as_ptr() as usize).collect(),
            defines: shader.defines.iter().map(|(name, define)| ((*name).to_owned(), bits(*define))).collect(),
            signature: kinds(bindings).collect(),
        }
    }

    fn is_of(&self, shader: &Shader<'_>, bindings: &[Binding<'_>]) -> bool {
        let is_template = match (&self.template, shader.template) {
            (TemplateKey::Address(address), Template::Static(text)) => *address == text.as_ptr() as usize,
            (TemplateKey::Text(own), Template::Text(text)) => own == text,
            _ => false,
        };
        let defines = shader.defines.iter().map(|(name, define)| (*name, bits(*define)));
        is_template
            && self.label == shader.label
            && self.modules.iter().copied().eq(shader.modules.iter().map(|(_, text)| text.as_ptr() as usize))
            && self.defines.iter().map(|(name, bits)| (name.as_str(), *bits)).eq(defines)
            && self.signature.iter().copied().eq(kinds(bindings))
    }
}

fn bits(define: Define) -> u64 {
    match define {
        Define::Flag => u64::MAX,
        Define::U32(value) => u64::from(value),
        Define::F32(value) => 1 << 32 | u64::from(value.to_bits()),
    }
}
