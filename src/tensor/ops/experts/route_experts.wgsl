// A workgroup takes one token. An expert's place is the number of experts before it, so nothing is sorted.
struct Params { tokens: u32, scale: f32, jitter: f32 }

@group(0) @binding(0) var<storage, read> logits: array<f32>;
#ifdef BIASED
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;
#else
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

var<workgroup> all: array<f32, EXPERTS>;
#ifdef KEYED
// What experts are chosen by.
var<workgroup> keys: array<f32, EXPERTS>;
#endif
#ifdef GROUPS
var<workgroup> group_keys: array<f32, GROUPS>;

const OF_GROUP = EXPERTS / GROUPS;
// Less than every key of an expert that is open to the token.
const LOWEST = -3.0e38;

fn group_key(group: u32) -> f32 {
    var best = LOWEST;
    var second = LOWEST;
    for (var i = 0u; i < OF_GROUP; i++) {
        let key = keys[group * OF_GROUP + i];
        second = max(second, min(best, key));
        best = max(best, key);
    }
#ifdef BY_TWO
    return best + second;
#else
    return best;
#endif
}
#endif
// The logits of the chosen, and which they are.
var<workgroup> chosen: array<f32, USED>;
var<workgroup> chosen_ids: array<u32, USED>;

fn key(expert: u32) -> f32 {
#ifdef KEYED
    return keys[expert];
#else
    return all[expert];
#endif
}

#ifdef SIGMOID
fn score(logit: f32) -> f32 {
    return 1.0 / (1.0 + exp(min(-logit, 80.0)));
}
#endif

#ifdef SPARSE
// The softmax's share of the i-th chosen among those that come close to it, without the chosen before it.
fn share(i: u32) -> f32 {
    let largest = chosen[i];
    var total = 0.0;
    for (var expert = 0u; expert < EXPERTS; expert++) {
        let logit = all[expert];
        var is_before = false;
        for (var before = 0u; before < i; before++) {
            is_before = is_before || chosen_ids[before] == expert;
        }
        let far = (largest - logit) / max(abs(logit), largest) > 2.0 * params.jitter;
        total += select(exp(min(logit - largest, 0.0)), 0.0, is_before || far);
    }
    return 1.0 / total;
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the tokens; such a workgroup repeats the last one and writes nothing.
    let token = min(id, params.tokens - 1u);
    for (var expert = local; expert < EXPERTS; expert += 64u) {
        all[expert] = logits[token * EXPERTS + expert];
    }
    workgroupBarrier();
#ifdef KEYED
#ifndef SIGMOID
    var highest = all[0];
    for (var i = 1u; i < EXPERTS; i++) {
        highest = max(highest, all[i]);
    }
    var sum = 0.0;
    for (var i = 0u; i < EXPERTS; i++) {
        sum += exp(all[i] - highest);
    }
#endif
    for (var expert = local; expert < EXPERTS; expert += 64u) {
#ifdef SIGMOID
        var score_of = score(all[expert]);
#else
        var score_of = exp(all[expert] - highest) / sum;
#endif
#ifdef BIASED
        score_of += bias[expert];
#endif
        keys[expert] = score_of;
    }
    workgroupBarrier();
#ifdef GROUPS
    for (var group_of = local; group_of < GROUPS; group_of += 64u) {
        group_keys[group_of] = group_key(group_of);
    }
    workgroupBarrier();
    for (var expert = local; expert < EXPERTS; expert += 64u) {
        let own_group = expert / OF_GROUP;
        var place = 0u;
        for (var other = 0u; other < GROUPS; other++) {
            place += u32(group_keys[other] > group_keys[own_group] || (group_keys[other] == group_keys[own_group] && other < own_group));
        }
        if place >= GROUPS_USED {
            keys[expert] = LOWEST;
        }
    }
    workgroupBarrier();
#endif
#endif
    for (var expert = local; expert < EXPERTS; expert += 64u) {
        let own = key(expert);
        var place = 0u;
        for (var other = 0u; other < EXPERTS; other++) {
            let logit = key(other);
            place += u32(logit > own || (logit == own && other < expert));
        }
        if place < USED {
            chosen[place] = all[expert];
            chosen_ids[place] = expert;
            if id < params.tokens {
                ids[token * USED + place] = expert;
            }
        }
    }
    workgroupBarrier();
#ifdef SPARSE
    if id < params.tokens {
        for (var i = local; i < USED; i += 64u) {
            weights[token * USED + i] = share(i) * params.scale;
        }
    }
#else
#ifdef SIGMOID
    var total = 1.0;
#ifdef NORMALIZE
    total = 1e-20;
    for (var i = 0u; i < USED; i++) {
        total += score(chosen[i]);
    }
#endif
    if id < params.tokens {
        for (var i = local; i < USED; i += 64u) {
            weights[token * USED + i] = score(chosen[i]) / total * params.scale;
        }
    }
#else
#ifdef KEYED
    let largest = highest;
#else
    let largest = chosen[0];
#endif
    var total = 0.0;
#ifdef NORMALIZE
    for (var i = 0u; i < USED; i++) {
        total += exp(chosen[i] - largest);
    }
#else
    for (var i = 0u; i < EXPERTS; i++) {
        total += exp(all[i] - largest);
    }
#endif
    if id < params.tokens {
        for (var i = local; i < USED; i += 64u) {
            weights[token * USED + i] = exp(chosen[i] - largest) / total * params.scale;
        }
    }
#endif
#endif
}
