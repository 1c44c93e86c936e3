struct Params { vocabulary: u32, capacity: u32, advance: u32 }

@group(0) @binding(0) var<storage, read> settings: array<u32>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read> history: array<u32>;
@group(0) @binding(3) var<storage, read> breakers: array<u32>;
@group(0) @binding(4) var<storage, read_write> marks: array<atomic<u32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "adjustment"

const STRIDE: u32 = GROUPS * 256u;

// Tokens at the end of the text that can be compared: those behind the last breaker.
var<workgroup> comparable: atomic<u32>;

// What is no token is a breaker.
fn breaks(row: u32, id: u32) -> bool {
    if id >= params.vocabulary {
        return true;
    }
    return ((breakers[row * ((params.vocabulary + 31u) / 32u) + id / 32u] >> (id % 32u)) & 1u) == 1u;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    let settings_at = row * ADJUST_WORDS;
    let text_at = row * params.capacity;
    let length = length_of(state[row * 4u], params.advance, params.capacity);
    let start = length - min(length, settings[settings_at + DRY_WINDOW]);
    let longest = min(length - start, settings[settings_at + DRY_LONGEST]);
    if local == 0u {
        atomicStore(&comparable, longest);
    }
    workgroupBarrier();
    for (var back = local; back < longest; back += 256u) {
        if breaks(row, history[text_at + length - 1u - back]) {
            atomicMin(&comparable, back);
            break;
        }
    }
    workgroupBarrier();
    let most = atomicLoad(&comparable);
    let allowed = settings[settings_at + DRY_ALLOWED_LENGTH];
    if most < allowed {
        return;
    }
    // Where the next token of an earlier place stands.
    for (var next = start + 1u + group.x * 256u + local; next < length; next += STRIDE) {
        let reach = min(most, next - start);
        var repeated = 0u;
        while repeated < reach && history[text_at + next - 1u - repeated] == history[text_at + length - 1u - repeated] {
            repeated++;
        }
        let id = history[text_at + next];
        if repeated >= allowed && !breaks(row, id) {
            atomicMax(&marks[(2u * row + 1u) * params.vocabulary + id], repeated);
        }
    }
}
