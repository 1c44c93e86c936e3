// Gumbel noise of a key: -ln(e) with e = -ln(1 - v) and v uniform in (0, 1).
//
// The winner among many has a v near 0, so v is fine there (multiples of 2^-33), and e comes from the series of ln(1 - v): the
// built-in log may be off by 2^-21 around 1, which would be more than e itself.
#import "pcg3d"

fn gumbel(key: vec3<u32>) -> f32 {
    // Not quite 1, where f32 would round to it.
    let v = min((f32(pcg3d(key).x) + 0.5) * 2.3283064e-10, 0.99999994);
    let series = v * (1.0 + v * (0.5 + v * (0.33333334 + v * (0.25 + v * 0.2))));
    return -log(select(-log(1.0 - v), series, v < 0.0625));
}
