// A game that no model knows, for tests of trainings.

/** What learns it, and how that is loaded. */
export const MODEL = '/golden/tied-q8_0.gguf';
export const OPTIONS = { training: true, precision: 'exact', contextLength: 128, autotune: 'off', cache: 'none' };

/** Runs in the page: the game, and how an engine is asked. */
export function prepareGame() {
  const chat = (question, answer) => ({
    messages: [
      { role: 'user', content: question },
      { role: 'assistant', content: answer },
    ],
  });
  globalThis.game = [chat('wug?', 'dax blick'), chat('toma?', 'zup')];
  globalThis.said = async (engine, content, more) => {
    const { choices } = await engine.chat.completions.create({
      messages: [{ role: 'user', content }],
      temperature: 0,
      max_tokens: 12,
      ...more,
    });
    return choices[0].message.content;
  };
  globalThis.short = { data: game, epochs: 4, learningRate: 1e-2, seed: 3, name: 'game' };
}

/** A page of its own, for tests that lose GPUs or keep files. */
export async function openGame(stage, { allowed = [], prepare = [] } = {}) {
  const page = await stage.openPage({ allowed });
  await page.prepare('/rillm/dist/index.js');
  for (const work of [...prepare, prepareGame]) await page.page.evaluate(work);
  return page;
}
