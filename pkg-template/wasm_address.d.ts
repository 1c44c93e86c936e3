/** What bundlers that take wasm for files to be served make of `import address from 'rillm/rillm_bg.wasm'`: for the option `wasmModule`. */
declare const address: string;
export default address;
