// A workgroup of 128 invocations computes a tile of ROWS output channels of one group × 64 positions of the output, each invocation
// a part of 4 positions and an eighth of the channels. The product runs over the depth: the elements of a window, that is channels,
// kernel rows and kernel columns. 16 of them of both operands are in workgroup memory, as words of four, and the next 16 are on
// their way in registers meanwhile.
#import "conv2d_tensors"
#import "numbers"

// With FOUR, the depth is a multiple of four.
@group(0) @binding(1) var<storage, read> weight: array<Number>;

const TILE = 64u;
const DEPTH_WORDS = 4u;
const KERNEL = KERNEL_H * KERNEL_W;
#ifdef ROWS_64
const ROWS = 64u;
#else
const ROWS = 32u;
#endif

var<workgroup> x_words: array<vec4<f32>, DEPTH_WORDS * TILE>;
var<workgroup> w_words: array<vec4<f32>, DEPTH_WORDS * ROWS>;

// Words stored or read at once are in different banks.
fn x_place(word: u32, item: u32) -> u32 {
    return word * TILE + (item ^ (2u * word));
}

fn w_place(word: u32, item: u32) -> u32 {
    return word * ROWS + (item ^ (2u * word));
}

// Where the window of an output position begins: the first number of its image's channels in the group, its row and its column.
struct Window { first: u32, y: u32, x: u32 }

fn window_of(position: u32, group: u32) -> Window {
    let plane = params.out_height * params.out_width;
    let place = position % plane;
    let first = (position / plane * params.channels + group * params.group_channels) * params.height * params.width;
    // In the padding before the input they are negative, which as u32 is past its end.
    let y = place / params.out_width * params.stride_y - params.padding_y;
    let x = place % params.out_width * params.stride_x - params.padding_x;
    return Window(first, y, x);
}

fn load_x(window: Window, depth: u32, k: u32) -> f32 {
    let y = window.y + k % KERNEL / KERNEL_W * params.dilation_y;
    let column = window.x + k % KERNEL_W * params.dilation_x;
    let inside = k < depth && y < params.height && column < params.width;
    let at = window.first + (k / KERNEL * params.height + y) * params.width + column;
    return select(0.0, x[select(0u, at, inside)], inside);
}

fn load_x_word(window: Window, depth: u32, word: u32) -> vec4<f32> {
    let k = 4u * word;
    return vec4<f32>(
        load_x(window, depth, k), load_x(window, depth, k + 1u),
        load_x(window, depth, k + 2u), load_x(window, depth, k + 3u),
    );
}

#ifdef FOUR
fn load_weight_word(row: u32, depth: u32, word: u32) -> vec4<f32> {
    let inside = 4u * word < depth;
    return select(vec4<f32>(0.0), weight[select(0u, row * (depth / 4u) + word, inside)], inside);
}
#else
fn load_weight(row: u32, depth: u32, k: u32) -> f32 {
    let inside = k < depth;
    return select(0.0, weight[select(0u, row * depth + k, inside)], inside);
}

fn load_weight_word(row: u32, depth: u32, word: u32) -> vec4<f32> {
    let k = 4u * word;
    return vec4<f32>(
        load_weight(row, depth, k), load_weight(row, depth, k + 1u),
        load_weight(row, depth, k + 2u), load_weight(row, depth, k + 3u),
    );
}
#endif

// Four elements of the depth, of one channel times four positions.
fn products(sum: vec4<f32>, w: vec4<f32>, x0: vec4<f32>, x1: vec4<f32>, x2: vec4<f32>, x3: vec4<f32>) -> vec4<f32> {
    var result = fma(vec4<f32>(w.x), vec4<f32>(x0.x, x1.x, x2.x, x3.x), sum);
    result = fma(vec4<f32>(w.y), vec4<f32>(x0.y, x1.y, x2.y, x3.y), result);
    result = fma(vec4<f32>(w.z), vec4<f32>(x0.z, x1.z, x2.z, x3.z), result);
    return fma(vec4<f32>(w.w), vec4<f32>(x0.w, x1.w, x2.w, x3.w), result);
}

fn store4(group: u32, row: u32, position: u32, values: vec4<f32>) {
    store(group, row, position, values.x);
    store(group, row, position + 16u, values.y);
    store(group, row, position + 32u, values.z);
    store(group, row, position + 48u, values.w);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // Tiles of channels are the fastest index: those that share windows run at the same time.
    let tile = id.y * grid.x + id.x;
    let row_tiles = (params.rows + ROWS - 1u) / ROWS;
    let group = tile / row_tiles % params.groups;
    let first_row = tile % row_tiles * ROWS;
    let first_position = tile / row_tiles / params.groups * TILE;
    let positions = params.images * params.out_height * params.out_width;
    if first_position >= positions {
        return;
    }
    // 32 neighbouring invocations take 8 positions × 4 channels, so that they read few words at once.
    let position = (local & 7u) | ((local >> 2u) & 8u);
    let row = ((local >> 3u) & 3u) | ((local >> 6u) << 2u);

    // This invocation loads words of one position, and a word of some channels. Positions and channels past the end repeat the
    // last one; only `store` leaves them out.
    let depth = params.group_channels * KERNEL;
    let window = window_of(min(first_position + local % TILE, positions - 1u), group);
    let x_word = local / TILE;
    let w_word = local % DEPTH_WORDS;
    let w_row = local / DEPTH_WORDS;
    let last_row = group * params.rows + params.rows - 1u;
    let source0 = min(group * params.rows + first_row + w_row, last_row);
    let source1 = min(group * params.rows + first_row + w_row + 32u, last_row);

    var out0 = vec4<f32>(0.0);
    var out1 = vec4<f32>(0.0);
    var out2 = vec4<f32>(0.0);
    var out3 = vec4<f32>(0.0);
#ifdef ROWS_64
    var out4 = vec4<f32>(0.0);
    var out5 = vec4<f32>(0.0);
    var out6 = vec4<f32>(0.0);
    var out7 = vec4<f32>(0.0);
    var next_w1 = load_weight_word(source1, depth, w_word);
#endif
    var next_w0 = load_weight_word(source0, depth, w_word);
    var next_x0 = load_x_word(window, depth, x_word);
    var next_x1 = load_x_word(window, depth, x_word + 2u);
    for (var first = 0u; 4u * first < depth; first += DEPTH_WORDS) {
        x_words[x_place(x_word, local % TILE)] = next_x0;
        x_words[x_place(x_word + 2u, local % TILE)] = next_x1;
        w_words[w_place(w_word, w_row)] = next_w0;
#ifdef ROWS_64
        w_words[w_place(w_word, w_row + 32u)] = next_w1;
#endif
        workgroupBarrier();
        let next = first + DEPTH_WORDS;
        next_x0 = load_x_word(window, depth, next + x_word);
        next_x1 = load_x_word(window, depth, next + x_word + 2u);
        next_w0 = load_weight_word(source0, depth, next + w_word);
#ifdef ROWS_64
        next_w1 = load_weight_word(source1, depth, next + w_word);
#endif
        for (var word = 0u; word < DEPTH_WORDS; word++) {
            let x_at = x_place(word, position);
            let x0 = x_words[x_at];
            let x1 = x_words[x_at + 16u];
            let x2 = x_words[x_at + 32u];
            let x3 = x_words[x_at + 48u];
            let w_at = w_place(word, row);
            out0 = products(out0, w_words[w_at], x0, x1, x2, x3);
            out1 = products(out1, w_words[w_at + 8u], x0, x1, x2, x3);
            out2 = products(out2, w_words[w_at + 16u], x0, x1, x2, x3);
            out3 = products(out3, w_words[w_at + 24u], x0, x1, x2, x3);
#ifdef ROWS_64
            out4 = products(out4, w_words[w_at + 32u], x0, x1, x2, x3);
            out5 = products(out5, w_words[w_at + 40u], x0, x1, x2, x3);
            out6 = products(out6, w_words[w_at + 48u], x0, x1, x2, x3);
            out7 = products(out7, w_words[w_at + 56u], x0, x1, x2, x3);
#endif
        }
        workgroupBarrier();
    }
    store4(group, first_row + row, first_position + position, out0);
    store4(group, first_row + row + 8u, first_position + position, out1);
    store4(group, first_row + row + 16u, first_position + position, out2);
    store4(group, first_row + row + 24u, first_position + position, out3);
#ifdef ROWS_64
    store4(group, first_row + row + 32u, first_position + position, out4);
    store4(group, first_row + row + 40u, first_position + position, out5);
    store4(group, first_row + row + 48u, first_position + position, out6);
    store4(group, first_row + row + 56u, first_position + position, out7);
#endif
}
