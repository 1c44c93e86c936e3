//! What ops along a dimension say of tensors that don't fit.

use rillm::Code;
use rillm::tensor::ops::{
    AddBlockSums, Cumsum, Gather, IndexSelect, MergeRuns, RunsOf, ScanBlocks, ScatterAdd, ScatterKind, Softmax, Sort,
    SortKey, SortOrder, SortRuns,
};
use rillm::tensor::{DType, Desc, Op};

#[test]
fn messages_name_the_function_and_the_shapes() {
    let (f, u) = (Desc::f32, Desc::u32);
    let gather = Gather { float: true, signed: true };
    let select = IndexSelect { float: true, signed: true };
    let scatter = ScatterAdd { kind: ScatterKind::F32, signed: false };
    let order = SortOrder { key: SortKey::F32, descending: false };
    let pairs = |keep| SortRuns { of: RunsOf::Pairs, keep };
    let refused: [(&dyn Op, Vec<Desc>, Code, &str); 20] = [
        (
            &Softmax { log: false },
            vec![f(&[3, 4])],
            Code::ShapeMismatch,
            "softmax: x is [3, 4], wanted [outer, n, inner]",
        ),
        (&Softmax { log: true }, vec![f(&[3, 0, 1])], Code::ShapeMismatch, "log_softmax: x [3, 0, 1] has no elements"),
        (&Softmax { log: true }, vec![u(&[3, 4, 1])], Code::DtypeMismatch, "log_softmax: input 0 is u32, wanted f32"),
        (
            &Cumsum,
            vec![f(&[1 << 12, 1 << 12, 1 << 12])],
            Code::ShapeMismatch,
            "cumsum: [4096, 4096, 4096] has more than 2^32 elements",
        ),
        (&Cumsum, vec![], Code::ShapeMismatch, "cumsum takes 1 inputs, not 0"),
        (
            &Cumsum,
            vec![Desc { dtype: DType::F16, ..f(&[1, 4, 1]) }],
            Code::DtypeMismatch,
            "cumsum: f16, wanted f32 or u32",
        ),
        (
            &ScanBlocks { block: 0 },
            vec![f(&[1, 4, 1])],
            Code::ShapeMismatch,
            "cumsum: a block has at least one element",
        ),
        (
            &AddBlockSums { block: 3 },
            vec![f(&[1, 4, 1]), f(&[1, 4, 1])],
            Code::ShapeMismatch,
            "cumsum: x [1, 4, 1], blocks of 3 and their sums [1, 4, 1]",
        ),
        (
            &gather,
            vec![f(&[3, 4, 1]), u(&[2, 3, 1])],
            Code::ShapeMismatch,
            "gather: the index [2, 3, 1] and x [3, 4, 1] differ in the first dimension",
        ),
        (
            &gather,
            vec![f(&[3, 4, 1]), u(&[3, 3, 2])],
            Code::ShapeMismatch,
            "gather: the index [3, 3, 2] and x [3, 4, 1] differ in the last dimension",
        ),
        (
            &gather,
            vec![f(&[3, 4, 1]), f(&[3, 4, 1])],
            Code::DtypeMismatch,
            "gather: the index is f32, wanted 32-bit integers",
        ),
        (&gather, vec![f(&[3, 4, 1])], Code::ShapeMismatch, "gather takes 2 inputs, not 1"),
        (
            &select,
            vec![f(&[3, 4, 1]), u(&[2, 3])],
            Code::ShapeMismatch,
            "index_select: the index is [2, 3], wanted one dimension",
        ),
        (
            &select,
            vec![f(&[1, 4, 1 << 16]), u(&[1 << 16])],
            Code::ShapeMismatch,
            "index_select: [1, 65536, 65536] has more than 2^32 elements",
        ),
        (
            &scatter,
            vec![f(&[3, 4, 1]), u(&[3, 2, 1]), f(&[3, 1, 1])],
            Code::ShapeMismatch,
            "scatter_add: the index is [3, 2, 1] and the source [3, 1, 1]",
        ),
        (
            &scatter,
            vec![u(&[3, 4, 1]), u(&[3, 2, 1]), u(&[3, 2, 1])],
            Code::DtypeMismatch,
            "scatter_add: input 0 is u32, wanted f32",
        ),
        (
            &Sort { order, keep: 1 },
            vec![f(&[2, 1025])],
            Code::ShapeMismatch,
            "sort: [2, 1025], and a workgroup sorts rows of up to 1024",
        ),
        (&pairs(1), vec![u(&[2, 5]), u(&[2, 6])], Code::ShapeMismatch, "sort: keys [2, 5] and their columns [2, 6]"),
        (
            &pairs(1025),
            vec![u(&[2, 5]), u(&[2, 5])],
            Code::ShapeMismatch,
            "sort: 1025 of a run can't be kept, only 1 to 1024",
        ),
        (
            &MergeRuns { run: 0, keep: 5 },
            vec![u(&[2, 5]), u(&[2, 5])],
            Code::ShapeMismatch,
            "sort: a run has at least one element",
        ),
    ];
    for (op, inputs, code, message) in refused {
        let error = op.infer(&inputs).unwrap_err();
        assert_eq!((error.code(), error.message()), (code, message));
    }
}
