// Reads and writes GGUF files whole, so that tests can take a sound one, change something and write it again.

const SIZES = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const UINT32 = 4;
const STRING = 8;
const ARRAY = 9;
export const F32 = 0;
/** Elements and bytes of a block of the tensor types that the golden files have. */
const BLOCKS = { 0: [1, 4], 1: [1, 2], 2: [32, 18], 8: [32, 34] };
const ALIGNMENT = 32;

/** → {entries: Map(key → {type, bytes}), tensors: [{name, dims, type, data}]}; values stay bytes, as they are only copied. */
export function readGguf(file) {
  let at = 8;
  const u32 = () => file.readUInt32LE((at += 4) - 4);
  const u64 = () => Number(file.readBigUInt64LE((at += 8) - 8));
  const string = () => file.toString('utf8', at + 8, (at += 8 + Number(file.readBigUInt64LE(at))));
  const skip = (type) => {
    if (type === STRING) at += 8 + Number(file.readBigUInt64LE(at));
    else if (type === ARRAY) {
      const element = u32();
      for (let count = u64(); count > 0; count--) skip(element);
    } else at += SIZES[type];
  };
  const tensorCount = u64();
  const entries = new Map();
  for (let count = u64(); count > 0; count--) {
    const key = string();
    const type = u32();
    const begin = at;
    skip(type);
    entries.set(key, { type, bytes: file.subarray(begin, at) });
  }
  const tensors = Array.from({ length: tensorCount }, () => {
    const name = string();
    const dims = Array.from({ length: u32() }, u64);
    return { name, dims, type: u32(), offset: u64() };
  });
  const data = align(at);
  for (const tensor of tensors) {
    const [elements, bytes] = BLOCKS[tensor.type];
    const size = (tensor.dims.reduce((product, n) => product * n, 1) / elements) * bytes;
    tensor.data = file.subarray(data + tensor.offset, data + tensor.offset + size);
  }
  return { entries, tensors };
}

export function writeGguf(model) {
  const { header, data } = ggufParts(model);
  return Buffer.concat([header, data]);
}

/** The header, and the data that come `gap` bytes after it; those of the gap belong to no tensor. */
export function ggufParts({ entries, tensors }, gap = 0) {
  let offset = gap;
  const infos = tensors.map(({ name, dims, type, data }) => {
    const info = Buffer.concat([stringBytes(name), u32Bytes(dims.length), ...dims.map(u64Bytes), u32Bytes(type), u64Bytes(offset)]);
    offset = align(offset + data.length);
    return info;
  });
  const keys = [...entries].map(([key, { type, bytes }]) => Buffer.concat([stringBytes(key), u32Bytes(type), bytes]));
  const header = Buffer.concat([Buffer.from('GGUF'), u32Bytes(3), u64Bytes(tensors.length), u64Bytes(entries.size), ...keys, ...infos]);
  return {
    header: padded(header),
    bytes: offset,
    get data() {
      return Buffer.concat(tensors.map(({ data }) => padded(data)));
    },
  };
}

export const uint32Entry = (value) => ({ type: UINT32, bytes: u32Bytes(value) });
export const stringEntry = (value) => ({ type: STRING, bytes: stringBytes(value) });

function align(position) {
  return Math.ceil(position / ALIGNMENT) * ALIGNMENT;
}

function padded(bytes) {
  const rest = align(bytes.length) - bytes.length;
  return rest === 0 ? bytes : Buffer.concat([bytes, Buffer.alloc(rest)]);
}

function u32Bytes(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64Bytes(value) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function stringBytes(text) {
  const bytes = Buffer.from(text);
  return Buffer.concat([u64Bytes(bytes.length), bytes]);
}
