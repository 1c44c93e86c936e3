// A part of a line an invocation: `parts()` of them, each of `part_length()` elements, make up the line of an output. Neighbours are of neighbouring
// outputs, whose elements lie side by side where a line's don't.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= elements() {
        return;
    }
    let outputs = elements() / parts();
    locate(i % outputs);
    let first = (i / outputs) * part_length();
    let end = min(first + part_length(), line_length());
    var sum = start();
    for (var at = first; at < end; at++) {
        sum = combine(sum, value_at(at));
    }
    store(i, finish(sum));
}
