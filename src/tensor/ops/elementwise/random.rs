//! Uniform random numbers in [0, 1), by a hash of the seed and the element's number (pcg3d; Jarzynski, Olano 2020): one seed
//! gives the same numbers on every device, to the bit.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, Desc, HostTensor, Kernel, Op, Reference, Shape};

/// No inputs. Output: `shape`, multiples of 2^-24.
#[derive(Clone)]
pub struct Random {
    /// The shape of the output.
    pub shape: Shape,
    /// Equal seeds give equal numbers.
    pub seed: u64,
}

impl Op for Random {
    on_cpu!();

    fn name(&self) -> &'static str {
        "random"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("random", inputs, &[])?;
        Ok(vec![Desc::f32(self.shape.dims())])
    }

    fn kernel(&self, _: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = self.shape.elements();
        Ok(Kernel {
            template: crate::shader!("random.wgsl"),
            modules: &[("pcg3d", PCG3D)],
            defines: vec![],
            params: vec![n as u32, self.seed as u32, (self.seed >> 32) as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Random {
    fn reference(&self, _: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let numbers: Vec<f32> = (0..self.shape.elements() as u32)
            .map(|i| (pcg3d([i, self.seed as u32, (self.seed >> 32) as u32])[0] >> 8) as f32 / 16_777_216.0)
            .collect();
        Ok(vec![HostTensor::f32(self.shape.dims(), &numbers)])
    }
}

/// The module `pcg3d`.
pub const PCG3D: &str = crate::shader!("../../wgsl/pcg3d.wgsl");

/// The function of that module.
pub fn pcg3d(key: [u32; 3]) -> [u32; 3] {
    let [mut x, mut y, mut z] = key.map(|v| v.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    for round in 0..2 {
        x = x.wrapping_add(y.wrapping_mul(z));
        y = y.wrapping_add(z.wrapping_mul(x));
        z = z.wrapping_add(x.wrapping_mul(y));
        if round == 0 {
            (x, y, z) = (x ^ (x >> 16), y ^ (y >> 16), z ^ (z >> 16));
        }
    }
    [x, y, z]
}

pub fn cases() -> Vec<Case> {
    let shapes: [(&[usize], u64); 6] =
        [(&[1], 0), (&[37], 1), (&[13, 61], 7), (&[3, 5, 7, 11], u64::MAX), (&[257, 1031], 1 << 40), (&[5_000_011], 3)];
    shapes.iter().map(|&(dims, seed)| Case::new(Random { shape: Shape::new(dims), seed }, vec![], 0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u64, n: usize) -> Vec<f32> {
        let random = Random { shape: Shape::from([n]), seed };
        random.reference(&mut []).unwrap()[0].to_f32().unwrap()
    }

    /// Counts in 100 bins of [0, 1), of the numbers and of their differences to the one before (modulo 1).
    #[test]
    fn numbers_are_uniform_and_neighbours_independent() {
        let n = 100_000;
        for seed in [0, 1, 2, 1 << 32, u64::MAX] {
            let numbers = numbers(seed, n);
            let differences: Vec<f32> = numbers.windows(2).map(|pair| (pair[1] - pair[0]).rem_euclid(1.0)).collect();
            for sample in [&numbers, &differences] {
                let mut bins = [0usize; 100];
                for number in sample {
                    assert!((0.0..=1.0).contains(number));
                    bins[((number * 100.0) as usize).min(99)] += 1;
                }
                let expected = sample.len() as f64 / 100.0;
                let chi_squared: f64 = bins.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
                // 99 degrees of freedom: 60 to 149 holds 999 of a thousand.
                assert!((55.0..160.0).contains(&chi_squared), "seed {seed}: {chi_squared}");
            }
        }
    }

    #[test]
    fn seeds_differ_in_both_words() {
        let first = numbers(5, 64);
        assert_eq!(first, numbers(5, 64));
        for other in [4, 6, 5 | 1 << 32, 5 << 32] {
            let other = numbers(other, 64);
            assert!(first.iter().zip(&other).filter(|(a, b)| a == b).count() < 2);
        }
    }
}
