// The site of the documentation. `npm run docs` builds it into docs/.vitepress/dist, as static files.

import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { defineConfig } from 'vitepress';

import { outsideLinks } from './outside.mjs';
import { slugOf } from './slugs.mjs';

/** Where the package says that this site is; without an address it is built for the root of a server. */
const { homepage } = JSON.parse(readFileSync(new URL('../../pkg-template/package.json', import.meta.url), 'utf8'));
const base = homepage === undefined ? '/' : new URL(homepage).pathname;

const guide = (text, name) => ({ text, link: `/guide/${name}` });

/** The pages of the API reference as TypeDoc names them; none while it was not made. */
function reference() {
  const file = fileURLToPath(new URL('../api/sidebar.json', import.meta.url));
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : [];
}

const sidebar = [
  {
    text: 'Begin',
    items: [
      guide('Quick start', 'quick-start'),
      guide('Choosing a model', 'models'),
      guide('React, Vue, Svelte', 'frameworks'),
      guide('Bundlers', 'bundlers'),
    ],
  },
  {
    text: 'Generate',
    items: [
      guide('Chat and streaming', 'chat'),
      guide('Sampling', 'sampling'),
      guide('JSON and grammars', 'json'),
      guide('Tools', 'tools'),
      guide('Reasoning', 'reasoning'),
      guide('Adapters (LoRA)', 'adapters'),
      guide('Training an adapter', 'training'),
      guide('Translations and summaries', 'translation'),
      guide('Embeddings, reranking, labels', 'embeddings'),
      guide('OpenAI and AI SDK clients', 'clients'),
    ],
  },
  {
    text: 'Run',
    items: [
      guide('Caching and offline', 'caching'),
      guide('Saved conversations', 'sessions'),
      guide('Workers, tabs, service workers', 'workers'),
      guide('Memory and devices', 'devices'),
      guide('Speed', 'speed'),
      guide('Browser support', 'browsers'),
      guide('Errors', 'errors'),
    ],
  },
  {
    text: 'Coming from',
    items: [
      { text: 'WebLLM', link: '/migrate/webllm' },
      { text: 'wllama', link: '/migrate/wllama' },
      { text: 'transformers.js', link: '/migrate/transformers' },
    ],
  },
  {
    text: 'Reference',
    items: [
      { text: 'API', link: '/api/' },
      guide('Options of a load', 'options'),
      guide('What goes together', 'conflicts'),
      guide('Command line', 'command-line'),
      guide('Tensors and your own kernels', 'tensors'),
      { text: 'rillm/tensor', link: '/tensors' },
      { text: 'What is tested of each operation', link: '/tensor-operations' },
    ],
  },
  {
    text: 'Project',
    items: [
      { text: 'Benchmarks', link: '/benchmarks' },
      { text: 'What was tried for speed', link: '/performance-log' },
      { text: 'Weights', link: '/weights' },
      { text: 'Fidelity', link: '/fidelity' },
      { text: 'Reliability', link: '/reliability' },
      { text: 'Size', link: '/size' },
      { text: 'Architecture', link: '/project/architecture' },
      { text: 'Contributing', link: '/project/contributing' },
      { text: 'Security', link: '/project/security' },
      { text: 'Changelog', link: '/project/changelog' },
    ],
  },
];

export default defineConfig({
  base,
  title: 'rillm',
  description: 'Language models in the browser on WebGPU',
  lang: 'en',
  head: [['link', { rel: 'icon', href: `${base}icon.svg`, type: 'image/svg+xml' }]],
  // Pages say `{{` and tags such as `<think>` in text.
  markdown: { html: true, anchor: { slugify: slugOf }, config: (md) => md.use(outsideLinks) },
  themeConfig: {
    logo: '/icon.svg',
    nav: [
      { text: 'Guide', link: '/guide/quick-start', activeMatch: '^/(guide|migrate)/' },
      { text: 'API', link: '/api/', activeMatch: '^/api/' },
      { text: 'Benchmarks', link: '/benchmarks' },
      { text: 'Changelog', link: '/project/changelog' },
    ],
    sidebar: { '/api/': reference(), '/': sidebar },
    outline: [2, 3],
    search: { provider: 'local' },
    footer: { message: 'MIT or Apache-2.0, at your choice.' },
  },
});
