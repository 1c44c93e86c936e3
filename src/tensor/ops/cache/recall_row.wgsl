struct Params {
    elements: u32, columns: u32,
    // Rows of a ring, and its numbers.
    rows: u32, len: u32,
}

@group(0) @binding(0) var<storage, read> rings: array<f32>;
@group(0) @binding(1) var<storage, read> position: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> before: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let place = i / params.columns * 4u;
    let column = i % params.columns;
    let at = position[place];
#ifdef SEQUENCES
    let ring = position[place + 3u] * params.len;
#else
    let ring = 0u;
#endif
    if at == 0u {
        out[i] = 0.0;
    } else {
        out[i] = rings[ring + (at - 1u) % params.rows * params.columns + column];
    }
    if column == 0u {
        before[place] = max(at, 1u) - 1u;
        before[place + 1u] = position[place + 1u];
        before[place + 2u] = select(position[place + 2u], 1u, at == 0u);
        before[place + 3u] = position[place + 3u];
    }
}
