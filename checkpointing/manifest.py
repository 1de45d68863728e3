"""What makes a checkpoint count: the list of its files with sizes and hashes, and how it is named.

Pure: it turns values into bytes and back. burst.checkpointing.commit stores them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeAlias

from burst.errors import CheckpointError

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
CHECKPOINTS = "checkpoints"  # the folder of all of them below a run

Format: TypeAlias = Literal["dcp", "folder"]
_FORMATS: tuple[Format, ...] = ("dcp", "folder")
_KEY = re.compile(rf"{CHECKPOINTS}/step-(\d{{8,}})-a(\d{{4,}})(?:/.+)?\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True, order=True)
class CheckpointRef:
    """Which checkpoint. Ordered by age: a later attempt's are newer, whatever their step.

    An attempt that had to step back repeats steps; its checkpoints follow from the sound one it
    started at, those of the attempt before do not. Names and times play no part in the order.
    """

    attempt: int
    step: int

    @property
    def key(self) -> str:
        """The folder below the run: `checkpoints/step-00000120-a0003`."""
        return f"{CHECKPOINTS}/step-{self.step:08d}-a{self.attempt:04d}"

    def __str__(self) -> str:
        return f"step {self.step} of attempt {self.attempt}"


def checkpoint_key(step: int, attempt: int) -> str:
    """Return the folder of a checkpoint below the run."""
    return CheckpointRef(attempt, step).key


def parse_key(key: str) -> CheckpointRef | None:
    """Return which checkpoint the key (of its folder or of an object in it) belongs to, if any."""
    found = _KEY.match(key)
    if found is None:
        return None
    ref = CheckpointRef(attempt=int(found[2]), step=int(found[1]))
    return ref if key == ref.key or key.startswith(f"{ref.key}/") else None


@dataclass(frozen=True, slots=True)
class File:
    """A file of a checkpoint; `path` is relative to the checkpoint's folder."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The state's shape by parameter name: what must fit before anything is loaded.

    `params` are the model's tensors (parameters and persistent buffers): name, shape, dtype.
    `groups` are the optimizers' parameter groups, each the names it trains; a frozen parameter is
    in none, so that freezing one shows.
    """

    params: tuple[tuple[str, tuple[int, ...], str], ...]
    groups: tuple[tuple[str, ...], ...]

    def differences(self, current: Layout) -> tuple[str, ...]:
        """Return what does not fit, one readable line each; empty if the state can be loaded.

        The order of names within a group is no difference: state is matched by name.
        """
        return (*self.tensor_differences(current), *self._group_differences(current))

    def tensor_differences(self, current: Layout) -> tuple[str, ...]:
        """Return the lines about the model's tensors only."""
        saved, now = _by_name(self), _by_name(current)
        lines = [f"{name}: saved, not in the model now" for name in saved if name not in now]
        lines += [f"{name}: in the model now, not saved" for name in now if name not in saved]
        return (*lines, *self.shape_differences(current))

    def shape_differences(self, current: Layout) -> tuple[str, ...]:
        """Return the lines about tensors that both have, with another shape or dtype."""
        now = _by_name(current)
        return tuple(
            f"{name}: saved as {_tensor(shape, dtype)}, now {_tensor(*now[name])}"
            for name, shape, dtype in self.params
            if name in now and now[name] != (shape, dtype)
        )

    def _group_differences(self, current: Layout) -> tuple[str, ...]:
        if [set(g) for g in self.groups] == [set(g) for g in current.groups]:
            return ()
        return (
            *(f"saved group {i}: {_names(group)}" for i, group in enumerate(self.groups)),
            *(f"current group {i}: {_names(group)}" for i, group in enumerate(current.groups)),
        )


def _by_name(layout: Layout) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (shape, dtype) for name, shape, dtype in layout.params}


def _tensor(shape: tuple[int, ...], dtype: str) -> str:
    return f"{list(shape)} {dtype}"


def _names(group: tuple[str, ...]) -> str:
    return ", ".join(group) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All there is to know of a checkpoint before its files are read."""

    step: int  # optimizer steps done; for a folder, which snapshot it is
    attempt: int
    world_size: int
    created_at: str  # wall time of the writer, for people; nothing is decided by it
    files: tuple[File, ...]
    position: Mapping[str, Any] = field(default_factory=dict)  # JSON: where training stands
    layout: Layout | None = None
    format: Format = "dcp"
    format_version: int = FORMAT_VERSION

    @property
    def ref(self) -> CheckpointRef:
        return CheckpointRef(self.attempt, self.step)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def to_json(self) -> bytes:
        """Return the one text this manifest has. CheckpointError if it would not read back."""
        text = json.dumps(asdict(self), sort_keys=True, allow_nan=False, separators=(",", ":"))
        from_json(text.encode())
        return text.encode()


def from_json(data: bytes) -> Manifest:
    """Read a manifest strictly; CheckpointError names the key and what is wrong with it."""
    try:
        raw = json.loads(data)
    except ValueError as error:
        raise CheckpointError(f"the manifest is no JSON: {error}") from error
    top = _object(raw, "the manifest", tuple(f.name for f in fields(Manifest)))
    version = _whole(top, "format_version", 1)
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"the manifest has format_version {version}; this burst reads {FORMAT_VERSION}",
            hint="resume with the burst version that wrote it, or a newer one",
        )
    return Manifest(
        step=_whole(top, "step", 0),
        attempt=_whole(top, "attempt", 0),
        world_size=_whole(top, "world_size", 1),
        created_at=_text(top, "created_at"),
        files=_files(top["files"]),
        position=_object(top["position"], "position"),
        layout=None if top["layout"] is None else _layout(top["layout"]),
        format=_format(top["format"]),
        format_version=version,
    )


def _format(value: object) -> Format:
    for known in _FORMATS:
        if value == known:
            return known
    raise _wrong("format", f"{value!r} is none of {', '.join(_FORMATS)}")


def _files(value: object) -> tuple[File, ...]:
    files = tuple(_file(item, f"files[{i}]") for i, item in enumerate(_list(value, "files")))
    paths = [file.path for file in files]
    if not paths or len(set(paths)) != len(paths):
        raise _wrong("files", "must list every file, and each once")
    return files


def _file(value: object, where: str) -> File:
    raw = _object(value, where, ("path", "size_bytes", "sha256"))
    path, digest = _text(raw, "path"), _text(raw, "sha256")
    if not inside(path):
        raise _wrong(f"{where}.path", f"{path!r} is not a path below the checkpoint's folder")
    if not _SHA256.match(digest):
        raise _wrong(f"{where}.sha256", f"{digest!r} is not 64 hexadecimal digits")
    return File(path, _whole(raw, "size_bytes", 0), digest)


def inside(path: str) -> bool:
    """Whether a relative path stays in its folder and is not the manifest's own."""
    parts = path.split("/")
    return not {"", ".", ".."} & set(parts) and "\0" not in path and path != MANIFEST_NAME


def _layout(value: object) -> Layout:
    raw = _object(value, "layout", ("params", "groups"))
    return Layout(
        params=tuple(_param(item) for item in _list(raw["params"], "layout.params")),
        groups=tuple(_group(item) for item in _list(raw["groups"], "layout.groups")),
    )


def _param(value: object) -> tuple[str, tuple[int, ...], str]:
    match value:
        case [str(name), [*sizes], str(dtype)]:
            shape = tuple(size for size in sizes if type(size) is int)
            if len(shape) == len(sizes):
                return name, shape, dtype
        case _:
            pass
    raise _wrong("layout.params", f"{value!r} is not a name, a shape and a dtype")


def _group(value: object) -> tuple[str, ...]:
    names = _list(value, "layout.groups")
    if not all(isinstance(name, str) for name in names):
        raise _wrong("layout.groups", f"{names!r} are not names")
    return tuple(names)


def _object(value: object, where: str, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return an object that holds exactly `names`, where given."""
    if not isinstance(value, dict):
        raise _wrong(where, "is not an object")
    if names is not None and set(value) != set(names):
        odd = ", ".join(sorted(set(value) ^ set(names)))
        raise _wrong(where, f"has missing or unknown keys: {odd}")
    return value


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(where, "is not a list")
    return value


def _text(raw: Mapping[str, Any], name: str) -> str:
    value = raw[name]
    if not isinstance(value, str):
        raise _wrong(name, f"{value!r} is not a text")
    return value


def _whole(raw: Mapping[str, Any], name: str, least: int) -> int:
    value = raw[name]
    if type(value) is not int or value < least:  # True is an int to isinstance
        raise _wrong(name, f"{value!r} is not a whole number from {least}")
    return value


def _wrong(where: str, what: str) -> CheckpointError:
    return CheckpointError(f"the manifest cannot be used: {where}: {what}")
