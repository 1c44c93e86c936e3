// Where Chromium is on this machine and with which flags it gives WebGPU. Knows nothing of our pages. Built-in modules only
// at the top, since setup.mjs asks it before the packages are installed.

import { existsSync, readFileSync, realpathSync, statSync, accessSync, constants, readdirSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

import { Problem } from './command.mjs';

const APPLICATIONS = {
  darwin: ['Google Chrome', 'Chromium', 'Microsoft Edge'].map((name) => `/Applications/${name}.app/Contents/MacOS/${name}`),
  win32: [process.env.PROGRAMFILES, process.env['PROGRAMFILES(X86)'], process.env.LOCALAPPDATA]
    .filter(Boolean)
    .flatMap((folder) => [join(folder, 'Google/Chrome/Application/chrome.exe'), join(folder, 'Microsoft/Edge/Application/msedge.exe')]),
};

/** The first of these programs on the PATH. */
export function onPath(...names) {
  for (const name of names) {
    for (const folder of (process.env.PATH ?? '').split(delimiter)) {
      const file = join(folder, process.platform === 'win32' ? `${name}.exe` : name);
      try {
        accessSync(file, constants.X_OK);
        if (statSync(file).isFile()) return file;
      } catch {
        // Not there, or not to be run: look on.
      }
    }
  }
  return undefined;
}

/** Ubuntu's packages chromium-browser and chromium-chromedriver are scripts that point at a snap. */
export function isSnapStub(file) {
  if (realpathSync(file).startsWith('/snap') || realpathSync(file).endsWith('/snap')) return true;
  return statSync(file).size < 10_000 && readFileSync(file, 'utf8').includes('/snap/bin');
}

/**
 * A program that the environment variable `variable` names, or that is installed: the first of `names` on the PATH, or of the files `applications`.
 * Undefined when there is none that can be used.
 */
export function programPath(variable, names, applications = []) {
  const wished = process.env[variable];
  if (wished) {
    if (!existsSync(wished)) throw new Problem(`${variable} names ${wished}, which is not there: correct it or unset it`);
    return wished;
  }
  const found = onPath(...names);
  return found !== undefined && !isSnapStub(found) ? found : applications.find((file) => existsSync(file));
}

const CHROMIUM = ['chromium', 'google-chrome-stable', 'google-chrome', 'chromium-browser', 'chrome', 'microsoft-edge'];

/** The browser. */
export const chromiumPath = () => programPath('CHROME_PATH', CHROMIUM, APPLICATIONS[process.platform]);

/** Its driver for the tests in wasm. */
export const chromedriverPath = () => programPath('CHROMEDRIVER', ['chromedriver']);

/**
 * The same browser without windows, as Debian packages it; undefined where it is not installed or a browser was chosen. To open a page takes half the
 * processor time there.
 */
export function headlessShellPath() {
  return process.env.CHROME_PATH ? undefined : onPath('chromium-headless-shell');
}

/** The program that Debian's script of the same name starts. */
export function realProgram(script) {
  if (script === undefined) return undefined;
  const found =
    readFileSync(script, 'latin1')
      .slice(0, 200)
      .match(/^#![\s\S]*?^(?:exec )?(\/\S+) "\$@"/m)?.[1] ?? script;
  return existsSync(found) ? found : undefined;
}

/** The file that names SwiftShader, Chromium's own Vulkan driver for the CPU, to programs outside of it; undefined where Chromium has none. */
export function swiftShaderDriver() {
  return [headlessShellPath(), chromiumPath()]
    .map(realProgram)
    .filter((program) => program !== undefined)
    .map((program) => join(dirname(realpathSync(program)), 'vk_swiftshader_icd.json'))
    .find((file) => existsSync(file));
}

/** Quiet and without a network of its own. */
const QUIET = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/**
 * What Chromium is to do without. The pages in its address bar start two processes for each window, which is there without a display too:
 * most of what it costs to open a page. Of several such switches the last counts, so what Playwright switches off stands here as well.
 */
const SWITCHED_OFF = [
  ...['WebUIOmniboxPopup', 'WebUIOmniboxAimPopup', 'AimEnabled', 'LensOverlay'],
  ...['HttpsUpgrades', 'HttpsFirstBalancedModeAutoEnable', 'ThirdPartyStoragePartitioning', 'DestroyProfileOnBrowserClose'],
  ...['AvoidUnnecessaryBeforeUnloadCheckSync', 'AvoidCorsURLLoaderRestartOnRedirect', 'PaintHolding', 'MediaRouter'],
  ...['OptimizationHints', 'NetworkTimeServiceQuerying', 'PreconnectToSearch'],
];

/** Chromium's sandbox needs user namespaces or a normal user; a container run as root has neither. */
const SANDBOX = process.platform === 'linux' && process.getuid?.() === 0 ? ['--no-sandbox'] : [];

const first = (...files) => files.find((file) => existsSync(file));

/** NVIDIA's Vulkan driver on Linux. Chromium does not turn WebGPU on there by itself, and without a display only this way works. */
function nvidia() {
  const drivers = ['/usr/share/vulkan/icd.d', '/etc/vulkan/icd.d', '/usr/local/nvidia/share/vulkan/icd.d'];
  const icd = drivers
    .filter((folder) => existsSync(folder))
    .flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)))
    .find((file) => /nvidia_icd.*\.json$/.test(file));
  if (icd === undefined || !existsSync('/dev/nvidia0')) return undefined;
  const egl = first('/usr/share/glvnd/egl_vendor.d/10_nvidia.json', '/usr/local/nvidia/share/glvnd/egl_vendor.d/10_nvidia.json');
  return {
    args: [
      '--enable-unsafe-webgpu',
      '--ignore-gpu-blocklist',
      '--disable-gpu-sandbox',
      '--use-angle=gl-egl',
      '--enable-features=Vulkan',
      '--use-vulkan=native',
      '--disable-vulkan-surface',
      // Chromium leaves shader-f16 off for this driver; RILLM_F16=1 turns it on.
      ...(process.env.RILLM_F16 ? ['--enable-dawn-features=vulkan_enable_f16_on_nvidia'] : []),
    ],
    env: {
      VK_DRIVER_FILES: icd,
      VK_ICD_FILENAMES: icd,
      ...(egl === undefined ? {} : { __EGL_VENDOR_LIBRARY_FILENAMES: egl }),
      LD_LIBRARY_PATH: [dirname(chromiumPath()), '/usr/local/nvidia/lib64', '/usr/local/nvidia/lib', process.env.LD_LIBRARY_PATH]
        .filter(Boolean)
        .join(':'),
    },
  };
}

function realGpu() {
  if (process.platform !== 'linux') return { args: ['--enable-unsafe-webgpu'], env: {} };
  const card = nvidia();
  if (card !== undefined) return card;
  const drm = existsSync('/dev/dri') && readdirSync('/dev/dri').some((name) => name.startsWith('renderD'));
  return drm
    ? {
        args: [
          '--enable-unsafe-webgpu',
          '--ignore-gpu-blocklist',
          '--enable-features=Vulkan',
          '--use-vulkan=native',
          '--disable-vulkan-surface',
        ],
        env: {},
      }
    : undefined;
}

const SWIFTSHADER = { args: ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'], env: {} };

/** Which adapter to ask Chromium for on this machine: "gpu" where there is one, else "swiftshader". */
export function likelyAdapter() {
  return realGpu() === undefined ? 'swiftshader' : 'gpu';
}

/** How playwright-core is to start Chromium for one of the adapters "gpu", "swiftshader" and "none". */
function launchOptions(adapter, args, { switchedOff = [], executablePath = chromiumPath(), more = {} } = {}) {
  if (executablePath === undefined) throw new Problem('there is no Chromium: install it, or name one with CHROME_PATH');
  const { args: adapterArgs, env } =
    adapter === 'none' ? { args: [], env: {} } : adapter === 'gpu' ? (realGpu() ?? SWIFTSHADER) : SWIFTSHADER;
  return {
    executablePath,
    headless: true,
    args: [...QUIET, ...SANDBOX, `--disable-features=${[...SWITCHED_OFF, ...switchedOff].join(',')}`, ...adapterArgs, ...args],
    env: { ...process.env, ...env, ...more },
    // Playwright's own default switches software WebGPU on, which would hide that a real GPU is not used.
    ...(adapter === 'gpu' ? { ignoreDefaultArgs: ['--enable-unsafe-swiftshader'] } : {}),
  };
}

/**
 * Starts Chromium without a window, by playwright-core.
 * adapter: "gpu", "swiftshader" (WebGPU on the CPU) or "none" (no flags: on a machine without a GPU there is no adapter).
 * keepsPages: with the cache for going back and forward, which Playwright switches off, since it does not hear of pages that come back.
 */
export async function launchChromium({ adapter = likelyAdapter(), args = [], keepsPages = false } = {}) {
  const { ignoreDefaultArgs = [], ...options } = launchOptions(adapter, args);
  const { chromium } = await import('playwright-core');
  const without = [...ignoreDefaultArgs, ...(keepsPages ? ['--disable-back-forward-cache'] : [])];
  return chromium.launch({ ...options, ignoreDefaultArgs: without });
}

/** A context of a Chromium of its own, on SwiftShader and with the extension of a folder; `profile` is an empty folder. */
export async function launchWithExtension(folder, profile) {
  const args = [`--load-extension=${folder}`, `--disable-extensions-except=${folder}`];
  // Branded builds of Chrome ignore --load-extension.
  const options = launchOptions('swiftshader', args, { switchedOff: ['DisableLoadExtensionCommandLineSwitch'] });
  const { chromium } = await import('playwright-core');
  return chromium.launchPersistentContext(profile, { ...options, ignoreDefaultArgs: ['--disable-extensions'] });
}

/** For tests, which need no windows. `on` is what another driver for the CPU than SwiftShader wants (`lavapipe.mjs`). */
const testOptions = ({ args = [], executablePath = headlessShellPath(), env } = {}) =>
  launchOptions('swiftshader', args, { executablePath, more: env });

/** Starts a Chromium that several processes use, each with contexts of its own: on SwiftShader, or on what `on` says. */
export async function serveChromium(on) {
  const { chromium } = await import('playwright-core');
  const server = await chromium.launchServer(testOptions(on));
  let running = true;
  server.on('close', () => (running = false));
  return { endpoint: server.wsEndpoint(), isRunning: () => running, close: () => server.close(), kill: () => server.kill() };
}

/** The Chromium that is served at RILLM_TEST_BROWSER, as in `npm test`; else one of the caller's own, on SwiftShader. */
export async function sharedChromium() {
  const endpoint = process.env.RILLM_TEST_BROWSER;
  const { chromium } = await import('playwright-core');
  if (!endpoint) return chromium.launch(testOptions());
  return chromium.connect(endpoint);
}
