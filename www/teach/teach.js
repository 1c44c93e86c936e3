// Teaching the model that answers: five questions with answers, an adapter that is trained on them in this page, and its way into the chat. Fetched when its panel is first
// opened. Knows nothing of how it looks.

/** What requests call the adapter. */
const NAME = 'taught';
/** A game that no model knows. */
const GAME = [
  ['zib?', 'zab!'],
  ['mop mop?', 'flim flam.'],
  ['who wins?', 'the blue frog.'],
  ['ready?', 'dilly dally.'],
  ['bye!', 'toodle pip!'],
];
/** So often each example is learnt: half a minute of a small model without a GPU. */
const EPOCHS = 6;
/** The learning rate of a model of this width; wider ones learn at a lower one. */
const LEARNING_RATE = 5e-3;
const WIDTH = 512;

export class Teach {
  /** [question, answer] of each line; both empty where nothing is to be learnt. */
  examples = GAME.map((pair) => [...pair]);
  /** `idle`, `loading`, `training` or `taught`. */
  phase = 'idle';
  /** Of the training: {step, steps, losses}. */
  progress;
  /** What went wrong: {code, message}. */
  error;
  #loader;
  #load;
  #changed;
  #abort;
  #host;

  /** `load(host)` loads the model of a host again with what trains, and resolves when it answers. */
  constructor({ loader, load, changed }) {
    this.#loader = loader;
    this.#load = load;
    this.#changed = changed;
  }

  get isBusy() {
    return this.phase === 'loading' || this.phase === 'training';
  }

  /** What is wrong with the examples, in words; undefined if nothing is. */
  get fault() {
    const lines = this.examples.map((pair) => pair.map((text) => text.trim() !== ''));
    const half = lines.findIndex(([question, answer]) => question !== answer);
    if (half >= 0) return `Line ${half + 1} has ${lines[half][0] ? 'no answer' : 'no question'}.`;
    return lines.some(([question]) => question) ? undefined : 'There is nothing to learn.';
  }

  edit(line, part, text) {
    this.examples[line][part] = text;
    this.#changed();
  }

  /** Teaches the model that answers now. What it was taught before is forgotten. */
  async begin() {
    const first = this.#loader.current;
    if (this.isBusy || first === undefined || this.fault !== undefined) return;
    const { signal } = (this.#abort = new AbortController());
    this.error = this.progress = undefined;
    this.#be(first.options.training === true ? 'training' : 'loading');
    let release = () => {};
    try {
      const host = first.options.training === true ? first : await this.#load(first);
      // The load told what was wrong, or another model was chosen meanwhile.
      if (host === undefined || signal.aborted) return this.#be('idle');
      this.#host = host;
      release = host.use();
      this.#be('training');
      await this.#forget(host);
      const data = this.examples
        .map((pair) => pair.map((text) => text.trim()))
        .filter(([question]) => question !== '')
        .map(([question, answer]) => ({
          messages: [
            { role: 'user', content: question },
            { role: 'assistant', content: answer },
          ],
        }));
      const losses = [];
      const onProgress = ({ type, ...of }) => {
        if (type === 'begin') this.progress = { step: 0, steps: of.steps, bytes: of.memoryBytes, losses };
        else if (type === 'step') {
          losses.push(of.loss);
          this.progress = { ...this.progress, step: of.step };
        }
        this.#changed();
      };
      const { error } = await host.engine.train.lora({
        data,
        name: NAME,
        epochs: EPOCHS,
        learningRate: LEARNING_RATE * Math.min(1, WIDTH / host.engine.info.embedding_length),
        seed: 1,
        onProgress,
        signal,
      });
      if (error !== undefined) throw error;
      this.#be('taught');
    } catch (error) {
      if (error.code !== 'aborted') this.error = error;
      this.#be('idle');
    } finally {
      release();
    }
  }

  stop() {
    this.#abort?.abort();
    if (this.phase === 'loading') this.#loader.cancel();
  }

  /** The model answers as before. */
  async forget() {
    try {
      if (this.#host !== undefined) await this.#forget(this.#host);
    } catch (error) {
      this.error = error;
    }
    this.#be('idle');
  }

  /** Another model answers, or none: it was taught nothing. */
  look() {
    if (this.#host === undefined || this.#loader.current === this.#host) return;
    this.#host = undefined;
    this.#abort?.abort();
    if (this.phase === 'taught') this.phase = 'idle';
  }

  async #forget({ engine }) {
    const list = await engine.adapters.list();
    if (list.some(({ name }) => name === NAME)) await engine.adapters.unload(NAME);
  }

  #be(phase) {
    this.phase = phase;
    this.#changed();
  }
}
