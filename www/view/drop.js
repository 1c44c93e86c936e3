// Files that are dropped on the page, those in folders too. A file of a folder is handed on with its path, by which the engine knows the parts of a model.

/** The files of a drop. What is dropped has to be asked for before anything is waited for. */
export async function filesOfDrop(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry !== null && entry !== undefined);
  if (entries.length === 0 || entries.every(({ isFile }) => isFile)) return [...transfer.files];
  const files = await Promise.all(entries.map((entry) => filesIn(entry, '')));
  return files.flat();
}

async function filesIn(entry, path) {
  if (entry.isFile) {
    const data = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ name: `${path}${entry.name}`, data }];
  }
  const reader = entry.createReader();
  const all = [];
  // A reader gives a hundred entries at a time.
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) break;
    all.push(...some);
  }
  const files = await Promise.all(all.map((inner) => filesIn(inner, path === '' ? `${entry.name}/` : `${path}${entry.name}/`)));
  return files.flat();
}
