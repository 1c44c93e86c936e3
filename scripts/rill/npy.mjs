// NumPy's .npy format, version 1.0: writing float32 and reading what tests compare with. Knows nothing of models.

/** The bytes before the data of a little-endian float32 array in C order. */
export function npyHeader(shape) {
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(', ')})`;
  const text = `{'descr': '<f4', 'fortran_order': False, 'shape': ${tuple}, }`;
  // Magic, version, length: 10 bytes; all of it padded to a multiple of 64 with spaces and one line feed at the end.
  const length = Math.ceil((10 + text.length + 1) / 64) * 64 - 10;
  const header = Buffer.alloc(10 + length, ' ');
  header.write('\x93NUMPY\x01\x00', 'latin1');
  header.writeUInt16LE(length, 8);
  header.write(text, 10, 'latin1');
  header.write('\n', header.length - 1, 'latin1');
  return header;
}

const ARRAYS = { '<f4': Float32Array, '<f8': Float64Array, '<i4': Int32Array, '<i8': BigInt64Array, '<u4': Uint32Array, '|u1': Uint8Array };

/** A whole .npy file as {shape, data}. */
export function readNpy(bytes) {
  if (bytes.toString('latin1', 0, 6) !== '\x93NUMPY') throw new Error('not a .npy file');
  const wide = bytes[6] >= 2;
  const begin = wide ? 12 : 10;
  const end = begin + (wide ? bytes.readUInt32LE(8) : bytes.readUInt16LE(8));
  const header = bytes.toString('latin1', begin, end);
  const descr = header.match(/'descr':\s*'([^']+)'/)?.[1];
  const shape = header
    .match(/'shape':\s*\(([^)]*)\)/)?.[1]
    .split(',')
    .filter((part) => part.trim() !== '')
    .map(Number);
  const Type = ARRAYS[descr];
  if (Type === undefined || shape === undefined || !/'fortran_order':\s*False/.test(header))
    throw new Error(`a .npy of another kind: ${header}`);
  const data = new Type(bytes.buffer.slice(bytes.byteOffset + end, bytes.byteOffset + bytes.length));
  return { shape, data };
}
