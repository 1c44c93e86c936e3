// The attention of a token, merged from the splits of `attention_split`. The kernel defines `params.blocks` and `params.head_dim`.
#import "splits"

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> totals: array<vec2<f32>>;
#ifdef SINKS
@group(0) @binding(SINKS_BINDING) var<storage, read> sinks: array<f32>;
#endif

// Four columns of the attention's output, which are those of one head: the average over the splits that have positions.
fn merged(vector: u32, splits: u32) -> vec4<f32> {
    let column = vector % params.blocks * 32u + vector / params.blocks * 4u;
    let head = column / params.head_dim;
    let vectors = params.blocks * 8u;
    var largest = totals[head].x;
    for (var s = 1u; s < SPLITS; s++) {
        if s < splits {
            largest = max(largest, totals[s * HEADS + head].x);
        }
    }
    var sum = vec4<f32>(0.0);
    var total = 0.0;
#ifdef SINKS
    // As one more position whose value is zero.
    largest = max(largest, sinks[head]);
    total = exp(sinks[head] - largest);
#endif
    for (var s = 0u; s < SPLITS; s++) {
        if s < splits {
            let split = totals[s * HEADS + head];
            let weight = exp(split.x - largest);
            total += weight * split.y;
            sum += weight * sums[s * vectors + vector];
        }
    }
    return sum / total;
}
