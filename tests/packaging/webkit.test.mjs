// Drivers of WebKit that hang: a browser is started once more, what hangs is ended, and what stays so is told. The drivers are programs of this test.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';

import { launchWebkit } from '../../scripts/webkit.mjs';

const folder = mkdtempSync(join(tmpdir(), 'rillm-driver-'));
afterEach(() => {
  delete process.env.WEBKIT_DRIVER;
  delete process.env.DISPLAY;
});
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

/** Puts a driver in place that says nothing to requests for a session the first `silent` times that it is started. It notes itself and its browsers. */
function driverThatHangs(silent) {
  const noted = join(folder, `${silent}.json`);
  const program = join(folder, `driver-${silent}.mjs`);
  const read = () => JSON.parse(readFileSync(noted, 'utf8'));
  writeFileSync(noted, JSON.stringify({ drivers: [], browsers: [] }));
  writeFileSync(
    program,
    `#!${process.execPath}
    import { spawn } from 'node:child_process';
    import { readFileSync, renameSync, writeFileSync } from 'node:fs';
    import { createServer } from 'node:http';
    const note = (change) => {
      const all = JSON.parse(readFileSync(${JSON.stringify(noted)}));
      change(all);
      // In one go: it may be ended at any moment.
      writeFileSync(${JSON.stringify(`${noted}.new`)}, JSON.stringify(all));
      renameSync(${JSON.stringify(`${noted}.new`)}, ${JSON.stringify(noted)});
      return all;
    };
    const { drivers } = note(({ drivers }) => drivers.push(process.pid));
    createServer((request, response) => {
      const answer = (value) => response.end(JSON.stringify({ value }));
      if (request.url !== '/session') return answer({});
      const browser = spawn('sleep', ['1000']);
      note(({ browsers }) => browsers.push(browser.pid));
      if (drivers.length > ${silent}) answer({ sessionId: 'one', capabilities: { browserName: 'a', browserVersion: '1' } });
    }).listen(Number(process.argv[3]), '127.0.0.1');`,
    { mode: 0o755 },
  );
  Object.assign(process.env, { WEBKIT_DRIVER: program, DISPLAY: ':0' });
  return read;
}

/** Waits until none of them runs. */
async function ended(processes) {
  const runs = (id) => {
    try {
      process.kill(id, 0);
      // What nobody has asked how it ended stays in the list of processes.
      const stat = `/proc/${id}/stat`;
      return !(existsSync(stat) && / Z /.test(readFileSync(stat, 'utf8')));
    } catch {
      return false;
    }
  };
  for (const end = performance.now() + 5000; processes.some(runs); ) {
    assert.ok(performance.now() < end, 'a process was left');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test('a browser that the driver never heard of is ended, and another is started', async () => {
  const noted = driverThatHangs(1);
  const webkit = await launchWebkit({ sessionMs: 1000 });
  const session = await webkit.open();
  assert.equal(session.browser, 'a 1');
  const { drivers, browsers } = noted();
  // A busy machine may need more.
  assert.ok(drivers.length >= 2, `${drivers.length} drivers`);
  await ended([drivers[0], ...browsers.slice(0, -1)]);
  await webkit.close();
  await ended([...drivers, ...browsers]);
});

test('a driver that never starts a browser is told, and nothing of it is left', async () => {
  const noted = driverThatHangs(99);
  const webkit = await launchWebkit({ sessionMs: 200 });
  await assert.rejects(webkit.open(), /the driver did not answer POST \/session within 0\.2 s/);
  await webkit.close();
  const { drivers, browsers } = noted();
  assert.equal(drivers.length, 3);
  await ended([...drivers, ...browsers]);
});
