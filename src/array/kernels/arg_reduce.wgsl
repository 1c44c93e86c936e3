// The first place of the extreme element of a line, an invocation. NaN counts as more extreme than every number.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= elements() {
        return;
    }
    locate(i);
    var best = value_at(0u);
    var place = 0u;
    for (var at = 1u; at < line_length(); at++) {
        let value = value_at(at);
        if surpasses(value, best) {
            best = value;
            place = at;
        }
    }
    out[i] = i32(place);
}
