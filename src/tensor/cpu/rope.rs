//! Rotary positions.

/// The sines and cosines of a position's angles, one for each pair.
pub struct Angles(Vec<(f32, f32)>);

impl Angles {
    /// Of the position; both times `scale`.
    pub fn new(position: usize, frequencies: &[f32], scale: f32) -> Self {
        let scale = f64::from(scale);
        let of = |frequency: &f32| {
            let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
            ((sin * scale) as f32, (cos * scale) as f32)
        };
        Self(frequencies.iter().map(of).collect())
    }

    /// Turns the pairs of a head: neighbours (2i, 2i + 1), or (i, i + pairs).
    pub fn turn(&self, head: &mut [f32], interleaved: bool) {
        let pairs = self.0.len();
        for (i, (sin, cos)) in self.0.iter().enumerate() {
            let (a, b) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + pairs) };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos - y * sin;
            head[b] = x * sin + y * cos;
        }
    }
}
