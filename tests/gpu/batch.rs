//! Batches on a native GPU: results, one submit for all operations, memory, and mistakes at the call that makes them.

use std::cell::Cell;
use std::rc::Rc;

use crate::support::adapter;
use pollster::block_on;
use rillm::array::{Array, Batch, Binary, DType, Library, Reduce, Scalar, Unary};
use rillm::{Code, Error, Result};

fn library() -> Library {
    Library::new(adapter::context(true))
}

fn read(batch: &Batch, buffer: u32) -> Vec<f32> {
    block_on(batch.array(buffer).unwrap().to_f32()).unwrap()
}

/// Dispatches and submits so far.
fn counts(library: &Library) -> (u64, u64) {
    let stats = library.context().device().stats();
    (stats.dispatches, stats.submits)
}

fn one(batch: &mut Batch, inputs: &[u32], work: impl Fn(&[Array]) -> Result<Array> + 'static) -> Result<u32> {
    Ok(batch.note(inputs, move |arrays| Ok(vec![work(arrays)?]))?[0])
}

fn binary(batch: &mut Batch, kind: Binary, a: u32, b: u32) -> Result<u32> {
    one(batch, &[a, b], move |arrays| arrays[0].binary(kind, &arrays[1]))
}

fn scaled(batch: &mut Batch, x: u32, factor: f64) -> u32 {
    one(batch, &[x], move |arrays| arrays[0].binary_scalar(Binary::Mul, Scalar::Float(factor), false)).unwrap()
}

#[test]
fn operations_run_together_in_one_submit_and_see_each_other() {
    let library = library();
    let mut batch = Batch::new(&library);
    let (a, b) = (library.rand(&[37, 5], 1).unwrap(), library.rand(&[37, 5], 2).unwrap());
    let (host_a, host_b) = (block_on(a.to_f32()).unwrap(), block_on(b.to_f32()).unwrap());
    let (x, y) = (batch.insert(a), batch.insert(b));
    let sum = binary(&mut batch, Binary::Add, x, y).unwrap();
    let halved = scaled(&mut batch, sum, -0.5);
    let positive = one(&mut batch, &[halved], |arrays| arrays[0].unary(Unary::Relu)).unwrap();
    let total = one(&mut batch, &[positive, sum], |arrays| {
        arrays[0].binary(Binary::Sub, &arrays[1])?.reduce(Reduce::Sum, None, false)
    })
    .unwrap();
    assert_eq!((batch.operations(), batch.buffers()), (4, 6));
    let (shape, dtype) = batch.describe(total).unwrap();
    assert_eq!((shape.dims(), dtype), (&[][..], DType::F32), "shapes are known before the numbers");

    let before = counts(&library);
    batch.execute().unwrap();
    let after = counts(&library);
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "all of it is one kernel");
    assert_eq!(batch.operations(), 0);
    let sums: Vec<f32> = host_a.iter().zip(&host_b).map(|(a, b)| a + b).collect();
    let wanted: f64 = sums.iter().map(|sum| -f64::from(*sum)).sum();
    assert!((f64::from(read(&batch, total)[0]) - wanted).abs() < 1e-3);
    // What is part of a kernel is there for who reads it.
    assert_eq!(read(&batch, sum), sums);
    assert_eq!(read(&batch, positive), vec![0.0; sums.len()]);

    let before = counts(&library);
    batch.execute().unwrap();
    assert_eq!(counts(&library), before, "nothing to execute");
}

#[test]
fn kernels_are_compiled_ahead_and_nothing_runs() {
    let library = library();
    let mut batch = Batch::new(&library);
    let x = batch.insert(library.f32(&[3], &[1., -2., 3.]).unwrap());
    let sorted = one(&mut batch, &[x], |arrays| Ok(arrays[0].sort(0, false)?.0)).unwrap();
    let doubled = scaled(&mut batch, sorted, 2.0);
    let pipelines = || library.context().device().stats().pipelines.misses;
    let (before, ran) = (pipelines(), counts(&library));
    // What is noted after the call is not part of it, and the batch may go meanwhile.
    let compiled = batch.compile();
    let last = one(&mut batch, &[doubled], |arrays| arrays[0].cumsum(0)).unwrap();
    block_on(compiled).unwrap();
    let first = pipelines();
    assert!(first > before);
    block_on(batch.compile()).unwrap();
    let second = pipelines();
    assert!(second > first);
    assert_eq!(counts(&library), ran);
    assert_eq!(batch.array(sorted).err().unwrap().code(), Code::InvalidRequest, "nothing was executed");
    batch.execute().unwrap();
    assert_eq!(pipelines(), second, "nothing was left to compile");
    assert_eq!(read(&batch, doubled), [-4., 2., 6.]);
    assert_eq!(read(&batch, last), [-4., -2., 4.]);
    block_on(Batch::new(&library).compile()).unwrap();
    let late = batch.compile();
    drop(batch);
    block_on(late).unwrap();
}

#[test]
fn an_operation_that_fails_stays_noted_with_what_comes_after_it() {
    let library = library();
    let mut batch = Batch::new(&library);
    let x = batch.insert(library.f32(&[3], &[1., 2., 3.]).unwrap());
    let doubled = scaled(&mut batch, x, 2.0);
    let is_allowed = Rc::new(Cell::new(true));
    let asked = is_allowed.clone();
    // What the result held before is seen by what comes before, what it holds then by what comes after.
    let before = binary(&mut batch, Binary::Add, x, x).unwrap();
    let written = batch.note(&[doubled, x], move |arrays| {
        if !asked.get() {
            return Err(Error::new(Code::OutOfMemory, "not now"));
        }
        arrays[1].assign(&arrays[0])?;
        Ok(Vec::new())
    });
    assert!(written.unwrap().is_empty());
    is_allowed.set(false);
    let after = binary(&mut batch, Binary::Add, x, x).unwrap();
    assert_eq!(batch.operations(), 4);
    assert_eq!(batch.execute().unwrap_err().code(), Code::OutOfMemory);
    assert_eq!(batch.operations(), 2, "the call and what comes after it");
    assert_eq!(batch.array(after).err().unwrap().code(), Code::InvalidRequest);
    is_allowed.set(true);
    batch.execute().unwrap();
    assert_eq!(batch.operations(), 0);
    assert_eq!(read(&batch, before), [2., 4., 6.]);
    assert_eq!(read(&batch, after), [4., 8., 12.]);
    assert_eq!(batch.note(&[x, 99], |_| Ok(Vec::new())).unwrap_err().code(), Code::InvalidRequest);
}

#[test]
fn results_that_nobody_reads_share_memory() {
    const ELEMENTS: usize = 1 << 20;
    let library = library();
    let device = library.context().device().clone();
    let live = || device.memory().active_bytes / (4 * ELEMENTS as u64);
    let x = library.rand(&[ELEMENTS], 3).unwrap();
    x.evaluate().unwrap();
    let before = live();
    // A chain of functions is one kernel.
    let mut batch = Batch::new(&library);
    let mut last = batch.insert(x.clone());
    for _ in 0..20 {
        last = scaled(&mut batch, last, 1.5);
    }
    batch.execute().unwrap();
    assert_eq!(live() - before, 1);
    drop(batch);
    // Sums are kept unless somebody says what is read.
    for (given, most) in [(false, 8), (true, 2)] {
        let mut batch = Batch::new(&library);
        let mut last = batch.insert(x.clone());
        let first = one(&mut batch, &[last], |arrays| arrays[0].cumsum(0)).unwrap();
        last = first;
        for _ in 0..7 {
            last = one(&mut batch, &[last], |arrays| arrays[0].cumsum(0)).unwrap();
        }
        let peak = device.memory().live_bytes;
        if given {
            batch.execute_for(&[last]).unwrap()
        } else {
            batch.execute().unwrap()
        }
        assert!(live() - before <= most, "{} buffers", live() - before);
        if given {
            assert!(device.memory().live_bytes <= peak, "a run takes no more than what was free");
            let error = batch.array(first).err().unwrap();
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(error.message().contains("outputs of execute()"), "{error}");
            assert!(one(&mut batch, &[first], |arrays| arrays[0].cumsum(0)).is_err());
            assert_eq!(batch.describe(first).unwrap().0.dims(), [ELEMENTS]);
            let again = scaled(&mut batch, last, 0.0);
            batch.execute_for(&[again]).unwrap();
            assert_eq!(read(&batch, again)[7], 0.0);
            // It was an output of the first run, and stays.
            batch.array(last).unwrap();
        }
        assert_eq!(batch.execute_for(&[99]).unwrap_err().code(), Code::InvalidRequest);
    }
}

#[test]
fn mistakes_leave_the_batch_as_it_was() {
    let library = library();
    let mut batch = Batch::new(&library);
    let x = batch.insert(library.f32(&[2], &[1., -1.]).unwrap());
    let y = batch.insert(library.f32(&[3], &[1., 2., 3.]).unwrap());
    assert_eq!(binary(&mut batch, Binary::Add, x, y).unwrap_err().code(), Code::ShapeMismatch);
    assert_eq!(binary(&mut batch, Binary::Add, x, 9).unwrap_err().code(), Code::InvalidRequest);
    assert_eq!((batch.operations(), batch.buffers()), (0, 2));
    let sum = binary(&mut batch, Binary::Add, x, x).unwrap();
    assert_eq!(binary(&mut batch, Binary::Add, sum, y).unwrap_err().code(), Code::ShapeMismatch);
    assert_eq!(batch.array(sum).err().unwrap().code(), Code::InvalidRequest, "not executed yet");
    batch.execute().unwrap();
    assert_eq!(read(&batch, sum), [2., -2.]);
}

#[test]
fn what_was_handed_in_is_shared_and_waits_as_it_was() {
    let library = library();
    let x = library.f32(&[2], &[1., 2.]).unwrap();
    let waiting = x.unary(Unary::Neg).unwrap();
    let zeros = library.full(&[2], DType::F32, Scalar::Int(0)).unwrap();
    let result = {
        let mut batch = Batch::new(&library);
        let (a, b, c) = (batch.insert(x.clone()), batch.insert(waiting.clone()), batch.insert(zeros.clone()));
        let sorted = one(&mut batch, &[b], |arrays| Ok(arrays[0].sort(0, false)?.0)).unwrap();
        let sum = binary(&mut batch, Binary::Add, a, sorted).unwrap();
        batch.note(&[c, sum], |arrays| arrays[0].assign(&arrays[1]).map(|()| Vec::new())).unwrap();
        // What is noted has not happened: a rehearsal leaves no trace.
        let before = counts(&library);
        assert_eq!(block_on(waiting.to_f32()).unwrap(), [-1., -2.]);
        assert_eq!(counts(&library).0 - before.0, 1);
        batch.execute().unwrap();
        batch.array(sum).unwrap()
    };
    assert_eq!(block_on(x.to_f32()).unwrap(), [1., 2.]);
    assert_eq!(block_on(result.to_f32()).unwrap(), [-1., 1.]);
    assert_eq!(block_on(zeros.to_f32()).unwrap(), [-1., 1.]);
}
