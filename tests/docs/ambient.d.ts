// What the blocks of README and guide use without declaring it: the objects that the text around them speaks of.

declare const engine: import('rillm').Engine;
declare const answer: HTMLElement;
declare const input: HTMLInputElement;
declare const messages: import('rillm').ChatMessage[];
declare const tools: import('rillm').Tool[];
declare const schema: { type: string };
declare const documents: string[];
declare const template: string;
declare const url: string;
declare const id: string;
declare const send: import('rillm/react').Chat['send'];
declare const functions: Record<string, (args: unknown) => Promise<unknown>>;

// Of service workers, which the library of pages does not have.
interface FetchEvent extends Event {
  readonly request: Request;
  respondWith(response: Response | Promise<Response>): void;
}
declare function addEventListener(type: 'fetch', listener: (event: FetchEvent) => void): void;
declare function showDirectoryPicker(): Promise<FileSystemDirectoryHandle>;
