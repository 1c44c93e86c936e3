// Where the tokens of a pass are: consecutive in one sequence, whose state is [4], or, with the flag SEQUENCES, each in a sequence of
// its own, with a state [tokens, 4] and a cache [sequences, capacity, …]. A state is the position of the first token, the step,
// whether the sequence has stopped, and its index in the cache.
//
// The kernel binds `state` and defines `params.capacity`.
fn position_of(token: u32) -> u32 {
#ifdef SEQUENCES
    return state[token * 4u];
#else
    return state[0] + token;
#endif
}

fn has_stopped(token: u32) -> bool {
#ifdef SEQUENCES
    return state[token * 4u + 2u] != 0u;
#else
    return state[2] != 0u;
#endif
}

// The positions that a token attends to: none if its sequence has stopped.
fn length_of(token: u32) -> u32 {
    return select(min(position_of(token) + 1u, params.capacity), 0u, has_stopped(token));
}

// The row of the cache at which a token's sequence begins.
fn first_row_of(token: u32) -> u32 {
#ifdef SEQUENCES
    return state[token * 4u + 3u] * params.capacity;
#else
    return 0u;
#endif
}
