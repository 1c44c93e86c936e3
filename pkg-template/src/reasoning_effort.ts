// OpenAI's `reasoning_effort`, in the words of chat templates and of the engine: variables of the template, and a budget of tokens.

import { EngineError } from './errors.js';
import { describe } from './arguments.js';
import type { ReasoningEffort } from './requests.js';

/** Tokens of reasoning; null is no limit. Each is four times the one before. */
const BUDGETS: Record<ReasoningEffort, number | null> = {
  none: 0,
  minimal: 128,
  low: 512,
  medium: 2048,
  high: 8192,
  xhigh: null,
  max: null,
};

export function isReasoningEffort(value: unknown): value is ReasoningEffort {
  return typeof value === 'string' && Object.hasOwn(BUDGETS, value);
}

/** What an effort may be, in words. */
export const REASONING_EFFORTS = Object.keys(BUDGETS)
  .map((name) => `"${name}"`)
  .join(', ');

/** A chat's request in which the field is spelled out. What the request says itself of template and budget stays. */
export function withReasoningEffort(request: unknown): unknown {
  if (typeof request !== 'object' || request === null || !('reasoning_effort' in request)) return request;
  const { reasoning_effort: effort } = request;
  const fields = effortInTemplate(request as Record<string, unknown>);
  // Where reasoning is not told apart, it can't be counted.
  if (isReasoningEffort(effort) && fields.reasoning_format !== 'none') fields.thinking_token_budget ??= BUDGETS[effort];
  return fields;
}

/** The same of a prompt, which has no budget. */
export function effortInTemplate(request: Record<string, unknown>): Record<string, unknown> {
  const { reasoning_effort: effort, ...fields } = request;
  if (effort === undefined || effort === null) return fields;
  if (!isReasoningEffort(effort)) {
    throw new EngineError('invalid_request', `reasoning_effort is one of ${REASONING_EFFORTS}, got ${describe(effort)}`);
  }
  const own = fields.chat_template_kwargs ?? {};
  // Something else than an object is for the engine to refuse.
  if (typeof own === 'object' && !Array.isArray(own)) {
    const thinks = effort !== 'none';
    fields.chat_template_kwargs = { enable_thinking: thinks, thinking: thinks, reasoning_effort: effort, ...own };
  }
  return fields;
}
