"""Writes and reads GGUF v3 files: metadata, F32 / F16 / Q8_0 / Q4_0 tensors and their quantisers.

Knows the container and the block formats, nothing about models or tokenizers. Only numpy is needed.
The quantisers round as llama.cpp's reference quantisers do (`quantize_row_q8_0_ref`, `quantize_row_q4_0_ref`);
`check_against_gguf_package()` proves it against the PyPI package `gguf` where that is installed.
"""

import struct

import numpy as np

BLOCK = 32  # weights per block in both quantised formats
ALIGNMENT = 32  # bytes, GGUF's default

# name: (ggml type id, bytes per block, weights per block)
FORMATS = {"F32": (0, 4, 1), "F16": (1, 2, 1), "Q4_0": (2, 18, BLOCK), "Q8_0": (8, 34, BLOCK), "BF16": (30, 2, 1), "MXFP4": (39, 17, BLOCK)}
FORMAT_BY_ID = {type_id: name for name, (type_id, _, _) in FORMATS.items()}


def quantise_q8_0(weights: np.ndarray) -> np.ndarray:
    """[..., columns] float32 → bytes: per block a f16 scale and 32 signed bytes."""
    blocks = np.ascontiguousarray(weights, dtype=np.float32).reshape(-1, BLOCK)
    scale = (np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    scaled = blocks * inverse
    # C's roundf: halves go away from zero (numpy's round sends them to the even neighbour).
    magnitude = np.abs(scaled)
    whole = np.floor(magnitude)
    rounded = np.sign(scaled) * (whole + (magnitude - whole >= np.float32(0.5)))
    return np.concatenate([scale.astype("<f2").view(np.uint8), rounded.astype(np.int8).view(np.uint8)], axis=1)


def dequantise_q8_0(data: np.ndarray) -> np.ndarray:
    data = np.ascontiguousarray(data).reshape(-1, 34)
    scale = data[:, :2].copy().view("<f2").astype(np.float32)
    return data[:, 2:].copy().view(np.int8).astype(np.float32) * scale


def quantise_q4_0(weights: np.ndarray) -> np.ndarray:
    """[..., columns] float32 → bytes: per block a f16 scale and 16 bytes, weight j low, weight j + 16 high."""
    blocks = np.ascontiguousarray(weights, dtype=np.float32).reshape(-1, BLOCK)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)  # keeps its sign
    scale = (extreme / np.float32(-8)).astype(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    levels = np.minimum(np.trunc(blocks * inverse + np.float32(8.5)), 15).astype(np.uint8)
    packed = levels[:, :16] | (levels[:, 16:] << 4)
    return np.concatenate([scale.astype("<f2").view(np.uint8), packed], axis=1)


def dequantise_q4_0(data: np.ndarray) -> np.ndarray:
    data = np.ascontiguousarray(data).reshape(-1, 18)
    scale = data[:, :2].copy().view("<f2").astype(np.float32)
    packed = data[:, 2:]
    levels = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32) - 8
    return levels * scale


def encode(weights: np.ndarray, fmt: str) -> bytes:
    if fmt == "MXFP4":  # blocks, as bytes [..., columns / 32 * 17]
        return weights.tobytes()
    if FORMATS[fmt][2] > 1 and weights.shape[-1] % BLOCK:
        raise ValueError(f"{fmt} needs rows of a multiple of {BLOCK} weights, got {weights.shape}")
    if fmt == "F32":
        return np.ascontiguousarray(weights, dtype="<f4").tobytes()
    if fmt == "F16":
        return np.ascontiguousarray(weights, dtype="<f2").tobytes()
    if fmt == "BF16":  # of weights that it represents
        bits = np.ascontiguousarray(weights, dtype="<f4").view("<u4")
        if (bits & 0xFFFF).any():
            raise ValueError("weights that BF16 does not represent")
        return (bits >> 16).astype("<u2").tobytes()
    return {"Q8_0": quantise_q8_0, "Q4_0": quantise_q4_0}[fmt](weights).tobytes()


def decode(data: bytes, fmt: str, shape: tuple) -> np.ndarray:
    raw = np.frombuffer(data, dtype=np.uint8)
    if fmt == "F32":
        return raw.view("<f4").astype(np.float32).reshape(shape)
    if fmt == "F16":
        return raw.view("<f2").astype(np.float32).reshape(shape)
    return {"Q8_0": dequantise_q8_0, "Q4_0": dequantise_q4_0}[fmt](raw).reshape(shape)


def round_trip(weights: np.ndarray, fmt: str) -> np.ndarray:
    """The float32 weights that a reader of this format sees."""
    return decode(encode(weights, fmt), fmt, weights.shape)


class U32(int):
    """A metadata number written as uint32 (a plain int is written so too; the class is for arrays)."""


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(value) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<B", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, _string(value)
    if isinstance(value, list):
        if not value:
            raise ValueError("an empty array has no element type")
        if isinstance(value[0], str):
            return 9, struct.pack("<IQ", 8, len(value)) + b"".join(map(_string, value))
        if isinstance(value[0], bool):
            return 9, struct.pack("<IQ", 7, len(value)) + struct.pack(f"<{len(value)}?", *value)
        if isinstance(value[0], int):  # token types are int32 in llama.cpp's files
            return 9, struct.pack("<IQ", 5, len(value)) + np.asarray(value, dtype="<i4").tobytes()
        if isinstance(value[0], float):
            return 9, struct.pack("<IQ", 6, len(value)) + np.asarray(value, dtype="<f4").tobytes()
    raise TypeError(f"no GGUF type for {type(value)}")


def write(path, metadata: dict, tensors: dict):
    """tensors: name → (float32 array [rows, columns] or [n], format name). Insertion order is kept."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        type_id, data = _value(value)
        head += [_string(key), struct.pack("<I", type_id), data]
    bodies, offset = [], 0
    for name, (weights, fmt) in tensors.items():
        body = encode(weights, fmt)
        body += b"\0" * (-len(body) % ALIGNMENT)
        dims = weights.shape[::-1]  # GGUF lists the fastest dimension first
        if fmt == "MXFP4":
            dims = (dims[0] // 17 * BLOCK, *dims[1:])
        head += [_string(name), struct.pack("<I", len(dims)), struct.pack(f"<{len(dims)}Q", *dims)]
        head.append(struct.pack("<IQ", FORMATS[fmt][0], offset))
        bodies.append(body)
        offset += len(body)
    head = b"".join(head)
    head += b"\0" * (-len(head) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(head)
        for body in bodies:
            file.write(body)


def read(path) -> tuple[dict, dict]:
    """→ metadata, {name: (float32 array, format name)}; the tensors are dequantised."""
    data = open(path, "rb").read()
    position = 0

    def take(layout):
        nonlocal position
        values = struct.unpack_from("<" + layout, data, position)
        position += struct.calcsize("<" + layout)
        return values if len(values) > 1 else values[0]

    def take_string():
        nonlocal position
        size = take("Q")
        position += size
        return data[position - size : position].decode("utf-8")

    scalars = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}

    def take_value(type_id):
        if type_id == 7:
            return bool(take("B"))
        if type_id == 8:
            return take_string()
        if type_id == 9:
            element, count = take("IQ")
            return [take_value(element) for _ in range(count)]
        return take(scalars[type_id])

    if data[:4] != b"GGUF":
        raise ValueError(f"{path} is not a GGUF file")
    position = 4
    _, tensor_count, metadata_count = take("IQQ")
    metadata = {}
    for _ in range(metadata_count):
        key = take_string()
        metadata[key] = take_value(take("I"))
    infos = []
    for _ in range(tensor_count):
        name = take_string()
        dims = [take("Q") for _ in range(take("I"))]
        type_id, offset = take("IQ")
        infos.append((name, tuple(dims[::-1]), FORMAT_BY_ID[type_id], offset))
    start = position + -position % metadata.get("general.alignment", ALIGNMENT)
    tensors = {}
    for name, shape, fmt, offset in infos:
        _, block_bytes, block_weights = FORMATS[fmt]
        size = int(np.prod(shape)) // block_weights * block_bytes
        tensors[name] = (decode(data[start + offset : start + offset + size], fmt, shape), fmt)
    return metadata, tensors


def check_against_gguf_package(weights: np.ndarray):
    """Raises where our bytes or values differ from those of the PyPI package `gguf`."""
    from gguf import GGMLQuantizationType, quants

    for fmt, type_id in (("Q8_0", GGMLQuantizationType.Q8_0), ("Q4_0", GGMLQuantizationType.Q4_0)):
        theirs = quants.quantize(np.ascontiguousarray(weights, dtype=np.float32), type_id)
        ours = encode(weights, fmt)
        if theirs.tobytes() != ours:
            different = np.count_nonzero(np.frombuffer(ours, np.uint8) != theirs.reshape(-1).view(np.uint8))
            raise AssertionError(f"{fmt}: {different} of {len(ours)} bytes differ from the package gguf")
        if not np.array_equal(quants.dequantize(theirs, type_id), round_trip(weights, fmt)):
            raise AssertionError(f"{fmt}: dequantised values differ from the package gguf")
