struct Params { lines: u32, n: u32, inner: u32, negative_infinity: u32, nan: u32 }

#import "numbers"

@group(0) @binding(0) var<storage, read> x: array<Number>;
@group(0) @binding(1) var<storage, read_write> out: array<Number>;
@group(0) @binding(20) var<uniform> params: Params;

const LOWEST = -3.4028234e38;

// Of some numbers: the largest, but not below the lowest finite one, and the sum of e^(number − largest). A sum below zero says
// that there was a NaN or an infinity.
struct Sum { largest: f32, sum: f32 }

// By their bits, because compilers may take it for granted that there are none.
fn poisons(x: f32) -> bool {
    let bits = bitcast<u32>(x);
    return bits == 0x7f800000u || (bits & 0x7fffffffu) > 0x7f800000u;
}

// e^x for x up to 0. Far below, WGSL allows exp to be off by more than the result.
fn power(x: f32) -> f32 {
    return select(exp(max(x, -104.0)), 0.0, x < -104.0);
}

fn merge(a: Sum, b: Sum) -> Sum {
    let largest = max(a.largest, b.largest);
    let sum = a.sum * power(a.largest - largest) + b.sum * power(b.largest - largest);
    return Sum(largest, select(sum, -1.0, a.sum < 0.0 || b.sum < 0.0));
}

fn with_number(total: Sum, value: f32) -> Sum {
    let factor = power(-abs(value - total.largest));
    let sum = select(total.sum + factor, total.sum * factor + 1.0, value > total.largest);
    return Sum(max(total.largest, value), select(sum, -1.0, total.sum < 0.0 || poisons(value)));
}

// Only −∞ has no sum, and neither that nor what is poisoned has a result.
fn has_result(total: Sum) -> bool {
    return total.sum > 0.0;
}

fn result(value: f32, total: Sum) -> f32 {
    if !has_result(total) {
        return bitcast<f32>(params.nan);
    }
#ifdef LOG
    return (value - total.largest) - log(total.sum);
#else
    return power(value - total.largest) / total.sum;
#endif
}

// The first element of a line, whose others are `inner` apart.
fn start_of(line: u32) -> u32 {
    return line / params.inner * params.n * params.inner + line % params.inner;
}

#ifdef LINES
// An invocation per line: neighbours have neighbouring lines, so they read side by side, and there is no barrier.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let line = (group.y * groups.x + group.x) * 64u + local;
    if line >= params.lines {
        return;
    }
    let start = start_of(line);
    var total = Sum(LOWEST, 0.0);
    // By stretches, so that errors of rounding grow slowly with the length.
    for (var first = 0u; first < params.n; first += 256u) {
        var part = Sum(LOWEST, 0.0);
        for (var i = first; i < min(first + 256u, params.n); i++) {
            part = with_number(part, x[start + i * params.inner]);
        }
        total = merge(total, part);
    }
    for (var i = 0u; i < params.n; i++) {
        let at = start + i * params.inner;
        out[at] = result(x[at], total);
    }
}
#else
// A workgroup per line; with FOUR its elements are neighbours.
#ifdef SUBGROUPS
#require subgroups
#endif

#ifdef MEMORY
var<workgroup> largest_of: array<f32, WORKGROUP>;
var<workgroup> sum_of: array<f32, WORKGROUP>;
#endif

fn over_workgroup(part: Sum, local: u32) -> Sum {
    var total = part;
#ifdef SUBGROUPS
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        total = merge(total, Sum(subgroupShuffleXor(total.largest, step), subgroupShuffleXor(total.sum, step)));
    }
#ifdef MEMORY
    if local % LANES == 0u {
        largest_of[local / LANES] = total.largest;
        sum_of[local / LANES] = total.sum;
    }
    workgroupBarrier();
    total = Sum(largest_of[0], sum_of[0]);
    for (var i = 1u; i < WORKGROUP / LANES; i++) {
        total = merge(total, Sum(largest_of[i], sum_of[i]));
    }
#endif
#else
    largest_of[local] = total.largest;
    sum_of[local] = total.sum;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step {
            total = merge(total, Sum(largest_of[local + step], sum_of[local + step]));
            largest_of[local] = total.largest;
            sum_of[local] = total.sum;
        }
    }
    workgroupBarrier();
    total = Sum(largest_of[0], sum_of[0]);
#endif
    return total;
}

// The numbers of a line that an invocation reads at once: a part of four times as many numbers as the workgroup has invocations.
fn read_four(start: u32, part: u32, local: u32) -> vec4<f32> {
    var four = vec4<f32>(bitcast<f32>(params.negative_infinity));
#ifdef FOUR
    let i = part * WORKGROUP + local;
    if i < params.n / 4u {
        four = x[start / 4u + i];
    }
#else
    for (var k = 0u; k < 4u; k++) {
        let i = (part * 4u + k) * WORKGROUP + local;
        if i < params.n {
            four[k] = x[start + i * params.inner];
        }
    }
#endif
    return four;
}

fn write_four(start: u32, part: u32, local: u32, four: vec4<f32>, total: Sum) {
    let results = vec4<f32>(result(four.x, total), result(four.y, total), result(four.z, total), result(four.w, total));
#ifdef FOUR
    let i = part * WORKGROUP + local;
    if i < params.n / 4u {
        out[start / 4u + i] = results;
    }
#else
    for (var k = 0u; k < 4u; k++) {
        let i = (part * 4u + k) * WORKGROUP + local;
        if i < params.n {
            out[start + i * params.inner] = results[k];
        }
    }
#endif
}

fn with_four(total: Sum, four: vec4<f32>) -> Sum {
    let largest = max(total.largest, max(max(four.x, four.y), max(four.z, four.w)));
    let powers = vec4<f32>(power(four.x - largest), power(four.y - largest), power(four.z - largest), power(four.w - largest));
    let sum = total.sum * power(total.largest - largest) + ((powers.x + powers.y) + (powers.z + powers.w));
    let is_poisoned = total.sum < 0.0 || poisons(four.x) || poisons(four.y) || poisons(four.z) || poisons(four.w);
    return Sum(largest, select(sum, -1.0, is_poisoned));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let line = group.y * groups.x + group.x;
    if line >= params.lines {
        return;
    }
    let start = start_of(line);
    var total = Sum(LOWEST, 0.0);
#ifdef HELD
    // By name and not in an array, which not every compiler keeps in registers.
    let first = read_four(start, 0u, local);
    var second = first;
    var third = first;
    var fourth = first;
    if PARTS > 1u {
        second = read_four(start, 1u, local);
    }
    if PARTS > 2u {
        third = read_four(start, 2u, local);
    }
    if PARTS > 3u {
        fourth = read_four(start, 3u, local);
    }
    total = with_four(total, first);
    if PARTS > 1u {
        total = with_four(total, second);
    }
    if PARTS > 2u {
        total = with_four(total, third);
    }
    if PARTS > 3u {
        total = with_four(total, fourth);
    }
    total = over_workgroup(total, local);
    write_four(start, 0u, local, first, total);
    if PARTS > 1u {
        write_four(start, 1u, local, second, total);
    }
    if PARTS > 2u {
        write_four(start, 2u, local, third, total);
    }
    if PARTS > 3u {
        write_four(start, 3u, local, fourth, total);
    }
#else
    let parts = (params.n + 4u * WORKGROUP - 1u) / (4u * WORKGROUP);
    for (var part = 0u; part < parts; part++) {
        total = with_four(total, read_four(start, part, local));
    }
    total = over_workgroup(total, local);
    for (var part = 0u; part < parts; part++) {
        write_four(start, part, local, read_four(start, part, local), total);
    }
#endif
}
#endif
