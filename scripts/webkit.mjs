// Where a WebKit with a driver is on this machine, and how it is driven: WebDriver (W3C) over HTTP. WebKitGTK on Linux, on a screen of its own where there
// is none, and Safari on macOS. Knows nothing of our pages. Built-in modules only.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { onPath, programPath } from './chromium.mjs';
import { Problem } from './command.mjs';

/** What to install where there is none. */
export const HOW_TO_GET_WEBKIT =
  process.platform === 'darwin'
    ? 'run `safaridriver --enable` once, so that Safari may be driven'
    : 'install webkit2gtk-driver and xvfb (Debian, Ubuntu), or name a driver with WEBKIT_DRIVER';

const DRIVER = process.platform === 'darwin' ? 'safaridriver' : 'WebKitWebDriver';
const STARTING_MS = 15_000;
const SCRIPT_MS = 60_000;
/** For commands of the driver: longer than a script may take, which it ends by itself. */
const COMMAND_MS = SCRIPT_MS + 15_000;
/** To start a browser, which takes one or two seconds where the machine has time. */
const SESSION_MS = 20_000;
const ATTEMPTS = 3;

/** The driver; undefined where there is none, or no screen for its browser. */
export function webkitDriver() {
  const driver = programPath('WEBKIT_DRIVER', [DRIVER]);
  return driver !== undefined && (hasScreen() || onPath('Xvfb') !== undefined) ? driver : undefined;
}

const hasScreen = () => process.platform === 'darwin' || Boolean(process.env.DISPLAY || process.env.WAYLAND_DISPLAY);

/** Starts the driver; `open(features)` opens a browser, with features of WebKitGTK that it has and does not switch on by itself. */
export async function launchWebkit({ sessionMs = SESSION_MS } = {}) {
  const driver = webkitDriver();
  if (driver === undefined) throw new Problem(`there is no WebKit to drive: ${HOW_TO_GET_WEBKIT}`);
  const folder = mkdtempSync(join(tmpdir(), 'rillm-webkit-'));
  const env = { ...process.env, HOME: folder, WEBKIT_DISABLE_COMPOSITING_MODE: '1' };
  for (const [name, path] of [
    ['XDG_DATA_HOME', 'data'],
    ['XDG_CACHE_HOME', 'cache'],
    ['XDG_CONFIG_HOME', 'config'],
  ]) {
    env[name] = join(folder, path);
  }
  const screen = hasScreen() ? undefined : await startScreen();
  if (screen !== undefined) Object.assign(env, { DISPLAY: screen.display, GDK_BACKEND: 'x11' });
  let started;
  const sessions = new Set();
  const end = () => {
    started?.end();
    screen?.kill();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  // Also if it is ended before it closes anything.
  process.once('exit', end);
  const close = async () => {
    process.off('exit', end);
    for (const session of sessions) await session.close().catch(() => {});
    end();
  };
  const start = async () => {
    started = startDriver(driver, await freePort(), env);
    await ready(() => started.call('GET', '/status'));
  };
  try {
    await start();
  } catch (error) {
    await close();
    throw error;
  }
  /** Now and then a browser starts and its driver does not hear of it: then both are started anew. */
  const newSession = async (capabilities) => {
    for (let attempt = 1; ; attempt++) {
      try {
        return await started.call('POST', '/session', { capabilities }, sessionMs);
      } catch (error) {
        if (!(error instanceof NoAnswer) || attempt === ATTEMPTS) throw error;
        started.end();
        await start();
      }
    }
  };
  return {
    async open(features = []) {
      const args = ['--automation', ...(features.length > 0 ? [`--features=${features.map((name) => `+${name}`).join(',')}`] : [])];
      const own = process.platform === 'darwin' ? { browserName: 'safari' } : { 'webkitgtk:browserOptions': { args } };
      const { sessionId, capabilities } = await newSession({ alwaysMatch: own });
      const session = new Session(started.call, `/session/${sessionId}`, `${capabilities.browserName} ${capabilities.browserVersion}`, () =>
        sessions.delete(session),
      );
      sessions.add(session);
      await session.limit(SCRIPT_MS);
      return session;
    },
    close,
  };
}

/** Starts the driver itself. It and its browsers are a group of processes, which ends as a whole. */
function startDriver(driver, port, env) {
  const program = spawn(driver, ['-p', String(port)], { stdio: 'ignore', env, detached: true });
  const failed = new Promise((_, reject) => program.once('error', reject));
  failed.catch(() => {});
  return {
    call: (method, path, body, limit) => Promise.race([request(`http://127.0.0.1:${port}${path}`, method, body, limit), failed]),
    end() {
      try {
        process.kill(-program.pid);
      } catch {
        // It has ended, or never began.
      }
    },
  };
}

class Session {
  #call;
  #path;
  #onClosed;

  constructor(call, path, browser, onClosed) {
    this.#call = call;
    this.#path = path;
    this.#onClosed = onClosed;
    this.browser = browser;
  }

  limit = (script) => this.#ask('POST', '/timeouts', { script });

  goto = (url) => this.#ask('POST', '/url', { url });

  /** Runs the body of a function in the page, whose last argument is called with the result. */
  execute = (script, args) => this.#ask('POST', '/execute/async', { script, args });

  resize = (size) => this.#ask('POST', '/window/rect', size);

  /** A PNG of what the window shows. */
  picture = async () => Buffer.from(await this.#ask('GET', '/screenshot'), 'base64');

  close() {
    this.#onClosed();
    return this.#ask('DELETE', '');
  }

  #ask(method, path, body) {
    return this.#call(method, `${this.#path}${path}`, body);
  }
}

/** A command that the driver has not answered in time. */
class NoAnswer extends Error {}

async function request(url, method, body, limit = COMMAND_MS) {
  const signal = AbortSignal.timeout(limit);
  try {
    const response = await fetch(url, { method, signal, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const { value } = await response.json();
    if (!response.ok) throw new Error(`the driver says ${value.error}: ${value.message}`);
    return value;
  } catch (error) {
    if (error.name !== 'TimeoutError') throw error;
    throw new NoAnswer(`the driver did not answer ${method} ${new URL(url).pathname} within ${limit / 1000} s`);
  }
}

/** Asks until there is an answer. */
async function ready(ask) {
  for (const end = performance.now() + STARTING_MS; ; ) {
    try {
      return await ask();
    } catch (error) {
      if (performance.now() > end || error.code === 'ENOENT') throw new Problem(`the driver of WebKit did not start: ${error.message}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

function freePort() {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** A screen in memory, of any number that is free. */
function startScreen() {
  const program = spawn('Xvfb', ['-displayfd', '3', '-screen', '0', '1280x1024x24', '-nolisten', 'tcp'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
  });
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Problem('Xvfb did not start')), STARTING_MS);
    program.once('error', reject);
    program.stdio[3].once('data', (number) => {
      clearTimeout(late);
      resolve({ display: `:${String(number).trim()}`, kill: () => program.kill() });
    });
  });
}
