// From a model and its options to what asks whichever tab has it.

import { reporter } from '../load_services.js';
import type { HostLoadOptions } from '../protocol.js';
import type { HostSource } from '../source.js';
import type { SharedOptions } from './events.js';
import { sharedName } from './key.js';
import type { LoadModel } from './leader.js';
import { whyUnshared } from './locks.js';
import { SharedHost } from './shared_host.js';

export type { SharedEvent, SharedOptions } from './events.js';

/** What makes the host; undefined where tabs can't share, which `onEvent` is told. `load` is called if this tab is to run the model. */
export async function shareModel(
  source: HostSource,
  hostOptions: HostLoadOptions,
  options: SharedOptions,
  load: LoadModel,
): Promise<(() => SharedHost) | undefined> {
  const onEvent = reporter(options.onEvent);
  const reason = await whyUnshared();
  if (reason !== undefined) {
    onEvent({ type: 'unshared', message: `${reason}; this tab loads an engine of its own` });
    return undefined;
  }
  const name = await sharedName(source, hostOptions);
  const [onProgress, onMemoryPressure] = [reporter(options.onProgress), reporter(options.onMemoryPressure)];
  return () => new SharedHost({ name, load, onProgress, onEvent, onMemoryPressure });
}
