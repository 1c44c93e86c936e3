// What runs the engines of a file's tests. Left to themselves they would all be on the CPU, since the tests have no GPU but software.

/** A file for the CPU is started with this in its environment (`scripts/test/browser.mjs`). */
export const isOnCpu = process.env.RILLM_DEVICE === 'cpu';

/**
 * Runs in a page before all else: to the function that chooses a device (`device_choice.ts`) the software adapter is a GPU, unless the page sets `takesCpu`. The engine
 * itself sees what it is.
 */
export function passForGpu() {
  const info = globalThis.GPUAdapter && Object.getOwnPropertyDescriptor(GPUAdapter.prototype, 'info');
  if (info === undefined) return;
  Object.defineProperty(GPUAdapter.prototype, 'info', {
    configurable: true,
    get() {
      const chooses = !globalThis.takesCpu && new Error().stack.includes('isSoftware');
      return chooses ? { isFallbackAdapter: false, architecture: 'of the tests' } : info.get.call(this);
    },
  });
}

/** Runs in a page before all else: engines are exact unless a test says otherwise (`preparePage`), as on the software adapter. */
export function preferExact() {
  globalThis.prefersExact = true;
}

/** Whatever contexts and pages this browser opens see the device of the file. */
export function withDevice(browser) {
  const newContext = browser.newContext.bind(browser);
  browser.newContext = async (options) => {
    const context = await newContext(options);
    await context.addInitScript(isOnCpu ? preferExact : passForGpu);
    return context;
  };
  return browser;
}
