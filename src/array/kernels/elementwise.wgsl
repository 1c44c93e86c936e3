// EACH elements an invocation, a workgroup apart: neighbours take what lies side by side.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first = (group.y * groups.x + group.x) * (64u * EACH) + local;
    for (var part = 0u; part < EACH; part++) {
        let i = first + part * 64u;
        if i < elements() {
            store(i, value_at(i));
        }
    }
}
