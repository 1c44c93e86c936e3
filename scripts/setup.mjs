// Installs what building and testing needs and is missing, and nothing that is there. Built-in modules only: it runs first.
//
//   node scripts/setup.mjs      everything, as `npm test` does

import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

import { chromedriverPath, chromiumPath, headlessShellPath, isSnapStub, onPath, serveChromium } from './chromium.mjs';
import { isMain, main, npm, output, Problem, root, run, sayTo } from './command.mjs';
import { firefoxPath } from './firefox.mjs';
import { lavapipeOptions, prepareLavapipe, vulkanDrivers } from './lavapipe.mjs';

const TARGET = 'wasm32-unknown-unknown';
const tools = join(root, '.tools');

/** The environment in which our pinned tools come first. */
export function toolsEnv(extra = {}) {
  return { ...process.env, PATH: [join(tools, 'bin'), process.env.PATH].join(delimiter), ...extra };
}

/**
 * Parts: the Rust target and npm packages, always; "tools" (wasm-bindgen), "browser", "test" (driver, native Vulkan), "firefox", "lavapipe" (the same for
 * tests in Chromium).
 * A missing browser ends the set-up only where `browserNeeded`, and a missing Firefox never does. Output goes where `run` puts it by `quietStdout` and `log`.
 */
export async function setup({
  tools: toolsWanted = true,
  browser = true,
  test = true,
  firefox = test,
  lavapipe = false,
  browserNeeded = true,
  ...outputs
} = {}) {
  const say = sayTo('setup', outputs);
  const install = (program, args, options) => run(program, args, { ...options, ...outputs });

  const [major] = process.versions.node.split('.').map(Number);
  if (major < 20) throw new Problem(`Node ${process.versions.node} is too old: install Node 20 or newer`);
  if (output('cargo', ['--version']) === undefined) {
    throw new Problem('there is no Rust: install it with rustup (see https://rustup.rs) and open a new shell');
  }

  const packages = systemPackages({ browser, test });
  if (packages.length > 0) await installSystemPackages(packages, { say, install, fatal: browserNeeded });
  if (browser && chromiumPath() === undefined) missing(howToGetChromium(), browserNeeded, say);
  if (test && chromedriverPath() === undefined) missing(howToGetChromedriver(), browserNeeded, say);
  if (firefox && firefoxPath() === undefined) await installFirefox({ say, install });

  if (!existsSync(join(output('rustc', ['--print', 'sysroot']) ?? '', 'lib/rustlib', TARGET))) {
    say(`installing the Rust target ${TARGET}`);
    await install('rustup', ['target', 'add', TARGET]);
  }
  if (toolsWanted) await cargoTool('wasm-bindgen', 'wasm-bindgen-cli', lockedVersion('wasm-bindgen'), { say, install });
  await npmPackages({ say, install });
  if (lavapipe) await prepareLavapipe({ say, install, tryIt: givesAdapter, release: osRelease().VERSION_CODENAME });
}

/** Whether a page in Chromium on lavapipe has an adapter that SwiftShader is not: that one has no f16. */
async function givesAdapter() {
  const server = await serveChromium(lavapipeOptions());
  try {
    const { chromium } = await import('playwright-core');
    const page = await (await chromium.connect(server.endpoint)).newPage();
    // Pages have WebGPU in secure contexts, of which about:blank is none.
    await page.goto(`file://${root}/LICENSE-MIT`);
    return await page.evaluate(async () => (await navigator.gpu?.requestAdapter())?.features.has('shader-f16') ?? false);
  } finally {
    await server.close();
  }
}

/** The version of a crate in Cargo.lock: the command line tool has to be of exactly that version. */
export function lockedVersion(crate) {
  const lock = readFileSync(join(root, 'Cargo.lock'), 'utf8');
  const version = lock.match(new RegExp(`name = "${crate}"\\r?\\nversion = "([^"]+)"`))?.[1];
  if (version === undefined) throw new Problem(`Cargo.lock does not hold ${crate}: restore the file from git`);
  return version;
}

/** A cargo tool of one version: ours in .tools, or one on the PATH that happens to be the same; else it is built. */
async function cargoTool(program, crate, version, { say, install }) {
  if (output(program, ['--version'], { env: toolsEnv() })?.split(/\s+/).includes(version)) return;
  say(`installing ${crate} ${version} into .tools (a few minutes, once)`);
  // Without TLS, which the test runner has for drivers on other machines: a third of what there is to compile.
  const parts = ['--no-default-features', '--bin', program, '--bin', `${program}-test-runner`];
  const args = ['install', crate, '--version', version, '--root', tools, '--force', ...parts];
  // It runs for seconds: to optimise it takes longer than it saves.
  const env = { ...process.env, CARGO_PROFILE_RELEASE_OPT_LEVEL: '0' };
  try {
    await install('cargo', [...args, '--locked'], { env });
  } catch {
    // A registry that lacks one of the locked versions still has newer compatible ones.
    say(`${crate} did not install with its lock file; taking the newest compatible dependencies`);
    await install('cargo', args, { env });
  }
}

async function npmPackages({ say, install }) {
  const modules = join(root, 'node_modules');
  const stamp = join(modules, '.rillm-lock-sha256');
  const hash = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === hash) return;
  say('installing the npm packages');
  await install(...npm('ci', '--no-audit', '--no-fund'));
  writeFileSync(stamp, hash);
}

/** Debian's names of what is missing; empty on other systems, where a person installs it. */
function systemPackages({ browser, test }) {
  const { ID } = osRelease();
  const wanted = [];
  if (onPath('cc', 'gcc', 'clang') === undefined) wanted.push('gcc', 'libc6-dev');
  if (onPath('tar') === undefined) wanted.push('tar');
  // Ubuntu's packages of these names install a snap, which a headless machine cannot use.
  if (ID !== 'ubuntu') {
    if (browser && chromiumPath() === undefined) wanted.push('chromium');
    if (test && chromedriverPath() === undefined) wanted.push('chromium-driver');
  }
  if (test && ID === 'debian' && !process.env.CHROME_PATH && headlessShellPath() === undefined) wanted.push('chromium-headless-shell');
  if (test && !hasVulkanDriver()) wanted.push('mesa-vulkan-drivers');
  return wanted;
}

function hasVulkanDriver() {
  if (process.platform !== 'linux' || process.env.VK_ICD_FILENAMES || process.env.VK_DRIVER_FILES) return true;
  return vulkanDrivers().length > 0;
}

async function installSystemPackages(packages, { say, install, fatal }) {
  const command = `apt-get install ${packages.join(' ')}`;
  if (process.platform !== 'linux' || onPath('apt-get') === undefined) {
    return missing(`not found: what Debian calls ${packages.join(', ')}. Install it with this system's package manager`, fatal, say);
  }
  if (process.getuid() !== 0) return missing(`not found: ${packages.join(', ')}. Install with: sudo ${command}`, fatal, say);
  say(`installing ${packages.join(', ')}`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  await install('apt-get', ['update', '-qq'], { env });
  await install('apt-get', ['install', '-y', '-qq', '--no-install-recommends', ...packages], { env });
}

/** Its tests are skipped where there is none: not every system has it, and the tests in Chromium say most of what they say. */
async function installFirefox({ say, install }) {
  const isDebian = osRelease().ID === 'debian';
  if (!isDebian) return say('there is no Firefox: install it, or name one with FIREFOX_PATH, or its tests are skipped');
  try {
    await installSystemPackages(['firefox-esr'], { say, install, fatal: false });
  } catch (error) {
    say(`Firefox was not installed, so its tests are skipped: ${error.message}`);
  }
}

function missing(text, fatal, say) {
  if (fatal) throw new Problem(text);
  say(text);
}

function howToGetChromium() {
  const stub = ['chromium', 'chromium-browser'].map((name) => onPath(name)).find((file) => file !== undefined && isSnapStub(file));
  if (osRelease().ID === 'ubuntu' || stub !== undefined) {
    return "there is no usable Chromium: Ubuntu's package is a snap, which does not run headless here. Install Google Chrome's .deb, or name a browser with CHROME_PATH";
  }
  return 'there is no Chromium: install chromium or Google Chrome, or name a browser with CHROME_PATH';
}

function howToGetChromedriver() {
  return "there is no chromedriver: install the one of the browser's version (Debian: chromium-driver), or name it with CHROMEDRIVER";
}

function osRelease() {
  if (!existsSync('/etc/os-release')) return {};
  const lines = readFileSync('/etc/os-release', 'utf8').matchAll(/^(\w+)="?([^"\n]*)"?$/gm);
  return Object.fromEntries(Array.from(lines, ([, name, value]) => [name, value]));
}

if (isMain(import.meta.url)) await main(() => setup());
