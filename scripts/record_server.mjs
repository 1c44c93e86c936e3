// Records what a real server of OpenAI's API answers to a few requests, byte by byte as it comes, for tests that replay it.
//
//   node scripts/record_server.mjs http://localhost:8000/v1 tests/golden/openai_server/recording.json
//
// The recording that is committed is of llama-cpp-python's server (0.2.57) with the demo model:
//
//   pip install 'llama-cpp-python[server]==0.2.57'
//   python -m llama_cpp.server --model models/demo/rillm-demo-q4_0.gguf --model_alias remote --seed 1 --n_ctx 512

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

import { isMain, main, Problem } from './command.mjs';

const STORY = { model: 'remote', messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 16, temperature: 0 };

/** What is asked, in this order. */
const REQUESTS = [
  { method: 'GET', path: '/models' },
  { method: 'POST', path: '/chat/completions', body: STORY },
  { method: 'POST', path: '/chat/completions', body: { ...STORY, stream: true } },
  { method: 'POST', path: '/completions', body: { model: 'remote', prompt: 'Once upon a time', max_tokens: 8, temperature: 0 } },
  // More than its context holds.
  { method: 'POST', path: '/chat/completions', body: { model: 'remote', messages: [{ role: 'user', content: 'a '.repeat(600) }] } },
  { method: 'GET', path: '/responses/resp_elsewhere' },
];

const KEPT_HEADERS = ['content-type', 'cache-control'];

/** → {request, response: {status, headers, chunks: [text]}} */
async function record(base, request) {
  const { method, path, body } = request;
  const init = body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
  const answer = await fetch(`${base}${path}`, { method, ...init });
  const headers = Object.fromEntries(KEPT_HEADERS.flatMap((name) => (answer.headers.has(name) ? [[name, answer.headers.get(name)]] : [])));
  const decoder = new TextDecoder();
  const chunks = [];
  for await (const bytes of answer.body) chunks.push(decoder.decode(bytes, { stream: true }));
  return { request, response: { status: answer.status, headers, chunks: chunks.filter((chunk) => chunk !== '') } };
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const [base, file] = process.argv.slice(2);
    if (file === undefined) throw new Problem('wanted: node scripts/record_server.mjs BASE_URL FILE');
    const recording = [];
    for (const request of REQUESTS) recording.push(await record(base.replace(/\/+$/, ''), request));
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${JSON.stringify(recording, null, 2)}\n`);
    for (const { request, response } of recording) console.log(`${request.method} ${request.path}: ${response.status}`);
  });
}
