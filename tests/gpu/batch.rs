//! Batches on a native GPU: results, one submit for all operations, and mistakes at the call that makes them.

use std::cell::Cell;
use std::rc::Rc;

use crate::support::adapter;
use rillm::Code;
use rillm::tensor::ops::{Binary, BinaryKind, Dot, MatMulF32, Scale, Unary, UnaryKind};
use rillm::tensor::{Batch, Context, DType, Desc, HostTensor, Rng, Shape, Tensor};

fn read(context: &Context, batch: &Batch, buffer: u32) -> Vec<f32> {
    let tensor = batch.tensor(buffer).unwrap();
    pollster::block_on(context.readback(&[tensor])).unwrap().remove(0).to_f32().unwrap()
}

#[test]
fn operations_run_together_in_one_submit_and_see_each_other() {
    let context = adapter::context(true);
    let mut batch = Batch::new(context.clone());
    let mut rng = Rng(31);
    let (a, b) = (rng.tensor(&[37, 5]), rng.tensor(&[37, 5]));
    let x = batch.insert(context.tensor(&a).unwrap());
    let y = batch.insert(context.tensor(&b).unwrap());
    let sum = batch.record(Binary { kind: BinaryKind::Add }, &[x, y]).unwrap();
    let scaled = batch.record(Scale { factor: -2.0 }, &[sum]).unwrap();
    let positive = batch.record(Unary { kind: UnaryKind::Relu }, &[scaled]).unwrap();
    let total = batch.record(Dot, &[positive, sum]).unwrap();
    assert_eq!((batch.operations(), batch.buffers()), (4, 6));
    assert_eq!(batch.desc(total).unwrap(), Desc::f32(&[1]), "shapes are known before the numbers");

    let before = context.device().stats();
    batch.execute().unwrap();
    let after = context.device().stats();
    assert_eq!((after.submits - before.submits, after.dispatches - before.dispatches), (1, 4));
    assert_eq!(batch.operations(), 0);

    let (a, b) = (a.to_f32().unwrap(), b.to_f32().unwrap());
    let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let wanted: Vec<f32> = sums.iter().map(|sum| (sum * -2.0).max(0.0)).collect();
    assert_eq!(read(&context, &batch, positive), wanted);
    let wanted: f64 = wanted.iter().zip(&sums).map(|(p, s)| f64::from(p * s)).sum();
    assert!((f64::from(read(&context, &batch, total)[0]) - wanted).abs() < 1e-4);

    batch.execute().unwrap();
    assert_eq!(context.device().stats().submits, after.submits + 2, "only the two read-backs, nothing to execute");
}

#[test]
fn kernels_are_compiled_ahead_and_nothing_runs() {
    let context = adapter::context(true);
    let mut batch = Batch::new(context.clone());
    let x = batch.insert(context.tensor(&HostTensor::f32(&[3], &[1., -2., 3.])).unwrap());
    let positive = batch.record(Unary { kind: UnaryKind::Relu }, &[x]).unwrap();
    let doubled = batch.record(Scale { factor: 2.0 }, &[positive]).unwrap();
    context.device().flush();
    let counts = || {
        let stats = context.device().stats();
        (stats.pipelines.misses, stats.dispatches, stats.submits)
    };
    let before = counts();
    // What is noted after the call is not part of it, and the batch may go meanwhile.
    let compiled = batch.compile();
    let last = batch.record(Unary { kind: UnaryKind::Tanh }, &[doubled]).unwrap();
    pollster::block_on(compiled).unwrap();
    pollster::block_on(batch.compile()).unwrap();
    assert_eq!(counts(), (before.0 + 3, before.1, before.2));
    assert_eq!(batch.tensor(positive).err().unwrap().code(), Code::InvalidRequest, "nothing was executed");
    batch.execute().unwrap();
    assert_eq!(counts(), (before.0 + 3, before.1 + 3, before.2 + 1));
    assert_eq!(read(&context, &batch, doubled), [2., 0., 6.]);
    assert_eq!(read(&context, &batch, last), [2f32.tanh(), 0., 6f32.tanh()]);
    pollster::block_on(Batch::new(context.clone()).compile()).unwrap();
    let late = batch.compile();
    drop(batch);
    pollster::block_on(late).unwrap();
}

#[test]
fn a_call_records_at_its_place_and_stays_noted_if_it_fails() {
    let context = adapter::context(true);
    let mut batch = Batch::new(context.clone());
    let x = batch.insert(context.tensor(&HostTensor::f32(&[3], &[1., 2., 3.])).unwrap());
    let doubled = batch.record(Scale { factor: 2.0 }, &[x]).unwrap();
    let is_allowed = Rc::new(Cell::new(false));
    let (device, asked) = (context.clone(), is_allowed.clone());
    let copy = move |tensors: &[Tensor]| {
        if !asked.get() {
            return Err(rillm::Error::new(Code::OutOfMemory, "not now"));
        }
        device.device().copy(&tensors[0].slice(), &tensors[1].slice())
    };
    // What the result held before is seen by what comes before, what it holds then by what comes after.
    let before = batch.record(Binary { kind: BinaryKind::Add }, &[x, x]).unwrap();
    batch.record_call(copy, &[doubled, x]).unwrap();
    let after = batch.record(Binary { kind: BinaryKind::Add }, &[x, x]).unwrap();
    assert_eq!(batch.operations(), 4);
    assert_eq!(batch.execute().unwrap_err().code(), Code::OutOfMemory);
    assert_eq!(batch.operations(), 2, "the call and what comes after it");
    assert_eq!(batch.tensor(after).err().unwrap().code(), Code::InvalidRequest);
    is_allowed.set(true);
    batch.execute().unwrap();
    assert_eq!(batch.operations(), 0);
    assert_eq!(read(&context, &batch, before), [2., 4., 6.]);
    assert_eq!(read(&context, &batch, after), [4., 8., 12.]);
    assert_eq!(batch.record_call(|_| Ok(()), &[x, 99]).unwrap_err().code(), Code::InvalidRequest);
}

#[test]
fn buffers_are_read_in_other_shapes_of_as_many_elements() {
    let context = adapter::context(true);
    let mut batch = Batch::new(context.clone());
    let a = batch.insert(context.tensor(&HostTensor::f32(&[6], &[1., 2., 3., 4., 5., 6.])).unwrap());
    let b = batch.insert(context.tensor(&HostTensor::f32(&[2, 3], &[1., 2., 3., 4., 5., 6.])).unwrap());
    let product = batch.record_as(MatMulF32, &[a, b], &[Shape::from([2, 3]), Shape::from([3, 2])]).unwrap();
    batch.execute().unwrap();
    assert_eq!(batch.desc(product).unwrap().shape, Shape::from([2, 2]));
    assert_eq!(read(&context, &batch, product), [22., 28., 49., 64.]);
    assert_eq!(batch.desc(a).unwrap().shape, Shape::from([6]), "the buffer itself keeps its shape");

    let other = batch.record_as(MatMulF32, &[a, b], &[Shape::from([2, 3]), Shape::from([3, 3])]);
    assert_eq!(other.unwrap_err().code(), Code::ShapeMismatch);
}

#[test]
fn mistakes_leave_the_batch_as_it_was() {
    let context = adapter::context(true);
    let mut batch = Batch::new(context.clone());
    let x = batch.insert(context.tensor(&HostTensor::f32(&[2], &[1., -1.])).unwrap());
    let y = batch.insert(context.tensor(&HostTensor::f32(&[3], &[1., 2., 3.])).unwrap());
    let u = batch.insert(context.tensor(&HostTensor::u32(&[2], &[1, 2])).unwrap());
    let add = || Binary { kind: BinaryKind::Add };
    assert_eq!(batch.record(add(), &[x, y]).unwrap_err().code(), Code::ShapeMismatch);
    assert_eq!(batch.record(add(), &[x, u]).unwrap_err().code(), Code::DtypeMismatch);
    assert_eq!(batch.record(add(), &[x]).unwrap_err().code(), Code::ShapeMismatch);
    assert_eq!(batch.record(add(), &[x, 9]).unwrap_err().code(), Code::InvalidRequest);
    assert_eq!((batch.operations(), batch.buffers()), (0, 3));

    let sum = batch.record(add(), &[x, x]).unwrap();
    assert_eq!(batch.tensor(sum).err().unwrap().code(), Code::InvalidRequest, "not executed yet");
    batch.execute().unwrap();
    assert_eq!(read(&context, &batch, sum), [2., -2.]);
}

#[test]
fn what_was_handed_in_is_shared_and_stays() {
    let context = adapter::context(true);
    let tensor = context.tensor(&HostTensor::f32(&[2], &[1., 2.])).unwrap();
    let result = {
        let mut batch = Batch::new(context.clone());
        let x = batch.insert(tensor.clone());
        let double = batch.record(Scale { factor: 2.0 }, &[x]).unwrap();
        batch.execute().unwrap();
        batch.tensor(double).unwrap().clone()
    };
    let both = pollster::block_on(context.readback(&[&tensor, &result])).unwrap();
    assert_eq!(both[0].to_f32().unwrap(), [1., 2.]);
    assert_eq!(both[1].to_f32().unwrap(), [2., 4.]);
    assert!(matches!(result.reshaped(Shape::from([2, 1])).unwrap().dtype(), DType::F32));
    assert_eq!(result.reshaped(Shape::from([3])).err().unwrap().code(), Code::ShapeMismatch);
}
