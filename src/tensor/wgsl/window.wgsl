// The first position that a query sees; its own is the last of `length`. The kernel defines `params.window`.
fn window_begin(length: u32) -> u32 {
#ifdef WINDOW
    return max(length, params.window) - params.window;
#else
    return 0u;
#endif
}
