// A workgroup sorts `total` pairs of key and index in runs of `size`; a row is one run or several. Keys are words of which the
// smaller comes first, and no two pairs are equal, since indices differ: so the order is that of a stable sort.
struct Params { lines: u32, runs: u32, columns: u32, size: u32, total: u32, keep: u32, out_columns: u32 }

const WORKGROUP = 256u;
// The key and the index of what is not there: after everything.
const NOTHING = 0xffffffffu;

@group(0) @binding(0) var<storage, read> x: array<u32>;
#ifdef PAIRS
// x are keys.
@group(0) @binding(1) var<storage, read> x_indices: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<storage, read_write> out_indices: array<u32>;
#else
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read_write> out_indices: array<u32>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

var<workgroup> keys: array<u32, RUN>;
var<workgroup> indices: array<u32, RUN>;

#ifndef PAIRS
fn ascending(word: u32) -> u32 {
#ifdef KEY_F32
    // The order of positive floats is that of their bits, of negative ones the opposite. All NaN are one, and so are the zeros.
    if (word & 0x7fffffffu) > 0x7f800000u {
        return 0xffffffffu;
    }
    return select(word | 0x80000000u, ~word, word > 0x80000000u);
#endif
#ifdef KEY_I32
    return word ^ 0x80000000u;
#endif
#ifdef KEY_U32
    return word;
#endif
}

fn key_of(word: u32) -> u32 {
#ifdef DESCENDING
    return ~ascending(word);
#else
    return ascending(word);
#endif
}
#endif

fn order(low: u32, high: u32) {
    let low_key = keys[low];
    let high_key = keys[high];
    let low_index = indices[low];
    let high_index = indices[high];
    if high_key < low_key || (high_key == low_key && high_index < low_index) {
        keys[low] = high_key;
        keys[high] = low_key;
        indices[low] = high_index;
        indices[high] = low_index;
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first_line = (group.y * groups.x + group.x) * (params.total / params.size);
    if first_line >= params.lines {
        return;
    }
    for (var i = local; i < params.total; i += WORKGROUP) {
        let line = first_line + i / params.size;
        let column = line % params.runs * params.size + i % params.size;
        var key = NOTHING;
        var index = NOTHING;
        if line < params.lines && column < params.columns {
            let at = line / params.runs * params.columns + column;
#ifdef PAIRS
            key = x[at];
            index = x_indices[at];
#else
            key = key_of(x[at]);
            index = column;
#endif
        }
        keys[i] = key;
        indices[i] = index;
    }
    // Two sorted halves become one whole: each is compared with its mirror image in the other, and then within smaller and smaller
    // halves. So all comparisons go the same way.
    for (var half = 1u; half < params.size; half *= 2u) {
        workgroupBarrier();
        for (var pair = local; pair < params.total / 2u; pair += WORKGROUP) {
            let within = pair % half;
            let low = 2u * pair - within;
            order(low, low + 2u * (half - within) - 1u);
        }
        for (var step = half / 2u; step > 0u; step /= 2u) {
            workgroupBarrier();
            for (var pair = local; pair < params.total / 2u; pair += WORKGROUP) {
                let low = 2u * pair - pair % step;
                order(low, low + step);
            }
        }
    }
    workgroupBarrier();
    for (var i = local; i < params.total; i += WORKGROUP) {
        let line = first_line + i / params.size;
        let place = line % params.runs * params.keep + i % params.size;
        if line < params.lines && i % params.size < params.keep && place < params.out_columns {
            let row = line / params.runs;
            let at = row * params.out_columns + place;
#ifdef VALUES
            out[at] = x[row * params.columns + indices[i]];
#else
            out[at] = keys[i];
#endif
            out_indices[at] = indices[i];
        }
    }
}
