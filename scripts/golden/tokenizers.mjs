// Golden token ids, made by implementations that share no code with ours: llama3-tokenizer-js, llama-tokenizer-js and
// gpt-tokenizer. tests/golden/text/README.md says what the files hold.
//
// The packages are development dependencies of the repository.
//
//   node scripts/golden/tokenizers.mjs tests/golden/text              the texts, and vocabularies cut to a few thousand tokens
//   node scripts/golden/tokenizers.mjs target/vocabularies --full    whole vocabularies; tests/text/tokenizers.rs does this itself

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: texts to tokenize

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [out, mode] = process.argv.slice(2);
if (!out) throw new Error('usage: node tokenizers.mjs OUT_FOLDER [--full]');
const full = mode === '--full';
mkdirSync(out, { recursive: true });
// By path: the parts of gpt-tokenizer that take another vocabulary are not among its exports.
const path = (file) => join(import.meta.dirname, '../../node_modules', file);
const load = (file) => import(pathToFileURL(path(file)).href);

const NORMAL = 1,
  UNKNOWN = 2,
  CONTROL = 3,
  BYTE = 6;

// --- the texts ------------------------------------------------------------------------------------------------------

/** mulberry32: a small seeded generator, so that the same texts come out everywhere. */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// biome-ignore format: many to a line
const WRITTEN = [
  "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", " \n", "\n ", " \n \n ", "a", " a", "a ", "  a  ", "A", "I", ".", "...", "?!",
  "Hello", "hello world", "Hello, world!", " Hello, world! ", "Hello,world", "HELLO WORLD", "hElLo WoRlD", "helloWorld_fooBar", "camelCaseAndPascalCase",
  "I'm you're he's we'll they've I'd can't DON'T I'M WE'LL it'S y'all o'clock 'tis", "'s 't 're 've 'm 'll 'd", "'S'T'RE'VE'M'LL'D", "''s", "don’t “quote” ‘x’",
  "0", "1", "12", "123", "1234", "12345", "123456", "1234567890", "3.14159", "-1", "1e-5", "1,000,000", "2024-07-10T12:00:00Z", "٣٤٥ ۱۲۳ १२३ ①②③ Ⅳ ½ ²",
  "What is 12 plus 30?", "The quick brown fox jumps over the lazy dog.", "She sells sea shells by the sea shore.", "def f(x):\n    return x ** 2\n",
  "for (let i = 0; i < 10; i++) {\n\tconsole.log(`${i}`);\n}\n", "#include <stdio.h>\nint main(void) { return 0; }", "SELECT * FROM t WHERE a = 'b' AND c >= 3;",
  "<div class=\"x\">&nbsp;</div>", "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}", "a/b//c\\d\\\\e", "https://example.org/a?b=c&d=%20#e", "me@example.org",
  "fn main() { println!(\"{:?}\", vec![1, 2, 3]); }", "x = y == z != w <= v >= u && t || s", "->=>::<-|>...!!??--__++**", "((()))[[[]]]{{{}}}", "=====-----_____*****#####",
  "    indented", "\tindented", "  \t mixed \t  ", "trailing   ", "two  spaces   three    four     five", "a\n\nb\n\n\nc\n\n\n\nd", "a\r\nb\r\n\r\nc", " \r\n \r\n", "x\u00a0y\u2003z\u3000w", "\u200b\u200c\u200d", "zero\u200bwidth",
  "Ünïcödé ñandú façade Straße ÆØÅ œuvre ſ K Å", "naïve café résumé", "e\u0301 a\u0308 o\u0302\u0323 combining", "Ελληνικά γράμματα", "Русский язык, привет!", "Українська мова їжак", "עברית שלום", "العربية مرحبا بالعالم", "فارسی سلام", "हिन्दी नमस्ते दुनिया", "বাংলা", "தமிழ் வணக்கம்", "ภาษาไทย สวัสดี", "ລາວ", "မြန်မာ", "ខ្មែរ", "አማርኛ ሰላም", "ქართული", "Հայերեն", "中文字符测试", "你好，世界！", "繁體中文", "日本語のテキスト", "カタカナ ひらがな 漢字", "한국어 안녕하세요", "Tiếng Việt", "ᚠᚢᚦ 𐍈 𓀀 𝒳 𝔘𝔫𝔦", "Türkçe İıŞş",
  "😀", "😀😃😄", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "I ❤️ Rust 🦀!", "☃ ☂ ♞ ♫", "✓ ✗ → ← ↔ ∀ ∃ ∑ ∫ √ ∞ ≠ ≤", "™ © ® € £ ¥ ₿ °", "�", "\u0000", "\u0001\u0002\u001b[31mred\u001b[0m", "\u007f", "a\u0000b", "tab\there\vthere\fform",
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababab", "abcabcabcabc", "=".repeat(100), " ".repeat(33), "\n".repeat(17), "ha".repeat(40), "0".repeat(37), "🦀".repeat(9), `${"-".repeat(7)}>` , "lolololololol", "....,,,,....",
  "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua.",
  "antidisestablishmentarianism", "pneumonoultramicroscopicsilicovolcanoconiosis", "Donaudampfschifffahrtsgesellschaftskapitän", "grabbed", " grabbed", "           grabbed", "qwrtplkjhgfdszxcvbnm",
  "<s>", "</s>", "<unk>", "<0x0A>", "<|im_start|>user\nHi<|im_end|>", "[INST] hi [/INST]", "▁", "▁▁", "a▁b", "Ġ", "Ċ", "Ã©",
];

// biome-ignore format: many to a line
const PARTS = [
  "the", "The", " the", "and", "ing", "tion", "un", "der", "stand", "Rill", "GPU", "WebGPU", "x", "Z", "é", "ß", "я", "Ж", "中", "文", "あ", "ア", "한", "ع", "न", "म", "ก", "😀", "🦀", "👍🏽", "\u0301", "'s", "'LL", "’", "1", "42", "007", "3.5",
  " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", ".", ",", "!", "?", ":", ";", "-", "--", "_", "(", ")", "[", "]", "{", "}", "\"", "'", "/", "\\", "#", "@", "$", "%", "&", "*", "+", "=", "<", ">", "|", "~", "^", "`", "\u0000", "\u0007", "\u001b",
];

function texts() {
  const next = random(20250710);
  const pick = (list) => list[Math.floor(next() * list.length)];
  const all = [...WRITTEN];
  while (all.length < 600) {
    let text = '';
    const length = 1 + Math.floor(next() * 14);
    // Runs of one part are where ties between merges show.
    for (let i = 0; i < length; i++) text += pick(PARTS).repeat(next() < 0.1 ? 1 + Math.floor(next() * 6) : 1);
    all.push(text);
  }
  return all;
}

/** Blocks of Unicode, one or two for each script, with symbols, emoji, private use and what is hard to see. */
// biome-ignore format: many to a line
const BLOCKS = [
  [0x20, 0x7e], [0x20, 0x7e], [0x00, 0x1f], [0x7f, 0x84], [0x86, 0xff], [0x100, 0x24f], [0x250, 0x2af], [0x300, 0x36f], [0x370, 0x3ff], [0x400, 0x4ff],
  [0x530, 0x58f], [0x590, 0x5ff], [0x600, 0x6ff], [0x700, 0x74f], [0x780, 0x7bf], [0x900, 0x97f], [0x980, 0x9ff], [0xa00, 0xa7f], [0xa80, 0xaff],
  [0xb00, 0xb7f], [0xb80, 0xbff], [0xc00, 0xc7f], [0xc80, 0xcff], [0xd00, 0xd7f], [0xd80, 0xdff], [0xe00, 0xe7f], [0xe80, 0xeff], [0xf00, 0xfff],
  [0x1000, 0x109f], [0x10a0, 0x10ff], [0x1100, 0x11ff], [0x1200, 0x137f], [0x13a0, 0x13ff], [0x1400, 0x167f], [0x1680, 0x169f], [0x16a0, 0x16ff],
  [0x1780, 0x17ff], [0x1800, 0x18af], [0x1e00, 0x1eff], [0x1f00, 0x1fff], [0x2000, 0x206f], [0x2070, 0x209f], [0x20a0, 0x20cf], [0x2100, 0x214f],
  [0x2150, 0x218f], [0x2190, 0x21ff], [0x2200, 0x22ff], [0x2300, 0x23ff], [0x2460, 0x24ff], [0x2500, 0x259f], [0x2600, 0x27bf], [0x2800, 0x28ff],
  [0x2c00, 0x2c5f], [0x2d30, 0x2d7f], [0x3000, 0x303f], [0x3040, 0x309f], [0x30a0, 0x30ff], [0x3100, 0x312f], [0x3400, 0x4dbf], [0x4e00, 0x9fff],
  [0xa000, 0xa48f], [0xac00, 0xd7af], [0xe000, 0xf8ff], [0xf900, 0xfaff], [0xfb00, 0xfb4f], [0xfe00, 0xfe4f], [0xff00, 0xffef], [0x10330, 0x1034f],
  [0x10400, 0x1044f], [0x12000, 0x123ff], [0x13000, 0x1342f], [0x1d400, 0x1d7ff], [0x1f000, 0x1f02f], [0x1f300, 0x1f5ff], [0x1f600, 0x1f64f],
  [0x1f680, 0x1f6ff], [0x1f900, 0x1f9ff], [0x20000, 0x2a6df], [0xd800, 0xdfff], [0xe0000, 0xe007f],
];

/** Words as code has them. */
// biome-ignore format: many to a line
const CODE = [
  "fn", "let mut", "const", "return", "if (", ") {", "};", "=>", "->", "::", "&&", "||", "!=", "==", "+=", "//", "/*", "*/", "#[derive(Debug)]", "self.", "this.",
  "async", "await", "i++", "[0]", "0xFF", "1_000u64", "'a'", '"text"', "`${x}`", "\\n", "\n", "\n    ", "\n\t", "\n        ", "\r\n", "    ", "\t\t", "def __init__(self):",
  "import numpy as np", "#include", "<T>", "snake_case", "camelCase", "SCREAMING_CASE", "x1", "None", "nullptr", "std::vec", "$HOME", "&lt;", "<br/>", "{{", "}}", ";;", "...",
];

/** Texts after the 600: characters of every block, and code. What JavaScript takes for white space and Unicode does not is left out. */
function moreTexts() {
  const next = random(20251120);
  const below = (n) => Math.floor(next() * n);
  const character = ([from, to]) => {
    for (let tries = 0; tries < 20; tries++) {
      const point = from + below(to - from + 1);
      const lone = point >= 0xd800 && point <= 0xdfff;
      if (point !== 0xfeff && (lone || /\p{Assigned}/u.test(String.fromCodePoint(point)))) return String.fromCodePoint(point);
    }
    return '';
  };
  const all = [];
  for (const block of BLOCKS) {
    for (let n = 0; n < 15; n++) {
      let text = '';
      const length = 1 + below(12);
      for (let i = 0; i < length; i++) {
        const kind = next();
        if (kind < 0.7) text += character(block);
        else if (kind < 0.8) text += character(BLOCKS[below(BLOCKS.length)]);
        else if (kind < 0.9) text += [' ', '  ', '\n', '\t', '\u3000', '\u00a0'][below(6)];
        else text += PARTS[below(PARTS.length)];
      }
      all.push(text);
    }
  }
  while (all.length < 1700) {
    let text = '';
    const length = 1 + below(20);
    for (let i = 0; i < length; i++)
      text += (next() < 0.75 ? CODE[below(CODE.length)] : PARTS[below(PARTS.length)]) + (next() < 0.4 ? ' ' : '');
    all.push(text);
  }
  // A lone surrogate becomes U+FFFD wherever JavaScript makes UTF-8 of a text.
  return all.map((text) => text.toWellFormed());
}

// The cut vocabularies are compared on the first 600.
const FIRST = texts();
const TEXTS = full ? [...FIRST, ...moreTexts()] : FIRST;

// --- byte-level vocabularies ----------------------------------------------------------------------------------------

/** GPT-2's alphabet, built here on its own: printable bytes are themselves, the others follow from 256 on. */
const ALPHABET = (() => {
  const printable = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(printable(b) ? b : next++));
})();
const written = (bytes) => Array.from(bytes, (b) => ALPHABET[b]).join('');

/** Every way to make a token out of two others, in the order of the ranks of the result, then of the parts. */
function mergesOfRanks(tokens) {
  const rank = new Map(tokens.map((token, id) => [token, id]));
  const merges = [];
  for (const token of tokens) {
    const ways = [];
    for (let at = 1; at < token.length; at++) {
      const left = rank.get(token.slice(0, at)),
        right = rank.get(token.slice(at));
      if (left !== undefined && right !== undefined) ways.push([left, right]);
    }
    ways.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    for (const [left, right] of ways) merges.push(`${tokens[left]} ${tokens[right]}`);
  }
  return merges;
}

async function gpt(name, pre, nTokens) {
  const { BytePairEncodingCore } = await load('gpt-tokenizer/esm/BytePairEncodingCore.js');
  const constants = await load('gpt-tokenizer/esm/encodingParams/constants.js');
  const split = {
    r50k_base: constants.R50K_TOKEN_SPLIT_REGEX,
    cl100k_base: constants.CL_AND_O_TOKEN_SPLIT_PATTERN ?? constants.CL100K_TOKEN_SPLIT_REGEX,
    o200k_base: constants.O200K_TOKEN_SPLIT_REGEX,
  }[name];
  if (split === undefined) throw new Error(`gpt-tokenizer has no expression for ${name}`);
  const lines = readFileSync(path(`gpt-tokenizer/data/${name}.tiktoken`), 'utf8')
    .trim()
    .split('\n');
  const ranks = lines.slice(0, nTokens).map((line) => Buffer.from(line.split(' ')[0], 'base64'));
  const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const decoder = ranks.map((bytes) => {
    try {
      return strict.decode(bytes);
    } catch {
      return [...bytes];
    }
  });
  const core = new BytePairEncodingCore({ bytePairRankDecoder: decoder, tokenSplitRegex: split });
  const tokens = ranks.map(written);
  const control = ['<|endoftext|>', '<|im_start|>', '<|im_end|>'];
  const vocabulary = {
    model: 'gpt2',
    pre,
    tokens: [...tokens, ...control],
    token_types: [...tokens.map(() => NORMAL), ...control.map(() => CONTROL)],
    merges: mergesOfRanks(tokens),
    eos: tokens.length,
  };
  return {
    source: `gpt-tokenizer, ${name}`,
    add_special: false,
    vocabulary,
    encode: (text) => [...core.encodeNativeGenerator(text, new Set())].flat(),
  };
}

async function llama3(nTokens) {
  const { Llama3Tokenizer } = await load('llama3-tokenizer-js/bundle/llama3-tokenizer-with-baked-data.js');
  const tokenizer = new Llama3Tokenizer();
  const whole = tokenizer.vocabById.filter((text) => !text.startsWith('<|'));
  const tokens = whole.slice(0, nTokens);
  const control = ['<|begin_of_text|>', '<|end_of_text|>', '<|start_header_id|>', '<|end_header_id|>', '<|eot_id|>'];
  const known = new Set(tokens);
  const merges = [...tokenizer.merges]
    .sort((a, b) => a[1] - b[1])
    .map(([pair]) => pair)
    .filter((pair) => {
      const [left, right] = pair.split(' ');
      return known.has(left) && known.has(right) && known.has(left + right);
    });
  tokenizer.vocabById = [...tokens, ...control];
  tokenizer.vocabByString = new Map(tokenizer.vocabById.map((text, id) => [text, id]));
  tokenizer.merges = new Map(merges.map((pair, rank) => [pair, rank + 1]));
  const vocabulary = {
    model: 'gpt2',
    pre: 'llama-bpe',
    tokens: tokenizer.vocabById,
    token_types: [...tokens.map(() => NORMAL), ...control.map(() => CONTROL)],
    merges,
    bos: tokens.length,
    eos: tokens.length + 1,
  };
  return {
    source: 'llama3-tokenizer-js',
    add_special: true,
    vocabulary,
    encode: (text) => tokenizer.encode(text, { bos: true, eos: false }),
  };
}

// --- sentencepiece --------------------------------------------------------------------------------------------------

async function llama(nMerged) {
  const tokenizer = (await load('llama-tokenizer-js/llama-tokenizer.js')).default;
  // 3 control tokens, 256 bytes, then merged tokens by rank up to 29870, then single characters.
  const whole = tokenizer.vocabById,
    firstCharacter = 29871;
  // Runs of spaces stay all: with gaps between their lengths the package's order of merges is not sentencepiece's any more.
  const kept = whole.map((_, id) => id).filter((id) => id < 259 + nMerged || id >= firstCharacter || /^▁+$/.test(whole[id]));
  const tokens = kept.map((id) => whole[id]);
  const known = new Set(tokens);
  const merges = [...tokenizer.merges]
    .sort((a, b) => a[1] - b[1])
    .filter(([pair]) => {
      const [left, right] = pair.split(' ');
      return known.has(left) && known.has(right) && known.has(left + right);
    });
  tokenizer.vocabByString = new Map(tokens.map((text, id) => [text, id]));
  tokenizer.vocabById = [...tokens];
  tokenizer.vocabById[firstCharacter] = '▁'; // the package takes the space symbol from this place
  tokenizer.merges = new Map(merges);
  // The package has the order of the merges instead of the scores they were sorted by, so each token gets the number of
  // the first merge that makes it. Runs of spaces all have the lowest score in the model.
  const scores = new Map();
  merges.forEach(([pair], rank) => {
    const made = pair.replace(' ', '');
    if (!scores.has(made)) scores.set(made, /^▁+$/.test(made) ? -1e9 : -rank);
  });
  const vocabulary = {
    model: 'llama',
    tokens,
    scores: tokens.map((text, id) => (id < 259 ? 0 : (scores.get(text) ?? -1e6 - id))),
    token_types: tokens.map((_, id) => (id === 0 ? UNKNOWN : id < 3 ? CONTROL : id < 259 ? BYTE : NORMAL)),
    merges: [],
    bos: 1,
    eos: 2,
    unk: 0,
    // A tokenizer.json of the model has merges by rank.
    ...(full && { ranked_merges: merges.map(([pair]) => pair) }),
  };
  // The package gives nothing at all for an empty text.
  return { source: 'llama-tokenizer-js', add_special: false, vocabulary, encode: (text) => tokenizer.encode(text, false, true) };
}

// --- all of them ----------------------------------------------------------------------------------------------------

const cut = (n) => (full ? Infinity : n);
const vocabularies = {
  'gpt-2': await gpt('r50k_base', 'gpt-2', cut(2500)),
  'gpt-4o': await gpt('o200k_base', 'gpt-4o', cut(3000)),
  'llama-bpe': await llama3(cut(3000)),
  'llama-spm': await llama(cut(2500)),
};
if (full) vocabularies.cl100k = await gpt('cl100k_base', 'dbrx', Infinity);
else writeFileSync(join(out, 'texts.json'), `${JSON.stringify([...FIRST, ...moreTexts()])}\n`);
for (const [name, { source, add_special, vocabulary, encode }] of Object.entries(vocabularies)) {
  const ids = TEXTS.map(encode);
  const file = join(out, `${name}.json`);
  // Full files carry their texts, so that they stand on their own.
  writeFileSync(file, `${JSON.stringify({ source, add_special, vocabulary, ...(full && { texts: TEXTS }), ids })}\n`);
  console.log(
    `${file}: ${vocabulary.tokens.length} tokens, ${vocabulary.merges.length} merges, ${ids.length} texts, ${ids.flat().length} ids`,
  );
}
