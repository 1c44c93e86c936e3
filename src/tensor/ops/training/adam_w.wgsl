// `new1` and `new2` are 1 − β. `kept` is the part of a parameter that decay leaves, `rate` is divided by the correction of the mean, and `square_factor` is one by the
// root of the correction of the squares.
struct Params {
    n: u32,
    beta1: f32,
    new1: f32,
    beta2: f32,
    new2: f32,
    epsilon: f32,
    kept: f32,
    rate: f32,
    square_factor: f32,
}

@group(0) @binding(0) var<storage, read_write> parameters: array<f32>;
@group(0) @binding(1) var<storage, read> gradients: array<f32>;
@group(0) @binding(2) var<storage, read_write> means: array<f32>;
@group(0) @binding(3) var<storage, read_write> squares: array<f32>;
@group(0) @binding(4) var<storage, read> factor: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.n {
        return;
    }
    let g = gradients[i] * factor[0];
    let mean = params.beta1 * means[i] + params.new1 * g;
    let square = params.beta2 * squares[i] + params.new2 * g * g;
    means[i] = mean;
    squares[i] = square;
    parameters[i] = parameters[i] * params.kept - params.rate * mean / (sqrt(square) * params.square_factor + params.epsilon);
}
