"""`file_mounts`: what is put where on every node."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from burst.task_specs.fields import Fields
from burst.task_specs.keys import MOUNT
from burst.task_specs.model import Mount
from burst.task_specs.nodes import ListNode, Scalar
from burst.task_specs.plain import handed_on
from burst.task_specs.problems import nearest
from burst.task_specs.variables import Variables

Mode = Literal["COPY", "MOUNT", "MOUNT_CACHED"]
MODES = ("COPY", "MOUNT", "MOUNT_CACHED")
SCHEMES = ("s3", "gs", "r2", "https", "cos", "oci", "nebius", "cw", "vastdata", "hf", "oss")
STORES = (
    "s3", "gcs", "azure", "r2", "ibm", "oci", "nebius", "coreweave", "vastdata", "hf", "volume",
)  # fmt: skip
_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9]+):/[^/]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """The files of this machine, as far as a task file speaks of them."""

    folder: str  # absolute; relative paths of the file are taken from here
    exists: Callable[[str], bool]  # asked about absolute paths
    content: Callable[[str], bytes | None]  # of a file; None if it cannot be read

    def path(self, text: str) -> str:
        """Return the absolute path that a task file means, `~` being this person's home."""
        return os.path.normpath(os.path.join(self.folder, os.path.expanduser(text)))  # noqa: PTH111, PTH118 - pathlib would collapse nothing and cannot normalise


def read_mounts(root: Fields, variables: Variables, local: Local) -> tuple[Mount, ...]:
    """Return the mounts, each once, targets without a slash at the end."""
    fields = root.fields("file_mounts")
    if fields is None:
        return ()
    found: dict[str, Mount] = {}
    places: dict[str, str] = {}  # as typed: a substituted value is not for a message
    for key in fields.map.entries:
        reader = _Reader(fields, key, variables, local)
        mount = reader.read()
        if mount is None:
            continue
        if mount.target in found:
            fields.problem(key, f"the same place as `{places[mount.target]}`; keep one of them")
        found[mount.target] = mount
        places.setdefault(mount.target, key)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one mount."""

    fields: Fields
    key: str
    variables: Variables
    local: Local

    def read(self) -> Mount | None:
        target = self._target()
        node = self.fields.node(self.key)
        if node is None:
            self.fields.problem(self.key, "has no source; write a path, a URI or a mapping")
            return None
        if isinstance(node, ListNode):
            self.fields.problem(self.key, "needs a path, a URI or a mapping, not a list")
            return None
        if target is None:
            return None
        if isinstance(node, Scalar):
            source = self._source(self.fields, self.key)
            return None if source is None else self._mount(target, source, "COPY")
        return self._mapping(target, Fields(node, self.fields.at(self.key), self.fields.report))

    def _target(self) -> str | None:
        """Return the place on the node, without a slash at the end."""
        typed = self.variables.substitute(self.key)
        if _SCHEME.fullmatch(typed):
            self.fields.problem(self.key, "the key is a path on the node, the value the source")
        elif posixpath.normpath(typed).strip("/") == "" and typed.startswith("/"):
            self.fields.problem(self.key, "would cover the node's whole disk; name a folder")
        elif not typed.startswith(("/", "~")):
            self.fields.problem(self.key, "needs a path that begins with / or ~")
        elif (name := self.variables.unknown(typed)) is not None:
            self.fields.problem(self.key, f"${name} is not in `envs`")
        else:
            return "/" + posixpath.normpath(typed).lstrip("/") if typed[0] == "/" else _home(typed)
        return None

    def _mapping(self, target: str, fields: Fields) -> Mount | None:
        fields.refuse_unknown(MOUNT, "mount")
        other = {
            key: handed_on(node, fields.at(key), fields.report)
            for key in ("store", "persistent", "type", "config")
            if (node := fields.node(key)) is not None
        }
        fields.boolean("persistent")
        fields.word("store", STORES, {"gs": "gcs", "google": "gcs", "aws": "s3"})
        if isinstance(fields.node("source"), ListNode):
            other["source"] = list(fields.scalars("source", self.variables.substitute))
        name = fields.read("name", self._known)
        mode = fields.read("mode", _mode) or "MOUNT"
        source = None if "source" in other else self._source(fields, "source")
        given = fields.has("source") or fields.has("name") or other.get("store") == "volume"
        if not given and fields.map.entries.keys() <= set(MOUNT):
            self.fields.problem(self.key, "needs a `source`, or a bucket's `name`")
            return None
        return self._mount(target, source, mode, name=name, other=other)

    def _source(self, fields: Fields, key: str) -> str | None:
        """Return a URI as typed or a local path made absolute; None if it is neither."""
        typed = fields.read(key, self._known)
        if typed is None:
            return None
        if not typed.strip():
            fields.problem(key, "empty; write a path or a URI")
            return None
        match = _SCHEME.fullmatch(typed)
        if match is not None:
            return _uri(fields, key, match)
        if _ONE_SLASH.match(typed):
            fields.problem(key, "a URI has two slashes after the colon")
            return None
        if self.variables.refers(typed):
            return typed  # a private value is put in where the mount is made
        path = self.local.path(typed)
        if not self.local.exists(path):
            fields.problem(key, "there is no such file or folder on this machine")
        return path

    def _known(self, text: str) -> str:
        name = self.variables.unknown(text)
        if name is not None:
            raise ValueError(f"${name} is not in `envs`; declare it there")
        return self.variables.substitute(text)

    def _mount(
        self,
        target: str,
        source: str | None,
        mode: Mode,
        *,
        name: str | None = None,
        other: dict[str, Any] | None = None,
    ) -> Mount:
        remote = source is not None and _SCHEME.fullmatch(source) is not None
        return Mount(
            target=target, source=source, mode=mode, name=name, remote=remote, other=other or {}
        )


def _home(target: str) -> str:
    head, slash, rest = target.partition("/")
    return f"{head}/{posixpath.normpath(rest)}" if slash and rest.strip("/") else head


def _mode(text: str) -> Mode:
    if text.upper() in MODES:
        return cast("Mode", text.upper())
    raise ValueError(f"needs one of {', '.join(MODES)}")


def _uri(fields: Fields, key: str, match: re.Match[str]) -> str | None:
    scheme = match[1].lower()
    if scheme not in SCHEMES:
        guess = nearest(scheme, SCHEMES)
        meant = f"; did you mean {guess}://?" if guess else ""
        fields.problem(key, f"unknown scheme {scheme}://{meant} (known: {', '.join(SCHEMES)})")
    elif not match[2] or match[2].startswith("/"):
        fields.problem(key, f"no bucket after {scheme}://")
    else:
        return f"{scheme}://{match[2]}".rstrip("/")
    return None
