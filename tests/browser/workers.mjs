// Workers of a page, for tests that end them.

/** Runs in the page: remembers workers, and ends them as the page does (`terminate`) or behind the package's back, as the browser does. */
export function rememberWorkers() {
  const Own = Worker;
  globalThis.workers = [];
  globalThis.Worker = class extends Own {
    constructor(...args) {
      super(...args);
      workers.push(this);
    }
  };
  globalThis.kill = (how, which = workers) => {
    for (const worker of which.splice(0)) how === 'terminate' ? worker.terminate() : Own.prototype.terminate.call(worker);
  };
}
