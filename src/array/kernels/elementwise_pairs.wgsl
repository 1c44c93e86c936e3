// Two elements of 16 bits an invocation, which share a word.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let word = (group.y * groups.x + group.x) * 64u + local;
    let i = word * 2u;
    if i < elements() {
        var high = 0u;
        if i + 1u < elements() {
            high = bits_of(value_at(i + 1u));
        }
        out[word] = bits_of(value_at(i)) | (high << 16u);
    }
}
