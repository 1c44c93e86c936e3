//! Compute pipelines, cached by their final source text: each unique text is compiled once in the device's life.
//!
//! Putting a text together costs more than a dispatch should, so a memo from the template, its defines and its bindings to
//! the pipeline stands before it. The memo can only save work: two keys with one text share one pipeline.
//!
//! A pipeline that is needed at once is compiled at once. Those that a step will need are compiled ahead, all at the same time
//! and without blocking the page (`Device::prepare`).

use std::collections::HashMap;
use std::rc::Rc;

use super::bind::{BindingKind, Layout};
use super::stats::{CacheStats, add};
use super::wgsl::Template;
use super::{Binding, Define, Device, Shader};
use crate::error::Result;

/// How each binding number is used.
pub(super) type Signature = Vec<(u32, BindingKind)>;

pub struct Pipeline {
    pub(super) label: String,
    pub(super) wgpu: wgpu::ComputePipeline,
    pub(super) layout: Rc<Layout>,
}

impl Pipeline {
    pub fn label(&self) -> &str {
        &self.label
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum TemplateKey {
    Address(usize),
    Text(String),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct MemoKey {
    label: String,
    template: TemplateKey,
    modules: Vec<usize>,
    defines: Vec<(String, u64)>,
    signature: Signature,
}

/// A pipeline that is to be compiled ahead of its use.
pub(super) struct PipelineRequest {
    key: MemoKey,
    pub label: String,
    pub text: String,
    pub layout: Rc<Layout>,
    #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "only browsers compile asynchronously"))]
    pub signature: Signature,
}

#[derive(Default)]
pub(super) struct PipelineCache {
    by_text: HashMap<(String, Signature), Rc<Pipeline>>,
    memo: HashMap<MemoKey, Rc<Pipeline>>,
    hits: u64,
}

impl PipelineCache {
    pub fn stats(&self) -> CacheStats {
        let entries = self.by_text.len() as u64;
        CacheStats { hits: self.hits, misses: entries, evictions: 0, entries, bytes: 0 }
    }

    pub fn reset_stats(&mut self) {
        self.hits = 0;
    }
}

impl Device {
    /// The pipeline of a shader with these bindings; its entry point is `main`. A shader that does not compile is reported
    /// by the next read-back or sync, with the compiler's message.
    pub fn pipeline(&self, shader: &Shader<'_>, bindings: &[Binding<'_>]) -> Result<Rc<Pipeline>> {
        let inner = self.inner();
        inner.check_usable()?;
        let key = memo_key(shader, bindings);
        {
            let mut cache = inner.pipelines.borrow_mut();
            if let Some(pipeline) = cache.memo.get(&key).cloned() {
                cache.hits += 1;
                return Ok(pipeline);
            }
        }
        let request = self.assemble(shader, key)?;
        if let Some(pipeline) = self.known(&request) {
            return Ok(pipeline);
        }
        let wgpu = self.watch_compilation(shader.label, || self.create_pipeline(&request));
        Ok(self.keep(request, wgpu))
    }

    /// What is to be compiled for a shader, or nothing when that has happened.
    pub(super) fn request_pipeline(
        &self,
        shader: &Shader<'_>,
        bindings: &[Binding<'_>],
    ) -> Result<Option<PipelineRequest>> {
        let key = memo_key(shader, bindings);
        if self.inner().pipelines.borrow().memo.contains_key(&key) {
            return Ok(None);
        }
        self.assemble(shader, key).map(Some)
    }

    /// Compiles pipelines, all at the same time where the browser can; the first that fails is the error.
    pub(super) async fn compile(&self, requests: Vec<PipelineRequest>) -> Result<()> {
        let mut new: Vec<PipelineRequest> = Vec::new();
        for request in requests {
            let is_twin =
                |other: &PipelineRequest| other.text == request.text && other.key.signature == request.key.signature;
            if self.known(&request).is_none() && !new.iter().any(is_twin) {
                new.push(request);
            }
        }
        let compiled = self.create_pipelines(&new).await?;
        for (request, wgpu) in new.into_iter().zip(compiled) {
            self.keep(request, wgpu);
        }
        Ok(())
    }

    fn assemble(&self, shader: &Shader<'_>, key: MemoKey) -> Result<PipelineRequest> {
        let text = shader.assemble(super::device::ENABLE_SUBGROUPS_LINE)?;
        let layout = self.layout(&key.signature);
        let signature = key.signature.clone();
        Ok(PipelineRequest { key, label: shader.label.to_owned(), text, layout, signature })
    }

    /// The pipeline of the same text, which other defines or another template came to.
    fn known(&self, request: &PipelineRequest) -> Option<Rc<Pipeline>> {
        let mut cache = self.inner().pipelines.borrow_mut();
        let pipeline = cache.by_text.get(&(request.text.clone(), request.key.signature.clone())).cloned()?;
        cache.memo.insert(request.key.clone(), pipeline.clone());
        Some(pipeline)
    }

    pub(super) fn create_pipeline(&self, request: &PipelineRequest) -> wgpu::ComputePipeline {
        let device = &self.inner().wgpu;
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(&request.label),
            source: wgpu::ShaderSource::Wgsl(request.text.as_str().into()),
        });
        device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&request.label),
            layout: Some(&request.layout.pipeline),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                // Kernels write workgroup memory before they read it.
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        })
    }

    fn keep(&self, request: PipelineRequest, wgpu: wgpu::ComputePipeline) -> Rc<Pipeline> {
        let inner = self.inner();
        add(&inner.counters.pipelines_created, 1);
        let pipeline = Rc::new(Pipeline { label: request.label, wgpu, layout: request.layout });
        let mut cache = inner.pipelines.borrow_mut();
        cache.by_text.insert((request.text, request.key.signature.clone()), pipeline.clone());
        cache.memo.insert(request.key, pipeline.clone());
        pipeline
    }
}

fn memo_key(shader: &Shader<'_>, bindings: &[Binding<'_>]) -> MemoKey {
    MemoKey {
        label: shader.label.to_owned(),
        template: match shader.template {
            Template::Static(text) => TemplateKey::Address(text.as_ptr() as usize),
            Template::Text(text) => TemplateKey::Text(text.to_owned()),
        },
        // Modules are texts of the program itself, so their addresses name them.
        modules: shader.modules.iter().map(|(_, text)| text.as_ptr() as usize).collect(),
        defines: shader.defines.iter().map(|(name, define)| ((*name).to_owned(), bits(*define))).collect(),
        signature: bindings.iter().map(Binding::number_and_kind).collect(),
    }
}

fn bits(define: Define) -> u64 {
    match define {
        Define::Flag => u64::MAX,
        Define::U32(value) => u64::from(value),
        Define::F32(value) => 1 << 32 | u64::from(value.to_bits()),
    }
}
