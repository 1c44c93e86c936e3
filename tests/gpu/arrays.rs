//! The array library: what a kernel of several operations gives is what they give one at a time; views, writes and what waits.

use crate::support::adapter;
use pollster::block_on;
use rillm::Result;
use rillm::array::{Array, Binary, Compare, DType, Library, Reduce, Scalar, Unary};
use rillm::tensor::{DeviceOptions, Rng};

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
