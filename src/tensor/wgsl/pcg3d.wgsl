// A hash of three words to three (pcg3d; Jarzynski, Olano 2020, "Hash Functions for GPU Rendering").
fn pcg3d(key: vec3<u32>) -> vec3<u32> {
    var v = key * 1664525u + 1013904223u;
    v.x += v.y * v.z;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v ^= v >> vec3<u32>(16u);
    v.x += v.y * v.z;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    return v;
}
