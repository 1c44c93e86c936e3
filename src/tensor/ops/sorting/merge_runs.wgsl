// An invocation finds the places of four elements, a workgroup's width apart.
struct Params { elements: u32, columns: u32, run: u32, keep: u32 }

@group(0) @binding(0) var<storage, read> keys: array<u32>;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read_write> out_keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> out_indices: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

// How many of the sorted keys from `first` to `end` come before this one; those that are equal only `with_equal`.
fn count_before(key: u32, with_equal: bool, first: u32, end: u32) -> u32 {
    var low = first;
    var high = end;
    while low < high {
        let middle = low + (high - low) / 2u;
        let other = keys[middle];
        if other < key || (with_equal && other == key) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low - first;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first = (group.y * groups.x + group.x) * 256u + local;
    for (var at = first; at < min(first + 256u, params.elements); at += 64u) {
        let column = at % params.columns;
        let row = at - column;
        // The two runs: from start to middle, and from there to the end. The second may be short, or empty.
        let start = column - column % (2u * params.run);
        let middle = min(start + params.run, params.columns);
        let end = min(middle + params.run, params.columns);
        let key = keys[at];
        var place = column;
        if column < middle {
            place += count_before(key, false, row + middle, row + end);
        } else {
            place += count_before(key, true, row + start, row + middle) - (middle - start);
        }
        if place < params.keep {
            let to = at / params.columns * params.keep + place;
            out_keys[to] = key;
            out_indices[to] = indices[at];
        }
    }
}
