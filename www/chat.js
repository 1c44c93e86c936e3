// The conversation: sends it to the engine, shows the answer as it streams, stops it. Knows nothing of how models are loaded.

export class Chat {
  #log;
  #welcome;
  #settings;
  #events;
  #engine;
  #messages = [];
  #stream;
  #asking = false;

  constructor({ log, welcome, settings, ...events }) {
    this.#log = log;
    this.#welcome = welcome;
    this.#settings = settings;
    this.#events = events;
  }

  get ready() {
    return this.#engine !== undefined;
  }

  get busy() {
    return this.#asking;
  }

  get empty() {
    return this.#messages.length === 0;
  }

  /** From now on this engine answers. The conversation begins anew: another model would not know what it said. */
  use(engine) {
    this.#engine = engine;
    this.clear();
  }

  clear() {
    this.stop();
    this.#messages = [];
    this.#log.replaceChildren(this.#welcome);
    this.#events.onState();
  }

  stop() {
    this.#stream?.cancel();
  }

  /** Asks and shows the answer. `options`: {system, tools, temperature} of an example. */
  async ask(text, { system, tools, temperature } = {}) {
    const engine = this.#engine;
    if (engine === undefined || this.#asking) return;
    const settings = this.#settings();
    const systemText = system ?? settings.system;
    if (this.empty && systemText !== '') this.#messages.push({ role: 'system', content: systemText });
    const conversation = this.#messages;
    conversation.push({ role: 'user', content: text });
    this.#show('user', text);
    const answer = this.#show('assistant', '');
    answer.element.setAttribute('aria-busy', 'true');
    this.#asking = true;
    this.#events.onState();
    try {
      const before = await engine.stats();
      const request = { messages: conversation, max_tokens: settings.max_tokens, temperature: temperature ?? settings.temperature };
      this.#stream = await engine.chat.completions.create({ ...request, ...(tools === undefined ? {} : { tools }), stream: true });
      const last = await this.#read(this.#stream, answer);
      const calls = answer.calls?.length > 0 ? { tool_calls: answer.calls } : {};
      conversation.push({ role: 'assistant', content: answer.content ?? '', ...calls });
      const { finish_reason } = last.choices[0];
      if (finish_reason !== 'stop' && finish_reason !== 'tool_calls')
        this.#remark(answer, finish_reason === 'length' ? 'The answer reached its length limit.' : 'Stopped.');
      this.#events.onAnswer({ before, after: await engine.stats(), usage: last.usage, timings: last.timings });
    } catch (error) {
      // Taken back, so that the next message doesn't follow a question without an answer.
      if (conversation.at(-1)?.role === 'user') conversation.pop();
      this.#remark(answer, 'No answer.');
      // A model that was unloaded takes its conversation with it; that is no error to tell of.
      if (engine === this.#engine) this.#events.onError(error);
    } finally {
      answer.element.removeAttribute('aria-busy');
      this.#stream = undefined;
      this.#asking = false;
      this.#events.onState();
    }
  }

  async #read(stream, answer) {
    let last;
    let tokens = 0;
    let begin;
    for await (const chunk of stream) {
      last = chunk;
      const [choice] = chunk.choices;
      const { content = '', reasoning_content = '', tool_calls = [] } = choice.delta;
      answer.content = (answer.content ?? '') + content;
      this.#append(answer, reasoning_content + content);
      for (const call of tool_calls) this.#call(answer, call);
      // Time is counted from the first token on, as the first one waits for the whole prompt.
      if (choice.token_ids.length > 0) {
        if (begin === undefined) begin = performance.now();
        else {
          tokens += choice.token_ids.length;
          this.#events.onSpeed((tokens / (performance.now() - begin)) * 1000);
        }
      }
    }
    if (last.timings !== undefined) this.#events.onSpeed(last.timings.tokens_per_s);
    return last;
  }

  /** Takes a piece of a tool call, and shows it as the call of a function. */
  #call(answer, { index, id, function: { name, arguments: piece } }) {
    answer.calls ??= [];
    const known = answer.calls[index];
    if (known === undefined) answer.calls[index] = { id, type: 'function', function: { name, arguments: piece } };
    else known.function.arguments += piece;
    this.#append(answer, known === undefined ? `${answer.text === '' ? '' : '\n'}${name} ${piece}` : piece);
  }

  #show(role, text) {
    this.#welcome.remove();
    const element = document.createElement('div');
    element.className = `message ${role}`;
    const speaker = document.createElement('span');
    speaker.className = 'hidden';
    speaker.textContent = role === 'user' ? 'You: ' : 'Model: ';
    const body = document.createTextNode(text);
    element.append(speaker, body);
    this.#log.append(element);
    this.#log.scrollTop = this.#log.scrollHeight;
    return { element, body, text };
  }

  #append(answer, text) {
    if (text === '') return;
    // Who scrolled up to read is not pulled down again.
    const atEnd = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < 40;
    answer.text += text;
    answer.body.appendData(text);
    if (atEnd) this.#log.scrollTop = this.#log.scrollHeight;
  }

  #remark(answer, text) {
    const remark = document.createElement('span');
    remark.className = 'remark';
    remark.textContent = text;
    answer.element.append(remark);
  }
}
