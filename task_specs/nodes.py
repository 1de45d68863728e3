"""The tree of a YAML file: values as typed, each with its line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

_NULLS = ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value: its characters without the quotes."""

    text: str
    quoted: bool = False  # in quotes or a block: meant as text
    line: int | None = None  # counted from 1; None: from the command line


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list."""

    items: tuple[Node, ...]
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """The value of a key, and where the key is."""

    value: Node
    line: int | None = None


@dataclass(frozen=True, slots=True)
class MapNode:
    """A mapping, merges done."""

    entries: dict[str, Entry]
    line: int | None = None

    def with_value(self, key: str, value: Node | None) -> MapNode:
        """Return this map with a key set; None takes the key out."""
        entries = {name: entry for name, entry in self.entries.items() if name != key}
        if value is not None:
            entries[key] = Entry(value)
        return replace(self, entries=entries)


Node: TypeAlias = Scalar | ListNode | MapNode


def is_null(node: Node) -> bool:
    """Say whether nothing was written: `key:`, `~` or `null`."""
    return isinstance(node, Scalar) and not node.quoted and node.text in _NULLS


def as_typed(node: Node | None) -> str | None:
    """Return a single value for a message, quotes around it if it had some."""
    if not isinstance(node, Scalar):
        return None
    return f'"{node.text}"' if node.quoted and "\n" not in node.text else node.text


def kind_of(node: Node) -> str:
    """Return what a node is, for a message."""
    match node:
        case Scalar():
            return "a single value"
        case ListNode():
            return "a list"
        case MapNode():
            return "a mapping"
