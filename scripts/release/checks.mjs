// What must hold before a version is published: texts in, problems out. It runs nothing.

/** The version of the package, which stands in Cargo.toml alone. */
export function versionOf(cargoToml) {
  return cargoToml.match(/^\[package\][^[]*?^version = "([^"]+)"/ms)?.[1];
}

/** What stands in the way of publishing at all, and what of publishing now. */
export function textProblems({ cargoToml, manifests, changelog }) {
  const problems = [];
  const version = versionOf(cargoToml);
  if (!/^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/.test(version ?? '')) {
    return {
      problems: [`Cargo.toml has ${version === undefined ? 'no version' : `the version ${version}`}, wanted one such as 1.2.3`],
      later: [],
    };
  }
  for (const [name, text] of Object.entries(manifests)) {
    if (JSON.parse(text).version !== undefined) problems.push(`${name} has a version of its own: leave it to Cargo.toml`);
  }
  const sections = [...changelog.matchAll(/^## \[([^\]]+)\](?: - (.*))?$/gm)];
  const later = [];
  const section = sections.find(([, name]) => name === version);
  if (section === undefined) problems.push(`CHANGELOG.md has no section [${version}]`);
  else {
    const next = sections[sections.indexOf(section) + 1]?.index ?? changelog.length;
    if (!/^- /m.test(changelog.slice(section.index, next))) problems.push(`CHANGELOG.md says nothing about ${version}`);
    if (!/^\d{4}-\d{2}-\d{2}$/.test(section[2] ?? '')) later.push(`CHANGELOG.md gives ${version} no date`);
  }
  const [first, second] = sections;
  if (first?.[1] === 'Unreleased' && /^- /m.test(changelog.slice(first.index, second?.index))) {
    later.push(`CHANGELOG.md has changes under [Unreleased]: move them to [${version}]`);
  }
  return { version, problems, later };
}

/** Why this is no place to publish from; `tags` are those of what is checked out. */
export function placeProblems({ env, tags, changes, version }) {
  const problems = [];
  if (!env.CI || env.CI === 'false') problems.push('this is not continuous integration (CI is not set), and provenance is only made there');
  if (!tags.some((tag) => tag === version || tag === `v${version}`)) {
    problems.push(`what is checked out has ${tags.length === 0 ? 'no tag' : `the tags ${tags.join(', ')}`}, wanted v${version}`);
  }
  if (changes !== '') problems.push(`what is checked out was changed:\n${changes}`);
  return problems;
}

/** What the tarball lacks, and what it should not have. */
export function fileProblems(names, expected) {
  const missing = expected.filter((name) => !names.includes(name)).map((name) => `the tarball lacks ${name}`);
  return [
    ...missing,
    ...names.filter((name) => !expected.includes(name)).map((name) => `the tarball holds ${name}, which is no part of it`),
  ];
}
