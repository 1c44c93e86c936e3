// How a file is cut: segments are what is fetched and kept as one, chunks are what has a digest of its own.

export const SEGMENT_BYTES = 16 << 20;
export const CHUNK_BYTES = 4 << 20;
export const CHUNKS_PER_SEGMENT = SEGMENT_BYTES / CHUNK_BYTES;

export function segmentsOf(size: number): number {
  return Math.ceil(size / SEGMENT_BYTES);
}

/** The bytes of segment `index`. */
export function segmentLength(size: number, index: number): number {
  return Math.min(SEGMENT_BYTES, size - index * SEGMENT_BYTES);
}

export function hex(bytes: ArrayBuffer): string {
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** False on pages that are not served securely, such as http of another machine. Files are not kept there. */
export const canDigest = (): boolean => globalThis.crypto?.subtle !== undefined;

export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return hex(await crypto.subtle.digest('SHA-256', bytes));
}

/** The digests of the chunks of a segment. */
export function chunkDigests(segment: Uint8Array<ArrayBuffer>): Promise<string[]> {
  const starts = Array.from({ length: Math.ceil(segment.length / CHUNK_BYTES) }, (_, chunk) => chunk * CHUNK_BYTES);
  return Promise.all(starts.map((start) => sha256(segment.subarray(start, start + CHUNK_BYTES))));
}
