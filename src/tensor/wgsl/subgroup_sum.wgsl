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

// A team has TEAM invocations: one or more such groups of lanes. With more than one, the sum over a team goes through workgroup
// memory; calls without a barrier between them need different slots, 0 or 1.
#ifdef TEAMS_OF_LANES
var<workgroup> team_sums: array<vec4<f32>, 2u * WORKGROUP / LANES>;

fn sum_over_team(value: vec4<f32>, local: u32, slot: u32) -> vec4<f32> {
    let lanes_sum = sum_over_lanes(value, local);
    let first = slot * (WORKGROUP / LANES);
    if local % LANES == 0u {
        team_sums[first + local / LANES] = lanes_sum;
    }
    workgroupBarrier();
    let team = first + local / TEAM * (TEAM / LANES);
    var sum = team_sums[team];
    for (var i = 1u; i < TEAM / LANES; i++) {
        sum += team_sums[team + i];
    }
    return sum;
}
#else
fn sum_over_team(value: vec4<f32>, local: u32, slot: u32) -> vec4<f32> {
    return sum_over_lanes(value, local);
}
#endif
