//! Rotary positions.

use rillm_cpu_kernels::{turn_halves, turn_neighbours};

/// The sines and cosines of a position's angles, one for each pair.
pub struct Angles {
    sines: Vec<f32>,
    cosines: Vec<f32>,
}

impl Angles {
    /// Of the position; both times `scale`.
    pub fn new(position: usize, frequencies: &[f32], scale: f32) -> Self {
        let scale = f64::from(scale);
        let of = |frequency: &f32| {
            let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
            ((sin * scale) as f32, (cos * scale) as f32)
        };
        let (sines, cosines) = frequencies.iter().map(of).unzip();
        Self { sines, cosines }
    }

    /// Turns the pairs of a head: neighbours (2i, 2i + 1), or (i, i + pairs).
    pub fn turn(&self, head: &mut [f32], interleaved: bool) {
        if interleaved {
            turn_neighbours(head, &self.sines, &self.cosines);
        } else {
            turn_halves(head, &self.sines, &self.cosines);
        }
    }
}
