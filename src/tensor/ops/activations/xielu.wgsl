struct Params { elements: u32, alpha_p: f32, alpha_n: f32, beta: f32, epsilon: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

// e^y - 1 of a number of no more than zero. Near zero its series, since the difference would lose its digits.
fn exp_less_one(y: f32) -> f32 {
    if y > -0.3 {
        return y * (1.0 + y * (0.5 + y * (0.16666667 + y * (0.041666668 + y * (0.008333334 + y * 0.0013888889)))));
    }
    return exp(max(y, -80.0)) - 1.0;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i < params.elements {
        let y = x[i];
        var curved = params.alpha_p * y * y;
        if y <= 0.0 {
            curved = params.alpha_n * (exp_less_one(min(y, params.epsilon)) - y);
        }
        out[i] = curved + params.beta * y;
    }
}
