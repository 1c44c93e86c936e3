//! The ops on a native GPU: twice, because kernels differ with and without subgroups.

use crate::record::AgreedRuns;
use crate::support::parity::Extent;
use crate::support::{adapter, parity, skip};
use rillm::tensor::{Context, DType, Desc, DeviceOptions, HostTensor, Rng, Shape, Tensor, WeightUpload, ops, quant};
use rillm::{Code, tensor::Op};

/// Holds the kernels of a device with these options to their references: those of the ops whose cases did not agree in the recorded run, and some
/// of each of the others. `kernels` is their name in the record.
fn check(kernels: &str, options: &DeviceOptions, least: usize) {
    let record = AgreedRuns::open(kernels);
    let checked = pollster::block_on(parity::check_all(&adapter::context_with(options), Extent::Changed(&record)));
    record.close();
    skip::note(&checked.more_than(least));
}

fn check_variants(kernels: &str, options: &DeviceOptions, least: usize) {
    let record = AgreedRuns::open(kernels);
    let context = adapter::context_with(options);
    let checked = pollster::block_on(parity::check_all_variants(&context, Extent::Changed(&record)));
    record.close();
    skip::note(&checked.more_than(least));
}

#[test]
fn kernels_agree_with_references() {
    check("software", &DeviceOptions::default(), 100);
}

#[test]
fn kernels_without_subgroups_agree_with_references() {
    check("software_without_subgroups", &DeviceOptions { without_subgroups: true, ..Default::default() }, 100);
}

/// The software adapter of the tests takes its own variants of some kernels; these are the ones that GPUs take.
#[test]
fn kernels_for_gpus_agree_with_references() {
    check("gpu", &DeviceOptions { software_kernels: Some(false), ..Default::default() }, 100);
}

/// The same for a GPU with as little as WebGPU guarantees.
#[test]
fn kernels_for_small_gpus_agree_with_references() {
    let options = DeviceOptions {
        software_kernels: Some(false),
        without_subgroups: true,
        without_packed_dot: true,
        workgroup_storage: Some(16 << 10),
        ..Default::default()
    };
    check("small_gpu", &options, 100);
}

/// What autotuning may let run.
#[test]
fn variants_of_kernels_agree_with_references() {
    check_variants("gpu_variants", &DeviceOptions { software_kernels: Some(false), ..Default::default() }, 200);
}

#[test]
fn variants_for_small_gpus_agree_with_references() {
    let options = DeviceOptions {
        software_kernels: Some(false),
        without_subgroups: true,
        workgroup_storage: Some(16 << 10),
        ..Default::default()
    };
    check_variants("small_gpu_variants", &options, 80);
}

/// However the bytes of a weight are cut into pieces, and however many runs its upload takes, the matrix is the same.
#[test]
fn weights_arrive_whole_in_pieces_of_any_length() {
    let context = adapter::context(true);
    let mut rng = Rng(21);
    // Those with constants of their own share a kernel: with a table and scales, without scales, without either.
    let is_another =
        |format: &&quant::Format| format.defines.is_empty() || ["iq2_xs", "iq1_m", "nvfp4"].contains(&format.name);
    for format in quant::FORMATS.iter().copied().filter(is_another) {
        // The second is larger than the staging buffer and has an odd number of blocks in a row.
        for (rows, columns) in [(7, 96usize), (1301, 4128)] {
            let columns = columns.next_multiple_of(format.block_size);
            let weight = rng.weight(format, rows, columns);
            let x = context.tensor(&rng.tensor(&[1, columns])).unwrap();
            let product = |weight: &Tensor| {
                let y = context.run1(&ops::MatVec, &[&x, weight]).unwrap();
                pollster::block_on(context.readback(&[&y])).unwrap().remove(0).to_f32().unwrap()
            };
            let whole = product(&context.tensor(&weight).unwrap());
            let mut upload = WeightUpload::new(&context, format, rows, columns, "weight").unwrap();
            let mut start = 0;
            while start < weight.bytes.len() {
                let length = if rows < 10 { 1 + rng.below(9) } else { 1 + rng.below(3 << 20) };
                let end = weight.bytes.len().min(start + length);
                upload.write(&weight.bytes[start..end].to_vec()).unwrap();
                start = end;
            }
            let pieces = product(&upload.finish().unwrap());
            assert_eq!(whole, pieces, "{} [{rows}, {columns}]", format.name);
        }
    }
}

#[test]
fn a_weight_that_is_cut_off_is_refused() {
    let context = adapter::context(true);
    let upload = WeightUpload::new(&context, quant::FORMATS[0], 4, 32, "weight").unwrap();
    assert_eq!(upload.finish().err().unwrap().code(), Code::Truncated);
    let odd = WeightUpload::new(&context, quant::Format::by_name("q4_0").unwrap(), 4, 33, "weight");
    assert_eq!(odd.err().unwrap().code(), Code::ShapeMismatch);
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    let (f, u) = (Desc::f32, Desc::u32);
    let norm = ops::RmsNorm { epsilon: 1e-5 };
    let slice = ops::SliceRows { first: 2, count: 2 };
    let rope = ops::Rope { head_dim: 6, interleaved: true, scale: 1.0 };
    let binary = ops::Binary { kind: ops::BinaryKind::Mul };
    let fill = ops::Fill { shape: Shape::from([2]), value: 0.0 };
    let (int8, weight) = (Desc::i8x4, |name: &str, dims: &[usize]| Desc {
        shape: Shape::new(dims),
        dtype: DType::Weight(quant::Format::by_name(name).unwrap()),
    });
    let product = ops::MatMulInt8::default();
    let residual = ops::MatMul { epilogue: ops::Epilogue { bias: true, residual: true } };
    let parts = ops::QkvParts::ALL;
    let append = ops::RopeKvAppend {
        parts,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        interleaved: true,
        scale: 1.0,
        bias: true,
        norms: None,
    };
    let refused: [(&dyn Op, Vec<Desc>, Code); 23] = [
        (&ops::Add, vec![f(&[2, 3]), f(&[3, 2])], Code::ShapeMismatch),
        (&ops::Add, vec![f(&[2, 3])], Code::ShapeMismatch),
        (&ops::Add, vec![f(&[2, 3]), u(&[2, 3])], Code::DtypeMismatch),
        (&ops::AddRow, vec![f(&[2, 3]), f(&[2])], Code::ShapeMismatch),
        (&ops::MatVec, vec![f(&[1, 32]), f(&[4, 32])], Code::DtypeMismatch),
        (&norm, vec![f(&[2, 8]), f(&[9])], Code::ShapeMismatch),
        (&slice, vec![f(&[3, 8])], Code::ShapeMismatch),
        (&binary, vec![f(&[2, 3]), f(&[3, 2])], Code::ShapeMismatch),
        (&ops::Dot, vec![f(&[2, 3]), f(&[5])], Code::ShapeMismatch),
        (&ops::MatMulF32, vec![f(&[2, 3]), f(&[2, 3])], Code::ShapeMismatch),
        (&ops::MatMulF32, vec![f(&[3]), f(&[3, 2])], Code::ShapeMismatch),
        (&ops::Unary { kind: ops::UnaryKind::Abs }, vec![u(&[3])], Code::DtypeMismatch),
        (&ops::Scale { factor: 2.0 }, vec![], Code::ShapeMismatch),
        (&fill, vec![f(&[2])], Code::ShapeMismatch),
        (&product, vec![int8(&[2, 8]), f(&[2, 1]), weight("f16", &[4, 32])], Code::DtypeMismatch),
        (&product, vec![f(&[2, 8]), f(&[2, 1]), weight("q4_0", &[4, 32])], Code::DtypeMismatch),
        (&product, vec![int8(&[2, 8]), f(&[2, 2]), weight("q4_0", &[4, 32])], Code::ShapeMismatch),
        (&residual, vec![f(&[2, 32]), weight("q4_0", &[4, 32]), f(&[4])], Code::ShapeMismatch),
        (&residual, vec![f(&[2, 32]), weight("q4_0", &[4, 32]), f(&[4]), f(&[4, 2])], Code::ShapeMismatch),
        (&ops::Quantize, vec![f(&[2, 33])], Code::ShapeMismatch),
        (&ops::SwigluFused::default(), vec![f(&[2, 7])], Code::ShapeMismatch),
        (&append, vec![f(&[1, 16]), f(&[2]), u(&[4]), f(&[9, 4]), f(&[9, 4]), f(&[15])], Code::ShapeMismatch),
        (&rope, vec![f(&[1, 6]), f(&[4]), u(&[4])], Code::ShapeMismatch),
    ];
    for (op, inputs, code) in refused {
        assert_eq!(op.infer(&inputs).unwrap_err().code(), code, "{} {inputs:?}", op.name());
    }
}

/// Numbers at the limit end in an error, whatever size a pointer has, and the message names the function and what was found.
/// An op, the shapes of its inputs, and what its error says.
type Refused<'a> = (Box<dyn Op>, Vec<&'a [usize]>, &'a str);

#[test]
fn windows_and_heads_that_do_not_fit_are_refused() {
    const MAX: usize = usize::MAX;
    let conv = |stride, padding, dilation, groups| ops::Conv2d { stride, padding, dilation, groups, bias: false };
    let back = |stride, padding, output_padding, dilation, groups| ops::ConvTranspose2d {
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        bias: false,
    };
    let max = |kernel, stride, padding, dilation| ops::MaxPool2d { kernel, stride, padding, dilation, ceil_mode: true };
    let mean =
        |kernel, padding| ops::AvgPool2d { kernel, stride: [1, 1], padding, ceil_mode: false, count_include_pad: true };
    let attention = ops::FlashAttention { causal: true, scale: 1.0 };
    let (x, w) = ([1, 4, 8, 8], [6, 2, 3, 3]);
    let (one, none) = ([1, 1], [0, 0]);
    let refused: Vec<Refused> = vec![
        (Box::new(conv(one, none, one, 1)), vec![&x, &w], "2 input channels times 1 groups are not the 4 of x"),
        (Box::new(conv(one, none, one, 4)), vec![&x, &w], "6 output channels can't be divided into 4 groups"),
        (Box::new(conv(one, none, one, 0)), vec![&x, &w], "into 0 groups"),
        (Box::new(conv([0, 1], none, one, 2)), vec![&x, &w], "must not be 0"),
        (Box::new(conv(one, none, [1, 0], 2)), vec![&x, &w], "must not be 0"),
        (Box::new(conv(one, none, [4, 1], 2)), vec![&x, &w], "larger than an input of 8 with padding 0"),
        (Box::new(conv(one, none, [MAX, 1], 2)), vec![&x, &w], "too large"),
        (Box::new(conv(one, [MAX, 0], one, 2)), vec![&x, &w], "too large"),
        (Box::new(conv(one, [1 << 28, 1 << 28], one, 2)), vec![&x, &w], "too large"),
        (Box::new(conv(one, [1 << 20, 1 << 20], one, 2)), vec![&x, &w], "too large"),
        (Box::new(conv(one, none, one, 2)), vec![&x, &w[..3]], "the weight has four dimensions"),
        (Box::new(conv(one, none, one, 2)), vec![&x], "takes 2 inputs"),
        (Box::new(ops::Conv2d { bias: true, ..conv(one, none, one, 2) }), vec![&x, &w, &[5]], "a bias [5] for 6"),
        (Box::new(back(one, none, none, one, 1)), vec![&x, &w], "6 input channels are not the 4 of x"),
        (Box::new(back(one, none, none, one, 3)), vec![&x, &[4, 2, 3, 3]], "can't be divided into 3 groups"),
        (Box::new(back(one, none, none, one, 0)), vec![&x, &[4, 2, 3, 3]], "into 0 groups"),
        (Box::new(back([0, 1], none, none, one, 1)), vec![&x, &[4, 2, 3, 3]], "must not be 0"),
        (Box::new(back([2, 2], none, [2, 0], one, 1)), vec![&x, &[4, 2, 3, 3]], "output padding of 2"),
        (Box::new(back(one, [5, 0], none, one, 1)), vec![&x, &[4, 2, 3, 3]], "leaves nothing of an output of 10"),
        (Box::new(back([MAX, 1], none, none, one, 1)), vec![&x, &[4, 2, 3, 3]], "too large"),
        (Box::new(back(one, none, none, [1, MAX], 1)), vec![&x, &[4, 2, 3, 3]], "too large"),
        (Box::new(max([3, 0], one, none, one)), vec![&x], "must not be 0"),
        (Box::new(max([3, 3], [1, 0], none, one)), vec![&x], "must not be 0"),
        (Box::new(max([3, 3], one, [2, 0], one)), vec![&x], "a padding of 2 is more than half of the kernel's 3"),
        (Box::new(max([9, 3], one, none, one)), vec![&x], "a kernel of 9"),
        (Box::new(max([MAX, 3], one, [MAX / 2, 0], one)), vec![&x], "too large"),
        (Box::new(max([3, 3], one, none, [MAX, 1])), vec![&x], "too large"),
        (Box::new(mean([3, 9], none)), vec![&x], "a kernel of 9"),
        (Box::new(mean([3, 3], [0, 2])), vec![&x], "more than half"),
        (Box::new(mean([3, 3], none)), vec![&x[..3]], "x has four dimensions"),
        (Box::new(attention), vec![&[1, 2, 3, 8], &[1, 2, 2, 8], &[1, 2, 2, 8]], "3 heads are not a multiple of the 2"),
        (
            Box::new(ops::FlashAttention { causal: true, scale: 1.0 }),
            vec![&[1, 2, 3, 300], &[1, 2, 3, 300], &[1, 2, 3, 300]],
            "1 to 256 dimensions, not 300",
        ),
        (
            Box::new(ops::FlashAttention { causal: false, scale: 1.0 }),
            vec![&[1, 2, 3, 8], &[1, 4, 3, 8], &[1, 5, 3, 8]],
            "don't fit each other",
        ),
    ];
    for (op, inputs, wanted) in refused {
        let inputs: Vec<Desc> = inputs.into_iter().map(Desc::f32).collect();
        let error = op.infer(&inputs).unwrap_err();
        let message = error.to_string();
        assert_eq!(error.code(), Code::ShapeMismatch, "{message}");
        assert!(message.contains(op.title()) && message.contains(wanted), "{message}, wanted: {wanted}");
    }
}

/// As PyTorch counts the last windows that reach past the end.
#[test]
fn windows_are_counted_as_in_pytorch() {
    // size, kernel, stride, padding, dilation, windows, windows with ceil_mode
    let counts = [
        (7, 2, 2, 0, 1, 3, 4),
        (8, 2, 2, 0, 1, 4, 4),
        (5, 3, 4, 1, 1, 2, 2),
        (4, 2, 3, 1, 1, 2, 2),
        (6, 3, 2, 1, 1, 3, 4),
        (1, 1, 2, 0, 1, 1, 1),
        (10, 3, 3, 0, 2, 2, 3),
        (9, 4, usize::MAX, 2, 1, 1, 1),
    ];
    for (size, kernel, stride, padding, dilation, floor, ceil) in counts {
        for (ceil_mode, wanted) in [(false, floor), (true, ceil)] {
            let [kernel, stride, padding, dilation] = [[kernel, 1], [stride, 1], [padding, 0], [dilation, 1]];
            let op = ops::MaxPool2d { kernel, stride, padding, dilation, ceil_mode };
            let outputs = op.infer(&[Desc::f32(&[1, 1, size, 1])]).unwrap();
            assert_eq!(outputs[0].shape.dims(), [1, 1, wanted, 1], "{size}: {kernel:?}, {ceil_mode}");
        }
    }
}

/// Where f32 overflows, what the built-in gives is left open by WGSL; where it doesn't, the number must still be finite.
#[test]
fn exp_overflows_to_infinity() {
    let context = adapter::context(true);
    let x = context.tensor(&HostTensor::f32(&[5], &[88.7, 88.73, 1e3, 1e30, f32::INFINITY])).unwrap();
    let y = context.run1(&ops::Unary { kind: ops::UnaryKind::Exp }, &[&x]).unwrap();
    let y = pollster::block_on(context.readback(&[&y])).unwrap()[0].to_f32().unwrap();
    assert!(y[0] > 3.3e38 && y[0] < f32::INFINITY, "{y:?}");
    assert_eq!(y[1..], [f32::INFINITY; 4]);
}

/// The same operands give the same sum, to the bit, and the order of x and y is of no account.
#[test]
fn dot_products_are_deterministic() {
    let context = adapter::context(true);
    let mut rng = Rng(23);
    let [x, y] = [(); 2].map(|()| context.tensor(&rng.tensor(&[70_001])).unwrap());
    let dots: Vec<Tensor> =
        [[&x, &y], [&x, &y], [&y, &x]].iter().map(|inputs| context.run1(&ops::Dot, inputs).unwrap()).collect();
    let dots = pollster::block_on(context.readback(&dots.iter().collect::<Vec<_>>())).unwrap();
    assert!(dots.iter().all(|dot| dot.bytes == dots[0].bytes));
}

/// A read-back gives what was written, of any length, and several may be in flight.
#[test]
fn readbacks_give_what_was_written() {
    let context: Context = adapter::context(true);
    let mut rng = Rng(22);
    let hosts: Vec<HostTensor> = [1, 3, 63, 64, 65, 1031, 70_001].iter().map(|n| rng.tensor(&[*n])).collect();
    let tensors: Vec<_> = hosts.iter().map(|host| context.tensor(host).unwrap()).collect();
    let before = context.device().stats();
    let together = pollster::block_on(context.readback(&tensors.iter().collect::<Vec<_>>())).unwrap();
    let stats = context.device().stats();
    assert_eq!((stats.maps - before.maps, stats.submits - before.submits), (1, 1), "one submit, one map for all");
    for (got, wanted) in together.iter().zip(&hosts) {
        assert_eq!(got.bytes, wanted.bytes);
    }
    let flights: Vec<_> = tensors
        .iter()
        .map(|tensor| context.start_readback(&[(tensor, 0..tensor.shape().elements())]).unwrap())
        .collect();
    for (flight, wanted) in flights.into_iter().zip(&hosts).rev() {
        assert_eq!(pollster::block_on(flight.bytes()).unwrap()[0], wanted.bytes);
    }
}
