// Sums a vec4 over LANES neighbouring invocations; LANES is a power of two. With SUBGROUPS it is at most the subgroup's
// size, and a butterfly of shuffles needs no memory and no barrier; a plain `subgroupAdd` would sum over the whole
// subgroup. Without, LANES is the whole workgroup and the sum goes through workgroup memory.
#ifdef SUBGROUPS
#require subgroups

fn sum_over_lanes(value: vec4<f32>, local: u32) -> vec4<f32> {
    var sum = value;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        sum += subgroupShuffleXor(sum, step);
    }
    return sum;
}
#else
var<workgroup> lane_sums: array<vec4<f32>, WORKGROUP>;

fn sum_over_lanes(value: vec4<f32>, local: u32) -> vec4<f32> {
    lane_sums[local] = value;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step {
            lane_sums[local] += lane_sums[local + step];
        }
    }
    workgroupBarrier();
    let sum = lane_sums[0];
    // The next call writes while others may still read.
    workgroupBarrier();
    return sum;
}
#endif
