//! Every operation on arrays against PyTorch (`scripts/golden/tensor_ops.py`), and the table of what was compared.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::AgreedRuns;
use crate::support::adapter;
use crate::support::parity::{digest_of, transcript};

use pollster::block_on;
use rillm::Result;
use rillm::array::{
    Array, Attention, Binary, Compare, Convolution, DType, Layout, Library, Logical, Norm, Pooling, Reduce, Scalar,
    TransposedConvolution, Unary,
};
use rillm::tensor::{DeviceOptions, Shape};
use serde_json::Value;

const GROUPS: [&str; 11] = [
    "elementwise",
    "comparison",
    "reductions",
    "shapes",
    "indexing",
    "products",
    "convolution",
    "normalisation",
    "sorting",
    "attention",
    "creation",
];

pub struct Tensor {
    pub dtype: DType,
    pub dims: Vec<usize>,
    pub bytes: Vec<u8>,
    pub strides: Option<(Vec<isize>, usize)>,
}

pub struct Case<'a> {
    pub op: &'a str,
    pub args: &'a Value,
    pub inputs: Vec<Array>,
}

fn whole(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no whole number"))
}

fn wholes(value: &Value) -> Vec<i64> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list")).iter().map(whole).collect()
}

fn sizes(value: &Value) -> Vec<usize> {
    wholes(value).iter().map(|size| *size as usize).collect()
}

/// One number for both, or two.
fn pair(value: &Value) -> [usize; 2] {
    match value {
        Value::Array(_) => match sizes(value)[..] {
            [x] => [x, x],
            [h, w] => [h, w],
            _ => panic!("{value} is no pair"),
        },
        _ => [whole(value) as usize; 2],
    }
}

/// Of one dimension: the height is 1, or nothing is added to it.
fn flat(value: &Value, height: usize) -> [usize; 2] {
    [height, pair(value)[1]]
}

pub fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => {
            text.replace("Infinity", "inf").parse().unwrap_or_else(|_| panic!("{text} is no number"))
        }
        value => value.as_f64().unwrap_or_else(|| panic!("{value} is no number")),
    }
}

fn scalar(value: &Value) -> Scalar {
    match value {
        Value::Bool(value) => Scalar::Bool(*value),
        value => value.as_i64().map_or_else(|| Scalar::Float(number(value)), Scalar::Int),
    }
}

fn dtype(value: &Value) -> DType {
    DType::by_name(value.as_str().unwrap()).unwrap_or_else(|| panic!("{value} is no type"))
}

fn flag(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

pub fn tensor(value: &Value) -> Tensor {
    let dtype = dtype(&value["dtype"]);
    let mut bytes = base64::decode(value["data"].as_str().unwrap()).unwrap();
    if dtype == DType::Bool {
        bytes = bytes.iter().flat_map(|byte| u32::from(*byte).to_le_bytes()).collect();
    }
    let strides = value.get("strides").map(|strides| {
        let strides = wholes(strides).iter().map(|stride| *stride as isize).collect();
        (strides, value["offset"].as_u64().unwrap_or(0) as usize)
    });
    Tensor { dtype, dims: sizes(&value["shape"]), bytes, strides }
}

impl Tensor {
    pub fn array(&self, library: &Library) -> Array {
        let Some((strides, offset)) = &self.strides else {
            return library.array(&self.dims, self.dtype, &self.bytes).unwrap();
        };
        let storage = library.array(&[self.bytes.len() / self.dtype.size()], self.dtype, &self.bytes).unwrap();
        storage.as_strided(Layout::strided(Shape::new(&self.dims), strides, *offset)).unwrap()
    }

    /// The elements as doubles, which hold all of them.
    pub fn values(&self) -> Vec<f64> {
        let words = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let halves = |bytes: &[u8]| u16::from_le_bytes(bytes.try_into().unwrap());
        self.bytes
            .chunks_exact(self.dtype.size())
            .map(|bytes| match self.dtype {
                DType::F32 => f64::from(f32::from_bits(words(bytes))),
                DType::I32 => f64::from(words(bytes) as i32),
                DType::U32 | DType::Bool => f64::from(words(bytes)),
                DType::F16 => half::f16::from_bits(halves(bytes)).to_f64(),
                DType::BF16 => half::bf16::from_bits(halves(bytes)).to_f64(),
            })
            .collect()
    }
}

/// Whether `got` is what PyTorch gave: why not, otherwise.
fn difference(got: &Tensor, wanted: &Tensor, tolerance: f64) -> Option<String> {
    if got.dtype != wanted.dtype || got.dims != wanted.dims {
        return Some(format!("{:?} {:?}, wanted {:?} {:?}", got.dtype, got.dims, wanted.dtype, wanted.dims));
    }
    let (a, b) = (got.values(), wanted.values());
    let largest = b.iter().filter(|x| x.is_finite()).fold(0f64, |largest, x| largest.max(x.abs()));
    let differs = |(a, b): (&f64, &f64)| match (a.is_nan() || b.is_nan(), a.is_infinite() || b.is_infinite()) {
        (true, _) => a.is_nan() != b.is_nan(),
        (_, true) => a != b,
        _ if tolerance == 0.0 => a.to_bits() != b.to_bits(),
        _ => (a - b).abs() > tolerance * largest,
    };
    let at = a.iter().zip(&b).position(differs)?;
    Some(format!("element {at} is {:e}, wanted {:e} ± {:e}", a[at], b[at], tolerance * largest))
}

const UNARY: [(&str, Unary); 13] = [
    ("abs", Unary::Abs),
    ("neg", Unary::Neg),
    ("relu", Unary::Relu),
    ("cos", Unary::Cos),
    ("exp", Unary::Exp),
    ("log", Unary::Log),
    ("rsqrt", Unary::Rsqrt),
    ("sigmoid", Unary::Sigmoid),
    ("silu", Unary::Silu),
    ("sin", Unary::Sin),
    ("sqrt", Unary::Sqrt),
    ("tanh", Unary::Tanh),
    ("floor", Unary::Floor),
];
const BINARY: [(&str, Binary); 7] = [
    ("add", Binary::Add),
    ("sub", Binary::Sub),
    ("mul", Binary::Mul),
    ("div", Binary::Div),
    ("pow", Binary::Pow),
    ("maximum", Binary::Maximum),
    ("minimum", Binary::Minimum),
];
const COMPARE: [(&str, Compare); 6] = [
    ("eq", Compare::Equal),
    ("ne", Compare::NotEqual),
    ("gt", Compare::Greater),
    ("ge", Compare::GreaterEqual),
    ("lt", Compare::Lower),
    ("le", Compare::LowerEqual),
];
const REDUCE: [(&str, Reduce); 7] = [
    ("sum", Reduce::Sum),
    ("mean", Reduce::Mean),
    ("prod", Reduce::Prod),
    ("amax", Reduce::Max),
    ("amin", Reduce::Min),
    ("all", Reduce::All),
    ("any", Reduce::Any),
];

fn find<T: Copy>(list: &[(&str, T)], op: &str) -> Option<T> {
    list.iter().find(|(name, _)| *name == op).map(|(_, kind)| *kind)
}

fn mirrored(kind: Compare) -> Compare {
    match kind {
        Compare::Greater => Compare::Lower,
        Compare::GreaterEqual => Compare::LowerEqual,
        Compare::Lower => Compare::Greater,
        Compare::LowerEqual => Compare::GreaterEqual,
        kind => kind,
    }
}

/// What is meant to differ from PyTorch.
fn differs_on_purpose(op: &str, inputs: &[Tensor], args: &Value) -> bool {
    let is = |dtype: DType| inputs.first().is_some_and(|input| input.dtype == dtype);
    match op {
        // PyTorch has no sum of u32 and adds them up in 64 bits.
        "sum" | "prod" | "cumsum" => is(DType::U32),
        // Refused, as in NumPy, where PyTorch wraps it around.
        "mul" => is(DType::U32) && args["scalar"].as_i64().is_some_and(|scalar| scalar < 0),
        // Refused: the kernel compares f32, which do not hold all integers.
        "max_pool2d" => is(DType::I32),
        _ => false,
    }
}

impl Case<'_> {
    pub fn run(&self, library: &Library) -> Result<Vec<Array>> {
        let (args, inputs) = (self.args, &self.inputs[..]);
        let x = inputs.first();
        if let (Some(kind), Some(x)) = (find(&UNARY, self.op), x) {
            return Ok(vec![x.unary(kind)?]);
        }
        if let (Some(kind), Some(x)) = (find(&BINARY, self.op), x) {
            return Ok(vec![match inputs.get(1) {
                Some(y) => x.binary(kind, y)?,
                None => x.binary_scalar(kind, scalar(&args["scalar"]), flag(&args["reverse"]))?,
            }]);
        }
        if let (Some(kind), Some(x)) = (find(&COMPARE, self.op), x) {
            // A number on the left is the comparison the other way round.
            let kind = if flag(&args["reverse"]) { mirrored(kind) } else { kind };
            return Ok(vec![match inputs.get(1) {
                Some(y) => x.compare(kind, y)?,
                None => x.compare_scalar(kind, scalar(&args["scalar"]))?,
            }]);
        }
        if let (Some(kind), Some(x)) = (find(&REDUCE, self.op), x) {
            let dims = args.get("dims").filter(|dims| !dims.is_null()).map(wholes);
            return Ok(vec![x.reduce(kind, dims.as_deref(), flag(&args["keepdim"]))?]);
        }
        match self.op {
            "zeros" | "ones" | "full" | "arange" | "linspace" | "eye" => Ok(vec![self.created(library)?]),
            _ => self.others(),
        }
    }

    fn created(&self, library: &Library) -> Result<Array> {
        let args = self.args;
        let dtype = args.get("dtype").filter(|dtype| !dtype.is_null()).map_or(DType::F32, dtype);
        match self.op {
            "zeros" => library.full(&sizes(&args["shape"]), dtype, Scalar::Int(0)),
            "ones" => library.full(&sizes(&args["shape"]), dtype, Scalar::Int(1)),
            "full" => library.full(&sizes(&args["shape"]), dtype, scalar(&args["fill_value"])),
            "arange" => library.arange(number(&args["start"]), number(&args["end"]), number(&args["step"]), dtype),
            "linspace" => {
                library.linspace(number(&args["start"]), number(&args["end"]), whole(&args["steps"]) as usize, dtype)
            }
            _ => {
                let rows = whole(&args["n"]) as usize;
                library.eye(rows, args["m"].as_u64().map_or(rows, |columns| columns as usize), dtype)
            }
        }
    }

    fn others(&self) -> Result<Vec<Array>> {
        let (args, inputs) = (self.args, &self.inputs[..]);
        let x = &inputs[0];
        let dim = || whole(&args["dim"]);
        let dims = |name: &str| wholes(&args[name]);
        let one = |array: Result<Array>| array.map(|array| vec![array]);
        match self.op {
            "gelu" => one(x.unary(if args["approximate"] == "tanh" { Unary::GeluTanh } else { Unary::Gelu })),
            "softplus" => one(x.softplus(number(&args["beta"]), number(&args["threshold"]))),
            "clamp" => {
                let bound = |name: &str| args.get(name).filter(|bound| !bound.is_null()).map(scalar);
                one(x.clamp(bound("min"), bound("max")))
            }
            "logical_and" => one(x.logical(Logical::And, &inputs[1])),
            "logical_or" => one(x.logical(Logical::Or, &inputs[1])),
            "logical_xor" => one(x.logical(Logical::Xor, &inputs[1])),
            "logical_not" => one(x.logical_not()),
            "var" => {
                let dims = args.get("dims").filter(|dims| !dims.is_null()).map(wholes);
                one(x.variance(dims.as_deref(), number(&args["correction"]), flag(&args["keepdim"])))
            }
            "where" => one(x.choose(&inputs[1], &inputs[2])),
            "cast" => one(x.cast(dtype(&args["dtype"]))),
            "argmax" | "argmin" => {
                let dim = args["dims"]
                    .as_array()
                    .and_then(|dims| dims.first())
                    .or(args["dims"].as_i64().map(|_| &args["dims"]));
                one(x.arg_reduce(self.op == "argmax", dim.map(whole), flag(&args["keepdim"])))
            }
            "cumsum" => one(x.cumsum(dim())),
            "softmax" | "log_softmax" => one(x.softmax(dim(), self.op == "log_softmax")),
            "layer_norm" | "rms_norm" => {
                let kind = if self.op == "layer_norm" { Norm::Layer } else { Norm::Rms };
                let epsilon = args["eps"].as_f64().unwrap_or(f64::from(f32::EPSILON)) as f32;
                one(x.norm(kind, dims("normalized_shape").len(), inputs.get(1), inputs.get(2), epsilon))
            }
            "matmul" => one(x.matmul(&inputs[1])),
            "dot" => one(x.dot(&inputs[1])),
            "conv1d" | "conv2d" | "conv_transpose1d" | "conv_transpose2d" => one(self.convolution()),
            "max_pool2d" => x.max_pool2d(self.pooling()).map(|(values, indices)| vec![values, indices]),
            "avg_pool2d" => one(x.avg_pool2d(self.pooling(), args["count_include_pad"].as_bool().unwrap_or(true))),
            "reshape" => one(x.reshape(&dims("shape"))),
            "transpose" => one(x.transpose(whole(&args["dim0"]), whole(&args["dim1"]))),
            "permute" => one(x.permute(&dims("dims"))),
            "expand" => one(x.expand(&dims("shape"))),
            "squeeze" => match &args["dim"] {
                Value::Null => one(x.squeeze(None)),
                Value::Array(_) => one(x.squeeze(Some(&dims("dim")))),
                dim => one(x.squeeze(Some(&[whole(dim)]))),
            },
            "unsqueeze" => one(x.unsqueeze(dim())),
            "cat" => one(Array::cat(inputs, dim())),
            "stack" => one(Array::stack(inputs, dim())),
            "chunk" => x.chunk(whole(&args["chunks"]) as usize, dim()),
            "split" => match &args["split_size"] {
                sizes @ Value::Array(_) => x.split(&self::sizes(sizes), dim()),
                size => x.split_every(whole(size) as usize, dim()),
            },
            "slice" => one(self.sliced()),
            "gather" => one(x.gather(dim(), &inputs[1])),
            "scatter_add" => one(x.scatter_add(dim(), &inputs[1], &inputs[2])),
            "index_select" => one(x.index_select(dim(), &inputs[1])),
            "embedding" => one(inputs[1].embedding(x)),
            "repeat" => one(x.repeat(&sizes(&args["repeats"]))),
            "pad" => one(x.pad(&dims("pad"), args.get("value").map_or(Scalar::Int(0), scalar))),
            "flip" => one(x.flip(&dims("dims"))),
            "triu" | "tril" => one(x.triangle(self.op == "triu", args["diagonal"].as_i64().unwrap_or(0))),
            "sort" => x.sort(dim(), flag(&args["descending"])).map(|(values, indices)| vec![values, indices]),
            "topk" => {
                let largest = args["largest"].as_bool().unwrap_or(true);
                x.topk(whole(&args["k"]) as usize, dim(), largest).map(|(values, indices)| vec![values, indices])
            }
            "scaled_dot_product_attention" => {
                let scale = args["scale"].as_f64().map(|scale| scale as f32);
                one(x.flash_attention(&inputs[1], &inputs[2], Attention { causal: flag(&args["is_causal"]), scale }))
            }
            op => panic!("the test does not know {op}"),
        }
    }

    fn convolution(&self) -> Result<Array> {
        let (args, inputs) = (self.args, &self.inputs[..]);
        let both = |name: &str, height: usize| {
            let value = args.get(name).filter(|value| !value.is_null());
            let is_flat = self.op.ends_with("1d");
            value.map_or([height; 2], |value| if is_flat { flat(value, height) } else { pair(value) })
        };
        let of = Convolution {
            stride: both("stride", 1),
            padding: both("padding", 0),
            dilation: both("dilation", 1),
            groups: args["groups"].as_u64().unwrap_or(1) as usize,
        };
        let transposed = TransposedConvolution { of, output_padding: both("output_padding", 0) };
        let (x, weight, bias) = (&inputs[0], &inputs[1], inputs.get(2));
        match self.op {
            "conv1d" => x.conv1d(weight, bias, of),
            "conv2d" => x.conv2d(weight, bias, of),
            "conv_transpose1d" => x.conv_transpose1d(weight, bias, transposed),
            _ => x.conv_transpose2d(weight, bias, transposed),
        }
    }

    fn pooling(&self) -> Pooling {
        let args = self.args;
        let given = |name: &str| args.get(name).filter(|value| !value.is_null()).map(pair);
        let kernel = pair(&args["kernel_size"]);
        Pooling {
            kernel,
            stride: given("stride").unwrap_or(kernel),
            padding: given("padding").unwrap_or([0; 2]),
            dilation: given("dilation").unwrap_or([1; 2]),
            ceil_mode: flag(&args["ceil_mode"]),
        }
    }

    fn sliced(&self) -> Result<Array> {
        let slices = self.args["slices"].as_array().unwrap().iter().enumerate();
        slices.into_iter().try_fold(self.inputs[0].clone(), |array, (dim, slice)| {
            array.slice(dim as i64, slice[0].as_i64(), slice[1].as_i64(), slice[2].as_i64().unwrap_or(1))
        })
    }
}

/// What was compared of an operation.
#[derive(Default)]
struct Row {
    cases: usize,
    /// Cases whose gradients are compared with PyTorch's.
    gradients: usize,
    dtypes: BTreeSet<&'static str>,
    views: usize,
    broadcast: usize,
    empty: usize,
    /// Whether functions before and after it are part of its kernel, as far as its cases told.
    fused_before: bool,
    fused_after: bool,
}

/// Operations that PyTorch has no name for, or that the golden data leave out: their own tests compare them.
const OTHERS: [&str; 3] = ["clone", "rand", "randn"];

/// The dispatches that `work` takes until its result is there.
fn dispatches(library: &Library, work: impl FnOnce() -> Result<Vec<Array>>) -> Option<usize> {
    let step = || work()?.iter().try_for_each(Array::evaluate);
    transcript(library.context().device(), step).map(|transcript| transcript.shaders.len())
}

/// Whether what comes before an operation, and after it, costs no kernel of its own. Only for inputs of f32.
fn fusion(library: &Library, case: &Value, hosts: &[Tensor]) -> Option<(bool, bool)> {
    let is_usual = |host: &Tensor| host.dtype == DType::F32 && !host.dims.contains(&0) && host.strides.is_none();
    if hosts.is_empty() || !hosts.iter().all(is_usual) {
        return None;
    }
    let op = case["op"].as_str()?;
    let exp = |arrays: Vec<Array>| arrays.iter().map(|array| array.unary(Unary::Exp)).collect::<Result<Vec<Array>>>();
    let inputs = || hosts.iter().map(|host| host.array(library)).collect::<Vec<Array>>();
    let run = |inputs: Vec<Array>| Case { op, args: &case["args"], inputs }.run(library);
    let alone = dispatches(library, || run(inputs()))?;
    let before = dispatches(library, || run(exp(inputs())?))?;
    let after = dispatches(library, || exp(run(inputs())?))?;
    // A view takes no kernel, so what comes before it has one of its own.
    Some((alone > 0 && before == alone, alone > 0 && after == alone))
}

/// The committed table, docs/tensor-operations.md.
fn table(rows: &BTreeMap<String, Row>) -> String {
    let mut text = String::from(
        "# What is tested of each operation\n\nMade by a test (`UPDATE_TABLE=1 cargo test --test gpu array_golden`), which holds every operation to PyTorch \
         2.11 (`scripts/golden/tensor_ops.py`). Names are PyTorch's. *Views* are cases with strides, *broadcast* those with inputs of several shapes, \
         *empty* those with a dimension of 0. *Fused*: functions of elements before the operation, or after it, are part of its kernel. *Gradient*: cases \
         whose gradients are held to PyTorch's autograd (`scripts/golden/tensor_gradients.py`, which holds those to central differences in float64); \
         operations without one give no floats or take none.\n\n| operation | PyTorch cases | dtypes of inputs | views | broadcast | empty | fused \
         before | fused after | gradient |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (name, row) in rows {
        let dtypes: Vec<&str> =
            DType::ALL.iter().map(|dtype| dtype.name()).filter(|name| row.dtypes.contains(name)).collect();
        let count = |number: usize| if number == 0 { "–".to_owned() } else { number.to_string() };
        let yes = |is: bool| if is { "yes" } else { "–" };
        text.push_str(&format!(
            "| `{name}` | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            count(row.cases),
            if dtypes.is_empty() { "–".to_owned() } else { dtypes.join(" ") },
            count(row.views),
            count(row.broadcast),
            count(row.empty),
            yes(row.fused_before),
            yes(row.fused_after),
            count(row.gradients)
        ));
    }
    text
}

/// A case that PyTorch made.
struct Golden {
    /// Its group and number.
    place: String,
    case: Value,
    hosts: Vec<Tensor>,
}

impl Golden {
    fn op(&self) -> &str {
        self.case["op"].as_str().unwrap()
    }

    fn run(&self, library: &Library) -> Result<Vec<Array>> {
        let inputs = self.hosts.iter().map(|host| host.array(library)).collect();
        Case { op: self.op(), args: &self.case["args"], inputs }.run(library)
    }

    /// Of all that decides whether it agrees, if that is known and there is a kernel.
    fn digest(&self, library: &Library) -> Option<[u64; 2]> {
        let step = || self.run(library)?.iter().try_for_each(Array::evaluate);
        digest_of(library.context().device(), &self.case.to_string(), step)
    }

    /// What is wrong with its results.
    fn problem(&self, library: &Library) -> Option<String> {
        let wanted: Vec<Tensor> = self.case["outputs"].as_array().unwrap().iter().map(tensor).collect();
        let problem = match self.run(library) {
            Err(error) => Some(format!("{error:?}")),
            Ok(got) if got.len() != wanted.len() => Some(format!("{} outputs, wanted {}", got.len(), wanted.len())),
            Ok(got) => got.iter().zip(&wanted).find_map(|(got, wanted)| {
                let bytes = block_on(got.bytes()).unwrap();
                let got = Tensor { dtype: got.dtype(), dims: got.dims().to_vec(), bytes, strides: None };
                difference(&got, wanted, number(&self.case["tolerance"]))
            }),
        }?;
        let shapes: Vec<String> = self.hosts.iter().map(|host| format!("{:?} {:?}", host.dtype, host.dims)).collect();
        Some(format!("{}: {} {} {}: {problem}", self.place, self.op(), shapes.join(", "), self.case["args"]))
    }
}

fn golden_cases() -> Vec<Golden> {
    let of_group = |group: &str| {
        let path = format!("{}/tests/golden/tensor/{group}.json", env!("CARGO_MANIFEST_DIR"));
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let golden = cases.into_iter().enumerate().map(|(at, case)| {
            let hosts = case["inputs"].as_array().unwrap().iter().map(tensor).collect();
            Golden { place: format!("{group} {at}"), case, hosts }
        });
        golden.collect::<Vec<_>>()
    };
    let cases = GROUPS.into_iter().flat_map(of_group);
    cases.filter(|golden| !differs_on_purpose(golden.op(), &golden.hosts, &golden.case["args"])).collect()
}

fn rows(library: &Library, cases: &[Golden]) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for Golden { case, hosts, .. } in cases {
        let row = rows.entry(case["op"].as_str().unwrap().to_owned()).or_default();
        if !(row.fused_before && row.fused_after)
            && row.cases < 12
            && let Some((before, after)) = fusion(library, case, hosts)
        {
            row.fused_before |= before;
            row.fused_after |= after;
        }
        row.cases += 1;
        row.dtypes.extend(hosts.iter().map(|host| host.dtype.name()));
        row.views += usize::from(hosts.iter().any(|host| host.strides.is_some()));
        row.broadcast += usize::from(hosts.windows(2).any(|pair| pair[0].dims != pair[1].dims));
        row.empty += usize::from(hosts.iter().any(|host| host.dims.contains(&0)));
    }
    rows
}

#[test]
fn every_operation_gives_what_pytorch_gives() {
    let cases = golden_cases();
    assert!(cases.len() > 2000, "{}", cases.len());
    for (name, software_kernels) in [("arrays", None), ("arrays_gpu", Some(false))] {
        let options = DeviceOptions { software_kernels, ..Default::default() };
        let library = Library::new(adapter::context_with(&options));
        let record = AgreedRuns::open(name);
        let digests: Vec<_> = cases.iter().map(|golden| (golden.op(), golden.digest(&library))).collect();
        let needed = cases.iter().zip(record.needed(&digests)).filter(|(_, is_needed)| *is_needed);
        let failures: Vec<String> = needed.filter_map(|(golden, _)| golden.problem(&library)).collect();
        assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
        record.all_agreed(&digests);
        record.close();
    }
}

/// Which operations take others into their kernels, and how many cases there are of each.
#[test]
fn the_table_tells_what_is_tested() {
    let library =
        Library::new(adapter::context_with(&DeviceOptions { software_kernels: Some(false), ..Default::default() }));
    let mut rows = rows(&library, &golden_cases());
    for name in OTHERS {
        rows.entry(name.to_owned()).or_default();
    }
    for (name, gradients) in super::gradients::counts() {
        rows.entry(name).or_default().gradients = gradients;
    }
    let (path, text) = (format!("{}/docs/tensor-operations.md", env!("CARGO_MANIFEST_DIR")), table(&rows));
    println!("{text}");
    if std::env::var_os("UPDATE_TABLE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "docs/tensor-operations.md is out of date: UPDATE_TABLE=1 writes it");
}
