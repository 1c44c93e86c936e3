// The effect of a chosen token: it goes to the input of the next step and to the ring that is read back, and its sequence's state
// is updated. A sequence that has stopped is not changed by steps past its end.
//
// The kernel binds `settings` [rows], `state` [rows, 4] (position, step, whether it has stopped), `next_token` [rows] and
// `ring` [rows, params.ring], and defines `params.advance`. `truncation.rs` computes the same. `own` is the path of the kernel.
#import "sampler_paths"

fn advance(row: u32, token: u32, own: u32) {
    let at = row * 4u;
    let wanted = settings[row].path;
    if state[at + 2u] != 0u || (wanted != ANY && wanted != own) {
        return;
    }
    let step = state[at + 1u];
    next_token[row] = token;
    ring[row * params.ring + step % params.ring] = token;
    state[at] += params.advance;
    state[at + 1u] = step + 1u;
    // All ones means NaN.
    var stops = token == 0xffffffffu || step + 1u >= settings[row].last_step;
    for (var i = 0u; i < MAX_STOPS; i++) {
        stops = stops || settings[row].stops[i] == token;
    }
    state[at + 2u] = u32(stops);
}
