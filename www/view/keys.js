// What keys mean.

/** While an input method composes a character, the keys belong to it. Safari says so of the last one by its code only. */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;
