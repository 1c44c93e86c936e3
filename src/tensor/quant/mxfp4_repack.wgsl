// One invocation copies the quants of one block (17 bytes in the file); every fourth also writes the exponents of four.
#import "repack"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    let source = block * 17u;
    weight_quants[to] = vec4<u32>(word_at(source + 1u), word_at(source + 5u), word_at(source + 9u), word_at(source + 13u));
    if block % 4u == 0u {
        var exponents = 0u;
        for (var i = 0u; i < 4u; i++) {
            if block + i < params.blocks {
                exponents |= byte_at(source + i * 17u) << (i * 8u);
            }
        }
        weight_scales[to / 4u] = exponents;
    }
}
