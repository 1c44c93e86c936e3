// An animated WebP of still ones. Source: https://developers.google.com/speed/webp/docs/riff_container

const ANIMATION = 0x02;

function chunk(name, body) {
  const head = Buffer.alloc(8);
  head.write(name, 'latin1');
  head.writeUInt32LE(body.length, 4);
  return Buffer.concat([head, body, Buffer.alloc(body.length % 2)]);
}

const uint24 = (value) => Buffer.from([value & 255, (value >> 8) & 255, value >> 16]);
const sizeOf = (width, height) => Buffer.concat([uint24(width - 1), uint24(height - 1)]);

/** Frames are whole pictures of one size: {webp, ms}; `webp` is a file of a still picture without transparency. It is shown again and again. */
export function animated(frames, { width, height }) {
  const parts = frames.map(({ webp, ms }) => {
    // After "RIFF", the size and "WEBP" comes the one chunk of the picture.
    const picture = webp.subarray(12);
    if (!/^VP8[ L]/.test(picture.toString('latin1', 0, 4))) throw new Error('a frame is no plain WebP');
    const place = Buffer.concat([uint24(0), uint24(0), sizeOf(width, height), uint24(Math.round(ms)), Buffer.from([2])]);
    return chunk('ANMF', Buffer.concat([place, picture]));
  });
  const head = chunk('VP8X', Buffer.concat([Buffer.from([ANIMATION, 0, 0, 0]), sizeOf(width, height)]));
  // A white background, shown for ever.
  const loop = chunk('ANIM', Buffer.from([255, 255, 255, 255, 0, 0]));
  return chunk('RIFF', Buffer.concat([Buffer.from('WEBP', 'latin1'), head, loop, ...parts]));
}
