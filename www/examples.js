// The example prompts: those that come with the demo model. Knows nothing of how they are shown or answered.

/** Used where models/demo/prompts.json is not served. */
const FALLBACK = [
  { title: 'Arithmetic', prompt: 'What is 12 plus 30?' },
  { title: 'Story', prompt: 'Tell me a short story about a boat.' },
  { title: 'Words', prompt: 'Write "river" backwards.' },
];

/** [{title, skill, prompt, system, tools, temperature}] */
export async function readExamples() {
  try {
    const response = await fetch('models/demo/prompts.json');
    if (!response.ok) return FALLBACK;
    const list = await response.json();
    return Array.isArray(list) && list.length > 0 ? list : FALLBACK;
  } catch {
    return FALLBACK;
  }
}
