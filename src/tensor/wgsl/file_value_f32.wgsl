// Element `index` of a file of f32.
fn file_value(index: u32) -> f32 {
    return bitcast<f32>(file[index]);
}
