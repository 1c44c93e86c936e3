// A part of a line a workgroup, whose invocations take elements side by side.
var<workgroup> sums: array<Value, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = group.y * groups.x + group.x;
    if i >= elements() {
        return;
    }
    let outputs = elements() / parts();
    locate(i % outputs);
    let first = (i / outputs) * part_length();
    let end = min(first + part_length(), line_length());
    var sum = start();
    for (var at = first + local; at < end; at += WORKGROUP) {
        sum = combine(sum, value_at(at));
    }
    sums[local] = sum;
    for (var width = WORKGROUP / 2u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if local < width {
            sums[local] = combine(sums[local], sums[local + width]);
        }
    }
    if local == 0u {
        store(i, finish(sums[0]));
    }
}
