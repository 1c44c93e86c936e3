//! Gradients: every operation against PyTorch's autograd (`scripts/golden/tensor_gradients.py`), and what a graph may be asked for.

use super::array_golden::{Case, Tensor, number, tensor};
use crate::record::AgreedRuns;
use crate::support::adapter;
use crate::support::parity::digest_of;
use pollster::block_on;
use rillm::array::{
    Array, Backward, Binary, CrossEntropy, DType, Layout, Library, Reduce, Reduction, Scalar, Unary, pulled_back,
};
use rillm::tensor::{DeviceOptions, Rng, Shape};
use rillm::{Code, Result};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;

fn library() -> Library {
    Library::new(adapter::context(true))
}

fn numbers(array: &Array) -> Vec<f32> {
    block_on(array.to_f32()).unwrap()
}

fn leaf(library: &Library, dims: &[usize], data: &[f32]) -> Array {
    library.f32(dims, data).unwrap().requiring_grad().unwrap()
}

fn random(library: &Library, dims: &[usize], seed: u64) -> Array {
    let data: Vec<f32> = Rng(seed).tensor(dims).to_f32().unwrap();
    library.f32(dims, &data).unwrap()
}

fn backward(of: &Array) -> Vec<u64> {
    of.backward(Backward::default()).unwrap()
}

fn sum(of: &Array) -> Array {
    of.reduce(Reduce::Sum, None, false).unwrap()
}

fn grad(of: &Array) -> Vec<f32> {
    numbers(&of.grad().expect("a gradient"))
}

fn close(got: &[f32], wanted: &[f32]) {
    assert_eq!(got.len(), wanted.len());
    let largest = wanted.iter().fold(1f32, |largest, x| largest.max(x.abs()));
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!((got - wanted).abs() <= 2e-5 * largest, "element {at} is {got}, wanted {wanted}");
    }
}

/// Of element i ((37 i) mod 23 − 11) / 8, which all dtypes hold.
fn upstream(library: &Library, of: &Array) -> Array {
    let numbers: Vec<f32> = (0..of.elements()).map(|i| ((37 * i) % 23) as f32 / 8.0 - 11.0 / 8.0).collect();
    library.f32(of.dims(), &numbers).unwrap().cast(of.dtype()).unwrap()
}

/// The gradients of a case's inputs: of its float outputs, each with its upstream.
fn gradients_of(library: &Library, case: &Value, hosts: &[Tensor]) -> Result<Vec<Option<Array>>> {
    let followed = |host: &Tensor| {
        let array = host.array(library);
        if array.dtype().is_float() { array.requiring_grad() } else { Ok(array) }
    };
    let inputs = hosts.iter().map(followed).collect::<Result<Vec<Array>>>()?;
    let op = case["op"].as_str().unwrap();
    let outputs = Case { op, args: &case["args"], inputs: inputs.clone() }.run(library)?;
    for output in outputs.iter().filter(|output| output.dtype().is_float()) {
        let gradient = upstream(library, output);
        output.backward(Backward { gradient: Some(&gradient), retain_graph: true })?;
    }
    Ok(inputs.iter().map(|input| if input.requires_grad() { input.grad() } else { None }).collect())
}

fn golden(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/golden/tensor/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Calls `each` with every line of the golden gradients and the case that it is of.
fn each_case(mut each: impl FnMut(&Value, &Value)) {
    let mut groups: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in golden("gradients") {
        let group = line["group"].as_str().unwrap();
        let cases = groups.entry(group.to_owned()).or_insert_with(|| golden(group));
        each(&line, &cases[line["at"].as_u64().unwrap() as usize]);
    }
}

/// How many cases of each operation have their gradients compared.
pub fn counts() -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    each_case(|_, case| *counts.entry(case["op"].as_str().unwrap().to_owned()).or_insert(0) += 1);
    counts
}

/// What is wrong with the gradients of a case.
fn problem(library: &Library, line: &Value, case: &Value) -> Option<String> {
    let hosts: Vec<Tensor> = case["inputs"].as_array().unwrap().iter().map(tensor).collect();
    let found = match gradients_of(library, case, &hosts) {
        Ok(found) => found,
        Err(error) => return Some(format!("{error:?}")),
    };
    line["gradients"].as_array().unwrap().iter().zip(found.iter().zip(&hosts)).find_map(|(wanted, (got, host))| {
        let (Some(wanted), Some(got)) = (wanted.as_str(), got) else {
            return wanted.as_str().map(|_| "no gradient".to_owned());
        };
        let bytes = base64::decode(wanted).unwrap();
        let wanted = Tensor { dtype: host.dtype, dims: host.dims.clone(), bytes, strides: None };
        let bytes = block_on(got.bytes()).unwrap();
        let got = Tensor { dtype: got.dtype(), dims: got.dims().to_vec(), bytes, strides: None };
        if (got.dtype, &got.dims) != (wanted.dtype, &wanted.dims) {
            return Some(format!("{:?} {:?}, wanted {:?} {:?}", got.dtype, got.dims, wanted.dtype, wanted.dims));
        }
        // Of the largest gradient of the case, since sums cancel; where all are 0, of 1.
        let scale = number(&line["scale"]);
        let allowed = number(&line["tolerance"]) * if scale == 0.0 { 1.0 } else { scale };
        let (got, wanted) = (got.values(), wanted.values());
        let differs = |(got, wanted): (&f64, &f64)| got.is_nan() || (got - wanted).abs() > allowed;
        let at = got.iter().zip(&wanted).position(differs)?;
        Some(format!("element {at} is {:e}, wanted {:e} ± {allowed:e}", got[at], wanted[at]))
    })
}

/// Of all that decides whether the gradients of a case agree, if that is known.
fn digest(library: &Library, line: &Value, case: &Value) -> Option<[u64; 2]> {
    let hosts: Vec<Tensor> = case["inputs"].as_array().unwrap().iter().map(tensor).collect();
    let step = || gradients_of(library, case, &hosts)?.iter().flatten().try_for_each(Array::evaluate);
    digest_of(library.context().device(), &(line.to_string(), case.to_string()), step)
}

#[test]
fn every_gradient_is_what_pytorch_gives() {
    let mut cases: Vec<(Value, Value)> = Vec::new();
    each_case(|line, case| cases.push((line.clone(), case.clone())));
    assert!(cases.len() > 400, "{}", cases.len());
    for (name, software_kernels) in [("gradients", None), ("gradients_gpu", Some(false))] {
        let options = DeviceOptions { software_kernels, ..Default::default() };
        let library = Library::new(adapter::context_with(&options));
        let record = AgreedRuns::open(name);
        let digests: Vec<_> =
            cases.iter().map(|(line, case)| (case["op"].as_str().unwrap(), digest(&library, line, case))).collect();
        let needed = cases.iter().zip(record.needed(&digests)).filter(|(_, is_needed)| *is_needed);
        let failures: Vec<String> = needed
            .filter_map(|((line, case), _)| {
                let problem = problem(&library, line, case)?;
                Some(format!("{} {}: {} {}: {problem}", line["group"], line["at"], case["op"], case["args"]))
            })
            .collect();
        assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
        record.all_agreed(&digests);
        record.close();
    }
}

#[test]
fn gradients_add_up_where_a_tensor_is_used_twice_and_over_several_passes() {
    let library = library();
    let x = leaf(&library, &[3], &[1., 2., 3.]);
    let y = x.binary(Binary::Mul, &x).unwrap();
    assert!(y.requires_grad() && !y.is_leaf() && x.is_leaf());
    assert!(x.grad().is_none());
    assert_eq!(backward(&sum(&y)), [x.leaf_number().unwrap()]);
    assert_eq!(grad(&x), [2., 4., 6.]);
    // Through two ways of different lengths, one of them broadcast.
    let z = x.unary(Unary::Exp).unwrap().unary(Unary::Log).unwrap().binary(Binary::Add, &x).unwrap();
    let z = z.unsqueeze(0).unwrap().expand(&[4, 3]).unwrap();
    backward(&sum(&z));
    close(&grad(&x), &[10., 12., 14.]);
    x.set_grad(None).unwrap();
    assert!(x.grad().is_none());
    // A view of it, and itself.
    let last = x.slice(0, Some(1), None, 1).unwrap();
    let z = last.binary(Binary::Mul, &x.slice(0, None, Some(2), 1).unwrap()).unwrap();
    backward(&sum(&z));
    assert_eq!(grad(&x), [2., 4., 2.]);
}

#[test]
fn a_gradient_is_in_memory_of_its_own() {
    let library = library();
    let (x, y) = (leaf(&library, &[2], &[1., 2.]), leaf(&library, &[2], &[3., 4.]));
    let given = library.f32(&[2], &[5., 6.]).unwrap();
    let both = x.binary(Binary::Add, &y).unwrap().apart().unwrap();
    both.backward(Backward { gradient: Some(&given), retain_graph: false }).unwrap();
    let zero = library.f32(&[], &[0.]).unwrap();
    given.assign(&zero).unwrap();
    x.grad().unwrap().assign(&zero).unwrap();
    assert_eq!((grad(&x), grad(&y)), (vec![0., 0.], vec![5., 6.]));
    // Of a sum it is one number, repeated.
    backward(&sum(&y));
    y.grad().unwrap().assign(&zero).unwrap();
    assert_eq!(grad(&y), [0., 0.]);
}

#[test]
fn a_function_of_one_tensor_twice_has_the_sum_of_both_gradients() {
    let library = library();
    for kind in Binary::ALL {
        let positive = random(&library, &[3, 5], 7).unary(Unary::Exp).unwrap();
        let [x, a, b] = [(); 3].map(|()| positive.apart().unwrap().requiring_grad().unwrap());
        backward(&sum(&x.binary(*kind, &x).unwrap()));
        backward(&sum(&a.binary(*kind, &b).unwrap()));
        let both: Vec<f32> = grad(&a).iter().zip(grad(&b)).map(|(a, b)| a + b).collect();
        close(&grad(&x), &both);
    }
}

#[test]
fn a_graph_is_gone_after_a_pass_unless_it_is_retained() {
    let library = library();
    let x = leaf(&library, &[], &[3.]);
    let y = x.binary(Binary::Mul, &x).unwrap();
    y.backward(Backward { retain_graph: true, ..Default::default() }).unwrap();
    let gradient = library.f32(&[], &[10.]).unwrap();
    y.backward(Backward { gradient: Some(&gradient), retain_graph: false }).unwrap();
    assert_eq!(grad(&x), [66.]);
    let again = y.backward(Backward::default()).unwrap_err();
    assert_eq!(again.code(), Code::InvalidRequest);
    assert!(again.message().contains("the graph of mul was freed"), "{again:?}");
    // Also where only a part of it is met again; nothing is added then.
    let z = y.unary(Unary::Exp).unwrap().binary(Binary::Add, &x).unwrap();
    assert!(z.backward(Backward::default()).is_err());
    assert_eq!(grad(&x), [66.]);
    assert_eq!(library.recorded().0, 2);
    library.clear_recorded();
    assert_eq!(library.recorded().0, 0);
    assert!(z.backward(Backward::default()).unwrap_err().message().contains("add was freed"));
}

#[test]
fn what_is_not_recorded_has_no_gradient() {
    let library = library();
    let x = leaf(&library, &[2], &[1., 2.]);
    let none = library.no_grad(|| x.unary(Unary::Exp)).unwrap();
    assert!(!none.requires_grad() && library.records());
    let error = sum(&none).backward(Backward::default()).unwrap_err();
    assert!(error.message().contains("nothing that the tensor [] was computed from requires"), "{error:?}");
    let y = x.detached().binary(Binary::Mul, &x).unwrap();
    backward(&sum(&y));
    assert_eq!(grad(&x), [1., 2.]);
    // Indices, truth values and whole numbers have none.
    assert!(!x.sort(0, true).unwrap().1.requires_grad());
    assert!(!x.arg_reduce(true, None, false).unwrap().requires_grad());
    assert!(!x.cast(DType::I32).unwrap().requires_grad());
    let refused = library.full(&[2], DType::I32, Scalar::Int(1)).unwrap().requiring_grad().err().unwrap();
    assert_eq!(refused.code(), Code::DtypeMismatch);
    assert!(y.requiring_grad().err().unwrap().message().contains("detach()"));
}

#[test]
fn mistakes_are_told_before_anything_is_added() {
    let library = library();
    let x = leaf(&library, &[2, 2], &[1., 2., 3., 4.]);
    let y = x.unary(Unary::Exp).unwrap();
    let code = |result: Result<Vec<u64>>| result.unwrap_err().code();
    assert_eq!(code(y.backward(Backward::default())), Code::ShapeMismatch);
    let wrong = library.f32(&[2], &[1., 1.]).unwrap();
    assert_eq!(code(y.backward(Backward { gradient: Some(&wrong), ..Default::default() })), Code::ShapeMismatch);
    let whole = library.full(&[2, 2], DType::I32, Scalar::Int(1)).unwrap();
    assert_eq!(code(y.backward(Backward { gradient: Some(&whole), ..Default::default() })), Code::DtypeMismatch);
    let other = self::library().f32(&[2, 2], &[1.; 4]).unwrap();
    assert_eq!(code(y.backward(Backward { gradient: Some(&other), ..Default::default() })), Code::WrongDevice);
    // An operation without a gradient says its name.
    let diagonal = x.as_strided(Layout::strided(Shape::from([2]), &[3], 0)).unwrap();
    let error = sum(&diagonal.binary(Binary::Mul, &diagonal).unwrap()).backward(Backward::default()).unwrap_err();
    assert!(error.message().starts_with("backward: as_strided has no gradient"), "{error:?}");
    // What was saved must be as it was.
    let w = library.f32(&[2, 2], &[1.; 4]).unwrap();
    let product = sum(&x.binary(Binary::Mul, &w).unwrap());
    w.assign(&library.f32(&[], &[5.]).unwrap()).unwrap();
    let error = product.backward(Backward::default()).unwrap_err();
    assert!(error.message().contains("that mul needs for its gradient was written"), "{error:?}");
    assert!(x.grad().is_none());
}

#[test]
fn writes_and_gradients_keep_out_of_each_others_way() {
    let library = library();
    let x = leaf(&library, &[2], &[1., 2.]);
    let number = library.f32(&[], &[7.]).unwrap();
    assert_eq!(x.assign(&number).unwrap_err().code(), Code::InvalidRequest);
    assert!(x.slice(0, None, Some(1), 1).unwrap().assign(&number).is_err());
    assert!(x.assign_from("write", 0, &library.f32(&[1], &[7.]).unwrap()).is_err());
    assert!(x.writable_tensor("dispatch").is_err());
    let memory = library.f32(&[2], &[0.; 2]).unwrap();
    assert!(memory.assign(&x).unwrap_err().message().contains("detach()"));
    memory.assign(&x.detached()).unwrap();
    library.no_grad(|| x.assign(&number)).unwrap();
    assert_eq!(numbers(&x), [7., 7.]);
    // Without memory when it begins to require a gradient.
    let zeros = library.full(&[2], DType::F32, Scalar::Int(0)).unwrap().requiring_grad().unwrap();
    backward(&sum(&zeros.unary(Unary::Exp).unwrap()));
    assert_eq!(grad(&zeros), [1., 1.]);
    library.no_grad(|| zeros.assign(&number)).unwrap();
    zeros.set_grad(None).unwrap();
    backward(&sum(&zeros.binary(Binary::Mul, &zeros).unwrap()));
    assert_eq!(grad(&zeros), [14., 14.]);
}

#[test]
fn an_operation_of_the_callers_own() {
    let library = library();
    let x = leaf(&library, &[3], &[1., 2., 3.]);
    let w = leaf(&library, &[], &[2.]);
    let out = library.no_grad(|| x.binary(Binary::Mul, &x)).unwrap();
    let own = x.detached();
    let recorded = out
        .record(
            "square",
            &[&x, &w],
            Box::new(move |gradient| Ok(vec![Some(gradient.binary(Binary::Mul, &own)?), None])),
        )
        .unwrap();
    backward(&sum(&recorded.unary(Unary::Neg).unwrap()));
    assert_eq!(grad(&x), [-1., -2., -3.]);
    assert!(w.grad().is_none());
    let wrong = out.record("square", &[&x], Box::new(move |gradient| Ok(vec![Some(sum(gradient))]))).unwrap();
    let error = sum(&wrong).backward(Backward::default()).unwrap_err();
    assert_eq!(error.code(), Code::ShapeMismatch);
    assert!(error.message().contains("square: the gradient of input 0 is [], wanted [3]"), "{error:?}");
    let few = out.record("square", &[&x, &w], Box::new(move |_| Ok(Vec::new()))).unwrap();
    assert_eq!(sum(&few).backward(Backward::default()).unwrap_err().code(), Code::ShapeMismatch);
    assert!(recorded.record("again", &[&x], Box::new(|_| Ok(Vec::new()))).is_err());
}

#[test]
fn the_gradients_of_one_operation_alone() {
    let library = library();
    let (a, b) = (random(&library, &[2, 3], 1), random(&library, &[3, 2], 2));
    let gradient = random(&library, &[2, 2], 3);
    let found = pulled_back(&[&a, &b], &gradient, |inputs| inputs[0].matmul(&inputs[1])).unwrap();
    let of_a = gradient.matmul(&b.transpose(0, 1).unwrap()).unwrap();
    close(&numbers(found[0].as_ref().unwrap()), &numbers(&of_a));
    assert_eq!(found[1].as_ref().unwrap().dims(), [3, 2]);
    assert!(!a.requires_grad() && library.recorded().0 == 0);
}

fn network(library: &Library, parameters: &[Array], x: &Array) -> Result<Array> {
    let _ = library;
    let hidden = x.matmul(&parameters[0])?.binary(Binary::Add, &parameters[1])?.unary(Unary::Tanh)?;
    let hidden = hidden.matmul(&parameters[2])?.unary(Unary::Gelu)?;
    hidden.matmul(&parameters[3])
}

fn parameters(library: &Library) -> Vec<Array> {
    let dims: [&[usize]; 4] = [&[5, 16], &[16], &[16, 16], &[16, 4]];
    (10..).zip(dims).map(|(seed, dims)| random(library, dims, seed).requiring_grad().unwrap()).collect()
}

fn loss(library: &Library, parameters: &[Array], x: &Array, target: &Array) -> Result<Array> {
    network(library, parameters, x)?.cross_entropy(target, CrossEntropy::default())
}

fn data(library: &Library) -> (Array, Array) {
    let classes: Vec<u8> = [0i32, 3, -100, 1, 2, 2, 0].iter().flat_map(|class| class.to_le_bytes()).collect();
    (random(library, &[7, 5], 20), library.array(&[7], DType::I32, &classes).unwrap())
}

#[test]
fn a_checkpoint_gives_the_same_gradients_and_keeps_less() {
    let library = library();
    let ((x, target), parameters) = (data(&library), parameters(&library));
    let x = x.requiring_grad().unwrap();
    backward(&loss(&library, &parameters, &x, &target).unwrap());
    let all = || parameters.iter().chain([&x]).map(grad).collect::<Vec<_>>();
    let wanted = all();
    parameters.iter().chain([&x]).for_each(|leaf| leaf.set_grad(None).unwrap());
    let plain = network(&library, &parameters, &x).unwrap();
    let kept = library.recorded().1;
    drop(plain);
    assert_eq!(library.recorded().0, 0);
    let (own, of, input) = (library.clone(), parameters.clone(), x.clone());
    let out = library.checkpoint(move || network(&own, &of, &input)).unwrap();
    let (operations, bytes, saved) = library.recorded();
    assert_eq!(operations, 1);
    assert!(saved > 0 && bytes < kept, "{saved} {bytes} {kept}");
    backward(&out.cross_entropy(&target, CrossEntropy::default()).unwrap());
    for (got, wanted) in all().iter().zip(&wanted) {
        close(got, wanted);
    }
}

#[test]
fn a_checkpoint_that_uses_other_tensors_the_second_time_is_an_error() {
    let library = library();
    let (first, second) = (leaf(&library, &[2], &[1., 2.]), leaf(&library, &[2], &[3., 4.]));
    let (leaves, calls) = ([first.clone(), second.clone()], Cell::new(0));
    let work = move || {
        calls.set(calls.get() + 1);
        leaves[calls.get() - 1].binary(Binary::Mul, &leaves[0].detached())
    };
    let out = library.checkpoint(work).unwrap();
    let error = sum(&out).backward(Backward::default()).unwrap_err();
    assert!(error.to_string().contains("other tensors the second time"), "{error}");
    assert!(first.grad().is_none() && second.grad().is_none());
}

/// One step of gradient descent on the parameters.
fn step(library: &Library, parameters: &[Array], x: &Array, target: &Array) -> Result<Array> {
    let loss = loss(library, parameters, x, target)?;
    loss.backward(Backward::default())?;
    library.no_grad(|| {
        for parameter in parameters {
            let gradient = parameter.grad().expect("a gradient");
            let change = gradient.binary_scalar(Binary::Mul, Scalar::Float(0.1), false)?;
            parameter.assign(&parameter.binary(Binary::Sub, &change)?)?;
            parameter.set_grad(None)?;
        }
        Ok(loss)
    })
}

#[test]
fn a_training_step_is_a_plan_that_creates_and_writes_nothing() {
    let library = library();
    let device = library.context().device().clone();
    let (x, target) = data(&library);
    let (planned, eager) = (parameters(&library), parameters(&library));
    let (results, plan) = block_on(library.plan(|| Ok(vec![step(&library, &planned, &x, &target)?]))).unwrap();
    let mut losses = vec![numbers(&results[0])[0]];
    plan.replay().unwrap();
    losses.push(numbers(&results[0])[0]);
    let before = (device.stats(), device.memory());
    for _ in 0..10 {
        plan.replay().unwrap();
    }
    device.flush();
    let after = (device.stats(), device.memory());
    assert_eq!(after.0.dispatches - before.0.dispatches, 10 * plan.dispatches() as u64);
    assert_eq!(after.0.pipelines.misses, before.0.pipelines.misses);
    assert_eq!(after.0.bind_groups.misses, before.0.bind_groups.misses);
    assert_eq!(after.0.queue_writes, before.0.queue_writes);
    assert_eq!(after.1.allocated_bytes, before.1.allocated_bytes);
    losses.push(numbers(&results[0])[0]);
    let wanted: Vec<f32> = (0..12).map(|_| numbers(&step(&library, &eager, &x, &target).unwrap())[0]).collect();
    close(&losses, &[wanted[0], wanted[1], wanted[11]]);
    assert!(wanted[11] < wanted[0]);
    for (planned, eager) in planned.iter().zip(&eager) {
        close(&numbers(planned), &numbers(eager));
    }
    let (bytes, without_reuse) = plan.arena_bytes();
    assert!(bytes < without_reuse);
}

#[test]
fn gradients_that_were_there_are_added_to_by_replays() {
    let library = library();
    let x = leaf(&library, &[2], &[1., 2.]);
    let work = || {
        let y = sum(&x.binary(Binary::Mul, &x)?);
        y.backward(Backward::default())?;
        Ok(vec![y])
    };
    // Without a gradient before, nobody would see what a replay computes.
    let error = block_on(library.plan(work)).err().unwrap();
    assert!(error.message().contains("a gradient that the function made is left"), "{error:?}");
    assert!(x.grad().is_none());
    x.set_grad(Some(&library.f32(&[2], &[0.5, 0.5]).unwrap())).unwrap();
    let (_, adding) = block_on(library.plan(work)).unwrap();
    assert_eq!(grad(&x), [2.5, 4.5]);
    adding.replay().unwrap();
    assert_eq!(grad(&x), [4.5, 8.5]);
    let (_, clearing) = block_on(library.plan(|| x.set_grad(None).map(|()| Vec::new()))).unwrap();
    assert_eq!(grad(&x), [0., 0.]);
    adding.replay().unwrap();
    clearing.replay().unwrap();
    adding.replay().unwrap();
    assert_eq!(grad(&x), [2., 4.]);
    // A replay writes: what saved the memory before can tell.
    let y = sum(&x.binary(Binary::Mul, &library.f32(&[2], &[1.; 2]).unwrap()).unwrap());
    backward(&y);
    assert_eq!(grad(&x), [3., 5.]);
}

#[test]
fn losses_and_their_reductions() {
    let library = library();
    let (x, target) = data(&library);
    let logits = x.slice(1, None, Some(4), 1).unwrap();
    let of = |how: CrossEntropy| numbers(&logits.cross_entropy(&target, how).unwrap());
    let each = of(CrossEntropy { reduction: Reduction::None, ..Default::default() });
    assert_eq!(each[2], 0.0);
    close(&of(CrossEntropy { reduction: Reduction::Sum, ..Default::default() }), &[each.iter().sum()]);
    close(&of(CrossEntropy::default()), &[each.iter().sum::<f32>() / 6.0]);
    // No class, which is not one from the end.
    let below = library.array(&[], DType::I32, &(-1i32).to_le_bytes()).unwrap();
    let row = logits.select(0, 0).unwrap();
    assert!(numbers(&row.cross_entropy(&below, CrossEntropy::default()).unwrap())[0].is_nan());
    let code = |result: Result<Array>| result.err().unwrap().code();
    assert_eq!(code(row.cross_entropy(&target, CrossEntropy::default())), Code::ShapeMismatch);
    assert_eq!(
        code(logits.cross_entropy(&target.cast(DType::F32).unwrap(), CrossEntropy::default())),
        Code::DtypeMismatch
    );
    let too_much = CrossEntropy { label_smoothing: 1.5, ..Default::default() };
    assert_eq!(code(logits.cross_entropy(&target, too_much)), Code::OutOfRange);
    let zeros = library.full(&[7, 4], DType::F32, Scalar::Int(0)).unwrap();
    let squares: Vec<f32> = numbers(&logits).iter().map(|x| x * x).collect();
    close(&numbers(&logits.mse_loss(&zeros, Reduction::Sum).unwrap()), &[squares.iter().sum()]);
    assert_eq!(code(logits.mse_loss(&row, Reduction::Mean)), Code::ShapeMismatch);
}
