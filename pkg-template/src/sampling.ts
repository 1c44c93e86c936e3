// What a request says about the choice of tokens: all of it is done on the GPU, while steps run ahead.

import type { SamplingFields } from './generated/requests.js';

export type { PenaltyFields as PenaltyRequest } from './generated/requests.js';

/**
 * Which tokens are chosen from. The order is `top_n_sigma`, `temperature` (or `dynatemp_range`), `top_k`, `top_p`, `min_p`, `typical_p`, XTC,
 * each of what the one before it kept. (In llama.cpp temperature is last.) Tokens exactly as likely as the last one kept stay too. At temperature 0 none of them has an effect.
 */
export type TruncationRequest = Omit<SamplingFields, 'temperature' | 'seed'>;
