struct Params { elements: u32, steps: u32, run: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

fn product(i: u32) -> f32 {
    if i >= params.elements {
        return 0.0;
    }
    return x[i] * y[i];
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    var sum = vec4<f32>(0.0);
    for (var long = 0u; long < params.steps; long += params.run * params.run) {
        let long_end = min(long + params.run * params.run, params.steps);
        var long_sum = vec4<f32>(0.0);
        for (var short = long; short < long_end; short += params.run) {
            let short_end = min(short + params.run, long_end);
            var short_sum = vec4<f32>(0.0);
            for (var step = short; step < short_end; step++) {
                let i = step * 4u * WORKGROUP + local;
                short_sum += vec4<f32>(
                    product(i), product(i + WORKGROUP), product(i + 2u * WORKGROUP), product(i + 3u * WORKGROUP),
                );
            }
            long_sum += short_sum;
        }
        sum += long_sum;
    }
    let total = sum_over_lanes(sum, local);
    if local == 0u {
        out[0] = (total.x + total.y) + (total.z + total.w);
    }
}
