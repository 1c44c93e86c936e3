// Chromium on lavapipe, Mesa's Vulkan driver for the CPU, for tests whose subject is not the GPU. It keeps compiled kernels on the disk, so that
// a model which another test has loaded is there in a third of the time. Chromium takes no driver for the CPU but its own SwiftShader:
// so it gets a driver that carries SwiftShader's ids (`lavapipe/icd.c`), and a folder in which SwiftShader is missing.
// Where something of it is not to be had, the tests run on SwiftShader. Built-in modules only, since setup.mjs runs it.

import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';

import { headlessShellPath, onPath, realProgram } from './chromium.mjs';
import { output, Problem, root } from './command.mjs';

const folder = join(root, '.tools/lavapipe');
const source = join(root, 'scripts/lavapipe/icd.c');
const manifest = join(folder, 'ready.json');
const PACKAGE = 'mesa-vulkan-drivers';

/** From this version of Vulkan on lavapipe has all that Chromium asks of a driver: Mesa 25. */
const OLDEST = [1, 4];

/**
 * How to start Chromium on lavapipe, as options of playwright-core; undefined where `prepareLavapipe` found out that it can't be, or has not run.
 */
export function lavapipeOptions() {
  if (!existsSync(manifest)) return undefined;
  const { executablePath, driver, library } = JSON.parse(readFileSync(manifest, 'utf8'));
  if (executablePath === undefined) return undefined;
  const env = { VK_DRIVER_FILES: driver, VK_ICD_FILENAMES: driver, RILLM_LAVAPIPE: library };
  // The sandbox of the GPU's process hides the disk, and with it the kernels that are there already.
  return { executablePath, args: ['--disable-gpu-sandbox', '--ignore-gpu-blocklist'], env };
}

/** Makes what is missing for Chromium on lavapipe, and says so if that can't be. `release` is Debian's name of the system's; `tryIt` resolves to whether a page has its adapter then. */
export async function prepareLavapipe({ say, install, tryIt, release }) {
  const program = realProgram(headlessShellPath());
  const unchanged = createHash('sha256')
    .update(readFileSync(source))
    .update(JSON.stringify(fingerprint(program)))
    .digest('hex');
  if (existsSync(manifest) && JSON.parse(readFileSync(manifest, 'utf8')).unchanged === unchanged) return;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  try {
    if (process.platform !== 'linux') throw new Problem('it is for Linux');
    if (program === undefined) throw new Problem('chromium-headless-shell is not installed');
    const compiler = onPath('cc', 'gcc', 'clang');
    if (compiler === undefined) throw new Problem('there is no C compiler');
    const library = systemLibrary() ?? (await backportedLibrary({ say, install, release }));
    const shim = join(folder, 'icd.so');
    await install(compiler, ['-shared', '-fPIC', '-O1', '-Wall', '-Werror', '-o', shim, source, '-ldl']);
    const driver = join(folder, 'icd.json');
    writeFileSync(driver, JSON.stringify({ file_format_version: '1.0.1', ICD: { library_path: shim, api_version: OLDEST.join('.') } }));
    const executablePath = withoutSwiftShader(program);
    writeFileSync(manifest, JSON.stringify({ unchanged, executablePath, driver, library }));
    if (!(await tryIt())) throw new Problem('no page gets an adapter on it');
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    writeFileSync(manifest, JSON.stringify({ unchanged }));
    say(`no Chromium on lavapipe: ${error.message}. All tests in Chromium run on SwiftShader, which takes longer`);
  }
}

/** What tells one state of a program, and of the system's driver, from another. */
function fingerprint(program) {
  const { size, mtimeMs } = program === undefined ? {} : statSync(program);
  return [program, size, mtimeMs, ...systemDrivers()];
}

/** The files that name the system's Vulkan drivers. */
export function vulkanDrivers() {
  return ['/usr/share/vulkan/icd.d', '/etc/vulkan/icd.d', '/usr/local/share/vulkan/icd.d']
    .filter((place) => existsSync(place))
    .flatMap((place) => readdirSync(place).map((name) => join(place, name)))
    .filter((file) => file.endsWith('.json'));
}

function systemDrivers() {
  const files = vulkanDrivers().filter((file) => /\/lvp_icd[^/]*$/.test(file));
  return files.map((file) => JSON.parse(readFileSync(file, 'utf8')).ICD);
}

/** The library of the system's own lavapipe, if it is new enough. */
function systemLibrary() {
  return systemDrivers().find(({ api_version }) => isNewEnough(api_version))?.library_path;
}

function isNewEnough(version) {
  const [major, minor] = version.split('.').map(Number);
  return major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1]);
}

/** The library of Debian's backports, which is unpacked here and not installed. */
async function backportedLibrary({ say, install, release }) {
  const targets = output('apt-get', ['indextargets', '--format', '$(REPO_URI) $(RELEASE) $(COMPONENT)', 'Created-By: Packages']);
  // From where the release itself comes.
  const address = targets
    ?.split('\n')
    .map((line) => line.split(' '))
    .find(([, of, component]) => of === release && component === 'main')?.[0];
  if (address === undefined) throw new Problem("the system's lavapipe is too old, and apt-get knows no place with newer ones");
  const apt = join(folder, 'apt');
  for (const part of ['lists/partial', 'cache/archives/partial', 'sources']) mkdirSync(join(apt, part), { recursive: true });
  const keys = '/usr/share/keyrings/debian-archive-keyring.gpg';
  writeFileSync(
    join(apt, 'sources/backports.sources'),
    `Types: deb\nURIs: ${address}\nSuites: ${release}-backports\nComponents: main\nSigned-By: ${keys}\n`,
  );
  const places = ['Etc::SourceList=/dev/null', `Etc::SourceParts=${apt}/sources`, `State::Lists=${apt}/lists`, `Cache=${apt}/cache`];
  const options = [...places.map((place) => `-oDir::${place}`), '-oAPT::Sandbox::User=root', '-qq'];
  say(`unpacking a newer ${PACKAGE} into .tools`);
  await install('apt-get', [...options, 'update']);
  await install('apt-get', [...options, 'download', PACKAGE], { cwd: apt });
  const archive = readdirSync(apt).find((name) => name.endsWith('.deb'));
  if (archive === undefined) throw new Problem(`${release}-backports has no ${PACKAGE}`);
  await install('dpkg', ['-x', join(apt, archive), join(folder, 'mesa')]);
  rmSync(apt, { recursive: true });
  const libraries = join(folder, 'mesa/usr/lib');
  const library = readdirSync(libraries, { recursive: true }).find((name) => basename(name) === 'libvulkan_lvp.so');
  if (library === undefined) throw new Problem(`${PACKAGE} of ${release}-backports has no lavapipe`);
  return join(libraries, library);
}

/** Chromium's folder by links, but for SwiftShader. Chromium looks for it beside its own program, so that one is no symbolic link. */
function withoutSwiftShader(program) {
  const to = join(folder, 'chromium');
  mkdirSync(to);
  for (const name of readdirSync(dirname(program))) {
    if (!name.includes('swiftshader') && name !== basename(program)) symlinkSync(join(dirname(program), name), join(to, name));
  }
  const copy = join(to, basename(program));
  try {
    linkSync(program, copy);
  } catch {
    // Another file system, or a file of somebody else.
    copyFileSync(program, copy);
  }
  return copy;
}
