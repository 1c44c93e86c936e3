// What a person at this page can do about an error of the package, by its code. The error's own message says what was found.

const ADVICE = {
  webgpu_unavailable: 'This needs a GPU, and the browser gives the page none. Open the page in the newest Chrome, Edge or Safari.',
  adapter_unavailable: 'The browser offers no GPU to this page.',
  adapter_limits: 'This GPU is too small for the model. Choose a smaller model, or one with a smaller quantisation such as Q4_0.',
  device_lost: 'The GPU was reset or is gone. Load the model again.',
  out_of_memory: 'There is not enough memory on the GPU. Close other tabs, or choose a smaller model or a shorter context.',
  not_gguf:
    'At this address or in this file is no model. A model is a GGUF file, or a folder with safetensors, config.json and tokenizer.json.',
  unsupported_gguf_version: 'Convert the model with a newer tool.',
  truncated: 'The file is not complete. Download it again.',
  invalid_file: 'The file is damaged, or a part of the model is missing. Download it again, or choose all files of its folder.',
  unsupported_architecture: 'Models of this kind cannot be run yet.',
  unsupported_tensor_type: 'Choose the model in another quantisation, such as Q8_0 or Q4_K_M.',
  missing_tensor: 'A part of the model is missing. Choose all files of its folder, or download it again.',
  invalid_metadata: 'The model’s file leaves out something that is needed to run it. Choose another version of it.',
  unsupported_tokenizer: 'Models with this kind of tokenizer cannot be run yet.',
  chat_template:
    'The model’s chat template does not take this conversation. Remove the system prompt or the tools, or choose another model.',
  integrity_mismatch: 'The file was damaged on its way, or is another one. Load it again.',
  network: 'Check the address and the connection. A server of another origin must allow this page by CORS.',
  http: 'The server does not give the file. Check the address.',
  access_denied:
    'The repository wants a login or that you accept its conditions. Download the file there, and choose it here as a file of this device.',
  not_found: 'There is no such model. Check the name.',
  range_not_supported: 'Download the file and choose it here as a file of this device.',
  read: 'The file changed or was removed since it was chosen. Choose it again.',
  cache_unavailable: 'The browser keeps no files here: it has no room, or this is a private window.',
  cache_in_use: 'Another tab is using these files. Close it, and try again.',
  context_length_exceeded:
    'The conversation is too long for this model’s context. Start a new one, edit an earlier message, or load the model with a longer context.',
  invalid_request: 'The model can’t answer with these settings. Change what is named here.',
  numerical_error: 'The model computed something that is no number. Its file may be damaged: download it again.',
  worker_unavailable: 'Reload the page.',
  worker_lost: 'The browser ended the worker that ran the model, such as for want of memory. Load the model again.',
  wasm_unavailable: 'A part of this page could not be fetched. Check the connection, and reload the page.',
  disposed: 'The model was unloaded in the middle of the answer. Ask again.',
};

export function adviceOf(code) {
  return ADVICE[code] ?? 'This is a fault of rillm. Load the model again, and please report it with the text below.';
}
