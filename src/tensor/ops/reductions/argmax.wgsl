// A workgroup finds one row's largest element.
struct Params { columns: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

const NAN = 0xffffffffu;

var<workgroup> best_values: array<f32, WORKGROUP>;
var<workgroup> best_columns: array<u32, WORKGROUP>;

struct Best { value: f32, column: u32 }

// NaN beats everything; by its bits, because compilers may assume that x == x.
fn better(best: Best, value: f32, column: u32) -> Best {
    if best.column == NAN || (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u {
        return Best(0.0, NAN);
    }
    if value > best.value || (value == best.value && column < best.column) {
        return Best(value, column);
    }
    return best;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let start = group.x * params.columns;
    let last = params.columns - 1u;
    // Invocations without a column of their own begin with the last one, which another invocation reads too.
    var best = better(Best(x[start + min(local, last)], min(local, last)), x[start + min(local, last)], min(local, last));
    for (var first = local; first <= last; first += 8u * WORKGROUP) {
        // Eight reads that do not wait for each other. Those past the end repeat the last column.
        let low = min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u) * WORKGROUP, vec4<u32>(last));
        let high = min(vec4<u32>(first) + vec4<u32>(4u, 5u, 6u, 7u) * WORKGROUP, vec4<u32>(last));
        let a = vec4<f32>(x[start + low.x], x[start + low.y], x[start + low.z], x[start + low.w]);
        let b = vec4<f32>(x[start + high.x], x[start + high.y], x[start + high.z], x[start + high.w]);
        best = better(best, a.x, low.x);
        best = better(best, a.y, low.y);
        best = better(best, a.z, low.z);
        best = better(best, a.w, low.w);
        best = better(best, b.x, high.x);
        best = better(best, b.y, high.y);
        best = better(best, b.z, high.z);
        best = better(best, b.w, high.w);
    }
    best_values[local] = best.value;
    best_columns[local] = best.column;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step {
            var both = better(Best(best_values[local], best_columns[local]), best_values[local + step], best_columns[local + step]);
            if best_columns[local + step] == NAN {
                both = Best(0.0, NAN);
            }
            best_values[local] = both.value;
            best_columns[local] = both.column;
        }
    }
    if local == 0u {
        // If there is only -inf, there is no choice either.
        out[group.x] = select(best_columns[0], NAN, bitcast<u32>(best_values[0]) >= 0xff7fffffu);
    }
}
