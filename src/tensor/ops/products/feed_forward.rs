//! A feed-forward as one op, where the device is the CPU: what lies between its two products stays with the threads that compute it.
//!
//! It has no kernel. On GPUs each of its steps has one (`mat_mul`, `swiglu_fused`, `unary`).

use rillm_cpu_kernels::activate;

use super::epilogue::add_bias;
use super::mat_vec::{infer_linear, reference_linear};
use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::cpu::linear::{linear, packed_bytes, write_linear};
use crate::tensor::cpu::{team, zeros};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Activation;
use crate::tensor::ops::activations::swiglu_fused::gate_halves;
use crate::tensor::quant::Format;
use crate::tensor::{Case, Context, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Shape, Tensor};

/// Inputs: x [tokens, columns]; up [inner, columns], or [2 · inner, columns] with gates first; down [outputs, inner]; then the biases that there
/// are, of up and of down. Output: [tokens, outputs].
#[derive(Clone, Copy, Debug)]
pub struct FeedForward {
    /// The function between the products.
    pub activation: Activation,
    /// Whether up has gates.
    pub is_gated: bool,
    /// Whether something is added to the products with up, and to those with down.
    pub biases: [bool; 2],
}

/// Inputs before the biases.
const OPERANDS: usize = 3;

impl FeedForward {
    /// Whether the device has this op for such weights: where it packs them.
    pub fn is_for(context: &Context, weights: [&Tensor; 2]) -> bool {
        let capabilities = context.device().capabilities();
        let is_packed = |tensor: &Tensor| match (tensor.dtype(), tensor.shape().dims()) {
            (DType::Weight(format), [rows, columns]) => packed_bytes(format, *rows, *columns).is_some(),
            _ => false,
        };
        capabilities.packs_on_cpu() && weights.into_iter().all(is_packed)
    }

    /// The bias of up and that of down among the inputs after the operands.
    fn biases_of<'a, T>(&self, more: &'a [T]) -> [Option<&'a T>; 2] {
        let [of_up, of_down] = self.biases;
        [more.first().filter(|_| of_up), more.get(usize::from(of_up)).filter(|_| of_down)]
    }

    /// The number of columns between the products, if up has this number of rows.
    fn inner(&self, rows: usize) -> usize {
        if self.is_gated { rows / 2 } else { rows }
    }

    /// Cases with every function, with and without gates and biases.
    pub fn cases() -> Vec<Case> {
        let mut rng = Rng(77);
        let mut cases = Vec::new();
        let shapes = [[1, 32, 32, 8], [3, 64, 96, 7], [17, 96, 32, 131], [67, 160, 608, 64], [2, 256, 256, 24]];
        for (index, format) in
            ["q8_0", "q4_0", "q5_1", "q6_k", "f32"].into_iter().filter_map(Format::by_name).enumerate()
        {
            for (number, [tokens, columns, inner, outputs]) in shapes.into_iter().enumerate() {
                let [columns, inner] = [columns, inner].map(|count: usize| count.next_multiple_of(format.block_size));
                let activation = Activation::ALL[(index + number) % Activation::ALL.len()];
                let (is_gated, biases) = (number % 2 == index % 2, [number % 3 == 1, number % 4 >= 2]);
                let op = Self { activation, is_gated, biases };
                let rows = if is_gated { 2 * inner } else { inner };
                let x = rng.tensor(&[tokens, columns]);
                let mut inputs = vec![x, rng.weight(format, rows, columns), rng.weight(format, outputs, inner)];
                for (length, is_there) in [rows, outputs].into_iter().zip(biases) {
                    inputs.extend(is_there.then(|| rng.tensor(&[length])));
                }
                cases.push(Case::new(op, inputs, 2e-5));
            }
        }
        cases
    }
}

impl Op for FeedForward {
    on_cpu!();

    fn name(&self) -> &'static str {
        "feed_forward"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let floats = Some(DType::F32);
        let count = self.biases.iter().filter(|is_there| **is_there).count();
        expect("feed_forward", inputs, &[floats, None, None, floats, floats][..OPERANDS + count])?;
        let products = infer_linear("feed_forward", &inputs[..2])?;
        let (tokens, rows) = products.shape.matrix()?;
        if self.is_gated && !rows.is_multiple_of(2) {
            bail!(ShapeMismatch, "feed_forward: {rows} rows are no gates and as many more");
        }
        let output = infer_linear("feed_forward", &[Desc::f32(&[tokens, self.inner(rows)]), inputs[2]])?;
        let (_, outputs) = output.shape.matrix()?;
        for (bias, length) in self.biases_of(&inputs[OPERANDS..]).into_iter().zip([rows, outputs]) {
            if let Some(bias) = bias.filter(|bias| bias.shape != Shape::new(&[length])) {
                bail!(ShapeMismatch, "feed_forward: a bias {} for {length} rows", bias.shape);
            }
        }
        Ok(vec![output])
    }

    fn kernel(&self, _: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        bail!(Internal, "a feed-forward as one op is for the CPU")
    }
}

impl Reference for FeedForward {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (rows, _) = inputs[1].shape.matrix()?;
        let (outputs, _) = inputs[2].shape.matrix()?;
        let biases = self.biases_of(&inputs[OPERANDS..]).map(|bias| bias.map(HostTensor::to_f32).transpose());
        let [of_up, of_down] = biases;
        let with = |mut products: Vec<f64>, bias: Option<Vec<f32>>| {
            if let Some(bias) = bias {
                let biases = bias.iter().cycle();
                products.iter_mut().zip(biases).for_each(|(product, bias)| *product += f64::from(*bias));
            }
            products
        };
        let products = with(reference_linear(&inputs[..2])?, of_up?);
        let columns = self.inner(rows);
        let of_token = |products: &[f64]| {
            let of = |at: usize| {
                let function = self.activation.of(products[at]);
                (if self.is_gated { function * products[columns + at] } else { function }) as f32
            };
            (0..columns).map(of).collect::<Vec<f32>>()
        };
        let inner: Vec<f32> = products.chunks_exact(rows).flat_map(of_token).collect();
        let down = with(reference_linear(&[HostTensor::f32(&[tokens, columns], &inner), inputs[2].clone()])?, of_down?);
        let down: Vec<f32> = down.into_iter().map(|number| number as f32).collect();
        Ok(vec![HostTensor::f32(&[tokens, outputs], &down)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let ([x, up, down, more @ ..], [out]) = (&inputs[..], &mut outputs[..]) else {
            bail!(Internal, "a feed-forward of {} inputs with {} outputs", inputs.len(), outputs.len())
        };
        let [of_up, of_down] = self.biases_of(more).map(|bias| bias.map(|bias| bias.f32s()).transpose());
        let (x, of_up, out) = (x.f32s()?, of_up?, out.f32s_mut()?);
        let activation = self.activation.on_cpu();
        let is_done = match (up.of_team()?, down.of_team()?) {
            (Some(up), Some(down)) => {
                team::feed_forward([&up, &down], activation, self.is_gated, x, of_up.unwrap_or(&[]), out)?
            }
            _ => false,
        };
        if !is_done {
            let mut products = linear(up, x)?;
            if let Some(bias) = of_up {
                add_bias(bias, &mut products);
            }
            let (rows, _) = up.desc.shape.matrix()?;
            if self.is_gated {
                let mut inner = zeros(products.len() / 2)?;
                gate_halves(self.activation, &products, self.inner(rows), &mut inner);
                products = inner;
            } else {
                activate(activation, &mut products);
            }
            write_linear(down, &products, out)?;
        }
        if let Some(bias) = of_down? {
            add_bias(bias, out);
        }
        Ok(())
    }
}
