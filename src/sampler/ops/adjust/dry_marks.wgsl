struct Params { vocabulary: u32, capacity: u32, advance: u32 }

@group(0) @binding(0) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read> history: array<u32>;
@group(0) @binding(3) var<storage, read> breakers: array<u32>;
@group(0) @binding(4) var<storage, read_write> marks: array<atomic<u32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "adjustment"

const STRIDE: u32 = GROUPS * 256u;

// Tokens at the end of the text that can be compared: those after the last breaker.
var<workgroup> comparable: atomic<u32>;

// A token's word; an id out of range is a breaker.
fn word(row: u32, id: u32) -> u32 {
    if id >= params.vocabulary {
        return BREAKS;
    }
    return breakers[row * (params.vocabulary + TABLE) + id];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    let text_at = row * params.capacity;
    let length = length_of(state[row * 4u], params.advance, params.capacity);
    let start = length - min(length, settings[row].dry_window);
    let longest = min(length - start, settings[row].dry_longest);
    if local == 0u {
        atomicStore(&comparable, longest);
    }
    workgroupBarrier();
    // A breaker of several tokens may begin before the compared range.
    let table = row * (params.vocabulary + TABLE) + params.vocabulary;
    let reach = min(length, longest + breakers[table]);
    for (var back = local; back < reach && longest > 0u; back += 256u) {
        let at = text_at + length - 1u - back;
        let of_token = word(row, history[at]);
        if (of_token & BREAKS) != 0u {
            atomicMin(&comparable, back);
        }
        let list = of_token & ~BREAKS;
        if list == 0u {
            continue;
        }
        for (var i = breakers[table + list]; i < breakers[table + list + 1u]; i++) {
            let rest = table + breakers[table + i];
            let count = breakers[rest];
            var agrees = count <= back;
            for (var k = 1u; k <= count && agrees; k++) {
                agrees = history[at + k] == breakers[rest + k];
            }
            if agrees {
                atomicMin(&comparable, back - count);
            }
        }
    }
    workgroupBarrier();
    let most = atomicLoad(&comparable);
    let allowed = settings[row].dry_allowed_length;
    if most < allowed {
        return;
    }
    // The place of the next token after an earlier place.
    for (var next = start + 1u + group.x * 256u + local; next < length; next += STRIDE) {
        let reach = min(most, next - start);
        var repeated = 0u;
        while repeated < reach && history[text_at + next - 1u - repeated] == history[text_at + length - 1u - repeated] {
            repeated++;
        }
        let id = history[text_at + next];
        if repeated >= allowed && (word(row, id) & BREAKS) == 0u {
            atomicMax(&marks[(2u * row + 1u) * params.vocabulary + id], repeated);
        }
    }
}
