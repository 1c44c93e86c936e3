struct Params { vocabulary: u32, capacity: u32, advance: u32, appends: u32 }

@group(0) @binding(0) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(1) var<storage, read> lists: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> token: array<u32>;
@group(0) @binding(4) var<storage, read_write> history: array<u32>;
@group(0) @binding(5) var<storage, read_write> marks: array<atomic<u32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "adjustment"

const STRIDE: u32 = GROUPS * 256u;

// The token of a position. The last one is that of this step: it is not read from the history, where another workgroup writes it.
fn token_at(row: u32, position: u32, length: u32) -> u32 {
    if params.appends != 0u && position + 1u == length {
        return token[row];
    }
    return history[row * params.capacity + position];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    let first = group.x * 256u + local;
    let lists_at = row * LISTS;
    let marks_at = row * 2u * params.vocabulary;
    let length = length_of(state[row * 4u], params.advance, params.capacity);
    if first == 0u && params.appends != 0u && length > 0u {
        history[row * params.capacity + length - 1u] = token[row];
    }
    let answer_start = settings[row].answer_start;
    for (var position = length - min(length, settings[row].penalty_window) + first; position < length; position += STRIDE) {
        let id = token_at(row, position, length);
        if id < params.vocabulary {
            atomicOr(&marks[marks_at + id], IN_WINDOW);
            if position >= answer_start {
                atomicAdd(&marks[marks_at + id], 1u);
            }
        }
    }
    let ends = lists[lists_at];
    if state[row * 4u + 1u] < settings[row].min_tokens {
        for (var i = first; i < ends; i += STRIDE) {
            atomicOr(&marks[marks_at + lists[lists_at + 2u + i]], BANNED);
        }
    }
    let starts_at = lists_at + 2u + ends;
    for (var i = first; i < lists[lists_at + 1u]; i += STRIDE) {
        let start = lists[starts_at + i];
        // Tokens before its last one.
        let before = lists[starts_at + i + 1u] - start - 1u;
        var agrees = before <= length;
        for (var k = 0u; k < before && agrees; k++) {
            agrees = token_at(row, length - before + k, length) == lists[lists_at + start + k];
        }
        if agrees {
            atomicOr(&marks[marks_at + lists[lists_at + start + before]], BANNED);
        }
    }
}
