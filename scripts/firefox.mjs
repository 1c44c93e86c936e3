// Where Firefox is on this machine, and with which settings it gives WebGPU. Knows nothing of our pages. Built-in modules only at the
// top, since setup.mjs asks it before the packages are installed.

import { join } from 'node:path';

import { programPath } from './chromium.mjs';
import { Problem } from './command.mjs';

const APPLICATIONS = {
  darwin: ['/Applications/Firefox.app/Contents/MacOS/firefox'],
  win32: [process.env.PROGRAMFILES, process.env['PROGRAMFILES(X86)'], process.env.LOCALAPPDATA]
    .filter(Boolean)
    .map((folder) => join(folder, 'Mozilla Firefox/firefox.exe')),
};

/** Firefox does not give WebGPU on every system by itself, and never on a GPU in software. */
const PREFERENCES = { 'dom.webgpu.enabled': true, 'dom.webgpu.workers.enabled': true, 'gfx.webgpu.ignore-blocklist': true };

/** The browser. */
export const firefoxPath = () => programPath('FIREFOX_PATH', ['firefox', 'firefox-esr'], APPLICATIONS[process.platform]);

/** Starts Firefox without a window, by puppeteer-core and WebDriver BiDi. Where there is no GPU, Mesa's Vulkan driver computes on the CPU. */
export async function launchFirefox() {
  const executablePath = firefoxPath();
  if (executablePath === undefined) throw new Problem('there is no Firefox: install it, or name one with FIREFOX_PATH');
  const { default: puppeteer } = await import('puppeteer-core');
  return puppeteer.launch({ browser: 'firefox', executablePath, headless: true, extraPrefsFirefox: PREFERENCES });
}
