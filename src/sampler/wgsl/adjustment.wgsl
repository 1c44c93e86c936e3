// Tokens of a text with those of this step; 0 past the end of the history.
fn length_of(position: u32, advance: u32, capacity: u32) -> u32 {
    let length = position + advance;
    return select(length, 0u, length > capacity);
}
