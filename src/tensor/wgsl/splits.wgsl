// How the positions of a context are divided: into splits of whole tiles, at most the given number. Splits without positions are
// at the end.
fn positions_per_split(length: u32, splits: u32, tile: u32) -> u32 {
    let tiles = (length + tile - 1u) / tile;
    return (tiles + splits - 1u) / splits * tile;
}

// The number of splits with positions.
fn splits_of(length: u32, splits: u32, tile: u32) -> u32 {
    let positions = positions_per_split(length, splits, tile);
    return (length + positions - 1u) / positions;
}
