//! Causal attention of many new tokens over the KV cache: tiles of queries by tiles of keys, so that one read of a key or value
//! serves 32 queries, with an online softmax (FlashAttention, Dao et al. 2022; the running maximum after Milakov, Gimelshein 2018).
//! Queries of the heads that share a key-value head share its tiles (Ainslie et al. 2023).

use super::attention::{LIMITS, limits};
use super::attention_per_head::{AttentionPerHead, PerHead};
use super::attention_split::random_sinks;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::subgroup_lanes;
use crate::tensor::op::on_cpu;
use crate::tensor::ops::Attention;
use crate::tensor::ops::cache::cache_dtype::{cache_defines, cached, case_dtype, random_cache, set_cached};
use crate::tensor::{Case, CpuTensors, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs and output as those of `attention`, with `sinks` as those of `attention_per_head`. It runs the kernel of `attention` where tiles don't pay or don't fit: on software
/// adapters, where barriers are expensive, and for heads of more than 1024 dimensions or not a multiple of 4. Of heads of more than 256
/// dimensions several workgroups score the same keys, each for the values of 256 dimensions.
#[derive(Clone)]
pub struct AttentionPrefill {
    /// The parameters of the attention itself.
    pub attention: Attention,
    /// The tile of a workgroup, one of `AttentionTile::CANDIDATES`.
    pub tile: AttentionTile,
    /// Whether each head has a score that takes its part of the softmax and has no value.
    pub sinks: bool,
}

impl AttentionPrefill {
    /// The same without tiles.
    fn with_sinks(&self) -> AttentionPerHead {
        AttentionPerHead { attention: self.attention, numbers: PerHead::Sink }
    }
}

/// The tile of a workgroup, by 64 keys. Each invocation loads two words of a stage in workgroup memory, so rows and chunk
/// depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionTile {
    /// Pairs of a token and a head: 32 or 64.
    pub rows: u32,
    /// Dimensions of keys, and keys of values, that are in workgroup memory at once: half the rows.
    pub chunk: u32,
}

/// The longest head for tiles, and the dimensions of values that a workgroup holds.
const MAX_HEAD: usize = 1024;
const PART: usize = 256;

/// Whether heads of this length go through tiles.
fn tiles_fit(head_dim: usize) -> bool {
    head_dim.is_multiple_of(4) && head_dim <= MAX_HEAD
}

impl AttentionTile {
    /// What `benches/kernels` compares. The last fits the 16 KiB of workgroup memory that every WebGPU device has.
    pub const CANDIDATES: [AttentionTile; 2] =
        [AttentionTile { rows: 64, chunk: 32 }, AttentionTile { rows: 32, chunk: 16 }];

    /// A chunk of queries, keys or values, and weights.
    fn workgroup_bytes(self) -> u32 {
        (self.rows * self.chunk + 64 * self.chunk + self.rows * 64) * 4
    }
}

impl Default for AttentionTile {
    fn default() -> Self {
        Self::CANDIDATES[0]
    }
}

impl Op for AttentionPrefill {
    on_cpu!();

    fn name(&self) -> &'static str {
        "attention_prefill"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        if self.sinks { self.with_sinks().infer(inputs) } else { self.attention.infer(inputs) }
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let Attention { heads, kv_heads, head_dim, scale, window, softcap } = self.attention;
        let fits = |tile: &AttentionTile| tile.workgroup_bytes() <= capabilities.max_workgroup_storage_size;
        let tile = [self.tile].into_iter().chain(AttentionTile::CANDIDATES).find(fits);
        let (Some(AttentionTile { rows: tile_rows, chunk }), false, true) =
            (tile, capabilities.software, tiles_fit(head_dim))
        else {
            if self.sinks {
                return self.with_sinks().kernel(inputs, outputs, capabilities);
            }
            return self.attention.kernel(inputs, outputs, capabilities);
        };
        if !AttentionTile::CANDIDATES.contains(&AttentionTile { rows: tile_rows, chunk }) {
            bail!(ShapeMismatch, "attention_prefill has no {:?}; take one of AttentionTile::CANDIDATES", self.tile);
        }
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (capacity, _) = inputs[1].shape.matrix()?;
        let mut defines = vec![
            ("HEAD_DIM", Define::U32(head_dim as u32)),
            ("ROWS", Define::U32(tile_rows)),
            ("CHUNK", Define::U32(chunk)),
        ];
        for (name, dims) in [("DIMS_64", 64), ("DIMS_128", 128), ("DIMS_192", 192)] {
            if head_dim > dims {
                defines.push((name, Define::Flag));
            }
        }
        // Chunks of queries are loaded again for each tile of keys, unless there is room for all.
        let chunk_bytes = tile_rows * chunk * 4;
        let all_bytes = (head_dim as u32).div_ceil(chunk) * chunk_bytes;
        let rest = AttentionTile { rows: tile_rows, chunk }.workgroup_bytes() - chunk_bytes;
        let parts_bytes = tile_rows * 16 * 4;
        if rest + all_bytes + parts_bytes <= capabilities.max_workgroup_storage_size {
            defines.push(("RESIDENT", Define::Flag));
        }
        if subgroup_lanes(capabilities, 8) == Some(8) {
            defines.push(("SUBGROUPS", Define::Flag));
        }
        defines.extend(cache_defines(inputs.get(1)));
        defines.push(("OUT_BINDING", Define::U32(4 + u32::from(self.sinks))));
        defines.extend(self.sinks.then_some(("SINKS", Define::Flag)));
        let (limits, [window, softcap]) = limits(window, softcap);
        defines.extend(limits);
        let rows = tokens * heads / kv_heads;
        Ok(Kernel {
            template: crate::shader!("attention_prefill.wgsl"),
            modules: &[],
            defines,
            params: vec![rows as u32, heads as u32, kv_heads as u32, capacity as u32, scale.to_bits(), window, softcap],
            grid: [kv_heads as u32, rows.div_ceil(tile_rows as usize) as u32, head_dim.div_ceil(PART) as u32],
        })
    }

    fn variants(&self, _: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        if capabilities.software || !tiles_fit(self.attention.head_dim) {
            return vec![];
        }
        let fits = |tile: &AttentionTile| tile.workgroup_bytes() <= capabilities.max_workgroup_storage_size;
        let tiles = AttentionTile::CANDIDATES.into_iter().filter(fits);
        tiles.map(|tile| Variant::new(&[("rows", tile.rows), ("chunk", tile.chunk)])).collect()
    }

    fn kernel_as(
        &self,
        variant: &Variant,
        inputs: &[Desc],
        outputs: &[Desc],
        capabilities: &Capabilities,
    ) -> Result<Kernel> {
        let tile = AttentionTile { rows: variant.get("rows"), chunk: variant.get("chunk") };
        Self { tile, ..*self }.kernel(inputs, outputs, capabilities)
    }

    fn tuning_sizes(&self, _: &[Desc]) -> [usize; 3] {
        [self.attention.heads, self.attention.kv_heads, self.attention.head_dim]
    }
}

impl Reference for AttentionPrefill {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        if self.sinks { self.with_sinks().reference(inputs) } else { self.attention.reference(inputs) }
    }

    fn run_on_cpu(&self, tensors: CpuTensors<'_>) -> Result<()> {
        if self.sinks { self.with_sinks().run_on_cpu(tensors) } else { self.attention.run_on_cpu(tensors) }
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(28);
    // tokens, heads, kv_heads, head_dim, capacity, position
    let shapes = [
        (1, 1, 1, 4, 1, 0),
        (2, 2, 2, 6, 5, 1),
        (8, 4, 2, 16, 40, 0),
        (37, 8, 2, 64, 97, 13),
        (67, 14, 2, 64, 210, 131),
        (3, 5, 1, 80, 64, 7),
        (19, 6, 3, 96, 150, 120),
        (13, 4, 4, 128, 300, 255),
        (11, 3, 1, 160, 70, 0),
        (7, 2, 1, 256, 77, 67),
        (70, 128, 8, 64, 331, 260),
        (9, 6, 1, 192, 40, 20),
        (5, 16, 2, 112, 40, 30),
        (6, 11, 1, 160, 30, 19),
        (3, 45, 3, 224, 30, 21),
        (5, 2, 1, 512, 40, 20),
        (41, 4, 1, 512, 150, 70),
        (7, 3, 1, 324, 90, 80),
        (2, 1, 1, 1028, 9, 3),
    ];
    // Each shape with each window and soft cap, with some tile.
    let cases = shapes.iter().flat_map(|shape| [shape; LIMITS.len()]).enumerate();
    cases
        .map(|(index, &(tokens, heads, kv_heads, head_dim, capacity, position))| {
            // Large enough that the softmax is far from flat.
            let mut q = rng.tensor(&[tokens, heads * head_dim]);
            let sharp: Vec<f32> = q.to_f32().unwrap_or_default().iter().map(|x| x * 8.0).collect();
            q.set_f32(&sharp);
            // The cache after the tokens may hold anything.
            let caches = [(); 2].map(|()| {
                let dtype = case_dtype(index + index / LIMITS.len());
                let mut cache = random_cache(&mut rng, dtype, &[capacity], kv_heads, head_dim);
                let mut values = cached(&cache, head_dim).unwrap_or_default();
                values[(position + tokens) * kv_heads * head_dim..].fill(f32::NAN);
                set_cached(&mut cache, head_dim, &values);
                cache
            });
            let [k_cache, v_cache] = caches;
            let mut inputs = vec![q, k_cache, v_cache, HostTensor::u32(&[4], &[position as u32, 0, 0, 0])];
            let (window, softcap) = LIMITS[index % LIMITS.len()];
            let scale = 1.0 / (head_dim as f32).sqrt();
            let attention = Attention { heads, kv_heads, head_dim, scale, window, softcap };
            let tile = AttentionTile::CANDIDATES[index % AttentionTile::CANDIDATES.len()];
            // `attention_per_head` has none with a soft cap.
            let sinks = index % 4 == 2 && softcap.is_none();
            inputs.extend(sinks.then(|| random_sinks(&mut rng, heads)));
            Case::new(AttentionPrefill { attention, tile, sinks }, inputs, 1e-5)
        })
        .collect()
}
