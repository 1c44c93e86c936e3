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

Object.assign(globalThis, {
  OpenAI,
  ai,
  assert,
  createOpenAI,
  createOpenAICompatible,
  langchain: { ...langchain, ...messages, ...tools },
  z,
  zodResponseFormat,
  zodTextFormat,
});
