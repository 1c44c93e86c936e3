// Files that are dropped on the page, those in folders too. A file of a folder is handed on with its path, by which the engine knows the parts of a model.

/** Takes files that are dropped anywhere on the page, which has the class `dragging` while some are held over it. */
export function acceptDrops(take) {
  const holdsFile = (event) => event.dataTransfer?.types.includes('Files');
  let depth = 0;
  addEventListener('dragenter', (event) => {
    if (!holdsFile(event)) return;
    depth += 1;
    document.body.classList.add('dragging');
  });
  addEventListener('dragleave', (event) => {
    if (holdsFile(event) && --depth <= 0) document.body.classList.remove('dragging');
  });
  addEventListener('dragover', (event) => holdsFile(event) && event.preventDefault());
  addEventListener('drop', async (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    depth = 0;
    document.body.classList.remove('dragging');
    const files = await filesOfDrop(event.dataTransfer);
    if (files.length > 0) take(files);
  });
}

/** The files of a drop. What is dropped has to be asked for before anything is waited for. */
async function filesOfDrop(transfer) {
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
