// What tests of clients use in the page: the clients as they come from the registry, and assertions. Bundled by `clients.mjs`.

import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import * as messages from '@langchain/core/messages';
import * as tools from '@langchain/core/tools';
import * as langchain from '@langchain/openai';
import * as ai from 'ai';
import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { assert } from './assert.js';

/** The clients of a server that `fetch` asks; none tries again by itself. */
function clientsOf(fetch) {
  const options = { baseURL: 'http://engine.test/v1', apiKey: 'none', fetch };
  return {
    openai: new OpenAI({ ...options, maxRetries: 0, dangerouslyAllowBrowser: true }),
    provider: createOpenAICompatible({ ...options, name: 'rillm', includeUsage: true, supportsStructuredOutputs: true }),
    chain: (more = {}) =>
      new langchain.ChatOpenAI({
        model: 'rillm',
        temperature: 0,
        maxTokens: 100,
        maxRetries: 0,
        apiKey: 'none',
        configuration: { baseURL: options.baseURL, fetch, dangerouslyAllowBrowser: true },
        ...more,
      }),
  };
}

Object.assign(globalThis, {
  OpenAI,
  ai,
  assert,
  clientsOf,
  createOpenAI,
  createOpenAICompatible,
  langchain: { ...langchain, ...messages, ...tools },
  z,
  zodResponseFormat,
  zodTextFormat,
});
