// The files of JavaScript that the package consists of. Built-in modules only.

/** What `exports` in its package.json leads to, in `dist/`, without `.js`. */
export const ENTRIES = ['index', 'worker', 'gpu/index', 'tensor/index', 'react/index'];

/** The name of a file that entry points share. */
export const isPart = (name) => /^rillm\.part-[0-9A-Z]{8}\.js$/.test(name);
