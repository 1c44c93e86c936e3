// What an adapter is trained with, and what a training tells. Made from the Rust structs by `npm run types`: change those.

import type { TrainingExample } from '../train/types.js';

/** What is learnt, and how. */
export interface LoraTraining {
  /** What is learnt: texts, `{text}`, or chats `{messages, tools, chat_template_kwargs}`. Of chats the answers are learnt, of texts all. */
  data: TrainingExample[];
  /**
   * What is not learnt. It tells how well the model does on what it has not seen. It is more data, or a share of `data` between 0 and 1, of which
   * the last texts and chats are held out, rounded up. Default: nothing.
   */
  heldOut?: number | TrainingExample[] | undefined;
  /** What requests call the adapter. Default: `trained`. */
  name?: string | undefined;
  /** The rows of A and the columns of B: how much can be learnt. Default: 8. */
  rank?: number | undefined;
  /** What is learnt counts alpha / rank times. Default: twice the rank. */
  alpha?: number | undefined;
  /** The matrices that learn, as PEFT or GGUF files name them: `q_proj`, `attn_q`; or `all-linear`, the default. */
  targets?: string[] | undefined;
  /** How often all of `data` is learnt. Default: 3. */
  epochs?: number | undefined;
  /** Examples of one step. Default: 1. */
  batchSize?: number | undefined;
  /** The highest learning rate. Default: 2e-4. */
  learningRate?: number | undefined;
  /** How it goes on after it has risen. Default: `linear`. */
  schedule?: Schedule | undefined;
  /** The steps in which it rises. Default: 0. */
  warmupSteps?: number | undefined;
  /** The part of each number that a step takes away, times the learning rate. Default: 0. */
  weightDecay?: number | undefined;
  /** The largest norm of all gradients together: longer ones are shortened to it; 0 for none. Default: 1. */
  maxGradNorm?: number | undefined;
  /** The most tokens of an example; a longer one is an error. Default: the engine's context length, at most 1,024. Memory grows with its square. */
  maxLength?: number | undefined;
  /** For the numbers to begin with and the order of examples. Default: 0. */
  seed?: number | undefined;
  /** Keeps the state of the training every few steps, so that it can go on if it is interrupted. Default: it is not kept. */
  checkpoint?: CheckpointOptions | undefined;
}

/** How the state of a training is kept. */
export interface CheckpointOptions {
  /** After how many steps. */
  everySteps: number;
}

/** How the learning rate goes on after it has risen. */
export type Schedule = 'constant' | 'linear' | 'cosine';

/** What a training is going to do. */
export interface TrainingPlan {
  /** Those that are learnt. */
  examples: number;
  /** Those that are held out. */
  heldOut: number;
  /** Tokens of the examples that are learnt, of one epoch. */
  tokens: number;
  /** Those of them that are learnt: of chats the answers. */
  counted: number;
  /** Tokens of the longest example. */
  longest: number;
  /** Of all epochs. */
  steps: number;
  /** The numbers in A and B. */
  parameters: number;
  /** Bytes on the GPU besides the model's. */
  memory: TrainingMemory;
  /** All of them. */
  memoryBytes: number;
  /** The most bytes that its checkpoints and files take in the engine's own memory, about. */
  heapBytes: number;
}

/** Bytes on the GPU besides the model's own. */
export interface TrainingMemory {
  /** A and B in f32. */
  parameters: number;
  /** What AdamW remembers of each number of A and B. */
  optimizer: number;
  /** Of A and B, those of an example and the sum of all of a step. */
  gradients: number;
  /** The most that one example needs on its way forwards and back. */
  activations: number;
}

/** A step. */
export interface TrainingStep {
  /** Its number, from 1. */
  step: number;
  /** Of this many. */
  steps: number;
  /** The epoch that it is in, from 1. */
  epoch: number;
  /** The mean cross entropy of its examples before it, in nats. */
  loss: number;
  /** The norm of all gradients together, before it was clipped. */
  gradNorm: number;
  /** The learning rate. */
  learningRate: number;
  /** Tokens of its examples. */
  tokens: number;
}

/** How well the model does on what is held out. */
export interface HeldOutLoss {
  /** The epochs so far. */
  epoch: number;
  /** The mean cross entropy of what was held out, in nats. */
  loss: number;
}
