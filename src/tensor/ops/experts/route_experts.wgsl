// A workgroup takes one token. An expert's place is the number of experts before it, so nothing is sorted.
struct Params { tokens: u32, scale: f32 }

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

var<workgroup> all: array<f32, EXPERTS>;
// The logits of the chosen.
var<workgroup> chosen: array<f32, USED>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the tokens; such a workgroup repeats the last one and writes nothing.
    let token = min(id, params.tokens - 1u);
    for (var expert = local; expert < EXPERTS; expert += 64u) {
        all[expert] = logits[token * EXPERTS + expert];
    }
    workgroupBarrier();
    for (var expert = local; expert < EXPERTS; expert += 64u) {
        let own = all[expert];
        var place = 0u;
        for (var other = 0u; other < EXPERTS; other++) {
            let logit = all[other];
            place += u32(logit > own || (logit == own && other < expert));
        }
        if place < USED {
            chosen[place] = own;
            if id < params.tokens {
                ids[token * USED + place] = expert;
            }
        }
    }
    workgroupBarrier();
    let largest = chosen[0];
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
}
