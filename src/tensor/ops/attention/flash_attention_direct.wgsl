// For software adapters: each invocation takes a query of one head and goes over its keys, four at a time. Neighbours have the same
// head, and so read the same keys and values.
#import "flash_attention_tensors"

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let item = (id.y * grid.x + id.x) * 32u + local;
    if item >= params.batch * params.heads * params.q_len {
        return;
    }
    let token = item % params.q_len;
    let head = item / params.q_len % params.heads;
    let batch = item / params.q_len / params.heads;
    let vector = (batch * params.q_len + token) * params.heads + head;
    let first = batch * params.kv_len * params.kv_heads + head / (params.heads / params.kv_heads);

    var query: array<vec4<f32>, HEAD_WORDS>;
    var sums: array<vec4<f32>, HEAD_WORDS>;
    for (var word = 0u; word < HEAD_WORDS; word++) {
        query[word] = query_word(vector, word);
        sums[word] = vec4<f32>(0.0);
    }
    var largest = LOWEST;
    var total = 0.0;
    let seen = seen_by(token);
    for (var key = 0u; key < seen; key += 4u) {
        // Keys past the end repeat the last one, and get no weight.
        let keys = vec4<u32>(key) + vec4<u32>(0u, 1u, 2u, 3u);
        let is_there = keys < vec4<u32>(seen);
        let at = vec4<u32>(first) + min(keys, vec4<u32>(seen - 1u)) * params.kv_heads;
        var scores = vec4<f32>(0.0);
        for (var word = 0u; word < HEAD_WORDS; word++) {
            let x = query[word];
            scores += vec4<f32>(
                dot(x, key_word(at.x, word)), dot(x, key_word(at.y, word)),
                dot(x, key_word(at.z, word)), dot(x, key_word(at.w, word)),
            );
        }
        scores = select(vec4<f32>(LOWEST), scores, is_there);
        let before = largest;
        largest = max(largest, largest_of(scores));
        let keep = exp(before - largest);
        let weights = select(vec4<f32>(0.0), exp(scores - largest), is_there);
        total = total * keep + sum_of(weights);
        for (var word = 0u; word < HEAD_WORDS; word++) {
            sums[word] = sums[word] * keep
                + weights.x * value_word(at.x, word) + weights.y * value_word(at.y, word)
                + weights.z * value_word(at.z, word) + weights.w * value_word(at.w, word);
        }
    }
    let by = 1.0 / select(total, 1.0, seen == 0u);
    for (var word = 0u; word < HEAD_WORDS; word++) {
        store_word(vector, word, sums[word] * by);
    }
}
