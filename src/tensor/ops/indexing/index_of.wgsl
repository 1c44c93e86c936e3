// The element that an index means, of `n`; n or more where there is none. Signed, −1 is the last. What lies before the first wraps
// around to far beyond the last.
fn index_of(index: u32, n: u32) -> u32 {
#ifdef SIGNED
    return select(index, index + n, index >= 0x80000000u);
#else
    return index;
#endif
}
