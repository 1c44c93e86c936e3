//! Plans of array operations: what a replay computes, creates and writes, what it leaves alone, and what can't be in a plan.

use std::cell::{Cell, RefCell};

use crate::support::adapter;
use pollster::block_on;
use rillm::array::{Array, Binary, DType, Library, Plan, Reduce, Scalar, Unary};
use rillm::{Code, Result};

fn library() -> Library {
    Library::new(adapter::context(true))
}

fn numbers(array: &Array) -> Vec<f32> {
    block_on(array.to_f32()).unwrap()
}

fn planned(library: &Library, step: impl Fn() -> Result<Array>) -> (Array, Plan) {
    let (mut results, plan) = block_on(library.plan(|| Ok(vec![step()?]))).unwrap();
    (results.remove(0), plan)
}

fn write(library: &Library, x: &Array, data: &[f32]) {
    x.assign(&library.f32(&[data.len()], data).unwrap()).unwrap();
}

#[test]
fn a_replay_computes_anew_and_creates_and_writes_nothing() {
    let library = library();
    let device = library.context().device().clone();
    let x = library.f32(&[4], &[1., 2., 3., 4.]).unwrap();
    let w = library.rand(&[4, 300], 1).unwrap();
    // Arrays that were there and wait, or have no memory, are computed once and not in each replay.
    let bias = library.rand(&[300], 2).unwrap().unary(Unary::Exp).unwrap();
    let zeros = library.full(&[4], DType::F32, Scalar::Int(0)).unwrap();
    let step = || {
        let product = x.matmul(&w)?.binary(Binary::Add, &bias)?.unary(Unary::Tanh)?;
        let (sorted, _) = product.sort(0, true)?;
        sorted.reduce(Reduce::Sum, None, false)?.binary(Binary::Add, &zeros.sort(0, false)?.0)
    };
    let (result, plan) = planned(&library, step);
    let of = |data: &[f32]| {
        write(&library, &x, data);
        numbers(&step().unwrap())
    };
    assert_eq!(numbers(&result), of(&[1., 2., 3., 4.]));
    let derived = result.binary_scalar(Binary::Mul, Scalar::Int(2), false).unwrap();
    let (first, second) = (numbers(&result), of(&[-1., 0.5, 0.25, 3.]));
    device.flush();
    let before = (device.stats(), device.memory());
    // `derived` has the values from before, which takes a kernel.
    for _ in 0..3 {
        plan.replay().unwrap();
    }
    device.flush();
    let after = (device.stats(), device.memory());
    assert_eq!(after.0.dispatches - before.0.dispatches, 3 * plan.dispatches() as u64 + 1);
    assert_eq!(after.0.submits - before.0.submits, 1);
    assert_eq!(after.0.pipelines.misses, before.0.pipelines.misses + 1);
    assert_eq!(after.0.bytes_uploaded, before.0.bytes_uploaded);
    assert_eq!(numbers(&result), second);
    assert_eq!(numbers(&derived), first.iter().map(|x| 2.0 * x).collect::<Vec<f32>>());

    let before = (device.stats(), device.memory());
    plan.replay().unwrap();
    device.flush();
    let after = (device.stats(), device.memory());
    assert_eq!(after.0.dispatches - before.0.dispatches, plan.dispatches() as u64);
    assert_eq!(after.0.uniforms.misses, before.0.uniforms.misses);
    assert_eq!(after.0.bind_groups.misses, before.0.bind_groups.misses);
    assert_eq!(after.0.queue_writes, before.0.queue_writes);
    assert_eq!(after.1.allocated_bytes, before.1.allocated_bytes);
    let (bytes, without_reuse) = plan.arena_bytes();
    assert!(0 < bytes && bytes < without_reuse);
}

#[test]
fn state_that_a_step_changes_goes_on() {
    let library = library();
    // Without memory when the plan is made, and written by it.
    let state = library.full(&[3], DType::F32, Scalar::Int(1)).unwrap();
    let part = state.slice(0, Some(1), None, 1).unwrap();
    let step = || {
        let next = state.binary_scalar(Binary::Mul, Scalar::Int(2), false)?;
        state.assign(&next)?;
        next.reduce(Reduce::Sum, None, false)
    };
    let before = state.binary_scalar(Binary::Add, Scalar::Int(10), false).unwrap();
    let (sum, plan) = planned(&library, step);
    assert_eq!((numbers(&sum), numbers(&state), numbers(&part)), (vec![6.], vec![2.; 3], vec![2.; 2]));
    plan.replay().unwrap();
    plan.replay().unwrap();
    assert_eq!((numbers(&sum), numbers(&state), numbers(&part)), (vec![24.], vec![8.; 3], vec![8.; 2]));
    assert_eq!(numbers(&before), [11.; 3]);
    drop(plan);
    assert_eq!(numbers(&sum), [24.], "results outlive the plan");
}

#[test]
fn what_others_do_while_kernels_compile_is_seen() {
    let library = library();
    let (x, lazy) = (library.f32(&[2], &[1., 2.]).unwrap(), library.arange(0.0, 2.0, 1.0, DType::F32).unwrap());
    let waiting = x.unary(Unary::Neg).unwrap();
    let calls = Cell::new(0);
    // Some of the arrays are computed between the first call and the others.
    let step = || {
        calls.set(calls.get() + 1);
        if calls.get() == 2 {
            // The second call comes after the wait.
            assert!(library.check_is_free("test").is_err());
        }
        waiting.binary(Binary::Add, &lazy)?.cumsum(0)
    };
    let (result, plan) = planned(&library, step);
    assert!(calls.get() >= 2);
    assert_eq!(numbers(&result), [-1., -2.]);
    plan.replay().unwrap();
    assert_eq!(numbers(&waiting), [-1., -2.]);
    assert_eq!(numbers(&result), [-1., -2.]);
}

#[test]
fn what_can_not_be_in_a_plan_is_refused_and_leaves_everything_usable() {
    let library = library();
    let device = library.context().device().clone();
    let x = library.f32(&[2], &[1., 2.]).unwrap();
    let error = |step: &dyn Fn() -> Result<Vec<Array>>| block_on(library.plan(step)).err().unwrap();
    let upload = error(&|| {
        library.check_is_free("tensor")?;
        Ok(vec![library.f32(&[1], &[1.])?])
    });
    assert_eq!(upload.code(), Code::InvalidRequest);
    assert!(upload.message().starts_with("tensor: not inside"), "{upload}");
    let nested = error(&|| {
        block_on(library.plan(|| Ok(vec![x.unary(Unary::Neg)?])))?;
        Ok(Vec::new())
    });
    assert_eq!(nested.code(), Code::InvalidRequest);
    let mismatch = error(&|| Ok(vec![x.matmul(&library.full(&[3, 1], DType::F32, Scalar::Int(0))?)?]));
    assert_eq!(mismatch.code(), Code::ShapeMismatch);
    // A step that is not the same each time.
    let calls = RefCell::new(0);
    let other = error(&|| {
        *calls.borrow_mut() += 1;
        let mut y = x.cumsum(0)?;
        for _ in 0..*calls.borrow() {
            y = y.cumsum(0)?;
        }
        Ok(vec![y])
    });
    assert!(other.message().contains("the same every time"), "{other}");
    // Nothing of it is left.
    assert_eq!(device.pending(), 0);
    library.check_is_free("test").unwrap();
    let (result, plan) = planned(&library, || x.cumsum(0));
    plan.replay().unwrap();
    assert_eq!(numbers(&result), [1., 3.]);
    let (_, empty) = block_on(library.plan(|| Ok(Vec::new()))).unwrap();
    empty.replay().unwrap();
    assert_eq!(empty.dispatches(), 0);
}
