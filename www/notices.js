// The notice of the benchmark page: what went wrong and what to do.

import { adviceOf } from './view/advice.js';
import { adviceFor, browserOf } from './webgpu_advice.js';

const notice = document.getElementById('notice');

function show(title, ...parts) {
  const heading = document.createElement('strong');
  heading.textContent = title;
  notice.replaceChildren(heading, ...parts);
  notice.hidden = false;
}

function paragraph(text, className = '') {
  const element = document.createElement('p');
  element.textContent = text;
  element.className = className;
  return element;
}

export function hideNotice() {
  notice.hidden = true;
}

export function noticeOfError(error) {
  if (error.code === 'webgpu_unavailable' || error.code === 'adapter_unavailable') {
    const hasGpu = error.code === 'adapter_unavailable';
    show(hasGpu ? 'The browser offers no GPU to this page.' : 'WebGPU is not available.', stepsFor(hasGpu));
    return;
  }
  show(
    'That did not work.',
    ...(error.code === undefined ? [] : [paragraph(adviceOf(error.code))]),
    paragraph(`${error.message} (${error.code ?? error.name})`, 'small'),
  );
}

function stepsFor(hasGpu) {
  const steps = document.createElement('ol');
  for (const step of adviceFor(browserOf(navigator), { isSecure: isSecureContext, hasGpu })) {
    const item = document.createElement('li');
    item.textContent = step;
    steps.append(item);
  }
  return steps;
}

/** Nothing is wrong: what will be measured is another thing. */
export function noticeOfCpu() {
  show(
    'This browser gives the page no GPU, so the CPU is measured: choose a small model.',
    paragraph('The speed of the GPU’s memory, and kernels on the GPU, are left out. To use the GPU:'),
    stepsFor(false),
  );
}
