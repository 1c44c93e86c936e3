// Element `index` of a file of bf16.
fn file_value(index: u32) -> f32 {
    return bitcast<f32>(half_at(index * 2u) << 16u);
}
