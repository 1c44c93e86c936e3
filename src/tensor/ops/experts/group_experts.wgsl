// One workgroup counts the pairs of each expert; then each invocation takes an expert and reads all pairs, so that those of an expert
// keep their order.
struct Params { pairs: u32, tiles: u32 }

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> tiles: array<vec4<u32>>;
@group(0) @binding(20) var<uniform> params: Params;

var<workgroup> counts: array<atomic<u32>, EXPERTS>;

// NaN logits give no id.
fn expert_of(pair: u32) -> u32 {
    return min(ids[pair], EXPERTS - 1u);
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) local: u32) {
    for (var expert = local; expert < EXPERTS; expert += 256u) {
        atomicStore(&counts[expert], 0u);
    }
    workgroupBarrier();
    for (var pair = local; pair < params.pairs; pair += 256u) {
        atomicAdd(&counts[expert_of(pair)], 1u);
    }
    workgroupBarrier();
    for (var expert = local; expert < EXPERTS; expert += 256u) {
        var first = 0u;
        var tile = 0u;
        for (var before = 0u; before < expert; before++) {
            let count = atomicLoad(&counts[before]);
            first += count;
            tile += (count + TILE - 1u) / TILE;
        }
        let count = atomicLoad(&counts[expert]);
        for (var done = 0u; done < count; done += TILE) {
            tiles[tile] = vec4<u32>(expert, first + done, min(TILE, count - done), 0u);
            tile++;
        }
        if expert == EXPERTS - 1u {
            for (; tile < params.tiles; tile++) {
                tiles[tile] = vec4<u32>(0u);
            }
        }
        if count > 0u {
            let end = first + count;
            var place = first;
            for (var pair = 0u; pair < params.pairs; pair++) {
                if expert_of(pair) == expert && place < end {
                    order[place] = pair;
                    place++;
                }
            }
        }
    }
}
