// A workgroup takes one token, one head, and some of its outputs. The head's numbers are in workgroup memory, filled up with zeros to whole
// blocks.
#import "weight"

struct Params {
    // Pairs of a token and a head of the weight.
    items: u32, heads: u32, first_head: u32, heads_here: u32,
    // Numbers of a head of x, and how many of them count.
    of_head: u32, columns: u32,
    // Outputs of a head, and the blocks of a row of the weight.
    rows: u32, blocks: u32,
    of_out_head: u32, out_first: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

var<workgroup> numbers: array<vec4<f32>, VECTORS>;
#ifdef TRANSPOSED
// Of each invocation.
var<workgroup> sums: array<vec4<f32>, 512>;
#endif

fn number(first: u32, column: u32) -> f32 {
    if column < params.columns {
        return x[first + column];
    }
    return 0.0;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.z * groups.y + group.y;
    // The grid can be a little larger than the items; such a workgroup repeats the last one and writes nothing.
    let item = min(id, params.items - 1u);
    let head_here = item % params.heads_here;
    let head = item / params.heads_here * params.heads + params.first_head + head_here;
    let first = head * params.of_head;
    for (var i = local; i < VECTORS; i += 64u) {
        let column = 4u * i;
        numbers[i] = vec4<f32>(number(first, column), number(first, column + 1u), number(first, column + 2u), number(first, column + 3u));
    }
    workgroupBarrier();
    let to = head * params.of_out_head + params.out_first;
#ifdef TRANSPOSED
    // Outputs of one block, as far as they come from every SHARES-th column.
    let block = group.x * BLOCKS + local % BLOCKS;
    var sum: array<vec4<f32>, 8>;
    if block < params.blocks {
        for (var column = local / BLOCKS; column < params.columns; column += SHARES) {
            let weights = load_block((head_here * params.columns + column) * params.blocks + block);
            let factor = numbers[column / 4u][column % 4u];
            sum[0] += weights.v0 * factor;
            sum[1] += weights.v1 * factor;
            sum[2] += weights.v2 * factor;
            sum[3] += weights.v3 * factor;
            sum[4] += weights.v4 * factor;
            sum[5] += weights.v5 * factor;
            sum[6] += weights.v6 * factor;
            sum[7] += weights.v7 * factor;
        }
    }
    for (var i = 0u; i < 8u; i++) {
        sums[local * 8u + i] = sum[i];
    }
    workgroupBarrier();
    for (var i = local; i < BLOCKS * 32u; i += 64u) {
        var total = 0.0;
        for (var share = 0u; share < SHARES; share++) {
            total += sums[(share * BLOCKS + i / 32u) * 8u + i % 32u / 4u][i % 4u];
        }
        let row = group.x * BLOCKS * 32u + i;
        if row < params.rows && id < params.items {
            out[to + row] = total;
        }
    }
#else
    let row = group.x * 64u + local;
    if row < params.rows && id < params.items {
        let start = (head_here * params.rows + row) * params.blocks;
        var total = 0.0;
        for (var block = 0u; block < params.blocks; block++) {
            let at = block * 8u;
            let here = Block(
                numbers[at], numbers[at + 1u], numbers[at + 2u], numbers[at + 3u],
                numbers[at + 4u], numbers[at + 5u], numbers[at + 6u], numbers[at + 7u],
            );
            total += dot_blocks(load_block(start + block), here);
        }
        out[to + row] = total;
    }
#endif
}
