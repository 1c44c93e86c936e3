// The sum over a workgroup of 256 of each invocation's number, always in the same order.
var<workgroup> parts: array<f32, 256>;
var<workgroup> part_rows: array<f32, 16>;

fn workgroup_total(own: f32, local: u32) -> f32 {
    // Of a call before this one.
    workgroupBarrier();
    parts[local] = own;
    workgroupBarrier();
    if local < 16u {
        var sum = 0.0;
        for (var i = 0u; i < 16u; i++) {
            sum += parts[local * 16u + i];
        }
        part_rows[local] = sum;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < 16u; i++) {
        sum += part_rows[i];
    }
    return sum;
}
