// The example prompts: those that come with the demo model, one button each. Knows nothing of how they are answered.

/** Used where models/demo/prompts.json is not served. */
const FALLBACK = [
  { title: 'Arithmetic', prompt: 'What is 12 plus 30?' },
  { title: 'Story', prompt: 'Tell me a short story about a boat.' },
  { title: 'Words', prompt: 'Write "river" backwards.' },
];

async function prompts() {
  try {
    const response = await fetch('models/demo/prompts.json');
    if (!response.ok) return FALLBACK;
    const list = await response.json();
    return Array.isArray(list) && list.length > 0 ? list : FALLBACK;
  } catch {
    return FALLBACK;
  }
}

/** Fills the list; a click calls ask(prompt, {system, tools, temperature}). */
export async function showExamples(list, ask) {
  list.replaceChildren(
    ...(await prompts()).map(({ skill, title, prompt, system, tools, temperature }) => {
      const button = document.createElement('button');
      button.type = 'button';
      const heading = document.createElement('strong');
      heading.textContent = title ?? skill;
      button.append(heading, prompt);
      button.addEventListener('click', () => void ask(prompt, { system, tools, temperature }));
      const item = document.createElement('li');
      item.append(button);
      return item;
    }),
  );
}
