// JSON from a form: the fields of a form become a JSON schema, and the answer that it holds fills them.

import { Engine } from 'rillm';

const MODEL = new URLSearchParams(location.search).get('model') ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';

const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
let engine;
let abort;

/** What a field can hold, as a JSON schema. */
function schemaOfField({ type, min, max, maxLength, options }) {
  switch (type) {
    case 'number':
      return { type: 'integer', ...(min && { minimum: Number(min) }), ...(max && { maximum: Number(max) }) };
    case 'checkbox':
      return { type: 'boolean' };
    case 'select-one':
      return { enum: Array.from(options, ({ value }) => value) };
    default:
      return { type: 'string', maxLength: maxLength < 0 ? 200 : maxLength };
  }
}

export function schemaOf(form) {
  const fields = Array.from(form.elements).filter(({ name }) => name !== '');
  const properties = Object.fromEntries(fields.map((field) => [field.name, schemaOfField(field)]));
  return { type: 'object', properties, required: Object.keys(properties), additionalProperties: false };
}

function fill(form, values) {
  for (const [name, value] of Object.entries(values)) {
    const field = form.elements[name];
    if (field.type === 'checkbox') field.checked = value;
    else field.value = value;
  }
}

async function read(text, form, { signal }) {
  engine ??= await Engine.load(MODEL, {
    signal,
    onProgress: ({ loaded, total }) => say(`Loading the model: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB`),
  });
  say('Reading the text …');
  const schema = schemaOf(form);
  const keys = new Intl.ListFormat('en-GB').format(schema.required);
  const content = `Answer in JSON with the keys ${keys}: ${text}`;
  const request = {
    messages: [{ role: 'user', content }],
    response_format: { type: 'json_schema', json_schema: { name: 'form', schema } },
    temperature: 0,
    max_tokens: 500,
  };
  const { choices } = await engine.chat.completions.create(request, { signal });
  if (choices[0].finish_reason === 'length') throw new Error('The answer became too long.');
  fill(form, JSON.parse(choices[0].message.content));
}

element('fill').addEventListener('click', async () => {
  element('alert').hidden = true;
  element('fill').disabled = true;
  element('stop').hidden = false;
  abort = new AbortController();
  try {
    await read(element('text').value.trim(), element('form'), abort);
  } catch (error) {
    element('alert').textContent = error.message;
    element('alert').hidden = error.code === 'aborted';
  }
  say('');
  element('fill').disabled = false;
  element('stop').hidden = true;
});
element('stop').addEventListener('click', () => abort.abort());
