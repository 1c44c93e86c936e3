import { defineConfig } from 'vite';

// The package finds its worker and its wasm beside its modules, so the development server must leave them where they are.
export default defineConfig({ optimizeDeps: { exclude: ['rillm'] }, build: { target: 'esnext' } });
