// The exact thresholds of truncated sampling, as `truncation.rs` describes. The kernel binds `logits`, `settings` and `border`, defines
// `params.vocabulary` and `params.mass_bits`, and imports "truncation" and "tally_sums". One workgroup of 256 to a row.

// Invocations that read one workgroup's part of the list.
const READERS: u32 = 256u / GROUPS;

var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> lows: array<atomic<u32>, 256>;
var<workgroup> highs: array<atomic<u32>, 256>;
// Entries of a short list, as it mostly is, one for each invocation: the key, and as a tally the entry itself, with its bin in w.
const FEW: u32 = 256u;
var<workgroup> few_count: atomic<u32>;
var<workgroup> few_keys: array<u32, FEW>;
var<workgroup> few_tallies: array<vec4<u32>, FEW>;
var<workgroup> cut_key: u32;
var<workgroup> cut_digit: u32;
var<workgroup> cut_above: vec4<u32>;
var<workgroup> cut_through: vec4<u32>;

// The candidates of this invocation: `at` goes from `start` to `end` in steps.
struct Walk { row: u32, whole: bool, start: u32, end: u32, stride: u32 }
// `whole`: the list was too short, so the whole vocabulary is read instead. `few`: the list fits workgroup memory.
struct List { whole: bool, few: bool }
struct Candidate { key: u32, token: u32, depth: u32, bin: u32 }

fn list_of(row: u32) -> List {
    var whole = false;
    var listed = 0u;
    for (var group = 0u; group < GROUPS; group++) {
        let count = border[row * BORDER + COUNTS + group];
        whole = whole || count > SEGMENT;
        listed += count;
    }
    return List(whole, !whole && listed <= FEW);
}

fn walk_of(row: u32, whole: bool, local: u32) -> Walk {
    if whole {
        return Walk(row, true, local, params.vocabulary, 256u);
    }
    let border_at = row * BORDER;
    let group = local / READERS;
    let start = border_at + LIST + group * SEGMENT * 2u;
    return Walk(row, false, start + (local % READERS) * 2u, start + border[border_at + COUNTS + group] * 2u, READERS * 2u);
}

fn candidate(walk: Walk, at: u32) -> Candidate {
    let border_at = walk.row * BORDER;
    var key = 0u;
    var token = at;
    if walk.whole {
        key = key_of(logits[walk.row * params.vocabulary + at]);
    } else {
        key = border[at];
        token = border[at + 1u];
    }
    let depth = depth_of(key, border[border_at + LARGEST], settings[walk.row].octaves);
    return Candidate(key, token, depth, select(depth >> border[border_at + SHIFT], NONE, depth >= REST));
}

// Puts a short list into workgroup memory, in any order: sums over it don't depend on that.
fn gather_few(walk: Walk) {
    for (var at = walk.start; at < walk.end; at += walk.stride) {
        let it = candidate(walk, at);
        let slot = atomicAdd(&few_count, 1u);
        few_keys[slot] = it.key;
        few_tallies[slot] = vec4<u32>(1u, weight_of(it.depth, params.mass_bits), it.bin);
    }
}

// The same result as `descend`, in a short list: each invocation compares its entry with all others. Sets `cut_key` and
// `cut_through`.
fn find_in_few(first: u32, last: u32, least_key: u32, above: vec4<u32>, wanted_count: u32, mass: f32, local: u32) {
    let count = atomicLoad(&few_count);
    if local >= count {
        return;
    }
    let own = few_keys[local];
    let own_bin = few_tallies[local].w;
    if own < least_key || own_bin < first || own_bin > last {
        return;
    }
    var before = above;
    var through = above;
    for (var i = 0u; i < count; i++) {
        let other = few_tallies[i];
        let key = few_keys[i];
        if key >= own && first <= other.w && other.w <= last {
            through = tally_sum(through, other);
            if key > own {
                before = tally_sum(before, other);
            }
        }
    }
    let by_count = before.x < wanted_count && wanted_count <= through.x;
    let by_mass = mass_as_float(before.yz) < mass && mass <= mass_as_float(through.yz);
    if by_count || by_mass {
        // Equal entries have the same result.
        cut_key = own;
        cut_through = through;
    }
}

// The key of the candidate in the bins `first` to `last`, counted from the largest, with which `wanted_count` candidates or
// a mass of `wanted_mass` is reached (whichever is not 0). Digit by digit of 8 bits; `above` counts from there on.
fn descend(walk: Walk, first: u32, last: u32, least_key: u32, above_first: vec4<u32>, wanted_count: u32, mass: f32, local: u32) -> u32 {
    var prefix = 0u;
    var above = above_first;
    for (var level = 0u; level < 4u; level++) {
        let shift = 24u - 8u * level;
        atomicStore(&counts[local], 0u);
        atomicStore(&lows[local], 0u);
        atomicStore(&highs[local], 0u);
        workgroupBarrier();
        for (var at = walk.start; at < walk.end; at += walk.stride) {
            let it = candidate(walk, at);
            let is_in = first <= it.bin && it.bin <= last && it.key >= least_key;
            if is_in && (level == 0u || (it.key >> ((shift + 8u) & 31u)) == prefix) {
                let place = 255u - ((it.key >> shift) & 255u);
                let weight = weight_of(it.depth, params.mass_bits);
                atomicAdd(&counts[place], 1u);
                let old = atomicAdd(&lows[place], weight.x);
                atomicAdd(&highs[place], weight.y + u32(old + weight.x < old));
            }
        }
        workgroupBarrier();
        let own = vec4<u32>(atomicLoad(&counts[local]), atomicLoad(&lows[local]), atomicLoad(&highs[local]), 0u);
        let before = tally_sum(above, tally_before(own, local));
        let through = tally_sum(before, own);
        let by_count = before.x < wanted_count && wanted_count <= through.x;
        let by_mass = mass_as_float(before.yz) < mass && mass <= mass_as_float(through.yz);
        if by_count || by_mass {
            cut_digit = 255u - local;
            cut_above = before;
            cut_through = through;
        }
        workgroupBarrier();
        prefix = (prefix << 8u) | cut_digit;
        above = cut_above;
    }
    return prefix;
}

// Called before all other functions of this module, with a barrier after it.
fn start_thresholds(local: u32) {
    if local == 0u {
        atomicStore(&few_count, 0u);
        cut_key = 0u;
        cut_digit = 0u;
        cut_above = vec4<u32>(0u);
        cut_through = vec4<u32>(0u);
    }
}

// The key from which on top_k and top_p keep, in the bins that they cut. A short list must be gathered before, with a barrier after it.
fn least_key_of(row: u32, few: bool, walk: Walk, local: u32) -> u32 {
    let border_at = row * BORDER;
    let k_bin = border[border_at + K_BIN];
    let first = border[border_at + P_FIRST];
    let last = border[border_at + P_LAST];
    var least_key = 0u;
    var mass = vec2<u32>(border[border_at + TOTAL], border[border_at + TOTAL + 1u]);
    // If a border bin is kept entirely, or has a single entry, there is nothing to find.
    let k_is_whole = (border[border_at + FLAGS] & K_IS_WHOLE) != 0u;
    if k_bin != NONE && k_is_whole {
        mass = vec2<u32>(border[border_at + K_THROUGH], border[border_at + K_THROUGH + 1u]);
    }
    let finds_k = k_bin != NONE && !k_is_whole;
    let finds_p = first != NONE && (border[border_at + FLAGS] & P_IS_SINGLE) == 0u;
    // First top_k, then top_p: a loop, because compilers inline the descent at each call.
    for (var threshold = 0u; threshold < 2u; threshold++) {
        let is_k = threshold == 0u;
        if (is_k && finds_k) || (!is_k && finds_p) {
            let at = select(P_ABOVE - 1u, K_ABOVE, is_k);
            let above = vec4<u32>(select(0u, border[border_at + K_ABOVE], is_k), border[border_at + at + 1u], border[border_at + at + 2u], 0u);
            let wanted_count = select(0u, settings[row].top_k, is_k);
            let wanted = select(wanted_mass(settings[row].top_p, mass), 0.0, is_k);
            let from_bin = select(first, k_bin, is_k);
            let to_bin = select(last, k_bin, is_k);
            if few {
                find_in_few(from_bin, to_bin, least_key, above, wanted_count, wanted, local);
                workgroupBarrier();
                least_key = max(least_key, cut_key);
            } else {
                least_key = max(least_key, descend(walk, from_bin, to_bin, least_key, above, wanted_count, wanted, local));
            }
            if is_k {
                mass = cut_through.yz;
            }
        }
    }
    return least_key;
}
