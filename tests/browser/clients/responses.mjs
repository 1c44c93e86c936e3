// What tests of the Responses API use in the page, besides what `clients.mjs` puts there.

/** Runs in the page. */
export function prepare() {
  const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
  const options = { baseURL: 'http://engine.test/v1', apiKey: 'none', fetch: engine.fetch };
  Object.assign(globalThis, {
    ASK: { model: 'rillm', temperature: 0, max_output_tokens: 100, input: 'What is the weather in Oslo?' },
    STORY: { model: 'rillm', temperature: 0, max_output_tokens: 12, input: 'Tell me a story.' },
    TOOLS: [{ type: 'function', name: 'get_weather', description: 'Get the weather in a city', parameters, strict: true }],
    RAIN: { city: 'Oslo', weather: 'rain', temperature: 7 },
    WHO: 'Anna is 12 years old. Answer in JSON with the keys name and age.',
    /** A template that opens reasoning, which the demo model never closes by itself. */
    THINKING: '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n',
    openai: new OpenAI({ ...options, maxRetries: 0, dangerouslyAllowBrowser: true }),
    hosted: createOpenAI(options),
    parameters,
    /** What two answers to one request have in common. */
    told: ({ status, incomplete_details, output, output_text, usage }) => ({
      status,
      incomplete_details,
      output: output.map(({ id, call_id, parsed_arguments, ...item }) => ({
        ...item,
        ...(item.content && { content: item.content.map(({ parsed, ...part }) => part) }),
      })),
      output_text,
      tokens: [usage.input_tokens, usage.output_tokens, usage.output_tokens_details.reasoning_tokens],
    }),
    collected: async (stream) => {
      const events = [];
      for await (const event of stream) events.push(event);
      return events;
    },
    refusal: async (work) => {
      try {
        await work;
      } catch ({ code, message, name }) {
        return { code, message, name };
      }
      throw new Error('it did not reject');
    },
  });
}
