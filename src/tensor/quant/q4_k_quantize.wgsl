// One invocation quantises a superblock: for each block of 32 it tries scales and minima and takes those that err least, weighted by
// magnitude; scales and minima are then rounded to six bits, and the quants follow from these.
#import "file_weights"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<vec4<u32>>;

fn quant(x: f32) -> f32 {
    return clamp(round(x), 0.0, 15.0);
}

// The error of a scale and a minimum, with the quants that another scale and the block's lowest number give.
fn error_of(block: u32, average: f32, inverse: f32, low: f32, scale: f32, minimum: f32) -> f32 {
    var error = 0.0;
    for (var i = 0u; i < 32u; i++) {
        let x = weight_of(block, i);
        let difference = scale * quant(inverse * (x - low)) + minimum - x;
        error += (average + abs(x)) * (difference * difference);
    }
    return error;
}

// Scale and minimum of a block, the latter without its minus sign.
fn fit(block: u32) -> vec2<f32> {
    var low = weight_of(block, 0u);
    var high = low;
    var squares = 0.0;
    for (var i = 0u; i < 32u; i++) {
        let x = weight_of(block, i);
        low = min(low, x);
        high = max(high, x);
        squares += x * x;
    }
    low = min(low, 0.0);
    if high == low {
        return vec2<f32>(0.0, -low);
    }
    let average = sqrt(squares / 32.0);
    var sum_w = 0.0;
    var sum_x = 0.0;
    for (var i = 0u; i < 32u; i++) {
        let x = weight_of(block, i);
        sum_w += average + abs(x);
        sum_x += (average + abs(x)) * x;
    }
    var best = vec2<f32>((high - low) / 15.0, low);
    var least = error_of(block, average, 15.0 / (high - low), low, best.x, best.y);
    for (var attempt = 0u; attempt <= 20u; attempt++) {
        let inverse = (14.0 + 0.1 * f32(attempt)) / (high - low);
        var sum_l = 0.0;
        var sum_l2 = 0.0;
        var sum_xl = 0.0;
        for (var i = 0u; i < 32u; i++) {
            let x = weight_of(block, i);
            let l = quant(inverse * (x - low));
            let w = average + abs(x);
            sum_l += w * l;
            sum_l2 += w * l * l;
            sum_xl += w * l * x;
        }
        let determinant = sum_w * sum_l2 - sum_l * sum_l;
        if determinant <= 0.0 {
            continue;
        }
        var found = vec2<f32>(sum_w * sum_xl - sum_x * sum_l, sum_l2 * sum_x - sum_l * sum_xl) / determinant;
        if found.y > 0.0 {
            found = vec2<f32>(sum_xl / sum_l2, 0.0);
        }
        let error = error_of(block, average, inverse, low, found.x, found.y);
        if error < least {
            best = found;
            least = error;
        }
    }
    return vec2<f32>(best.x, -best.y);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first = ((group.y * groups.x + group.x) * 64u + local) * 8u;
    if first >= params.blocks {
        return;
    }
    var fits: array<vec2<f32>, 8>;
    var most = vec2<f32>(0.0);
    for (var i = 0u; i < 8u; i++) {
        fits[i] = fit(first + i);
        most = max(most, fits[i]);
    }
    let inverse = select(vec2<f32>(0.0), vec2<f32>(63.0) / most, most > vec2<f32>(0.0));
    let factors = vec2<u32>(f16_bits(most.x / 63.0), f16_bits(most.y / 63.0));
    var header = vec4<u32>(factors.x | (factors.y << 16u), 0u, 0u, 0u);
    let to = params.first_block + first;
    for (var i = 0u; i < 8u; i++) {
        let sixes = vec2<u32>(clamp(round(inverse * fits[i]), vec2<f32>(0.0), vec2<f32>(63.0)));
        header.y |= (sixes.x & 15u) << (i * 4u);
        header.z |= (sixes.y & 15u) << (i * 4u);
        header.w |= ((sixes.x >> 4u) | ((sixes.y >> 4u) << 2u)) << (i * 4u);
        let scale = f16_value(factors.x) * f32(sixes.x);
        let minimum = f16_value(factors.y) * f32(sixes.y);
        var words = vec4<u32>(0u);
        for (var j = 0u; j < 32u; j++) {
            let q = select(0.0, quant((weight_of(first + i, j) + minimum) / scale), scale > 0.0);
            words[j % 16u / 4u] |= u32(q) << (j % 4u * 8u + j / 16u * 4u);
        }
        weight_quants[to + i] = words;
    }
    weight_scales[to / 8u] = header;
}
