// `words`: words of a mask; `ring`: steps of a row in `states` and `chosen`; `masks`: masks of each table.
struct Params { elements: u32, vocabulary: u32, words: u32, ring: u32, masks: u32 }

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> masks: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read> chosen: array<u32>;
@group(0) @binding(5) var<storage, read_write> states: array<u32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

const ALL = 0xffffffffu;
const ONE = 0x80000000u;
const ENTRY = 0x80000000u;

fn next(begin: u32, before: u32, token: u32) -> u32 {
    if before == FREE {
        return FREE;
    }
    if token >> TOKEN_BITS == 0u {
        let key = (before << TOKEN_BITS) | token;
        let first = (key * MULTIPLIER) >> (32u - SLOT_BITS);
        for (var probe = 0u; probe < PROBES; probe++) {
            let at = begin + EDGES + 2u * ((first + probe) & ((1u << SLOT_BITS) - 1u));
            let found = table[at];
            if found == key {
                return table[at + 1u];
            }
            if found == 0xffffffffu {
                break;
            }
        }
    }
    return table[begin + 2u * before + 1u];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let row = i / params.vocabulary;
    let token = i - row * params.vocabulary;
    let step = state[row * 4u + 1u];
    // Step 0 has its entry in the place of the step before it.
    let last = row * params.ring + (step + params.ring - 1u) % params.ring;
    let before = states[last];
    var owner = 0u;
#ifdef TABLES
    owner = state[row * 4u + 3u];
#endif
    let begin = owner * TABLE_WORDS;
    var now = before & ~ENTRY;
    if (before & ENTRY) == 0u {
        now = next(begin, before, chosen[last]);
    }
    if token == 0u {
        states[row * params.ring + step % params.ring] = now;
    }
    var allowed = ALL;
    if now != FREE {
        allowed = table[begin + 2u * now];
    }
    var is_allowed = true;
    if allowed != ALL {
        if (allowed & ONE) != 0u {
            is_allowed = token == (allowed & ~ONE);
        } else {
            is_allowed = ((masks[(owner * params.masks + allowed) * params.words + token / 32u] >> (token % 32u)) & 1u) == 1u;
        }
    }
    let logit = logits[i];
    // By its bits: compilers may assume that there is no NaN.
    let is_nan = (bitcast<u32>(logit) & 0x7fffffffu) > 0x7f800000u;
    out[i] = select(-3.4028234663852886e38, logit, is_allowed || is_nan);
}
