// Element `index` of a file of f16.
fn file_value(index: u32) -> f32 {
    return f16_value(half_at(index * 2u));
}
