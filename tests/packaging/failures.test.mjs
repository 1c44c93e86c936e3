// Which failures of requests pass, how long it is waited, and what a page of HTML is: the parts of the package that need no browser.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { modulesFolder } from '../../scripts/build.mjs';

let files;
before(async () => {
  const load = (name) => import(pathToFileURL(join(modulesFolder, 'files', name)));
  files = { ...(await load('failures.js')), ...(await load('attempts.js')), ...(await load('html.js')) };
});

test('Retry-After: seconds, dates in their three forms, and what is neither', () => {
  const now = Date.UTC(1994, 10, 6, 8, 49, 27);
  for (const [value, wanted] of [
    ['0', 0],
    ['7', 7_000],
    [' 120 ', 120_000],
    ['Sun, 06 Nov 1994 08:49:37 GMT', 10_000],
    ['Sunday, 06-Nov-94 08:49:37 GMT', 10_000],
    ['Sun Nov  6 08:49:37 1994', 10_000],
    ['Sun, 06 Nov 1994 08:49:07 GMT', 0],
    [null, undefined],
    ['', undefined],
    ['-5', undefined],
    ['1.5', undefined],
    ['soon', undefined],
    ['7 seconds', undefined],
    ['2030', 2_030_000],
    ['Sunday', undefined],
  ]) {
    assert.equal(files.retryAfterMs(value, now), wanted, JSON.stringify(value));
  }
});

test('a date is counted from the date of the server, whatever the clock here says', () => {
  const headers = { date: 'Sun, 06 Nov 1994 08:49:27 GMT', 'retry-after': 'Sun, 06 Nov 1994 08:49:37 GMT' };
  assert.equal(new files.RefusedError('x', new Response('', { status: 429, headers })).retryAfterMs, 10_000);
});

test('pauses double from half a second, with chance, up to half a minute', () => {
  assert.deepEqual(
    [1, 2, 3, 6, 7, 8, 100].map((failures) => files.pauseMs(failures, 1)),
    [500, 1_000, 2_000, 16_000, 30_000, 30_000, 30_000],
  );
  assert.deepEqual(
    [1, 2, 100].map((failures) => files.pauseMs(failures, 0)),
    [250, 500, 15_000],
  );
  assert.ok(new Set(Array.from({ length: 20 }, () => files.pauseMs(5))).size > 1);
});

test('which failures pass', () => {
  const reason = (status) => files.passingReason(new files.RefusedError('x', new Response(null, { status })));
  for (const status of [408, 425, 429, 500, 502, 503, 504]) assert.equal(reason(status), 'status', String(status));
  for (const status of [400, 401, 403, 404, 405, 410, 416, 451, 501, 505, 511]) assert.equal(reason(status), undefined, String(status));
  assert.equal(files.passingReason(new files.ConnectionError('stalled', 'x')), 'stalled');
  assert.equal(files.passingReason(new files.ConnectionError('network', 'x')), 'network');
  for (const other of [new Error('x'), new TypeError('x'), undefined, { refused: { status: 503 } }]) {
    assert.equal(files.passingReason(other), undefined);
  }
});

test('failures in a row end it, and bytes begin the count anew', async () => {
  const told = [];
  const policy = { retries: 2, stallTimeoutMs: 1_000, onRetry: ({ attempt, waitMs }) => told.push([attempt, waitMs > 0]) };
  const attempts = new files.Attempts('x', policy, []);
  const broken = new files.ConnectionError('network', 'x: it broke');
  await attempts.failed(broken, 5);
  attempts.progressed(1);
  await attempts.failed(broken, 7);
  await attempts.failed(broken, 7);
  await assert.rejects(attempts.failed(broken, 7), (error) => {
    assert.deepEqual([error.code, error.message], ['network', 'x: it broke; 3 attempts in a row failed at byte 7']);
    return error.cause === broken && files.wasPassing(error);
  });
  assert.deepEqual(told, [
    [1, true],
    [1, true],
    [2, true],
  ]);
  const final = new files.RefusedError('x', new Response(null, { status: 404 }));
  await assert.rejects(attempts.failed(final), (thrown) => thrown === final);
});

test('what other requests of a file bring counts too, and the pauses grow all the same', async () => {
  const pauses = [];
  const progress = { bytes: 0 };
  const attempts = new files.Attempts('x', { retries: 1, onRetry: ({ waitMs }) => pauses.push(waitMs) }, [], progress);
  const busy = new files.RefusedError('x', new Response(null, { status: 429 }));
  for (let at = 0; at < 3; at++) {
    await attempts.failed(busy);
    progress.bytes += 5;
  }
  await attempts.failed(busy);
  await assert.rejects(attempts.failed(busy), /2 attempts in a row failed/);
  assert.deepEqual(
    pauses.map((pause, at) => pause >= 250 * 2 ** at),
    [true, true, true, true],
  );
});

test('pages of HTML by their first bytes', () => {
  const isHtml = (data, isWhole = true) => files.isHtml(typeof data === 'string' ? Buffer.from(data) : Uint8Array.from(data), isWhole);
  const utf16 = (text, mark) => {
    const bytes = Buffer.from(text, 'utf16le');
    return [...mark, ...(mark[0] === 0xfe ? bytes.swap16() : bytes)];
  };
  for (const page of [
    '<!doctype html><title>Login</title>',
    '<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN">',
    '<html>',
    '<HTML lang="de">',
    '\ufeff<!doctype html>',
    '\ufeff \r\n\t<html><body>',
    `${'\n'.repeat(5_000)}<!doctype html>`,
    '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">',
    '<!-- saved from --><html>',
    '<head><title>502</title>',
    '<body\nclass="x">',
    '<h1>It works!</h1>',
    '<center><h1>503</h1>',
    '<script>location = "/login"</script>',
    utf16('<!doctype html><p>', [0xff, 0xfe]),
    utf16(' <!doctype html><p>', [0xfe, 0xff]),
  ]) {
    assert.equal(isHtml(page), true, JSON.stringify(page).slice(0, 40));
  }
  const safetensors = (length, text = '{"__metadata__":{}') => {
    const bytes = Buffer.alloc(8 + text.length);
    bytes.writeBigUInt64LE(BigInt(length));
    bytes.write(text, 8);
    return bytes;
  };
  for (const file of [
    '',
    ' ',
    'GGUF',
    '{"a": "<html>"}',
    '[]',
    '{{ messages }}',
    '<|im_start|>system',
    '<s>{% for',
    '<bos>{{ x }}',
    '<unk>\n<s>\n',
    '<<SYS>>',
    '<',
    'version https://git-lfs',
    // "<p>", "<a ", "\n<p>" as the lowest bytes of a header's length.
    safetensors(0x3e703c),
    safetensors(0x20613c),
    safetensors(0x3e703c0a),
    '\n\x0e\n\x05<unk>\x15',
  ]) {
    assert.equal(isHtml(file), false, JSON.stringify(String(file)));
  }
  // Of a part of a file it may be too early to tell.
  for (const part of ['', '\n', '  <', '<!doc', [0xef], [0xef, 0xbb, 0xbf], '<html>']) assert.equal(isHtml(part, false), undefined);
  for (const part of ['GGU', '{"a', ' {"', '<!doctype html>\n', ' '.repeat(70_000)]) assert.notEqual(isHtml(part, false), undefined);
});
