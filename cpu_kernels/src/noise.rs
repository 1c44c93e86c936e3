//! Gumbel noise of tokens, and the best token with it (the Gumbel-max trick; Maddison et al. 2014).

use crate::functions::ln;
use crate::lanes::{padded, put};
use crate::room::zeros;
use crate::simd::{F32x4, I32x4};
use crate::{Mismatch, format::expect};

const LANES: usize = F32x4::LANES;

/// What the noise of a token depends on besides the token.
#[derive(Clone, Copy, Debug)]
pub struct NoiseKey {
    /// The lower and the upper word of the seed.
    pub seed: [u32; 2],
    /// The number of the step.
    pub step: u32,
}

impl NoiseKey {
    /// -ln(-ln(1 - v)), with v uniform in (0, 1) from the first word of pcg3d (Jarzynski, Olano 2020).
    #[inline(always)]
    fn noise(self, tokens: I32x4) -> F32x4 {
        let [low, high, step] = [self.seed[0], self.seed[1], self.step].map(|word| I32x4::splat(word as i32));
        let word = pcg3d([low.xor(tokens), high, step]);
        let v = word.to_f32_u().add(F32x4::splat(0.5)).mul(F32x4::splat(1.0 / 4_294_967_296.0));
        // Not quite 1, to which it may have been rounded.
        let v = v.at_most(F32x4::splat(0.999_999_94));
        let one = F32x4::splat(1.0);
        // Where 1 - v loses its digits, the series of the logarithm.
        let mut series = F32x4::splat(0.2);
        for coefficient in [0.25, 0.333_333_34, 0.5, 1.0] {
            series = series.mul_add(v, F32x4::splat(coefficient));
        }
        let is_far = v.greater(F32x4::splat(0.0625));
        let e = is_far.select(F32x4::splat(0.0).sub(ln(one.sub(v))).bits(), series.mul(v).bits()).floats();
        F32x4::splat(0.0).sub(ln(e))
    }
}

/// The first word of the hash.
#[inline(always)]
fn pcg3d(key: [I32x4; 3]) -> I32x4 {
    let [mut x, mut y, mut z] = key.map(|v| v.mul(I32x4::splat(1_664_525)).add(I32x4::splat(1_013_904_223)));
    x = x.add(y.mul(z));
    y = y.add(z.mul(x));
    z = z.add(x.mul(y));
    [x, y, z] = [x, y, z].map(|v| v.xor(v.shr_u::<16>()));
    x.add(y.mul(z))
}

/// The noise of each token.
pub fn noise(tokens: &[u32], key: NoiseKey) -> Result<Vec<f32>, Mismatch> {
    let mut out = zeros(tokens.len())?;
    for (tokens, out) in tokens.chunks(LANES).zip(out.chunks_mut(LANES)) {
        let mut lanes = [0; LANES];
        lanes[..tokens.len()].copy_from_slice(tokens);
        put(out, key.noise(I32x4::new(lanes.map(|token| token as i32))));
    }
    Ok(out)
}

/// The best value of each share of a vocabulary, and its token; the first among equals. Share i has the tokens i, i + shares and so on; the
/// number of shares is a multiple of four. The value of a token is its logit, or with a `scale` above 0 the logit times that with noise; of the
/// lowest finite number and of -∞ it is the lowest finite number. `false` if there is a NaN among the logits: then nothing is known.
pub fn best_of_shares(
    logits: &[f32],
    scale: f32,
    key: NoiseKey,
    values: &mut [f32],
    tokens: &mut [u32],
) -> Result<bool, Mismatch> {
    let shares = values.len();
    expect("shares of tokens", shares, tokens.len())?;
    expect("shares in fours", shares.next_multiple_of(LANES).max(LANES), shares)?;
    values.fill(f32::MIN);
    tokens.fill(0);
    let lowest = F32x4::splat(f32::MIN);
    let scales = F32x4::splat(scale);
    let of_lanes = I32x4::new([0, 1, 2, 3]);
    let mut is_number = I32x4::splat(-1);
    let mut better = |logit: F32x4, first: usize, best: &mut [f32; LANES], of_best: &mut [u32; LANES]| {
        let token = I32x4::splat(first as i32).add(of_lanes);
        // Lanes beyond the end are zeros, which are numbers.
        is_number = is_number.and(logit.bits().and(I32x4::splat(i32::MAX)).less(I32x4::splat(0x7f80_0001)));
        let warm = if scale > 0.0 { logit.mul(scales).add(key.noise(token)) } else { logit };
        let value = logit.greater(lowest).select(warm.bits(), lowest.bits());
        // Its first token is the best of a share until another is better.
        let before = I32x4::new(of_best.map(|token| token as i32));
        let is_better = if first < shares { I32x4::splat(-1) } else { value.floats().greater(F32x4::load(best)) };
        *best = is_better.select(value, F32x4::load(best).bits()).floats().lanes();
        *of_best = is_better.select(token, before).lanes().map(|token| token as u32);
    };
    let (best, of_best) = (values.as_chunks_mut::<LANES>().0, tokens.as_chunks_mut::<LANES>().0);
    for (round, logits) in logits.chunks(shares).enumerate() {
        let (whole, rest) = logits.as_chunks::<LANES>();
        for (at, (logits, (best, of_best))) in whole.iter().zip(best.iter_mut().zip(of_best.iter_mut())).enumerate() {
            better(F32x4::load(logits), round * shares + at * LANES, best, of_best);
        }
        if let (false, Some(best), Some(of_best)) =
            (rest.is_empty(), best.get_mut(whole.len()), of_best.get_mut(whole.len()))
        {
            let (mut values, mut tokens) = (*best, *of_best);
            better(padded(rest), round * shares + whole.len() * LANES, &mut values, &mut tokens);
            best[..rest.len()].copy_from_slice(&values[..rest.len()]);
            of_best[..rest.len()].copy_from_slice(&tokens[..rest.len()]);
        }
    }
    Ok(is_number.lanes() == [-1; LANES])
}
