// A workgroup sums its share of the vocabulary and finds the best logits in it, one after the other.
struct Params { vocabulary: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> wanted: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> sums: array<f32>;
@group(0) @binding(4) var<storage, read_write> best: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "logit_order"

const STRIDE: u32 = GROUPS * 256u;

var<workgroup> largest: atomic<u32>;
var<workgroup> shares: array<f32, 256>;
var<workgroup> keys: array<atomic<u32>, MOST>;
var<workgroup> inverted_tokens: array<atomic<u32>, MOST>;

// The key and the token of the next best logit of an invocation: a smaller key, or the same key of a later token. The key is 0 if
// there is none.
fn best_after(row: u32, first: u32, key: u32, token: u32) -> vec2<u32> {
    var found = vec2<u32>(0u, NONE);
    for (var at = first; at < params.vocabulary; at += STRIDE) {
        let its_key = key_of(logits[row * params.vocabulary + at]);
        if (its_key < key || (its_key == key && at > token)) && its_key > found.x && its_key != NAN_KEY {
            found = vec2<u32>(its_key, at);
        }
    }
    return found;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    let first = group.x * 256u + local;
    let best_at = row * BEST;
    let list_at = best_at + 2u + group.x * (1u + 2u * MOST);
    let count = min(wanted[row], MOST);
    var own_largest = 0u;
    for (var at = first; at < params.vocabulary; at += STRIDE) {
        own_largest = max(own_largest, key_of(logits[row * params.vocabulary + at]));
    }
    // Workgroup memory starts with unspecified contents.
    if local < MOST {
        atomicStore(&keys[local], 0u);
        atomicStore(&inverted_tokens[local], 0u);
    }
    if local == 0u {
        atomicStore(&largest, 0u);
    }
    workgroupBarrier();
    atomicMax(&largest, own_largest);
    workgroupBarrier();
    let largest_key = atomicLoad(&largest);
    var sum = 0.0;
    for (var at = first; at < params.vocabulary; at += STRIDE) {
        sum += exp(below_largest(key_of(logits[row * params.vocabulary + at]), largest_key));
    }
    shares[local] = sum;
    for (var width = 128u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if local < width {
            shares[local] += shares[local + width];
        }
    }

    var mine = best_after(row, first, NAN_KEY, NONE);
    for (var place = 0u; place < count; place++) {
        atomicMax(&keys[place], mine.x);
        workgroupBarrier();
        let is_best = mine.x != 0u && mine.x == atomicLoad(&keys[place]);
        if is_best {
            atomicMax(&inverted_tokens[place], ~mine.y);
        }
        workgroupBarrier();
        if is_best && mine.y == ~atomicLoad(&inverted_tokens[place]) {
            best[list_at + 1u + place] = mine.x;
            best[list_at + 1u + MOST + place] = mine.y;
            mine = best_after(row, first, mine.x, mine.y);
        }
    }
    // Unused places.
    if local < MOST && (local >= count || atomicLoad(&keys[local]) == 0u) {
        best[list_at + 1u + local] = 0u;
        best[list_at + 1u + MOST + local] = NONE;
    }
    if local == 0u {
        // A sum with a NaN is not used.
        sums[row * GROUPS + group.x] = select(shares[0], 0.0, largest_key == NAN_KEY);
        best[list_at] = largest_key;
        if group.x == 0u {
            best[best_at] = state[row * 4u + 1u];
            best[best_at + 1u] = state[row * 4u + 2u];
        }
    }
}
