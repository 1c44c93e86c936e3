//! Holds every op's kernel to its CPU reference, over the cases that the op itself names: odd, prime and large shapes.

use rillm::sampler;
use rillm::tensor::{Case, Context, DType, Desc, HostTensor, TuningKey, Variant, ops};

/// ‖a − b‖ / ‖b‖.
fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let (mut difference, mut norm) = (0f64, 0f64);
    for (a, b) in a.iter().zip(b) {
        difference += (f64::from(*a) - f64::from(*b)).powi(2);
        norm += f64::from(*b).powi(2);
    }
    if difference == 0.0 { 0.0 } else { (difference / norm.max(1e-30)).sqrt() }
}

fn assert_close(what: &str, got: &HostTensor, wanted: &HostTensor, tolerance: f64) {
    assert_eq!(got.desc(), wanted.desc(), "{what}");
    match wanted.dtype {
        DType::U32 => {
            let (got, wanted) = (got.to_u32().unwrap(), wanted.to_u32().unwrap());
            let different = got.iter().zip(&wanted).filter(|(got, wanted)| got != wanted).count();
            let first = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
            if let Some(at) = first {
                panic!("{what}: {different} differ, first element {at}: {}, wanted {}", got[at], wanted[at]);
            }
        }
        _ => {
            let error = relative_error(&got.to_f32().unwrap(), &wanted.to_f32().unwrap());
            // Written so that NaN fails.
            assert!(error <= tolerance, "{what}: relative error {error:.3e}, at most {tolerance:.1e} is allowed");
        }
    }
}

/// The ops whose names are in RILLM_OPS, between commas, if it is set.
fn wanted() -> impl Iterator<Item = &'static (&'static str, fn() -> Vec<Case>)> {
    let names = std::env::var("RILLM_OPS").ok();
    let is_wanted = move |name: &str| names.as_ref().is_none_or(|names| names.split(',').any(|one| one == name));
    ops::ALL.iter().chain(sampler::ops::ALL).filter(move |(name, _)| is_wanted(name))
}

/// How many were checked; of some ops alone more than any test asks for.
fn enough(checked: usize) -> usize {
    if std::env::var("RILLM_OPS").is_ok() { usize::MAX } else { checked }
}

/// Runs every case of every op; returns how many there were.
pub async fn check_all(context: &Context) -> usize {
    let mut checked = 0;
    for (name, cases) in wanted() {
        let cases = cases();
        assert!(!cases.is_empty(), "{name} has no cases");
        for (index, case) in cases.iter().enumerate() {
            check(context, name, index, case).await;
            checked += 1;
        }
    }
    enough(checked)
}

/// Runs one case of the op `name` on the GPU and on the CPU.
pub async fn check(context: &Context, name: &str, index: usize, case: &Case) {
    let shapes: Vec<String> = case.inputs.iter().map(|input| format!("{:?}", input.desc())).collect();
    let what = format!("{name}, case {index}: {}", shapes.join(", "));
    assert_eq!(name, case.op.name(), "one name for the op's file and the op");
    let got = context.run_case(case).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut inputs = case.inputs.clone();
    let mut wanted = case.op.reference(&mut inputs).unwrap();
    wanted.extend(case.op.mutates().iter().map(|index| inputs[*index].clone()));
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (got, wanted) in got.iter().zip(&wanted) {
        assert_close(&what, got, wanted, case.tolerance);
    }
}

/// Runs the cases of every op that has variants as a third of them each, in turn: so every variant meets every format of weights
/// and several shapes. Returns how many runs there were.
pub async fn check_all_variants(context: &Context) -> usize {
    let mut checked = 0;
    for (name, cases) in wanted() {
        for (index, case) in cases().iter().enumerate() {
            checked += check_variants(context, name, index, case).await;
        }
    }
    enough(checked)
}

async fn check_variants(context: &Context, name: &str, index: usize, case: &Case) -> usize {
    let descs: Vec<Desc> = case.inputs.iter().map(HostTensor::desc).collect();
    let all = case.op.variants(&descs, context.device().capabilities());
    let variants: Vec<Variant> = all.into_iter().skip((3 - index % 3) % 3).step_by(3).collect();
    if variants.is_empty() {
        return 0;
    }
    let key = TuningKey::of(&*case.op, &descs);
    let mut inputs = case.inputs.clone();
    let mut wanted = case.op.reference(&mut inputs).unwrap();
    wanted.extend(case.op.mutates().iter().map(|index| inputs[*index].clone()));
    for variant in &variants {
        let what = format!("{name}, case {index}, {variant}");
        context.tunings().choose(key, Some(variant.clone()));
        let got = context.run_case(case).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(got.len(), wanted.len(), "{what}");
        for (got, wanted) in got.iter().zip(&wanted) {
            assert_close(&what, got, wanted, case.tolerance);
        }
    }
    context.tunings().choose(key, None);
    variants.len()
}
