// The same, a workgroup.
var<workgroup> values: array<Value, WORKGROUP>;
var<workgroup> places: array<u32, WORKGROUP>;

// Of equals the first; an invocation without elements has no place.
fn takes(value: Value, place: u32, best: Value, best_place: u32) -> bool {
    if place == 0xffffffffu {
        return false;
    }
    return best_place == 0xffffffffu || surpasses(value, best) || (!surpasses(best, value) && place < best_place);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = group.y * groups.x + group.x;
    if i >= elements() {
        return;
    }
    locate(i);
    var best = value_at(0u);
    var place = 0xffffffffu;
    for (var at = local; at < line_length(); at += WORKGROUP) {
        let value = value_at(at);
        if takes(value, at, best, place) {
            best = value;
            place = at;
        }
    }
    values[local] = best;
    places[local] = place;
    for (var width = WORKGROUP / 2u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if local < width && takes(values[local + width], places[local + width], values[local], places[local]) {
            values[local] = values[local + width];
            places[local] = places[local + width];
        }
    }
    if local == 0u {
        out[i] = i32(places[0]);
    }
}
