//! Shaders as they are in the program: their files without comments and indents, which would be a quarter of what a page downloads of
//! them.

/// The text of a WGSL file without comments and indents. Its lines keep their numbers.
#[cfg(not(all(feature = "cpu", target_arch = "wasm32")))]
#[macro_export]
macro_rules! shader {
    ($file:literal) => {{
        const TEXT: &str = include_str!($file);
        const LENGTH: usize = $crate::gpu::without_comments::<0>(TEXT).1;
        const BYTES: [u8; LENGTH] = $crate::gpu::without_comments::<LENGTH>(TEXT).0;
        const SHADER: &str = match ::core::str::from_utf8(&BYTES) {
            Ok(text) => text,
            Err(_) => panic!("a comment cut a character"),
        };
        SHADER
    }};
}

/// The wasm of the CPU runs no shaders, and so has none.
#[cfg(all(feature = "cpu", target_arch = "wasm32"))]
#[macro_export]
macro_rules! shader {
    ($file:literal) => {
        ""
    };
}

/// The first bytes of a text without `//` and what follows on its line, and without blanks at both ends of lines; and how many bytes
/// there are.
pub const fn without_comments<const N: usize>(text: &str) -> ([u8; N], usize) {
    let text = text.as_bytes();
    let mut bytes = [0; N];
    let (mut at, mut length, mut blanks, mut in_comment, mut last) = (0, 0, 0, false, b'\n');
    while at < text.len() {
        let byte = text[at];
        in_comment = byte != b'\n' && (in_comment || (byte == b'/' && at + 1 < text.len() && text[at + 1] == b'/'));
        if byte == b' ' && !in_comment {
            blanks += 1;
        } else if !in_comment {
            // Blanks are only written between something and something else.
            let is_at_an_end = last == b'\n' || byte == b'\n';
            while blanks > 0 {
                if !is_at_an_end {
                    if length < N {
                        bytes[length] = b' ';
                    }
                    length += 1;
                }
                blanks -= 1;
            }
            last = byte;
            if length < N {
                bytes[length] = byte;
            }
            length += 1;
        }
        at += 1;
    }
    (bytes, length)
}

#[cfg(test)]
mod tests {
    use super::without_comments;

    fn stripped(text: &str) -> String {
        let (bytes, length) = without_comments::<100>(text);
        assert_eq!(without_comments::<0>(text).1, length);
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn comments_and_blanks_at_both_ends_of_lines_are_left_out() {
        for (text, wanted) in [
            ("", ""),
            ("a / b // c\n// é\n  d  //\n", "a / b\n\nd\n"),
            ("a  \n\n b  c//c", "a\n\nb  c"),
            ("x /", "x /"),
            ("//", ""),
            ("é // é", "é"),
        ] {
            assert_eq!(stripped(text), wanted, "{text:?}");
        }
    }
}
