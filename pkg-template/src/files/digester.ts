// The SHA-256 of a whole file while it comes in. Types only: who computes it, and where, is for the host to say.

export interface Digester {
  /** Takes in the next bytes, which belong to the digester. Resolves when it is ready for more. */
  update(bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  /** The digest of all of them, as 64 hexadecimal digits. */
  digest(): Promise<string>;
  /** Frees it; `digest` need not have been called. */
  free(): void;
}

/** What a worker computes digests of: a whole file that comes in, or chunks of files that are kept. */
export type Digested = 'file' | 'chunks';

export type MakeDigester = () => Promise<Digester>;
