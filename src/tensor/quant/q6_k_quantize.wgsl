// One invocation quantises two superblocks: for each 16 weights it tries scales and takes the one whose best fit errs least, weighted by
// squares; scales are then rounded to eight bits, and the quants follow from these.
#import "file_weights"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<u32>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

fn quant(x: f32) -> f32 {
    return clamp(round(x), -32.0, 31.0);
}

// Sums of products with the quants that a scale gives, and of the squares of these.
fn sums(block: u32, begin: u32, inverse: f32) -> vec2<f32> {
    var sums = vec2<f32>(0.0);
    for (var i = begin; i < begin + 16u; i++) {
        let x = weight_of(block, i);
        let q = quant(inverse * x);
        sums += x * x * q * vec2<f32>(x, q);
    }
    return sums;
}

// The scale of 16 weights of a block.
fn fit(block: u32, begin: u32) -> f32 {
    var largest = 0.0;
    for (var i = begin; i < begin + 16u; i++) {
        let x = weight_of(block, i);
        if abs(x) > abs(largest) {
            largest = x;
        }
    }
    if abs(largest) < 1e-15 {
        return 0.0;
    }
    let first = sums(block, begin, -32.0 / largest);
    if first.y == 0.0 {
        return 0.0;
    }
    var scale = first.x / first.y;
    var best = scale * first.x;
    for (var attempt = -9; attempt <= 9; attempt++) {
        if attempt == 0 {
            continue;
        }
        let found = sums(block, begin, -(32.0 + 0.1 * f32(attempt)) / largest);
        if found.y > 0.0 && found.x * found.x > best * found.y {
            scale = found.x / found.y;
            best = scale * found.x;
        }
    }
    return scale;
}

// Writes a superblock and returns its factor.
fn quantize(first: u32, super_block: u32) -> u32 {
    var fits: array<f32, 16>;
    var most = 0.0;
    for (var i = 0u; i < 16u; i++) {
        fits[i] = fit(first + i / 2u, i % 2u * 16u);
        if abs(fits[i]) > abs(most) {
            most = fits[i];
        }
    }
    let is_zero = abs(most) < 1e-15;
    let inverse = select(-128.0 / most, 0.0, is_zero);
    let factor = select(f16_bits(most / -128.0), 0u, is_zero);
    var scales = vec4<u32>(0u);
    for (var i = 0u; i < 8u; i++) {
        var low = vec4<u32>(0u);
        var high = vec2<u32>(0u);
        for (var part = 0u; part < 2u; part++) {
            let number = i * 2u + part;
            let six = min(round(inverse * fits[number]), 127.0);
            scales[number / 4u] |= (u32(i32(six)) & 255u) << (number % 4u * 8u);
            let scale = f16_value(factor) * six;
            for (var j = 0u; j < 16u; j++) {
                let x = weight_of(first + i, part * 16u + j);
                let q = select(u32(i32(quant(x / scale)) + 32), 32u, scale == 0.0);
                low[j / 4u] |= (q & 15u) << (j % 4u * 8u + part * 4u);
                high[part] |= (q >> 4u) << (j % 4u * 8u + j / 4u * 2u);
            }
        }
        for (var word = 0u; word < 4u; word++) {
            weight_quants[super_block * 48u + i * 4u + word] = low[word];
        }
        weight_quants[super_block * 48u + 32u + i * 2u] = high.x;
        weight_quants[super_block * 48u + 33u + i * 2u] = high.y;
    }
    for (var word = 0u; word < 4u; word++) {
        weight_scales[super_block / 2u * 9u + super_block % 2u * 4u + word] = scales[word];
    }
    return factor;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first = ((group.y * groups.x + group.x) * 64u + local) * 16u;
    if first >= params.blocks {
        return;
    }
    let super_block = (params.first_block + first) / 8u;
    var factors = quantize(first, super_block);
    if first + 8u < params.blocks {
        factors |= quantize(first + 8u, super_block + 1u) << 16u;
    }
    weight_scales[super_block / 2u * 9u + 8u] = factors;
}
