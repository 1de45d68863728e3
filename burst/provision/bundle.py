"""What a rented node gets of burst: this very code, and the versions of what it stands on."""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import re
import sys
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from burst.errors import SetupError, installing

ROOTS = ("burst-trainer[train,aws]",)
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?\s*([^;]*)(?:;(.*))?$")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A gzipped tar of the package `burst`, `pins.txt` and `python.txt`, and its hash."""

    name: str
    data: bytes


@cache
def bundle() -> Bundle:
    """Pack this process's own burst; the same code makes the same bundle."""
    package = Path(__file__).resolve().parents[1]
    files = {
        f"burst/{path.relative_to(package)}": path.read_bytes()
        for path in sorted(_sources(package))
    }
    files["pins.txt"] = _pins_file()
    files["python.txt"] = f"{sys.version_info.major}.{sys.version_info.minor}\n".encode()
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    packed = gzip.compress(data.getvalue(), mtime=0)
    return Bundle(hashlib.sha256(data.getvalue()).hexdigest()[:16], packed)


def _pins_file() -> bytes:
    return "".join(f"{pin}\n" for pin in pins()).encode()


def packages_name() -> str:
    """Return the name that burst.agent's start.sh gives to a node's set of packages."""
    return hashlib.sha256(_pins_file()).hexdigest()[:12]


@cache
def packages_bytes() -> int:
    """Return how much disk the packages of a node take here, as they are installed."""
    files = (
        file
        for pin in pins()
        for file in importlib.metadata.distribution(pin.partition("==")[0]).files or ()
    )
    return sum(file.size or 0 for file in files)


def _sources(folder: Path) -> list[Path]:
    """Return the files below a folder, those behind its links too."""
    found: list[Path] = []
    for path in folder.iterdir():
        if path.is_dir() and path.name != "__pycache__":
            found += _sources(path)
        elif path.is_file() and path.suffix in {".py", ".json", ".sh", ".typed"}:
            found.append(path)
    return found


@cache
def pins() -> tuple[str, ...]:
    """Return the exact versions of what burst needs on a node, as they are installed here.

    Nodes run what the controller was tested with; a local part of a version (`+cpu`) is left
    out, for a node's own kind of machine decides that.
    """
    found: dict[str, str] = {}
    todo = list(ROOTS)
    seen: set[str] = set()
    while todo:
        match = _REQUIREMENT.match(todo.pop())
        if match is None:
            continue
        name, extras = match[1], {part.strip() for part in (match[2] or "").split(",")}
        key = f"{name.lower().replace('_', '-')}[{','.join(sorted(extras))}]"
        if key in seen:
            continue
        seen.add(key)
        try:
            there = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra or a system that this one is not
        found[name.lower().replace("_", "-")] = there.version.partition("+")[0]
        for text in there.requires or ():
            wanted = _EXTRA.search(text)
            if wanted is None or wanted[1] in extras:
                todo.append(text)
    found.pop("burst-trainer", None)
    if "ray" not in found:
        raise SetupError(
            "ray is not installed here, so its version for the nodes is not known",
            hint=installing("train", "aws", "skypilot"),
        )
    return tuple(f"{name}=={version}" for name, version in sorted(found.items()))
