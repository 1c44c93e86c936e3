// What a chosen token does: it goes to where the next step reads its input and to the ring that is read back, and the state of
// its sequence moves on. A sequence that has stopped stays as it is, whatever runs ahead of its end.
//
// The kernel binds `settings` [rows, WORDS], `state` [rows, 4] (position, step, whether it has stopped), `next_token` [rows] and
// `ring` [rows, params.ring], and defines `params.advance`. `truncation.rs` says the same.
const LAST_STEP: u32 = 7u;
const CHOICE: u32 = 8u;
const STOPS: u32 = 9u;

// What `CHOICE` may say; 0 is any. `own` is the choice that the kernel makes.
const WHOLE: u32 = 1u;
const TRUNCATED: u32 = 2u;
const BANDED: u32 = 3u;

fn advance(row: u32, token: u32, own: u32) {
    let at = row * 4u;
    let settings_at = row * WORDS;
    let wanted = settings[settings_at + CHOICE];
    if state[at + 2u] != 0u || (wanted != 0u && wanted != own) {
        return;
    }
    let step = state[at + 1u];
    next_token[row] = token;
    ring[row * params.ring + step % params.ring] = token;
    state[at] += params.advance;
    state[at + 1u] = step + 1u;
    // All ones says NaN.
    var stops = token == 0xffffffffu || step + 1u >= settings[settings_at + LAST_STEP];
    for (var i = STOPS; i < WORDS; i++) {
        stops = stops || settings[settings_at + i] == token;
    }
    state[at + 2u] = u32(stops);
}
