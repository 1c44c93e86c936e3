// The lane of each invocation of a workgroup in its subgroup.
#require subgroups

@group(0) @binding(0) var<storage, read_write> lanes: array<u32>;

@compute @workgroup_size(64)
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
) {
    lanes[local * 2u] = lane;
    lanes[local * 2u + 1u] = size;
}
