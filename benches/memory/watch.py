"""What an NVIDIA driver counts as used memory, by the phase that a page says it is in.

usage: watch.py COMMAND...
COMMAND opens index.html beside this file in a browser and prints each JSON that it posts, as `LOG {"phase": …}`. At the end there is a table:
of each phase the most that was used, and what was used when it ended, in MiB above what was used before the browser began.
"""
import json, subprocess, sys, threading

used = []
QUERY = ['nvidia-smi', '--query-gpu=memory.used', '--format=csv,noheader,nounits']
idle = int(subprocess.check_output(QUERY, text=True).split()[0])
watch = subprocess.Popen([*QUERY, '-lms', '20'], stdout=subprocess.PIPE, text=True)
phases = [('start', 0)]


def read():
    for line in watch.stdout:
        used.append(int(line) - idle)


threading.Thread(target=read, daemon=True).start()
page = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
for line in page.stdout:
    print(line, end='', flush=True)
    if line.startswith('LOG '):
        said = json.loads(line[4:])
        if 'phase' in said:
            phases.append((said['phase'], len(used)))
watch.terminate()
stays = next((used[begin] for name, begin in phases if name == 'after decoding' and begin < len(used)), None)
print(f'\n| phase | most (MiB) | at its end (MiB) | most above what stays ({stays} MiB) |\n|---|---|---|---|')
for (name, begin), (_, end) in zip(phases, [*phases[1:], ('', len(used))]):
    samples = used[begin:max(end, begin + 1)]
    if samples:
        above = '' if stays is None else max(samples) - stays
        print(f'| {name} | {max(samples)} | {samples[-1]} | {above} |')
