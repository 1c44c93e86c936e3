//! Sorting rows of any length, and the first elements of each, on a native GPU; the reference is a stable sort on the CPU.

use std::cmp::Ordering;

use crate::support::adapter;
use rillm::Code;
use rillm::tensor::ops::{SortKey, SortOrder};
use rillm::tensor::{Context, DType, DeviceOptions, HostTensor, Rng, Tensor, sort_rows, topk_rows};

/// The order of two elements by their bits; NaN is the largest.
fn compare(key: SortKey, a: u32, b: u32) -> Ordering {
    match key {
        SortKey::F32 => {
            let (a, b) = (f32::from_bits(a), f32::from_bits(b));
            a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(Ordering::Equal))
        }
        SortKey::I32 => (a as i32).cmp(&(b as i32)),
        SortKey::U32 => a.cmp(&b),
    }
}

/// Few different numbers, so that many are equal, and f32 that are not numbers.
fn words(rng: &mut Rng, key: SortKey, count: usize) -> Vec<u32> {
    let special = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
    let mut word = || match (key, rng.below(8)) {
        (SortKey::F32, 0) => special[rng.below(special.len())].to_bits(),
        (SortKey::F32, 1..4) => (rng.below(200) as f32 - 100.0).to_bits(),
        (SortKey::F32, _) => rng.signed().to_bits(),
        (_, 0..4) => (rng.below(200) as u32).wrapping_sub(100),
        _ => rng.next_u64() as u32,
    };
    (0..count).map(|_| word()).collect()
}

fn bits(tensor: &HostTensor) -> Vec<u32> {
    tensor.bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Holds the first k elements of rows, found by `find`, to a sort on the CPU.
fn check(
    context: &Context,
    [rows, columns, k]: [usize; 3],
    order: SortOrder,
    find: impl FnOnce(&Tensor) -> rillm::Result<(Tensor, Tensor)>,
) {
    let mut rng = Rng((rows * columns + k) as u64);
    let x = words(&mut rng, order.key, rows * columns);
    let dtype = if order.key == SortKey::F32 { DType::F32 } else { DType::U32 };
    let host = HostTensor { dtype, ..HostTensor::u32(&[rows, columns], &x) };
    let (values, indices) = find(&context.tensor(&host).unwrap()).unwrap();
    assert_eq!((values.dtype(), values.shape().dims()), (dtype, &[rows, k][..]));
    assert_eq!((indices.dtype(), indices.shape().dims()), (DType::U32, &[rows, k][..]));
    let got = pollster::block_on(context.readback(&[&values, &indices])).unwrap();
    let (values, indices) = (bits(&got[0]), bits(&got[1]));
    for (number, row) in x.chunks_exact(columns).enumerate() {
        let mut wanted: Vec<u32> = (0..columns as u32).collect();
        wanted.sort_by(|a, b| {
            let ascending = compare(order.key, row[*a as usize], row[*b as usize]);
            if order.descending { ascending.reverse() } else { ascending }
        });
        let what = format!("row {number} of [{rows}, {columns}], {k} of them, {order:?}");
        assert!(indices[number * k..][..k] == wanted[..k], "{what}: indices");
        let wanted: Vec<u32> = wanted[..k].iter().map(|column| row[*column as usize]).collect();
        assert!(values[number * k..][..k] == wanted, "{what}: values, to the bit");
    }
}

#[test]
fn rows_of_any_length_are_sorted() {
    let context = adapter::context(true);
    let shapes = [[1, 1], [3, 2], [2, 1000], [5, 1024], [2, 1025], [3, 2048], [2, 5003], [3, 100_003]];
    for (index, [rows, columns]) in shapes.into_iter().enumerate() {
        let order = SortOrder { key: SortKey::ALL[index % 3], descending: index % 2 == 1 };
        check(&context, [rows, columns, columns], order, |x| sort_rows(&context, x, order));
    }
    for (index, key) in SortKey::ALL.into_iter().enumerate() {
        let order = SortOrder { key, descending: index % 2 == 0 };
        check(&context, [2, 3001, 3001], order, |x| sort_rows(&context, x, order));
    }
}

#[test]
fn the_first_elements_of_rows_are_found() {
    let context = adapter::context(true);
    let sizes = [
        // One workgroup.
        [3, 1, 1],
        [5, 37, 5],
        [2, 1024, 1024],
        // By runs, in one step more, or in several.
        [2, 1025, 1],
        [3, 5003, 40],
        [2, 100_003, 256],
        // By sorting all.
        [2, 5003, 257],
        [2, 2047, 2047],
    ];
    for (index, [rows, columns, k]) in sizes.into_iter().enumerate() {
        let order = SortOrder { key: SortKey::ALL[index % 3], descending: index % 4 < 2 };
        check(&context, [rows, columns, k], order, |x| topk_rows(&context, x, k, order));
    }
}

/// Every element is equal, to each other or to what fills runs up.
#[test]
fn equal_elements_keep_their_order() {
    let context = adapter::context_with(&DeviceOptions { software_kernels: Some(false), ..Default::default() });
    for descending in [false, true] {
        for word in [0, u32::MAX] {
            let order = SortOrder { key: SortKey::U32, descending };
            let x = context.tensor(&HostTensor::u32(&[1, 2500], &[word; 2500])).unwrap();
            let (_, all) = sort_rows(&context, &x, order).unwrap();
            let (_, few) = topk_rows(&context, &x, 3, order).unwrap();
            let got = pollster::block_on(context.readback(&[&all, &few])).unwrap();
            assert!(got[0].to_u32().unwrap().into_iter().eq(0..2500), "{word} {descending}");
            assert_eq!(got[1].to_u32().unwrap(), [0, 1, 2]);
        }
    }
}

#[test]
fn what_can_not_be_sorted_is_refused() {
    let context = adapter::context(true);
    let order = SortOrder { key: SortKey::F32, descending: true };
    let tensor = |dims: &[usize]| context.tensor(&Rng(1).tensor(dims)).unwrap();
    for (dims, k, message) in [
        (&[3, 5][..], 6, "topk: k is 6, and the rows of [3, 5] have 5 elements"),
        (&[3, 5], 0, "topk: k is 0, and the rows of [3, 5] have 5 elements"),
        (&[5], 1, "topk: [5], wanted [rows, n]"),
    ] {
        let error = topk_rows(&context, &tensor(dims), k, order).err().unwrap();
        assert_eq!((error.code(), error.message()), (Code::ShapeMismatch, message));
    }
    let integers = context.tensor(&HostTensor::u32(&[1, 2000], &[1; 2000])).unwrap();
    assert_eq!(sort_rows(&context, &integers, order).err().unwrap().code(), Code::DtypeMismatch);
    assert_eq!(sort_rows(&context, &tensor(&[2, 2000, 1]), order).err().unwrap().code(), Code::ShapeMismatch);
}
