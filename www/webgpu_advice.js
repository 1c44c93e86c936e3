// What to do where there is no WebGPU, for this browser and this system. Pure: the facts come as an argument, the words go back.

/** {browser, version, system} of navigator.userAgent, and of userAgentData where there is one. */
export function browserOf({ userAgent = '', userAgentData, maxTouchPoints = 0 } = {}) {
  const version = (pattern) => Number(userAgent.match(pattern)?.[1] ?? 0);
  const system =
    /iPhone|iPad|iPod/.test(userAgent) || (/Macintosh/.test(userAgent) && maxTouchPoints > 1)
      ? 'iOS'
      : /Android/.test(userAgent)
        ? 'Android'
        : /CrOS/.test(userAgent)
          ? 'ChromeOS'
          : /Windows/.test(userAgent)
            ? 'Windows'
            : /Macintosh|Mac OS X/.test(userAgent)
              ? 'macOS'
              : /Linux|X11/.test(userAgent)
                ? 'Linux'
                : (userAgentData?.platform ?? 'unknown');
  // On iOS every browser is Safari inside.
  if (system === 'iOS') return { browser: 'Safari', version: version(/OS (\d+)_/) || version(/Version\/(\d+)/), system };
  if (/SamsungBrowser/.test(userAgent)) return { browser: 'Samsung Internet', version: version(/SamsungBrowser\/(\d+)/), system };
  if (/Firefox\//.test(userAgent)) return { browser: 'Firefox', version: version(/Firefox\/(\d+)/), system };
  if (/Edg\//.test(userAgent)) return { browser: 'Edge', version: version(/Edg\/(\d+)/), system };
  if (/Chrome\//.test(userAgent)) return { browser: 'Chrome', version: version(/Chrome\/(\d+)/), system };
  if (/Safari\//.test(userAgent)) return { browser: 'Safari', version: version(/Version\/(\d+)/), system };
  return { browser: 'unknown', version: 0, system };
}

/** Steps in words, the most likely to help first. `isSecure`: the page is served in a way that browsers give WebGPU to. `hasGpu`: navigator.gpu is there, and gives no adapter. */
export function adviceFor({ browser, version, system }, { isSecure = true, hasGpu = false } = {}) {
  if (!isSecure)
    return ['Browsers give WebGPU only to pages that are served by https:// or from localhost. Open this page at such an address.'];
  const other = otherBrowser(system);
  if (browser === 'Chrome' || browser === 'Edge' || browser === 'Samsung Internet') return chromium(browser, version, system, hasGpu);
  if (browser === 'Firefox') return firefox(version, system, hasGpu, other);
  if (browser === 'Safari') {
    if (version > 0 && version < 26) {
      return system === 'iOS'
        ? [
            'WebGPU came with iOS 26. Open Settings, General, Software Update. Other browsers on this device use the same engine and don’t help.',
          ]
        : ['WebGPU came with Safari 26. Update macOS in System Settings, General, Software Update.', or(other)];
    }
    return [
      `Open Settings${system === 'iOS' ? ', Apps, Safari, Advanced, Feature Flags' : ' of Safari, Feature Flags'}, and switch WebGPU on.`,
      ...(system === 'iOS' ? [] : [or(other)]),
    ];
  }
  return [other];
}

function chromium(browser, version, system, hasGpu) {
  const page = browser === 'Edge' ? 'edge' : 'chrome';
  const least = system === 'Android' ? 121 : 113;
  if (browser === 'Samsung Internet') return ['Open this page in Chrome, version 121 or newer.'];
  if (version > 0 && version < least)
    return [`${browser} has WebGPU from version ${least} on, and this is ${version}. Update it at ${page}://settings/help.`];
  const steps = [];
  if (system === 'Linux') {
    steps.push(
      `Open ${page}://flags/#enable-unsafe-webgpu, choose Enabled, and start ${browser} again.`,
      `If that is not enough, do the same with ${page}://flags/#enable-vulkan.`,
    );
  }
  if (system === 'Android')
    steps.push('WebGPU needs Android 12 or newer and a GPU of Qualcomm, ARM or a newer one. Update Android if you can.');
  else steps.push(`Open ${page}://settings/system, switch on “Use graphics acceleration when available”, and start ${browser} again.`);
  if (hasGpu) steps.push(`Open ${page}://gpu: it says why this GPU is not used. Often a newer graphics driver helps.`);
  return steps;
}

function firefox(version, system, hasGpu, other) {
  const least = { Windows: 141, macOS: 145 }[system];
  if (least !== undefined && version > 0 && version < least)
    return [
      `Firefox has WebGPU on ${system} from version ${least} on, and this is ${version}. Open the menu, Help, About Firefox: it updates itself there.`,
      or(other),
    ];
  const steps = [];
  if (!hasGpu) steps.push('Open about:config, set dom.webgpu.enabled to true, and load this page again.');
  if (hasGpu)
    steps.push('Open about:support and look under Graphics: it says why the GPU is not used. Often a newer graphics driver helps.');
  return [...steps, or(other)];
}

/** As the only step; `or` makes it one beside others. */
function otherBrowser(system) {
  if (system === 'macOS') return 'Open this page in Safari 26, or in Chrome or Edge from version 113 on.';
  if (system === 'iOS') return 'Update to iOS 26 or newer.';
  if (system === 'Android') return 'Open this page in Chrome, version 121 or newer.';
  return 'Open this page in Chrome or Edge, version 113 or newer.';
}

const or = (step) => `Or ${step[0].toLowerCase()}${step.slice(1)}`;
