// Reads a file that is wanted whole and may be of unknown length, such as a list: the API of a hub compresses what it answers.

import { EngineError } from '../errors.js';
import { FileStream } from './file_stream.js';
import type { Body, HttpFile } from './http.js';

/** All bytes of it, of which `first` is the first answer. */
export async function readText(http: HttpFile, first: Body, limit: number): Promise<Uint8Array<ArrayBuffer>> {
  const { size } = first.range;
  const { entityTag, version } = first;
  // Where size and state are known, a second request can go on where the first broke off.
  if (size !== undefined && version !== undefined) {
    const stream = new FileStream({ http, state: { size, entityTag, version }, offset: 0, end: size, first, mostSkipped: Infinity });
    try {
      return await collected(http.url, stream, limit);
    } finally {
      stream.end();
    }
  }
  return readAnew(http, first, limit);
}

/** Begins anew where it breaks off: two halves of lists that differ would be no list. */
async function readAnew(http: HttpFile, first: Body, limit: number): Promise<Uint8Array<ArrayBuffer>> {
  const attempts = http.attempts();
  let most = 0;
  let body: Body | undefined = first;
  return attempts.run(async () => {
    const reading = body ?? (await opened(http));
    body = undefined;
    try {
      return await collected(http.url, reading, limit, (size) => {
        if (size <= most) return;
        attempts.progressed(size - most);
        most = size;
      });
    } finally {
      reading.end();
    }
  });
}

async function opened(http: HttpFile): Promise<Body> {
  const answer = await http.get();
  if (answer.kind === 'missing')
    throw new EngineError('http', `${http.url}: the server answered ${answer.status}, and had the file before`);
  return answer.body;
}

async function collected(
  url: string,
  source: Pick<Body, 'next'>,
  limit: number,
  onBytes: (size: number) => void = () => {},
): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for (let bytes = await source.next(); bytes !== undefined; bytes = await source.next()) {
    size += bytes.length;
    if (size > limit) throw tooLong(url, limit);
    parts.push(bytes);
    onBytes(size);
  }
  return new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
}

export function tooLong(url: string, limit: number): EngineError {
  return new EngineError('invalid_file', `${url}: the file has more than ${limit} bytes`);
}
