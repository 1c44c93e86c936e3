// Tool calls: the model is told of a function, asks for it, and answers with what came back.

import { Engine } from 'rillm';

const MODEL = new URLSearchParams(location.search).get('model') ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';
/** A model that calls on and on is stopped. */
const MOST_ROUNDS = 5;

const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'get_weather',
      description: 'Get the weather in a city',
      parameters: {
        type: 'object',
        properties: { city: { type: 'string', description: 'Name of the city', maxLength: 80 } },
        required: ['city'],
        additionalProperties: false,
      },
    },
  },
];

/** What each tool does: its arguments in, what the model is told out. */
const FUNCTIONS = { get_weather: getWeather };

/** By the first WMO code of each group. */
const WEATHER = { 0: 'clear sky', 1: 'clouds', 45: 'fog', 51: 'drizzle', 61: 'rain', 71: 'snow', 80: 'showers', 95: 'thunderstorm' };

async function getWeather({ city }, signal) {
  const get = async (url, query) => {
    const response = await fetch(`${url}?${new URLSearchParams(query)}`, { signal });
    if (!response.ok) throw new Error(`${new URL(url).host} answered with status ${response.status}`);
    return response.json();
  };
  const { results = [] } = await get('https://geocoding-api.open-meteo.com/v1/search', { name: city, count: 1 });
  if (results.length === 0) throw new Error(`there is no place called ${city}`);
  const [{ name, latitude, longitude }] = results;
  const fields = 'temperature_2m,weather_code';
  const { current } = await get('https://api.open-meteo.com/v1/forecast', { latitude, longitude, current: fields });
  const group = Object.keys(WEATHER).findLast((code) => code <= current.weather_code);
  return { city: name, weather: WEATHER[group], temperature: Math.round(current.temperature_2m) };
}

/** Asks until the model answers in words. `messages` grows by what is said. */
async function converse(engine, messages, signal) {
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const request = { messages, tools: TOOLS, temperature: 0, max_tokens: 500 };
    const { choices } = await engine.chat.completions.create(request, { signal });
    const { message } = choices[0];
    messages.push(message);
    if (message.content) show('assistant', message.content);
    if (message.tool_calls === undefined) return;
    for (const { id, function: call } of message.tool_calls) {
      const item = show('tool', `${call.name} ${call.arguments}`);
      const result = await run(call, signal);
      item.append(`\n${result}`);
      messages.push({ role: 'tool', tool_call_id: id, content: result });
    }
  }
  throw new Error(`The model asked for tools ${MOST_ROUNDS} times and did not answer.`);
}

/** The result of a call as JSON. The model is told what went wrong, and may try again. */
async function run({ name, arguments: json }, signal) {
  try {
    return JSON.stringify(await FUNCTIONS[name](JSON.parse(json), signal));
  } catch (error) {
    signal.throwIfAborted();
    return JSON.stringify({ error: error.message });
  }
}

// The page.

const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
let messages = [];
let engine;
let abort;

function show(role, text) {
  const item = Object.assign(document.createElement('li'), { className: role, textContent: text });
  element('log').append(item);
  return item;
}

element('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const content = element('question').value;
  element('question').value = '';
  element('alert').hidden = true;
  element('send').disabled = true;
  element('stop').hidden = false;
  abort = new AbortController();
  const { signal } = abort;
  try {
    engine ??= await Engine.load(MODEL, {
      signal,
      onProgress: ({ loaded, total }) => say(`Loading the model: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB`),
    });
    say('');
    show('user', content);
    const going = [...messages, { role: 'user', content }];
    await converse(engine, going, signal);
    messages = going; // Not of a question that failed or was stopped.
  } catch (error) {
    element('question').value ||= content;
    element('alert').textContent = error.message;
    element('alert').hidden = signal.aborted;
  }
  say('');
  element('send').disabled = false;
  element('stop').hidden = true;
});
element('stop').addEventListener('click', () => abort.abort());
