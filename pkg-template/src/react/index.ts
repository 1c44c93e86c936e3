// The face of rillm/react: everything public, and nothing else.

/**
 * Hooks for React.
 *
 * @module rillm/react
 */

export type { ChatFields, ChatState, ChatStatus } from './conversation.js';
export type { Answer } from './growing_answer.js';
export { type Chat, type ChatOptions, useChat } from './use_chat.js';
export { type EngineOptions, type LoadedEngine, useEngine } from './use_engine.js';
