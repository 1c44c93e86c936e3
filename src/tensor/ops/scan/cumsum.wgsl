// A line is a part of a row: `block` elements of it, or what is left. Its sums begin at 0.
struct Params { lines: u32, n: u32, inner: u32, block: u32, blocks: u32 }

#ifdef INTEGERS
alias Number = u32;
#else
alias Number = f32;
#endif

@group(0) @binding(0) var<storage, read> x: array<Number>;
@group(0) @binding(1) var<storage, read_write> out: array<Number>;
#ifdef SUMS
@group(0) @binding(2) var<storage, read_write> sums: array<Number>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

// Where a line begins within its row.
fn first_of(line: u32) -> u32 {
    return line / params.inner % params.blocks * params.block;
}

// The first element of a line, whose others are `inner` apart.
fn start_of(line: u32, first: u32) -> u32 {
    return (line / params.inner / params.blocks * params.n + first) * params.inner + line % params.inner;
}

#ifdef LINES
// An invocation per line; neighbours read side by side, and there is no barrier.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let line = (group.y * groups.x + group.x) * 64u + local;
    if line >= params.lines {
        return;
    }
    let first = first_of(line);
    let count = min(params.block, params.n - first);
    let start = start_of(line, first);
    var sum = Number(0);
    // By stretches, so that errors of rounding grow slowly with the length.
    for (var stretch = 0u; stretch < count; stretch += 256u) {
        var part = Number(0);
        for (var i = stretch; i < min(stretch + 256u, count); i++) {
            let at = start + i * params.inner;
            part += x[at];
            out[at] = sum + part;
        }
        sum += part;
    }
#ifdef SUMS
    sums[line] = sum;
#endif
}
#else
// A workgroup per line, four elements for each invocation at a time.
const CHUNK = 4u * WORKGROUP;

var<workgroup> numbers: array<Number, CHUNK>;
var<workgroup> totals: array<Number, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let line = group.y * groups.x + group.x;
    if line >= params.lines {
        return;
    }
    let first = first_of(line);
    let count = min(params.block, params.n - first);
    let start = start_of(line, first);
    var before = Number(0);
    for (var chunk = 0u; chunk < count; chunk += CHUNK) {
        // Neighbours read side by side, then each takes four in a row.
        for (var i = local; i < CHUNK; i += WORKGROUP) {
            var number = Number(0);
            if chunk + i < count {
                number = x[start + (chunk + i) * params.inner];
            }
            numbers[i] = number;
        }
        workgroupBarrier();
        let a = numbers[4u * local];
        let b = a + numbers[4u * local + 1u];
        let c = b + numbers[4u * local + 2u];
        let d = c + numbers[4u * local + 3u];
        // The sums of the invocations, each with those before it (Hillis, Steele 1986).
        var sum = d;
        totals[local] = sum;
        for (var step = 1u; step < WORKGROUP; step *= 2u) {
            workgroupBarrier();
            var other = Number(0);
            if local >= step {
                other = totals[local - step];
            }
            workgroupBarrier();
            sum += other;
            totals[local] = sum;
        }
        workgroupBarrier();
        var others = before;
        if local > 0u {
            others += totals[local - 1u];
        }
        numbers[4u * local] = others + a;
        numbers[4u * local + 1u] = others + b;
        numbers[4u * local + 2u] = others + c;
        numbers[4u * local + 3u] = others + d;
        before += totals[WORKGROUP - 1u];
        workgroupBarrier();
        for (var i = local; i < CHUNK && chunk + i < count; i += WORKGROUP) {
            out[start + (chunk + i) * params.inner] = numbers[i];
        }
        // The next chunk is read to where this one is.
        workgroupBarrier();
    }
#ifdef SUMS
    if local == 0u {
        sums[line] = before;
    }
#endif
}
#endif
