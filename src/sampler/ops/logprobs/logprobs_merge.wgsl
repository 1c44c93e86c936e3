// A workgroup merges the groups of one row: an invocation for each, which holds the next of its group's best.
struct Params { vocabulary: u32, slots: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> wanted: array<u32>;
@group(0) @binding(2) var<storage, read> sums: array<f32>;
@group(0) @binding(3) var<storage, read> best: array<u32>;
@group(0) @binding(4) var<storage, read> next_token: array<u32>;
@group(0) @binding(5) var<storage, read_write> values: array<f32>;
@group(0) @binding(6) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "logit_order"

var<workgroup> largest: atomic<u32>;
var<workgroup> shares: array<f32, 64>;
var<workgroup> keys: array<atomic<u32>, MOST>;
var<workgroup> inverted_tokens: array<atomic<u32>, MOST>;

fn logprob(key: u32, largest_key: u32, log_sum: f32) -> f32 {
    return select(max(below_largest(key, largest_key) - log_sum, LEAST), 0.0, largest_key == NAN_KEY || key == NAN_KEY);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.x;
    let best_at = row * BEST;
    // Otherwise the sequence had ended before, and nothing was chosen.
    let goes_on = best[best_at + 1u] == 0u;
    let slot = row * params.slots + best[best_at] % params.slots;
    let count = min(wanted[row], MOST);
    let list_at = best_at + 2u + min(local, GROUPS - 1u) * (1u + 2u * MOST);
    let group_largest = best[list_at];
    // Workgroup memory starts with unspecified contents.
    if local < MOST {
        atomicStore(&keys[local], 0u);
        atomicStore(&inverted_tokens[local], 0u);
    }
    if local == 0u {
        atomicStore(&largest, 0u);
    }
    workgroupBarrier();
    atomicMax(&largest, group_largest);
    workgroupBarrier();
    let largest_key = atomicLoad(&largest);
    let share = sums[row * GROUPS + min(local, GROUPS - 1u)] * exp(below_largest(group_largest, largest_key));
    shares[local] = select(0.0, share, local < GROUPS);
    for (var width = 32u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if local < width {
            shares[local] += shares[local + width];
        }
    }
    workgroupBarrier();
    let log_sum = log(shares[0]);

    var taken = 0u;
    var key = select(0u, best[list_at + 1u], local < GROUPS);
    for (var place = 0u; place < count; place++) {
        let token = best[list_at + 1u + MOST + min(taken, MOST - 1u)];
        atomicMax(&keys[place], key);
        workgroupBarrier();
        let is_best = key != 0u && key == atomicLoad(&keys[place]);
        if is_best {
            atomicMax(&inverted_tokens[place], ~token);
        }
        workgroupBarrier();
        if is_best && token == ~atomicLoad(&inverted_tokens[place]) {
            if goes_on {
                values[slot * (1u + MOST) + 1u + place] = logprob(key, largest_key, log_sum);
                tokens[slot * MOST + place] = token;
            }
            taken += 1u;
            key = select(0u, best[list_at + 1u + min(taken, MOST - 1u)], taken < MOST);
        }
    }
    if goes_on && local < MOST && (local >= count || atomicLoad(&keys[local]) == 0u) {
        values[slot * (1u + MOST) + 1u + local] = 0.0;
        tokens[slot * MOST + local] = NONE;
    }
    if goes_on && local == 0u {
        let chosen = min(next_token[row], params.vocabulary - 1u);
        values[slot * (1u + MOST)] = logprob(key_of(logits[row * params.vocabulary + chosen]), largest_key, log_sum);
    }
}
