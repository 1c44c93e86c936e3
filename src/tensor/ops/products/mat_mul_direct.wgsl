// For software adapters, without workgroup memory: each invocation computes two rows of the weight for four tokens, so that
// each block of weights is unpacked once for four. In loops, since such adapters compile what is written out for longer than they run it.
#import "weight"

struct Params { rows: u32, columns: u32, blocks: u32, tokens: u32 }

@group(0) @binding(20) var<uniform> params: Params;

#import "activations"
#import "epilogue"

// Four columns of a token.
fn load_word(token: u32, block: u32, word: u32) -> vec4<f32> {
#ifdef SOA
    return activations[(token * 8u + word) * params.blocks + block];
#else
    return load_four_activations(token, block, word);
#endif
}

// The activations of a block. All lanes of a subgroup want the same: with SHARED, each of the LANES loads a part and hands it on.
#ifdef SHARED
#require subgroups

fn shared_activations(token: u32, block: u32, lane: u32) -> Block {
    let x = load_word(token, block, lane);
#ifdef LANES_8
    return Block(
        subgroupBroadcast(x, 0u), subgroupBroadcast(x, 1u), subgroupBroadcast(x, 2u), subgroupBroadcast(x, 3u),
        subgroupBroadcast(x, 4u), subgroupBroadcast(x, 5u), subgroupBroadcast(x, 6u), subgroupBroadcast(x, 7u),
    );
#else
    let y = load_word(token, block, lane + 4u);
    return Block(
        subgroupBroadcast(x, 0u), subgroupBroadcast(x, 1u), subgroupBroadcast(x, 2u), subgroupBroadcast(x, 3u),
        subgroupBroadcast(y, 0u), subgroupBroadcast(y, 1u), subgroupBroadcast(y, 2u), subgroupBroadcast(y, 3u),
    );
#endif
}
#else
fn shared_activations(token: u32, block: u32, lane: u32) -> Block {
    var words: array<vec4<f32>, 8>;
    for (var i = 0u; i < 8u; i++) {
        words[i] = load_word(token, block, i);
    }
    return Block(words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]);
}
#endif

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.x * 32u + local) * 2u;
    let token = group.y * 4u;
    let tokens = min(4u, params.tokens - token);
    let lane = local % LANES;
    // Rows past the end repeat the last one, so that every invocation hands on what it loads; only `store` leaves them out.
    let last_row = params.rows - 1u;
    let start0 = min(row, last_row) * params.blocks;
    let start1 = min(row + 1u, last_row) * params.blocks;
    var sums: array<vec2<f32>, 4>;
    for (var block = 0u; block < params.blocks; block++) {
        let w0 = load_block(start0 + block);
        let w1 = load_block(start1 + block);
        for (var i = 0u; i < tokens; i++) {
            let x = shared_activations(token + i, block, lane);
            sums[i] += vec2<f32>(dot_blocks(w0, x), dot_blocks(w1, x));
        }
    }
    for (var i = 0u; i < tokens; i++) {
        store(token + i, row, sums[i].x);
        store(token + i, row + 1u, sums[i].y);
    }
}
