struct Params { vocabulary: u32 }

// As words: numbers that are not finite are not computed with.
@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> biases: array<u32>;
@group(0) @binding(3) var<storage, read_write> marks: array<u32>;
@group(0) @binding(4) var<storage, read_write> adjusted: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "adjustment"

const MINUS_INFINITY: u32 = 0xff800000u;

fn power(base: f32, exponent: u32) -> f32 {
    var result = 1.0;
    var square = base;
    for (var rest = exponent; rest != 0u; rest >>= 1u) {
        if (rest & 1u) == 1u {
            result *= square;
        }
        square *= square;
    }
    return result;
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let token = id.x;
    let row = id.y;
    if token >= params.vocabulary {
        return;
    }
    let at = row * params.vocabulary + token;
    let mark_at = 2u * row * params.vocabulary + token;
    let mark = marks[mark_at];
    let repeated = marks[mark_at + params.vocabulary];
    if mark != 0u {
        marks[mark_at] = 0u;
    }
    if repeated != 0u {
        marks[mark_at + params.vocabulary] = 0u;
    }
    let bits = logits[at];
    let bias = biases[at];
    if (bits & 0x7f800000u) == 0x7f800000u || (mark | repeated | bias) == 0u {
        adjusted[at] = bits;
        return;
    }
    if bias == MINUS_INFINITY || (mark & BANNED) != 0u {
        adjusted[at] = MINUS_INFINITY;
        return;
    }
    var x = bitcast<f32>(bits) + bitcast<f32>(bias);
    if (mark & IN_WINDOW) != 0u {
        let penalty = settings[row].repetition_penalty;
        x = select(x * penalty, x / penalty, x > 0.0);
    }
    let count = mark & ~(IN_WINDOW | BANNED);
    if count != 0u {
        x -= f32(count) * settings[row].frequency_penalty + settings[row].presence_penalty;
    }
    if repeated != 0u {
        let beyond = repeated - settings[row].dry_allowed_length;
        x -= settings[row].dry_multiplier * power(settings[row].dry_base, beyond);
    }
    adjusted[at] = bitcast<u32>(x);
}
