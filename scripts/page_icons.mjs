// Draws www/icon-192.png and www/icon-512.png from www/icon.svg: systems that install the page as an app want pictures of pixels. To be run when the
// icon changes.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { sharedChromium } from './chromium.mjs';
import { main, root } from './command.mjs';

/** Systems cut a maskable icon to a circle or another shape; what is drawn stays within this part of it. */
const SAFE_PART = 0.6;
const BACKGROUND = '#f6f5f2';

await main(async () => {
  const svg = readFileSync(join(root, 'www/icon.svg'), 'utf8');
  const browser = await sharedChromium();
  try {
    for (const size of [192, 512]) {
      const page = await browser.newPage({ viewport: { width: size, height: size } });
      const part = size * SAFE_PART;
      await page.setContent(
        `<style>body{margin:0;height:100vh;display:grid;place-items:center;background:${BACKGROUND}}svg{width:${part}px;height:${part}px}</style>${svg}`,
      );
      writeFileSync(join(root, `www/icon-${size}.png`), await page.screenshot());
      await page.close();
    }
  } finally {
    await browser.close();
  }
});
