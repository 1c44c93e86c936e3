//! Programs as kernels: their WGSL, and the pipelines that are kept for them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use foldhash::fast::FixedState;

use super::form::{Access, Leaf, Program};
use super::functions;
use crate::array::dtype::DType;
use crate::error::Result;
use crate::gpu::{Binding, BufferSlice, Device, Grid, Pipeline, Shader, Template};

/// The number of the uniform's binding.
const PARAMS: u32 = 20;
/// Words of the uniform before those of the program: elements, the bits of infinity and NaN, then three of the form.
const HEAD: usize = 6;

/// The label of kernels that are functions of elements alone.
pub(super) const ELEMENTS: &str = "copy";

/// Elements of four bytes that an invocation of an elementwise kernel takes.
pub(super) const ELEMENTS_EACH: usize = 4;

/// What surrounds a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// An element each.
    Elementwise { out: DType, strided: bool },
    /// A line becomes an element. With `group`, by a workgroup of this size.
    Reduce { reduction: Reduction, group: Option<u32>, finish: Finish },
    /// The place of the largest or smallest element of a line.
    ArgReduce { largest: bool, group: Option<u32> },
    /// A matrix product, with the program for each sum.
    Product(ProductForm),
}

/// How a line becomes an element: the function of two elements and the bits of what it starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reduction {
    pub function: &'static str,
    pub dtype: DType,
    pub start: u32,
}

impl Reduction {
    /// What its kernels are called.
    pub fn name(&self) -> &'static str {
        match self.function.split_once('_') {
            Some(("add", _)) => "sum",
            Some(("mul", _)) => "prod",
            Some((name, _)) => name,
            None => "reduce",
        }
    }
}

/// What becomes of a line's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Finish {
    Keep,
    /// Divided by the number of elements, whose float is the sixth word.
    Mean,
}

/// How a matrix product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProductForm {
    pub a: DType,
    pub b: DType,
    pub out: DType,
    pub kernel: ProductKernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ProductKernel {
    /// Tiles in workgroup memory, by workgroups of so many invocations squared.
    Tiled { side: u32 },
    /// A few elements an invocation, without barriers.
    Direct,
}

/// What a kernel is told besides its program.
pub(super) struct Call<'a> {
    pub form: Form,
    pub program: &'a Program,
    /// The words of the program's parameters.
    pub words: &'a [u32],
    /// The memory that it reads.
    pub memory: Vec<BufferSlice>,
    pub elements: usize,
    /// Three words of the form.
    pub form_words: [u32; 3],
    /// Further words, after the program's.
    pub more_words: &'a [u32],
    /// Memory that the form reads.
    pub inputs: &'a [BufferSlice],
    pub out: BufferSlice,
    pub grid: Grid,
    pub label: &'static str,
}

/// The kernels of programs.
#[derive(Default)]
pub(crate) struct Kernels(RefCell<HashMap<Form, OfForm, FixedState>>);

/// Those of one form.
type OfForm = HashMap<Program, Rc<Kernel>, FixedState>;

struct Kernel {
    label: String,
    text: String,
    pipeline: RefCell<Option<Rc<Pipeline>>>,
}

impl Kernels {
    /// Records a kernel.
    pub(super) fn dispatch(&self, device: &Device, call: &Call<'_>) -> Result<()> {
        // By two maps, so that nothing is cloned to look a kernel up.
        let known = self.0.borrow().get(&call.form).and_then(|kernels| kernels.get(call.program)).cloned();
        let kernel = match known {
            Some(kernel) => kernel,
            None => {
                let label = label(call.label, call.program);
                let kernel = Rc::new(Kernel { label, text: text(call)?, pipeline: RefCell::default() });
                self.0.borrow_mut().entry(call.form).or_default().insert(call.program.clone(), kernel.clone());
                kernel
            }
        };
        let words = HEAD + call.words.len() + call.more_words.len();
        let mut params = Vec::with_capacity(words.next_multiple_of(4));
        params.extend([call.elements as u32, f32::INFINITY.to_bits(), f32::NAN.to_bits()]);
        params.extend(call.form_words);
        params.extend(call.words);
        params.extend(call.more_words);
        params.resize(words.next_multiple_of(4), 0);
        let memory = call.memory.iter().chain(call.inputs).cloned();
        let mut bindings: Vec<Binding<'_>> = Vec::with_capacity(call.memory.len() + call.inputs.len() + 2);
        bindings.extend((0..).zip(memory).map(|(number, slice)| Binding::Read(number, slice)));
        bindings.push(Binding::ReadWrite(bindings.len() as u32, call.out.clone()));
        bindings.push(Binding::Uniform(PARAMS, bytemuck::cast_slice(&params)));
        let shader =
            Shader { label: &kernel.label, template: Template::Text(&kernel.text), modules: &[], defines: &[] };
        if device.is_tracing() {
            return device.dispatch(&shader, &bindings, call.grid);
        }
        let pipeline = kernel.pipeline.borrow().clone();
        let pipeline = match pipeline {
            Some(pipeline) => pipeline,
            None => {
                let pipeline = device.pipeline(&shader, &bindings)?;
                *kernel.pipeline.borrow_mut() = Some(pipeline.clone());
                pipeline
            }
        };
        device.dispatch_compiled(&shader, &pipeline, &bindings, call.grid)
    }
}

/// The most functions that a label names.
const MOST_NAMED: usize = 6;

/// What a kernel is called, in times and messages: what it is, and the functions of elements in it, such as `matmul+add+relu`.
fn label(form: &'static str, program: &Program) -> String {
    let is_named = |function: &&str| !function.starts_with("keep_") && !function.starts_with("round_");
    let functions: Vec<&str> = program.steps.iter().map(|step| step.function).filter(is_named).collect();
    let names =
        functions.iter().take(MOST_NAMED).map(|function| function.rsplit_once('_').map_or(*function, |(name, _)| name));
    let form = if form == ELEMENTS && !functions.is_empty() { None } else { Some(form) };
    let mut label = form.into_iter().chain(names).collect::<Vec<&str>>().join("+");
    if functions.len() > MOST_NAMED {
        label.push_str("+…");
    }
    label
}

/// The type of an element in memory and in a kernel's variables.
const fn stored_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::I32 => "i32",
        DType::U32 | DType::Bool | DType::F16 | DType::BF16 => "u32",
    }
}

const fn value_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => "f32",
        DType::I32 => "i32",
        DType::U32 => "u32",
        DType::Bool => "bool",
    }
}

/// The element at a place of a binding.
fn loaded(binding: usize, dtype: DType, place: &str) -> String {
    match dtype {
        DType::F32 | DType::I32 | DType::U32 => format!("m{binding}[{place}]"),
        DType::Bool => format!("(m{binding}[{place}] != 0u)"),
        DType::F16 | DType::BF16 => {
            let half = format!("(m{binding}[({place}) >> 1u] >> ((({place}) & 1u) * 16u)) & 0xffffu");
            format!("{}({half})", if dtype == DType::F16 { "f16_value" } else { "bf16_value" })
        }
    }
}

/// A value from its bits.
fn from_bits(dtype: DType, bits: &str) -> String {
    match dtype {
        DType::U32 => bits.to_owned(),
        DType::Bool => format!("({bits} != 0u)"),
        _ => format!("bitcast<{}>({bits})", value_type(dtype)),
    }
}

fn word(index: usize) -> String {
    format!("params.words[{}].{}", index / 4, ["x", "y", "z", "w"][index % 4])
}

/// The whole WGSL of a kernel: declarations, the functions that it calls, the program, and the body of its form.
fn text(call: &Call<'_>) -> Result<String> {
    let program = call.program;
    let (mut calls, body) = form_text(call)?;
    calls.push_str(&program_text(call));
    let words = HEAD + call.words.len() + call.more_words.len();
    let mut text = format!("struct Params {{ words: array<vec4<u32>, {}> }}\n", words.div_ceil(4));
    let mut stored: Vec<&str> = Vec::new();
    for leaf in &program.leaves {
        if let Leaf::Memory { binding, dtype, .. } = leaf
            && usize::from(*binding) == stored.len()
        {
            stored.push(stored_type(*dtype));
        }
    }
    if let Form::Product(form) = call.form {
        stored.extend([stored_type(form.a), stored_type(form.b)]);
    }
    let out = stored_type(call.form.out());
    // Writing to a String cannot fail.
    for (number, stored) in stored.iter().enumerate() {
        let _ = writeln!(text, "@group(0) @binding({number}) var<storage, read> m{number}: array<{stored}>;");
    }
    let _ = writeln!(text, "@group(0) @binding({}) var<storage, read_write> out: array<{out}>;", stored.len());
    let _ = writeln!(text, "@group(0) @binding({PARAMS}) var<uniform> params: Params;");
    let _ = writeln!(text, "fn elements() -> u32 {{ return {}; }}", word(0));
    let _ = writeln!(text, "fn infinity() -> f32 {{ return bitcast<f32>({}); }}", word(1));
    let _ = writeln!(text, "fn nan() -> f32 {{ return bitcast<f32>({}); }}", word(2));
    text.push_str(&functions::called_by(&calls));
    text.push_str(&calls);
    text.push_str(body);
    Ok(text)
}

impl Form {
    /// The type of what it writes.
    pub fn out(self) -> DType {
        match self {
            Form::Elementwise { out, .. } => out,
            Form::Reduce { reduction, .. } => reduction.dtype.computed(),
            Form::ArgReduce { .. } => DType::I32,
            Form::Product(form) => form.out,
        }
    }

    fn is_line(self) -> bool {
        matches!(self, Form::Reduce { .. } | Form::ArgReduce { .. })
    }
}

/// What a form needs declared, and its body.
fn form_text(call: &Call<'_>) -> Result<(String, &'static str)> {
    let mut text = String::new();
    let body = match call.form {
        Form::Elementwise { out: DType::F16 | DType::BF16, strided: true } => {
            bail!(Internal, "elements of 16 bits are written side by side")
        }
        Form::Elementwise { out, strided } => {
            if out.size() == 2 {
                text.push_str(&bits_text(out));
                crate::shader!("../kernels/elementwise_pairs.wgsl")
            } else {
                text.push_str(&store_text(out, strided));
                let _ = writeln!(text, "const EACH: u32 = {ELEMENTS_EACH}u;");
                crate::shader!("../kernels/elementwise.wgsl")
            }
        }
        Form::Reduce { reduction, group, finish } => {
            let dtype = reduction.dtype.computed();
            let value = value_type(dtype);
            text.push_str(&store_text(dtype, false));
            let _ = writeln!(text, "alias Value = {value};");
            for (name, index) in [("parts", 3), ("part_length", 4), ("line_length", 5)] {
                let _ = writeln!(text, "fn {name}() -> u32 {{ return {}; }}", word(index));
            }
            let start = match reduction.start {
                // Infinities are no constants.
                bits if dtype == DType::F32 && bits == f32::INFINITY.to_bits() => "infinity()".to_owned(),
                bits if dtype == DType::F32 && bits == f32::NEG_INFINITY.to_bits() => "-infinity()".to_owned(),
                bits => from_bits(dtype, &format!("{bits}u")),
            };
            let _ = writeln!(text, "fn start() -> {value} {{ return {start}; }}");
            let combine = reduction.function;
            let _ = writeln!(text, "fn combine(x: {value}, y: {value}) -> {value} {{ return {combine}(x, y); }}");
            let finished = match finish {
                Finish::Keep => "x".to_owned(),
                Finish::Mean => format!("div_f32(x, f32({}))", word(5)),
            };
            let _ = writeln!(text, "fn finish(x: {value}) -> {value} {{ return {finished}; }}");
            match group {
                Some(size) => {
                    let _ = writeln!(text, "const WORKGROUP: u32 = {size}u;");
                    crate::shader!("../kernels/reduce_group.wgsl")
                }
                None => crate::shader!("../kernels/reduce.wgsl"),
            }
        }
        Form::ArgReduce { largest, group } => {
            let dtype = program_dtype(call.program);
            let value = value_type(dtype);
            let _ = writeln!(text, "alias Value = {value};");
            let _ = writeln!(text, "fn line_length() -> u32 {{ return {}; }}", word(5));
            let less = format!("lt_{}", dtype.computed().name());
            let order = if largest { format!("{less}(best, value)") } else { format!("{less}(value, best)") };
            let nan = if dtype.is_float() { "(is_nan(value) && !is_nan(best)) || (!is_nan(best) && " } else { "(" };
            let _ = writeln!(text, "fn surpasses(value: {value}, best: {value}) -> bool {{ return {nan}{order}); }}");
            match group {
                Some(size) => {
                    let _ = writeln!(text, "const WORKGROUP: u32 = {size}u;");
                    crate::shader!("../kernels/arg_reduce_group.wgsl")
                }
                None => crate::shader!("../kernels/arg_reduce.wgsl"),
            }
        }
        Form::Product(form) => product_text(call, form, &mut text),
    };
    Ok((text, body))
}

/// The type of a program's result.
pub(super) fn program_dtype(program: &Program) -> DType {
    let result = usize::from(program.result);
    match program.leaves.get(result) {
        Some(Leaf::Memory { dtype, .. } | Leaf::Constant(dtype)) => dtype.computed(),
        Some(Leaf::Places(_)) => DType::I32,
        Some(Leaf::Product) => DType::F32,
        None => program.steps[result - program.leaves.len()].dtype,
    }
}

fn store_text(dtype: DType, strided: bool) -> String {
    let value = if dtype == DType::Bool { "select(0u, 1u, x)" } else { "x" };
    let place = if strided { "place_of(i)" } else { "i" };
    format!("fn store(i: u32, x: {}) {{ out[{place}] = {value}; }}\n", value_type(dtype))
}

fn bits_text(dtype: DType) -> String {
    format!("fn bits_of(x: f32) -> u32 {{ return {}_bits(x); }}\n", dtype.name())
}

/// The declarations of a matrix product: its sizes and how elements of `a` and `b` are read.
fn product_text(call: &Call<'_>, form: ProductForm, text: &mut String) -> &'static str {
    let first = call.memory.len();
    let more = HEAD + call.words.len();
    for (name, index) in [("rows", 3), ("inner", 4), ("columns", 5)] {
        let _ = writeln!(text, "fn {name}() -> u32 {{ return {}; }}", word(index));
    }
    // Each operand: offset, strides of its rows and columns, then those of four batch dimensions, whose sizes come first.
    for (operand, name, dtype) in [(0, "a", form.a), (1, "b", form.b)] {
        let at = more + 4 + operand * 7;
        let mut base = format!("var rest = batch;\nvar place = {};\n", word(at));
        for dim in (0..4).rev() {
            let _ = writeln!(
                base,
                "place += (rest % {size}) * {};\nrest /= {size};",
                word(at + 3 + dim),
                size = word(more + dim)
            );
        }
        let _ = writeln!(text, "fn {name}_base(batch: u32) -> u32 {{\n{base}return place;\n}}");
        let place = format!("base + x * {} + y * {}", word(at + 1), word(at + 2));
        let _ = writeln!(
            text,
            "fn {name}_at(base: u32, x: u32, y: u32) -> f32 {{ return {}; }}",
            loaded(first + operand, dtype, &place)
        );
    }
    let out = form.out;
    text.push_str(&store_text(out, false));
    match form.kernel {
        ProductKernel::Tiled { side } => {
            let _ = writeln!(text, "const SIDE: u32 = {side}u;");
            crate::shader!("../kernels/product_tiled.wgsl")
        }
        ProductKernel::Direct => crate::shader!("../kernels/product_direct.wgsl"),
    }
}

/// `fn value_at`: an element from its number, or, for lines, the element of the line that `locate` found.
fn program_text(call: &Call<'_>) -> String {
    let program = call.program;
    let (rank, line_rank) = (usize::from(program.rank), usize::from(program.line_rank));
    let strided = program
        .leaves
        .iter()
        .any(|leaf| matches!(leaf, Leaf::Memory { access: Access::Strided, .. } | Leaf::Places(Access::Strided)));
    let is_line = call.form.is_line();
    let mut text = String::new();
    let mut loads = String::new();
    let mut locate = String::new();
    if strided && !is_line {
        loads.push_str(&coordinates("i", HEAD, rank, "c"));
    }
    if is_line {
        locate.push_str(&coordinates("i", HEAD, rank, "c"));
        loads.push_str(&coordinates("at", HEAD + rank, line_rank, "l"));
    }
    let mut at = HEAD + rank + line_rank;
    for (value, leaf) in program.leaves.iter().enumerate() {
        let (Leaf::Memory { access, .. } | Leaf::Places(access)) = leaf else {
            let loaded = match leaf {
                Leaf::Constant(dtype) => from_bits(dtype.computed(), &word(at)),
                _ => "product".to_owned(),
            };
            at += 1;
            let _ = writeln!(loads, "let v{value} = {loaded};");
            continue;
        };
        let offset = word(at);
        at += 1;
        let strides = at;
        if *access == Access::Strided {
            at += rank + line_rank;
        }
        let sum = |names: &str, first: usize, count: usize| -> String {
            (0..count).map(|dim| format!(" + {names}{dim} * {}", word(first + dim))).collect()
        };
        let place = match access {
            Access::Linear => format!("{offset} + i"),
            Access::Single => offset,
            Access::Strided if is_line => {
                let _ = writeln!(text, "var<private> base{value}: u32;");
                let _ = writeln!(locate, "base{value} = {offset}{};", sum("c", strides, rank));
                format!("base{value}{}", sum("l", strides + rank, line_rank))
            }
            Access::Strided => format!("{offset}{}", sum("c", strides, rank)),
        };
        let loaded = match leaf {
            Leaf::Memory { binding, dtype, .. } => {
                let _ = writeln!(loads, "let p{value} = {place};");
                loaded(usize::from(*binding), *dtype, &format!("p{value}"))
            }
            _ => format!("bitcast<i32>({place})"),
        };
        let _ = writeln!(loads, "let v{value} = {loaded};");
    }
    for (index, step) in program.steps.iter().enumerate() {
        let inputs: Vec<String> = step.inputs.iter().map(|input| format!("v{input}")).collect();
        let _ = writeln!(loads, "let v{} = {}({});", program.leaves.len() + index, step.function, inputs.join(", "));
    }
    if let Form::Elementwise { strided: true, .. } = call.form {
        let place: String = (0..rank).map(|dim| format!(" + c{dim} * {}", word(at + 1 + dim))).collect();
        let _ = writeln!(
            text,
            "fn place_of(i: u32) -> u32 {{\n{}return {}{place};\n}}",
            coordinates("i", HEAD, rank, "c"),
            word(at)
        );
    }
    let result = value_type(program_dtype(program));
    if is_line {
        let _ = writeln!(text, "fn locate(i: u32) {{\n{locate}}}");
        let _ = writeln!(text, "fn value_at(at: u32) -> {result} {{\n{loads}return v{};\n}}", program.result);
    } else if matches!(call.form, Form::Product(_)) {
        let _ =
            writeln!(text, "fn value_at(i: u32, product: f32) -> {result} {{\n{loads}return v{};\n}}", program.result);
    } else {
        let _ = writeln!(text, "fn value_at(i: u32) -> {result} {{\n{loads}return v{};\n}}", program.result);
    }
    text
}

/// The index of each dimension from the number of an element.
fn coordinates(number: &str, sizes: usize, rank: usize, names: &str) -> String {
    let mut text = String::new();
    match rank {
        0 => {}
        1 => {
            let _ = writeln!(text, "let {names}0 = {number};");
        }
        _ => {
            let _ = writeln!(text, "var {names}_rest = {number};");
            for dim in (1..rank).rev() {
                let size = word(sizes + dim);
                let _ = writeln!(text, "let {names}{dim} = {names}_rest % {size};\n{names}_rest /= {size};");
            }
            let _ = writeln!(text, "let {names}0 = {names}_rest;");
        }
    }
    text
}
