//! Compute pipelines, cached by their final source text: each unique text is compiled once in the device's life.
//!
//! Putting a text together costs more than a dispatch should, so a memo from the template, its defines and its bindings to
//! the pipeline stands before it. The memo can only save work: two keys with one text share one pipeline.

use std::collections::HashMap;
use std::rc::Rc;

use super::bind::{BindingKind, Layout};
use super::stats::{CacheStats, add};
use super::{Binding, Define, Device, Shader};
use crate::error::Result;

/// How each binding number is used.
type Signature = Vec<(u32, BindingKind)>;

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

#[derive(PartialEq, Eq, Hash)]
struct MemoKey {
    label: String,
    template: usize,
    modules: Vec<usize>,
    defines: Vec<(String, u64)>,
    signature: Signature,
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
        CacheStats { hits: self.hits, misses: entries, evictions: 0, entries }
    }

    pub fn reset_stats(&mut self) {
        self.hits = 0;
    }
}

impl Device {
    /// The pipeline of a shader with these bindings; its entry point is `main`. A shader that does not compile is reported
    /// by the next read-back or sync, with the compiler's message.
    pub fn pipeline(&self, shader: &Shader<'_>, bindings: &[Binding<'_>]) -> Result<Rc<Pipeline>> {
        let signature: Vec<_> = bindings.iter().map(Binding::number_and_kind).collect();
        let key = MemoKey {
            label: shader.label.to_owned(),
            // Templates and modules are texts of the program itself, so their addresses name them.
            template: shader.template.as_ptr() as usize,
            modules: shader.modules.iter().map(|(_, text)| text.as_ptr() as usize).collect(),
            defines: shader.defines.iter().map(|(name, define)| (name.to_string(), bits(*define))).collect(),
            signature,
        };
        let inner = self.inner();
        inner.check_usable()?;
        {
            let mut cache = inner.pipelines.borrow_mut();
            if let Some(pipeline) = cache.memo.get(&key).cloned() {
                cache.hits += 1;
                return Ok(pipeline);
            }
        }
        let text = shader.assemble(super::device::ENABLE_SUBGROUPS_LINE)?;
        let signature = key.signature.clone();
        let known = inner.pipelines.borrow().by_text.get(&(text.clone(), signature.clone())).cloned();
        let pipeline = match known {
            Some(pipeline) => pipeline,
            None => {
                let layout = self.layout(&signature);
                let wgpu = self.watch_compilation(shader.label, || {
                    let module = inner.wgpu.create_shader_module(wgpu::ShaderModuleDescriptor {
                        label: Some(shader.label),
                        source: wgpu::ShaderSource::Wgsl(text.as_str().into()),
                    });
                    inner.wgpu.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                        label: Some(shader.label),
                        layout: Some(&layout.pipeline),
                        module: &module,
                        entry_point: Some("main"),
                        compilation_options: wgpu::PipelineCompilationOptions {
                            // Kernels write workgroup memory before they read it.
                            zero_initialize_workgroup_memory: false,
                            ..Default::default()
                        },
                        cache: None,
                    })
                });
                add(&inner.counters.pipelines_created, 1);
                let pipeline = Rc::new(Pipeline { label: shader.label.to_owned(), wgpu, layout });
                inner.pipelines.borrow_mut().by_text.insert((text, signature), pipeline.clone());
                pipeline
            }
        };
        inner.pipelines.borrow_mut().memo.insert(key, pipeline.clone());
        Ok(pipeline)
    }
}

fn bits(define: Define) -> u64 {
    match define {
        Define::Flag => u64::MAX,
        Define::U32(value) => u64::from(value),
        Define::F32(value) => 1 << 32 | u64::from(value.to_bits()),
    }
}
