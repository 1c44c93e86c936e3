"""The corpus of each fuzz target is one archive, corpus/TARGET.tar.gz. cargo-fuzz wants folders:

    python fuzz/corpus.py unpack [TARGET …]     archives → folders corpus/TARGET/, which git ignores
    python fuzz/corpus.py pack [TARGET …]       folders → archives; the same files give the same bytes

Without names it does all. `tar -xzf` and `tar -czf` do the same.
"""

import gzip
import io
import sys
import tarfile
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def unpack(target: str) -> int:
    folder = CORPUS / target
    folder.mkdir(exist_ok=True)
    with tarfile.open(CORPUS / f"{target}.tar.gz") as archive:
        members = [member for member in archive.getmembers() if member.isfile() and "/" not in member.name]
        for member in members:
            (folder / member.name).write_bytes(archive.extractfile(member).read())
    return len(members)


def pack(target: str) -> int:
    files = sorted((CORPUS / target).iterdir())
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in files:
            data = file.read_bytes()
            entry = tarfile.TarInfo(file.name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    (CORPUS / f"{target}.tar.gz").write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return len(files)


if __name__ == "__main__":
    way, *targets = sys.argv[1:] or ["help"]
    if way not in ("pack", "unpack"):
        sys.exit(__doc__)
    if way == "pack":
        all_targets = [folder.name for folder in CORPUS.iterdir() if folder.is_dir()]
    else:
        all_targets = [file.name.removesuffix(".tar.gz") for file in CORPUS.glob("*.tar.gz")]
    for target in targets or sorted(all_targets):
        print(f"{target}: {pack(target) if way == 'pack' else unpack(target)} files")
