// A team of TEAM invocations computes four rows for all tokens; each takes every TEAM-th block of 32 columns. The flag
// TOKEN_k means that there is a token k.
#import "weight"

struct Params { rows: u32, columns: u32, blocks: u32, tokens: u32 }

@group(0) @binding(20) var<uniform> params: Params;

#import "activations"
#import "epilogue"
#import "subgroup_sum"

// Four columns of a token.
fn load_word(token: u32, block: u32, word: u32) -> vec4<f32> {
#ifdef SOA
    return activations[(token * 8u + word) * params.blocks + block];
#else
    return load_four_activations(token, block, word);
#endif
}

// For each token, the sums of the four rows.
struct Sums {
    t0: vec4<f32>,
    t1: vec4<f32>,
#ifdef TOKEN_2
    t2: vec4<f32>,
#endif
#ifdef TOKEN_3
    t3: vec4<f32>,
#endif
#ifdef TOKEN_4
    t4: vec4<f32>,
#endif
#ifdef TOKEN_5
    t5: vec4<f32>,
#endif
#ifdef TOKEN_6
    t6: vec4<f32>,
#endif
#ifdef TOKEN_7
    t7: vec4<f32>,
#endif
}

// Four columns of four rows.
struct Word { w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32> }

fn products(w: Word, x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(dot(w.w0, x), dot(w.w1, x), dot(w.w2, x), dot(w.w3, x));
}

// Word by word, so that few unpacked weights are alive at a time for any number of tokens.
fn add_word(sums: Sums, block: u32, word: u32, w: Word) -> Sums {
    var result = sums;
    result.t0 += products(w, load_word(0u, block, word));
    result.t1 += products(w, load_word(1u, block, word));
#ifdef TOKEN_2
    result.t2 += products(w, load_word(2u, block, word));
#endif
#ifdef TOKEN_3
    result.t3 += products(w, load_word(3u, block, word));
#endif
#ifdef TOKEN_4
    result.t4 += products(w, load_word(4u, block, word));
#endif
#ifdef TOKEN_5
    result.t5 += products(w, load_word(5u, block, word));
#endif
#ifdef TOKEN_6
    result.t6 += products(w, load_word(6u, block, word));
#endif
#ifdef TOKEN_7
    result.t7 += products(w, load_word(7u, block, word));
#endif
    return result;
}

fn store_rows(token: u32, row: u32, sums: vec4<f32>, lane: u32) {
    for (var i = lane; i < 4u; i += TEAM) {
        store(token, row + i, sums[i]);
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let team = (group.y * groups.x + group.x) * (WORKGROUP / TEAM) + local / TEAM;
    let lane = local % TEAM;
    let row = team * 4u;
    // Rows past the end repeat the last one, so that every invocation takes part in the sums; only `store` leaves them out.
    let last = params.rows - 1u;
    let start0 = min(row, last) * params.blocks;
    let start1 = min(row + 1u, last) * params.blocks;
    let start2 = min(row + 2u, last) * params.blocks;
    let start3 = min(row + 3u, last) * params.blocks;

    var sums = Sums();
    for (var block = lane; block < params.blocks; block += TEAM) {
        let a = load_block(start0 + block);
        let b = load_block(start1 + block);
        let c = load_block(start2 + block);
        let d = load_block(start3 + block);
        sums = add_word(sums, block, 0u, Word(a.v0, b.v0, c.v0, d.v0));
        sums = add_word(sums, block, 1u, Word(a.v1, b.v1, c.v1, d.v1));
        sums = add_word(sums, block, 2u, Word(a.v2, b.v2, c.v2, d.v2));
        sums = add_word(sums, block, 3u, Word(a.v3, b.v3, c.v3, d.v3));
        sums = add_word(sums, block, 4u, Word(a.v4, b.v4, c.v4, d.v4));
        sums = add_word(sums, block, 5u, Word(a.v5, b.v5, c.v5, d.v5));
        sums = add_word(sums, block, 6u, Word(a.v6, b.v6, c.v6, d.v6));
        sums = add_word(sums, block, 7u, Word(a.v7, b.v7, c.v7, d.v7));
    }
    store_rows(0u, row, sum_over_team(sums.t0, local, 0u), lane);
    store_rows(1u, row, sum_over_team(sums.t1, local, 1u), lane);
#ifdef TOKEN_2
    store_rows(2u, row, sum_over_team(sums.t2, local, 0u), lane);
#endif
#ifdef TOKEN_3
    store_rows(3u, row, sum_over_team(sums.t3, local, 1u), lane);
#endif
#ifdef TOKEN_4
    store_rows(4u, row, sum_over_team(sums.t4, local, 0u), lane);
#endif
#ifdef TOKEN_5
    store_rows(5u, row, sum_over_team(sums.t5, local, 1u), lane);
#endif
#ifdef TOKEN_6
    store_rows(6u, row, sum_over_team(sums.t6, local, 0u), lane);
#endif
#ifdef TOKEN_7
    store_rows(7u, row, sum_over_team(sums.t7, local, 1u), lane);
#endif
}
