"""What the graphs for transformers.js are built of: nodes, constants, and products with matrices of random weights in the formats of its option
dtype. The dtype q8 has products as ONNX Runtime's dynamic quantisation writes them: activations of 8 bits by DynamicQuantizeLinear, MatMulInteger, and
floats of the sums. Those of 4 bits are MatMulNBits with blocks of 32 and accuracy_level 4 (8-bit activations)."""

import json
import pathlib

import numpy as np
from onnx import ModelProto, TensorProto, helper

from shapes import EMBEDDING_STD, WEIGHT_STD

BLOCK = 32
# The suffixes are those that transformers.js looks for by its option dtype.
FLOAT32 = (TensorProto.FLOAT, np.float32)
DTYPES = {"q4f16": (TensorProto.FLOAT16, np.float16), "q4": FLOAT32, "q8": FLOAT32, "fp32": FLOAT32}
SUFFIXES = {"q4f16": "_q4f16", "q4": "_q4", "q8": "_quantized", "fp32": ""}
# A browser reads each file into one ArrayBuffer.
LARGEST_FILE = 1 << 30
ALIGNMENT = 4096
STD_OF_4_BITS, STD_OF_8_BITS = 4.61, 73.9


class ExternalData:
    """Initializers whose bytes go straight into files beside the graph, each at most so large unless one tensor is."""

    def __init__(self, graph_file: pathlib.Path):
        self.graph_file = graph_file
        self.files = 0
        self.stream = None
        self.tensors: list[TensorProto] = []
        self.open_next()

    def open_next(self) -> None:
        if self.stream is not None:
            self.stream.close()
        suffix = "_data" if self.files == 0 else f"_data_{self.files}"
        self.name = self.graph_file.name + suffix
        self.stream = open(self.graph_file.with_name(self.name), "wb")
        self.files += 1

    def add(self, name: str, array: np.ndarray, data_type: int) -> str:
        data = np.ascontiguousarray(array).tobytes()
        at = -(-self.stream.tell() // ALIGNMENT) * ALIGNMENT
        if at > 0 and at + len(data) > LARGEST_FILE:
            self.open_next()
            at = 0
        self.stream.seek(at)
        self.stream.write(data)
        tensor = TensorProto(name=name, data_type=data_type, dims=array.shape, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": self.name, "offset": at, "length": len(data)}.items():
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)
        return name

    def close(self) -> None:
        self.stream.close()


class Graph:
    """Built node by node."""

    def __init__(self, graph_file: pathlib.Path, dtype: str, seed: int):
        self.dtype = dtype
        self.element, self.numpy = DTYPES[dtype]
        # What is quantised already, by name: products with the same input share it.
        self.quantized: dict[str, list[str]] = {}
        self.rng = np.random.default_rng(seed)
        self.data = ExternalData(graph_file)
        self.nodes = []
        self.constants = []

    def model(self, name: str, inputs: list, outputs: list) -> ModelProto:
        """All of it, between inputs and outputs with types and shapes."""
        graph = helper.make_graph(self.nodes, name, inputs, outputs, [*self.constants, *self.data.tensors])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="rillm-peers")

    def node(self, op: str, inputs: list[str], name: str, outputs: list[str] | None = None, domain: str = "", **attributes) -> str:
        outputs = outputs or [f"{name}/output"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def constant(self, name: str, values: list[int], dims: list[int]) -> str:
        self.constants.append(helper.make_tensor(name, TensorProto.INT64, dims, values))
        return name

    def ones(self, name: str, size: int) -> str:
        return self.data.add(name, np.ones(size, self.numpy), self.element)

    def noise(self, name: str, *dims: int, std: float) -> str:
        return self.data.add(name, (self.rng.standard_normal(dims, np.float32) * std).astype(self.numpy), self.element)

    def scalar(self, name: str, value: float, zero_point: bool = False) -> str:
        kind = TensorProto.INT8 if zero_point else TensorProto.FLOAT
        self.constants.append(helper.make_tensor(name, kind, [], [value]))
        return name

    def noise_of_8_bits(self, name: str, rows: int, columns: int) -> str:
        return self.data.add(name, self.rng.integers(-128, 128, (rows, columns), np.int8), TensorProto.INT8)

    def product_of_8_bits(self, x: str, name: str, outputs: int, inputs: int) -> str:
        if x not in self.quantized:
            parts = [f"{x}/{part}" for part in ("quantized", "scale", "zero_point")]
            self.node("DynamicQuantizeLinear", [x], f"{x}/quantize", parts)
            self.quantized[x] = parts
        quantized, scale, zero_point = self.quantized[x]
        weight = self.noise_of_8_bits(f"{name}.weight_quantized", inputs, outputs)
        weight_scale = self.scalar(f"{name}.weight_scale", WEIGHT_STD / STD_OF_8_BITS)
        sums = self.node("MatMulInteger", [quantized, weight, zero_point, self.scalar(f"{name}.weight_zero_point", 0, True)], f"{name}/integers")
        floats = self.node("Cast", [sums], f"{name}/cast", to=TensorProto.FLOAT)
        return self.node("Mul", [floats, self.node("Mul", [scale, weight_scale], f"{name}/scale")], name)

    def product_of_floats(self, x: str, name: str, outputs: int, inputs: int) -> str:
        return self.node("MatMul", [x, self.noise(f"{name}.weight", inputs, outputs, std=WEIGHT_STD)], name)

    def product_of_4_bits(self, x: str, name: str, outputs: int, inputs: int) -> str:
        blocks = inputs // BLOCK
        weight = self.rng.integers(0, 256, (outputs, blocks, BLOCK // 2), np.uint8)
        scale = np.full((outputs, blocks), WEIGHT_STD / STD_OF_4_BITS, self.numpy)
        b = self.data.add(f"{name}.weight_quantized", weight, TensorProto.UINT8)
        s = self.data.add(f"{name}.weight_scales", scale, self.element)
        return self.node("MatMulNBits", [x, b, s], name, domain="com.microsoft", K=inputs, N=outputs, bits=4, block_size=BLOCK, accuracy_level=4)

    def mat_mul(self, x: str, name: str, outputs: int, inputs: int, bias: bool = False) -> str:
        product = {"q8": self.product_of_8_bits, "fp32": self.product_of_floats}.get(self.dtype, self.product_of_4_bits)
        y = product(x, name, outputs, inputs)
        if bias:
            y = self.node("Add", [y, self.noise(f"{name}.bias", outputs, std=WEIGHT_STD)], f"{name}/bias")
        return y

    def embedding(self, name: str, ids: str, rows: int, columns: int) -> str:
        """Rows of a table that `ids` names, as floats."""
        if self.dtype == "q8":
            found = self.node("Gather", [self.noise_of_8_bits(f"{name}.weight", rows, columns), ids], f"{name}/rows", axis=0)
            scale, zero_point = self.scalar(f"{name}.weight_scale", EMBEDDING_STD / STD_OF_8_BITS), self.scalar(f"{name}.weight_zero_point", 0, True)
            return self.node("DequantizeLinear", [found, scale, zero_point], name)
        return self.node("Gather", [self.noise(f"{name}.weight", rows, columns, std=EMBEDDING_STD), ids], name, axis=0)


def write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
