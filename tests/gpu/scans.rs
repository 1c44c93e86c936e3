//! Cumulative sums of lines of any length, on a native GPU.

use crate::support::adapter;
use rillm::tensor::{Context, DeviceOptions, HostTensor, Rng, cumsum};

fn check(context: &Context, dims: [usize; 3], dispatches: u64) {
    let [outer, n, inner] = dims;
    let mut rng = Rng(n as u64);
    let x = rng.tensor(&dims);
    let integers: Vec<u32> = (0..outer * n * inner).map(|_| rng.next_u64() as u32).collect();
    let before = context.device().stats().dispatches;
    let float = cumsum(context, &context.tensor(&x).unwrap()).unwrap();
    let integer = cumsum(context, &context.tensor(&HostTensor::u32(&dims, &integers)).unwrap()).unwrap();
    let got = pollster::block_on(context.readback(&[&float, &integer])).unwrap();
    assert_eq!(context.device().stats().dispatches - before, 2 * dispatches, "{dims:?}");
    let (x, float, integer) = (x.to_f32().unwrap(), got[0].to_f32().unwrap(), got[1].to_u32().unwrap());
    for line in 0..outer * inner {
        let (mut sum, mut wrapping) = (0f64, 0u32);
        for i in 0..n {
            let at = (line / inner * n + i) * inner + line % inner;
            sum += f64::from(x[at]);
            wrapping = wrapping.wrapping_add(integers[at]);
            assert!((f64::from(float[at]) - sum).abs() < 2e-3, "{dims:?}, {at}: {} and not {sum}", float[at]);
            assert_eq!(integer[at], wrapping, "{dims:?}, {at}");
        }
    }
}

/// By what the adapter of the tests takes, and by what GPUs take.
#[test]
fn lines_of_any_length_are_summed() {
    for software_kernels in [None, Some(false)] {
        let context = adapter::context_with(&DeviceOptions { software_kernels, ..Default::default() });
        check(&context, [1, 1, 1], 1);
        check(&context, [2, 4096, 1], 1);
        check(&context, [3, 4097, 1], 3);
        check(&context, [1, 1_000_003, 1], 3);
        check(&context, [2, 50_021, 3], 3);
    }
}
