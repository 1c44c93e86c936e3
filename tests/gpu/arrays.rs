//! The array library: what a kernel of several operations gives is what they give one at a time; views, writes and what waits.

use crate::support::adapter;
use pollster::block_on;
use rillm::array::{Array, Binary, Compare, DType, Library, Logical, Norm, Reduce, Scalar, Unary};
use rillm::tensor::{DeviceOptions, Rng};
use rillm::{Code, Result};

fn library() -> Library {
    Library::new(adapter::context(true))
}

fn numbers(array: &Array) -> Vec<f32> {
    block_on(array.to_f32()).unwrap()
}

fn dispatches(library: &Library) -> u64 {
    library.context().device().stats().dispatches
}

fn random(library: &Library, dims: &[usize], seed: u64) -> Array {
    let data: Vec<f32> = Rng(seed).tensor(dims).to_f32().unwrap();
    library.f32(dims, &data).unwrap()
}

#[test]
fn a_chain_with_a_product_is_one_kernel_and_gives_the_same_bits_as_one_at_a_time() {
    for software_kernels in [None, Some(false)] {
        let options = DeviceOptions { software_kernels, ..Default::default() };
        let library = Library::new(adapter::context_with(&options));
        let (x, w) = (random(&library, &[37, 61], 1), random(&library, &[61, 83], 2));
        let (b, mask) = (random(&library, &[83], 3), random(&library, &[37, 1], 4));
        let chain = |keep: &dyn Fn(Array) -> Result<Array>| -> Result<Array> {
            let product = keep(x.matmul(&w)?)?;
            let biased = keep(product.binary(Binary::Add, &b)?)?;
            keep(biased.unary(Unary::GeluTanh)?)?.binary(Binary::Mul, &mask)
        };
        let before = dispatches(&library);
        let fused = numbers(&chain(&Ok).unwrap());
        assert_eq!(dispatches(&library) - before, 1);
        let eager = numbers(
            &chain(&|array| {
                block_on(array.bytes())?;
                Ok(array)
            })
            .unwrap(),
        );
        assert_eq!(dispatches(&library) - before, 5);
        assert_eq!(fused, eager);
    }
}

/// Of a size for the largest tiles, by sums that are exact.
#[test]
fn a_large_product_has_its_large_tiles_right() {
    let options = DeviceOptions { software_kernels: Some(false), ..Default::default() };
    let library = Library::new(adapter::context_with(&options));
    let (m, k, n) = (2049, 19, 2051);
    let whole = |seed: u64, count: usize| {
        let mut rng = Rng(seed);
        (0..count).map(|_| rng.below(17) as f32 - 8.0).collect::<Vec<f32>>()
    };
    let (a, b) = (whole(1, m * k), whole(2, k * n));
    let product = library.f32(&[m, k], &a).unwrap().matmul(&library.f32(&[k, n], &b).unwrap()).unwrap();
    let got = numbers(&product);
    for (row, column) in
        [(0, 0), (127, 128), (128, 127), (1000, 2000), (2047, 2047), (2048, 0), (0, 2050), (2048, 2050)]
    {
        let wanted: f32 = (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum();
        assert_eq!(got[row * n + column], wanted, "{row}, {column}");
    }
    let sum: f64 = got.iter().map(|x| f64::from(*x)).sum();
    let rows = |i: usize| (0..m).map(|row| f64::from(a[row * k + i])).sum::<f64>();
    let columns = |i: usize| b[i * n..(i + 1) * n].iter().map(|x| f64::from(*x)).sum::<f64>();
    assert_eq!(sum, (0..k).map(|i| rows(i) * columns(i)).sum::<f64>());
}

#[test]
fn sixteen_bits_are_rounded_after_each_operation() {
    let library = library();
    for dtype in [DType::F16, DType::BF16] {
        let x = random(&library, &[1001], 5).cast(dtype).unwrap();
        let y = random(&library, &[1001], 6).cast(dtype).unwrap();
        let chain = |keep: bool| {
            let sum = x.binary(Binary::Add, &y).unwrap();
            if keep {
                block_on(sum.bytes()).unwrap();
            }
            let product = sum.binary(Binary::Mul, &x).unwrap();
            if keep {
                block_on(product.bytes()).unwrap();
            }
            block_on(product.unary(Unary::Tanh).unwrap().bytes()).unwrap()
        };
        assert_eq!(chain(false), chain(true), "{dtype:?}");
    }
}

#[test]
fn reductions_of_any_dims_and_lengths() {
    for software_kernels in [None, Some(false)] {
        let options = DeviceOptions { software_kernels, ..Default::default() };
        let library = Library::new(adapter::context_with(&options));
        let x = random(&library, &[3, 5, 7], 7);
        let host = numbers(&x);
        let sums: Vec<f32> = (0..5)
            .map(|j| (0..3).flat_map(|i| (0..7).map(move |k| (i * 5 + j) * 7 + k)).map(|at| host[at]).sum())
            .collect();
        let got = x.reduce(Reduce::Sum, Some(&[0, -1]), false).unwrap();
        assert_eq!(got.dims(), [5]);
        for (got, wanted) in numbers(&got).iter().zip(&sums) {
            assert!((got - wanted).abs() < 1e-5, "{got} {wanted}");
        }
        for length in [1usize, 2, 17, 129, 1025, 70_001, 1_000_003] {
            let ones = library.f32(&[length], &vec![1.0; length]).unwrap();
            assert_eq!(numbers(&ones.reduce(Reduce::Sum, None, false).unwrap()), [length as f32]);
            assert_eq!(numbers(&ones.reduce(Reduce::Mean, None, true).unwrap()), [1.0]);
            let mut data = vec![0.5; length];
            data[length / 2] = 2.0;
            let peak = library.f32(&[length], &data).unwrap();
            assert_eq!(numbers(&peak.reduce(Reduce::Max, None, false).unwrap()), [2.0]);
            assert_eq!(numbers(&peak.arg_reduce(true, None, false).unwrap()), [(length / 2) as f32]);
        }
    }
}

#[test]
fn what_waits_keeps_its_values_when_memory_is_written() {
    let library = library();
    let x = library.f32(&[4], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    let double = x.binary_scalar(Binary::Mul, Scalar::Int(2), false).unwrap();
    let backwards = x.flip(&[0]).unwrap();
    x.assign(&library.f32(&[1], &[9.0]).unwrap()).unwrap();
    assert_eq!(numbers(&double), [2.0, 4.0, 6.0, 8.0]);
    // A view is of the memory.
    assert_eq!(numbers(&backwards), [9.0; 4]);
    let y = library.f32(&[4], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    y.assign(&y.flip(&[0]).unwrap()).unwrap();
    assert_eq!(numbers(&y), [4.0, 3.0, 2.0, 1.0]);
    let half = y.cast(DType::F16).unwrap();
    half.slice(0, Some(1), Some(3), 1).unwrap().assign(&library.f32(&[], &[7.0]).unwrap()).unwrap();
    assert_eq!(numbers(&half), [4.0, 7.0, 7.0, 1.0]);
}

#[test]
fn a_loop_that_is_never_read_does_not_grow() {
    let library = library();
    let mut state = library.f32(&[3], &[1.0, 2.0, 3.0]).unwrap();
    for _ in 0..100_000 {
        state = state.binary_scalar(Binary::Add, Scalar::Float(0.5), false).unwrap();
    }
    assert_eq!(numbers(&state), [50_001.0, 50_002.0, 50_003.0]);
}

#[test]
fn what_nobody_wants_is_not_computed() {
    let library = library();
    let device = library.context().device().clone();
    let x = random(&library, &[64], 8);
    device.flush();
    let step = x.unary(Unary::Exp).unwrap();
    let end = step.unary(Unary::Sqrt).unwrap();
    assert_eq!(device.pending(), 0);
    for _ in 0..2 {
        library.evaluate_pending().unwrap();
        assert_eq!(device.pending(), 1, "the step is part of the end's kernel");
    }
    let of = |f: fn(f32) -> f32| numbers(&x).into_iter().map(f).collect::<Vec<f32>>();
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs());
    assert!(near(&numbers(&step), &of(f32::exp)));
    assert!(near(&numbers(&end), &of(|x| x.exp().sqrt())));
}

#[test]
fn mistakes_name_the_operation() {
    let library = library();
    let x = library.f32(&[2, 3], &[0.0; 6]).unwrap();
    let y = library.f32(&[4, 5], &[0.0; 20]).unwrap();
    let message = |result: Result<Array>| result.err().unwrap().message().to_owned();
    assert_eq!(message(x.matmul(&y)), "matmul: inner dimensions differ, [2, 3] and [4, 5]");
    assert_eq!(message(x.binary(Binary::Add, &y)), "add: the shapes [2, 3] and [4, 5] don't broadcast");
    assert!(message(x.reduce(Reduce::Sum, Some(&[2]), false)).starts_with("sum: there is no dimension 2 of 2"));
    assert!(message(x.compare_scalar(Compare::Equal, Scalar::Int(1)).unwrap().unary(Unary::Neg)).contains("bool"));
}

#[test]
fn what_waits_on_something_without_memory_keeps_its_values() {
    let library = library();
    let number = |x: f64| Scalar::Float(x);
    // Zeros, their views, and numbers that waited themselves.
    let zeros = library.full(&[2, 3], DType::F32, Scalar::Int(0)).unwrap();
    let (row, column) = (zeros.select(0, 1).unwrap(), zeros.transpose(0, 1).unwrap().select(0, 2).unwrap());
    let (flat, wide) = (zeros.reshape(&[-1]).unwrap(), zeros.unsqueeze(0).unwrap());
    let before = zeros.binary_scalar(Binary::Add, number(7.0), false).unwrap();
    let row_before = row.binary_scalar(Binary::Sub, number(1.0), false).unwrap();
    row.assign(&library.f32(&[3], &[1., 2., 3.]).unwrap()).unwrap();
    assert_eq!(numbers(&zeros), [0., 0., 0., 1., 2., 3.]);
    assert_eq!((numbers(&column), numbers(&flat)[4], numbers(&wide)[3]), (vec![0., 3.], 2., 1.));
    assert_eq!((numbers(&before), numbers(&row_before)), (vec![7.0; 6], vec![-1.0; 3]));
    flat.assign(&library.f32(&[1], &[5.]).unwrap()).unwrap();
    assert_eq!((numbers(&row), numbers(&zeros.select(1, 0).unwrap())), (vec![5.; 3], vec![5.; 2]));
    let places = library.arange(0.0, 4.0, 1.0, DType::I32).unwrap();
    let odd = places.slice(0, Some(1), None, 2).unwrap();
    places.assign(&library.array(&[1], DType::I32, &9i32.to_le_bytes()).unwrap()).unwrap();
    assert_eq!(numbers(&odd), [9., 9.]);

    let x = library.f32(&[2], &[1., 2.]).unwrap();
    let sum = x.binary_scalar(Binary::Add, number(1.0), false).unwrap();
    let (double, root) = (sum.binary_scalar(Binary::Mul, number(2.0), false).unwrap(), sum.unary(Unary::Sqrt).unwrap());
    let end = double.binary(Binary::Add, &root).unwrap();
    sum.assign(&x.binary_scalar(Binary::Mul, number(0.0), false).unwrap()).unwrap();
    assert_eq!(numbers(&double), [4., 6.]);
    assert_eq!(numbers(&end), [4.0 + 2f32.sqrt(), 6.0 + 3f32.sqrt()]);
    assert_eq!(numbers(&sum), [0., 0.]);
}

#[test]
fn operations_that_change_nothing_give_memory_of_their_own() {
    let library = library();
    let x = library.array(&[1, 2], DType::U32, bytemuck::cast_slice(&[3u32, 4])).unwrap();
    let index = library.array(&[1, 0], DType::I32, &[]).unwrap();
    let none = library.array(&[1, 0], DType::U32, &[]).unwrap();
    let same = [
        x.unary(Unary::Abs).unwrap(),
        x.unary(Unary::Relu).unwrap(),
        x.unary(Unary::Floor).unwrap(),
        x.apart().unwrap(),
        x.repeat(&[1, 1]).unwrap(),
        x.scatter_add(1, &index, &none).unwrap(),
        Array::cat(std::slice::from_ref(&x), 0).unwrap(),
        x.pad(&[0, 0], Scalar::Int(0)).unwrap(),
    ];
    x.assign(&library.full(&[], DType::U32, Scalar::Int(9)).unwrap()).unwrap();
    for array in &same {
        assert_eq!(numbers(array), [3., 4.]);
        assert!(!array.shares_memory(&x).unwrap());
    }
    let repeated = x.repeat(&[3, 1]).unwrap();
    repeated.assign(&library.full(&[], DType::U32, Scalar::Int(1)).unwrap()).unwrap();
    assert_eq!((numbers(&x), numbers(&repeated)), (vec![9.; 2], vec![1.; 6]));
    let error = x.expand(&[3, 2]).unwrap().assign(&x).unwrap_err();
    assert!(error.message().starts_with("assign: elements of the tensor [3, 2] share memory"), "{error}");
}

#[test]
fn angles_of_any_size_and_zeros_with_a_sign() {
    let library = library();
    let angles = [1e5f32, -1e5, 8191.7, 8192.3, 1e9, -3e20, f32::MAX, 16_367_173.0 * 2f32.powi(72), 1.0e38, 314_159.25];
    let x = library.f32(&[angles.len()], &angles).unwrap();
    // Doubles hold these angles, and the library reduces them exactly.
    for (kind, of) in [(Unary::Sin, f64::sin as fn(f64) -> f64), (Unary::Cos, f64::cos)] {
        for (got, angle) in numbers(&x.unary(kind).unwrap()).iter().zip(angles) {
            let wanted = of(f64::from(angle));
            assert!((f64::from(*got) - wanted).abs() < 2e-7, "{} of {angle:e}: {got}, wanted {wanted}", kind.name());
        }
    }
    let ones = library.f32(&[1], &[1.0]).unwrap();
    let zero = ones.binary_scalar(Binary::Mul, Scalar::Number(-0.0), false).unwrap();
    assert_eq!(numbers(&zero)[0].to_bits(), (-0.0f32).to_bits());
    let full = library.full(&[1], DType::F16, Scalar::Number(-0.0)).unwrap();
    assert_eq!(block_on(full.bytes()).unwrap(), [0, 0x80]);
    let whole = library.full(&[1], DType::I32, Scalar::Int(5)).unwrap();
    assert_eq!(whole.binary_scalar(Binary::Add, Scalar::Number(-0.0), false).unwrap().dtype(), DType::I32);
    assert_eq!(whole.binary_scalar(Binary::Add, Scalar::Number(0.5), false).unwrap().dtype(), DType::F32);
}

#[test]
fn variance_and_xor_and_reductions_over_no_dims() {
    let library = library();
    let x = library.f32(&[2, 3], &[1., 2., 4., -1., 0., 7.]).unwrap();
    let variances = |dims: Option<&[i64]>, correction: f64| numbers(&x.variance(dims, correction, false).unwrap());
    let near = |got: Vec<f32>, wanted: &[f64]| {
        assert_eq!(got.len(), wanted.len());
        got.iter()
            .zip(wanted)
            .for_each(|(got, wanted)| assert!((f64::from(*got) - wanted).abs() < 1e-5, "{got} {wanted}"));
    };
    near(variances(Some(&[1]), 1.0), &[7.0 / 3.0, 19.0]);
    near(variances(Some(&[0]), 0.0), &[1.0, 1.0, 2.25]);
    let mean = 13.0 / 6.0;
    let squares: f64 = [1f64, 2., 4., -1., 0., 7.].iter().map(|x| (x - mean).powi(2)).sum();
    near(variances(None, 1.0), &[squares / 5.0]);
    // No dims are all dims, as in PyTorch.
    assert_eq!(numbers(&x.reduce(Reduce::Sum, Some(&[]), false).unwrap()), [13.0]);
    assert_eq!(x.reduce(Reduce::Max, Some(&[]), true).unwrap().dims(), [1, 1]);
    let bools = |values: [u32; 4]| library.array(&[4], DType::Bool, bytemuck::cast_slice(&values)).unwrap();
    let xor = bools([0, 0, 1, 1]).logical(Logical::Xor, &bools([0, 1, 0, 1])).unwrap();
    assert_eq!(numbers(&xor), [0., 1., 1., 0.]);
}

#[test]
fn numbers_in_order_are_exact_or_refused() {
    let library = library();
    let range = |start: f64, end: f64, step: f64, dtype: DType| library.arange(start, end, step, dtype);
    let bytes = |array: Array| block_on(array.bytes()).unwrap();
    let words = |values: &[u32]| bytemuck::cast_slice::<u32, u8>(values).to_vec();
    assert_eq!(
        bytes(range(3e9, 3e9 + 3.0, 1.0, DType::U32).unwrap()),
        words(&[3_000_000_000, 3_000_000_001, 3_000_000_002])
    );
    assert_eq!(
        bytes(range(4294967295.0, 4294967290.0, -2.0, DType::U32).unwrap()),
        words(&[u32::MAX, u32::MAX - 2, u32::MAX - 4])
    );
    let lowest = range(-2147483648.0, 2147483647.0, 1_000_000_000.0, DType::I32).unwrap();
    assert_eq!(numbers(&lowest), [-2147483648.0, -1147483648.0, -147483648.0, 852516352.0, 1852516352.0]);
    for (start, end, dtype) in
        [(3e9, 3e9 + 3.0, DType::I32), (-1.0, 3.0, DType::U32), (4294967290.0, 4294967299.0, DType::U32)]
    {
        assert_eq!(range(start, end, 1.0, dtype).err().unwrap().code(), Code::OutOfRange);
    }
    assert_eq!(range(5.0, 3.0, 1.0, DType::U32).unwrap().elements(), 0);
}

/// Loops end after 65,535 rounds on llvmpipe.
#[test]
fn long_rows_are_normalised_and_multiplied() {
    let library = library();
    let columns = 300_001;
    let x = library.randn(&[2, columns], 5).unwrap().binary_scalar(Binary::Add, Scalar::Int(3), false).unwrap();
    let (weight, bias) = (library.rand(&[columns], 6).unwrap(), library.rand(&[columns], 7).unwrap());
    let host = [&x, &weight, &bias].map(numbers);
    for kind in [Norm::Layer, Norm::Rms] {
        let shift = (kind == Norm::Layer).then_some(&bias);
        let got = numbers(&x.norm(kind, 1, Some(&weight), shift, 1e-5).unwrap());
        for (row, got) in host[0].chunks(columns).zip(got.chunks(columns)) {
            let n = columns as f64;
            let mean = if kind == Norm::Layer { row.iter().map(|x| f64::from(*x)).sum::<f64>() / n } else { 0.0 };
            let square = row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n;
            for at in (0..columns).step_by(997) {
                let normed = (f64::from(row[at]) - mean) / (square + 1e-5).sqrt() * f64::from(host[1][at]);
                let wanted = normed + shift.map_or(0.0, |_| f64::from(host[2][at]));
                assert!((f64::from(got[at]) - wanted).abs() < 2e-5, "{kind:?} {at}: {} {wanted}", got[at]);
            }
        }
    }
    let ones = library.full(&[1, columns], DType::F32, Scalar::Int(1)).unwrap();
    assert_eq!(numbers(&ones.matmul(&ones.transpose(0, 1).unwrap()).unwrap()), [columns as f32]);
}

#[test]
fn random_numbers_have_their_distributions() {
    let library = library();
    const N: usize = 200_000;
    for seed in [0, 1, 0xffff_ffff_ffff] {
        let uniform = numbers(&library.rand(&[N], seed).unwrap());
        assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
        let moment = |data: &[f32], k: i32| data.iter().map(|x| f64::from(*x).powi(k)).sum::<f64>() / data.len() as f64;
        // Five standard errors each.
        assert!((moment(&uniform, 1) - 0.5).abs() < 5.0 * (1.0 / 12.0 / N as f64).sqrt());
        assert!((moment(&uniform, 2) - 1.0 / 3.0).abs() < 5.0 * (4.0 / 45.0 / N as f64).sqrt());
        // Chi-squared over 64 bins, whose mean is 63 and deviation 11.2.
        let mut bins = [0f64; 64];
        uniform.iter().for_each(|x| bins[(x * 64.0) as usize] += 1.0);
        let expected = N as f64 / 64.0;
        let chi: f64 = bins.iter().map(|count| (count - expected).powi(2) / expected).sum();
        assert!((20.0..125.0).contains(&chi), "seed {seed}: {chi}");
        // Neighbours have nothing to do with each other.
        let lagged: f64 = uniform.windows(2).map(|w| (f64::from(w[0]) - 0.5) * (f64::from(w[1]) - 0.5)).sum();
        assert!((lagged / N as f64).abs() < 5.0 / 12.0 / (N as f64).sqrt());
        let normal = numbers(&library.randn(&[N], seed).unwrap());
        let error = |variance: f64| 5.0 * (variance / N as f64).sqrt();
        for (k, wanted, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            assert!((moment(&normal, k) - wanted).abs() < error(variance), "seed {seed}, moment {k}");
        }
        let beyond = normal.iter().filter(|x| x.abs() > 1.959964).count() as f64 / N as f64;
        assert!((beyond - 0.05).abs() < error(0.05 * 0.95));
        assert!(normal.iter().any(|x| x.abs() > 4.0) && normal.iter().all(|x| x.abs() < 6.0));
    }
    let again = |seed: u64| numbers(&library.rand(&[5], seed).unwrap());
    assert_eq!(again(7), again(7));
    assert_ne!(again(7), again(8));
    assert_ne!(again(7), again(7 + (1 << 32)));
}
