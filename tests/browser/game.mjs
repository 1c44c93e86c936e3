// A game that no model knows, for tests of trainings.

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
