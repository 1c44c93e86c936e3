// Scores that saturate at ±softcap (Gemma 2; Bello et al. 2016): softcap · tanh(score / softcap). The kernel defines
// `params.softcap`.
#import "tanh"

fn soft_capped(scores: vec4<f32>) -> vec4<f32> {
    return params.softcap * tanh_of(scores / params.softcap);
}
