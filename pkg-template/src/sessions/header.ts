// The beginning of a session's file, as src/engine/api/session.rs writes it. It is read here for lists alone, which need no engine.

import type { Session } from '../generated/sessions.js';

const MAGIC = 'RILLMSES';
const VERSION = 1;
/** Magic, version and the length of the text. */
const HEAD_BYTES = 16;

/** What a file says of its session; undefined if it is damaged, or no session of this version. What comes after it is not looked at. */
export async function readHeader(file: Blob): Promise<Session | undefined> {
  try {
    const head = new DataView(await file.slice(0, HEAD_BYTES).arrayBuffer());
    const magic = String.fromCharCode(...new Uint8Array(head.buffer, 0, MAGIC.length));
    const end = HEAD_BYTES + head.getUint32(12, true);
    if (magic !== MAGIC || head.getUint32(8, true) !== VERSION || end + 4 > file.size) return undefined;
    const bytes = await file.slice(0, end + 4).arrayBuffer();
    if (new DataView(bytes).getUint32(end, true) !== crc32(new Uint8Array(bytes, 0, end))) return undefined;
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, HEAD_BYTES, end - HEAD_BYTES))) as Session;
    const isSession = Number.isInteger(header.created) && Number.isInteger(header.tokens) && typeof header.model?.fingerprint === 'string';
    return isSession ? header : undefined;
  } catch {
    // Too short, or it can't be read.
    return undefined;
  }
}

/** CRC-32 (ISO-HDLC). */
function crc32(bytes: Uint8Array): number {
  let sum = -1;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}
