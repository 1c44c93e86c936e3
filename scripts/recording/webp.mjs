// An animated WebP of still ones. Source: https://developers.google.com/speed/webp/docs/riff_container

const ANIMATION = 0x02;
const ALPHA = 0x10;
/** A frame is drawn over what was there, and stays. */
const DRAW_OVER = 0;

function chunk(name, body) {
  const head = Buffer.alloc(8);
  head.write(name, 'latin1');
  head.writeUInt32LE(body.length, 4);
  return Buffer.concat([head, body, Buffer.alloc(body.length % 2)]);
}

const uint24 = (value) => Buffer.from([value & 255, (value >> 8) & 255, value >> 16]);
const sizeOf = ({ width, height }) => Buffer.concat([uint24(width - 1), uint24(height - 1)]);

/** The chunk of the picture itself. Chromium writes a profile of colours before it. */
function pictureIn(webp) {
  // After "RIFF", the size and "WEBP".
  for (let at = 12; at + 8 <= webp.length; ) {
    const length = 8 + webp.readUInt32LE(at + 4);
    const end = at + length + (length % 2);
    if (webp.toString('latin1', at, at + 4) === 'VP8L') return webp.subarray(at, end);
    at = end;
  }
  throw new Error('a frame is no WebP without losses');
}

/**
 * Frames: {x, y, width, height, ms, webp}, the part of the picture that changes and for how long it is shown; x and y are even. `webp` is a file of a still
 * picture without losses. The animation is shown again and again.
 */
export function animated(frames, size) {
  const parts = frames.map(({ x, y, width, height, ms, webp }) => {
    const place = [uint24(x / 2), uint24(y / 2), sizeOf({ width, height }), uint24(Math.round(ms)), Buffer.from([DRAW_OVER])];
    return chunk('ANMF', Buffer.concat([...place, pictureIn(webp)]));
  });
  const head = chunk('VP8X', Buffer.concat([Buffer.from([ANIMATION | ALPHA, 0, 0, 0]), sizeOf(size)]));
  // A white background, shown for ever.
  const loop = chunk('ANIM', Buffer.from([255, 255, 255, 255, 0, 0]));
  return chunk('RIFF', Buffer.concat([Buffer.from('WEBP', 'latin1'), head, loop, ...parts]));
}
