// The anchors of headings, as GitHub makes them: so a link works on the site and in the repository.

/** The anchor of a heading: lower case, without punctuation, with - for spaces. */
export function slugOf(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '')
    .replaceAll(' ', '-');
}
