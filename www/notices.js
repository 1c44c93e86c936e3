// Failures in words: what happened and what to do. Knows the error codes of the package.

const notice = document.getElementById('notice');

/** What a person at this page can do about an error. The error's own message says what was found. */
const ADVICE = {
  adapter_unavailable:
    'The browser offers no GPU to this page. Update the graphics driver, and look at chrome://gpu or about:support for the reason.',
  adapter_limits: 'This GPU is too small for the model. Choose a smaller model, or one with a smaller quantisation such as Q4_0.',
  device_lost: 'The GPU was reset or is gone. Load the model again.',
  out_of_memory: 'There is not enough memory on the GPU. Close other tabs or choose a smaller model.',
  not_gguf: 'Only GGUF files can be loaded.',
  unsupported_gguf_version: 'Convert the model with a newer tool.',
  truncated: 'The file is not complete. Download it again.',
  invalid_file: 'The file is damaged. Download it again.',
  unsupported_architecture: 'Models of this kind cannot be run yet.',
  unsupported_tensor_type: 'Choose the model in another quantisation, such as Q8_0 or Q4_0.',
  unsupported_tokenizer: 'Models with this kind of tokenizer cannot be run yet.',
  integrity_mismatch: 'The file was damaged on its way, or is another one. Load it again.',
  network: 'Check the address and the connection. A server of another origin must allow this page by CORS.',
  http: 'Check the address.',
  range_not_supported: 'Download the file and choose it here as a file of this device.',
  read: 'The file changed or was removed since it was chosen. Choose it again.',
  context_length_exceeded: 'The conversation is too long for this model. Begin a new chat.',
  worker_unavailable: 'Reload the page.',
  worker_lost: 'The browser ended the worker that ran the model, such as for want of memory. Load the model again.',
  wasm_unavailable: 'Reload the page.',
  internal: 'This is a fault of rillm. Load the model again, and please report it with the text below.',
};

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
  if (error.code === 'webgpu_unavailable') {
    noticeOfMissingWebGpu();
    return;
  }
  const advice = ADVICE[error.code];
  show(
    'That did not work.',
    ...(advice === undefined ? [] : [paragraph(advice)]),
    paragraph(`${error.message} (${error.code ?? error.name})`, 'small'),
  );
}

export function noticeOfMissingWebGpu() {
  const ways = document.createElement('ul');
  for (const way of [
    'Chrome or Edge: version 113 or newer on a computer, 121 or newer on Android. On Linux, also switch on chrome://flags/#enable-unsafe-webgpu.',
    'Safari: version 26 or newer.',
    'Firefox: version 141 or newer on Windows, 145 or newer on a Mac with Apple silicon; elsewhere set dom.webgpu.enabled in about:config.',
  ]) {
    const item = document.createElement('li');
    item.textContent = way;
    ways.append(item);
  }
  const reason = isSecureContext
    ? 'This browser has no WebGPU, or it is switched off. These browsers have it:'
    : 'Browsers give WebGPU to pages at https:// or on localhost only. Open this page there.';
  show('WebGPU is not available.', paragraph(reason), ...(isSecureContext ? [ways] : []));
}
