//! What is left of files.

use rillm_shader_text::shader_text;

/// Hands a name on, as macros of kernels do.
macro_rules! through {
    ($name:literal) => {
        shader_text!($name)
    };
}

#[test]
fn comments_and_blanks_at_both_ends_of_lines_are_left_out() {
    const ODD: &str = shader_text!("files/odd.wgsl");
    assert_eq!(ODD, "\na / b\n\n\né(\"x\")\n\td;\n\nx  y\n/ 1 /");
    assert_eq!(ODD.lines().count(), include_str!("files/odd.wgsl").lines().count());
    assert_eq!(through!("files/odd.wgsl"), ODD);
    assert_eq!(shader_text!("files/empty.wgsl"), "");
}
