// Sums over a workgroup of 256 of each invocation's tally: a count, and a mass in two words. Each word is stored whole. Between two
// calls there must be a barrier.
var<workgroup> tallies: array<vec4<u32>, 256>;
var<workgroup> rows: array<vec4<u32>, 16>;

fn tally_sum(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
    let low = a.y + b.y;
    return vec4<u32>(a.x + b.x, low, a.z + b.z + u32(low < a.y), 0u);
}

// The sum of all invocations before this one.
fn tally_before(own: vec4<u32>, local: u32) -> vec4<u32> {
    tallies[local] = own;
    workgroupBarrier();
    if local < 16u {
        var row = vec4<u32>(0u);
        for (var i = 0u; i < 16u; i++) {
            row = tally_sum(row, tallies[local * 16u + i]);
        }
        rows[local] = row;
    }
    workgroupBarrier();
    var sum = vec4<u32>(0u);
    for (var row = 0u; row < local / 16u; row++) {
        sum = tally_sum(sum, rows[row]);
    }
    for (var i = local & 0xf0u; i < local; i++) {
        sum = tally_sum(sum, tallies[i]);
    }
    return sum;
}

// After `tally_before`: the sum of all.
fn tally_total() -> vec4<u32> {
    var sum = vec4<u32>(0u);
    for (var row = 0u; row < 16u; row++) {
        sum = tally_sum(sum, rows[row]);
    }
    return sum;
}
