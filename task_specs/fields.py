"""Typed readers over the tree: each takes one key of one mapping, and reports what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from burst.task_specs import units
from burst.task_specs.keys import unknown_key
from burst.task_specs.nodes import ListNode, MapNode, Node, Scalar, as_typed, is_null, kind_of
from burst.task_specs.problems import Report, nearest

T = TypeVar("T")

TRUE = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}
FALSE = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}


class Fields:
    """One mapping of the file. A key that is absent or null reads as None."""

    def __init__(self, node: MapNode, path: str, report: Report) -> None:
        self.map = node
        self.path = path
        self.report = report

    def at(self, key: str) -> str:
        """Return the path of a key into the file."""
        return f"{self.path}.{key}" if self.path else key

    def node(self, key: str) -> Node | None:
        entry = self.map.entries.get(key)
        return None if entry is None or is_null(entry.value) else entry.value

    def has(self, key: str) -> bool:
        return self.node(key) is not None

    def line(self, key: str) -> int | None:
        entry = self.map.entries.get(key)
        return None if entry is None else entry.line or entry.value.line

    def problem(self, key: str, message: str) -> None:
        """Report a problem with a key's value, and show the value if it is a single one."""
        node = self.node(key)
        line = self.line(key) if node is None else node.line
        self.report.problem(self.at(key), message, line=line, written=as_typed(node))

    def read(self, key: str, reader: Callable[[str], T]) -> T | None:
        """Return what `reader` makes of a single value; its ValueError is the problem."""
        text = self.text(key)
        if text is None:
            return None
        try:
            return reader(text)
        except ValueError as error:
            self.problem(key, str(error))
            return None

    def text(self, key: str) -> str | None:
        """Return a single value as typed."""
        node = self.node(key)
        if node is None or isinstance(node, Scalar):
            return None if node is None else node.text
        self.problem(key, f"needs a single value, not {kind_of(node)}")
        return None

    def is_single(self, key: str) -> bool:
        """Say whether a key has a single value."""
        return isinstance(self.node(key), Scalar)

    def boolean(self, key: str) -> bool | None:
        """Return true or false; only YAML's own unquoted words count, never truthiness."""
        node = self.node(key)
        if node is None:
            return None
        try:
            return as_boolean(node)
        except ValueError as error:
            self.problem(key, str(error))
            return None

    def whole(self, key: str, *, least: int) -> int | None:
        return self.read(key, lambda text: _at_least(units.whole(text), least))

    def positive(self, key: str) -> float | None:
        """Return a number above 0."""
        value = self.read(key, units.number)
        if value is not None and value <= 0:
            self.problem(key, "needs to be more than 0")
            return None
        return value if value is None else float(value)

    def word(self, key: str, words: tuple[str, ...], others: dict[str, str]) -> str | None:
        """Return one of `words`, case aside. `others` are names people use for them elsewhere."""
        text = self.text(key)
        if text is None or text.lower() in words:
            return None if text is None else text.lower()
        guess = others.get(text.lower()) or nearest(text, words)
        meant = f"; did you mean {guess}?" if guess else ""
        self.problem(key, f"needs one of {', '.join(words)}{meant}")
        return None

    def fields(self, key: str) -> Fields | None:
        """Return the mapping under a key."""
        node = self.node(key)
        if node is None or isinstance(node, MapNode):
            return None if node is None else Fields(node, self.at(key), self.report)
        self.problem(key, f"needs a mapping (`name: value` lines below it), not {kind_of(node)}")
        return None

    def items(self, key: str) -> list[Node] | None:
        """Return the items of a list."""
        node = self.node(key)
        if node is None or isinstance(node, ListNode):
            return None if node is None else list(node.items)
        self.problem(key, f"needs a list (`- item` lines below it), not {kind_of(node)}")
        return None

    def scalars(self, key: str, reader: Callable[[str], T]) -> Iterator[T]:
        """Yield what `reader` makes of each single value of a list, or of one value alone."""
        node = self.node(key)
        nodes = node.items if isinstance(node, ListNode) else () if node is None else (node,)
        for index, item in enumerate(nodes):
            place = f"{self.at(key)}[{index}]" if isinstance(node, ListNode) else self.at(key)
            if not isinstance(item, Scalar) or is_null(item):
                there = "nothing" if is_null(item) else kind_of(item)
                message = f"needs a single value, not {there}"
                self.report.problem(place, message, line=item.line)
                continue
            try:
                yield reader(item.text)
            except ValueError as error:
                self.report.problem(place, str(error), line=item.line, written=as_typed(item))

    def refuse_unknown(self, known: Iterable[str], place: str) -> None:
        """Report every key that is not known here, with the name or place that was meant."""
        for key, entry in self.map.entries.items():
            if key not in known:
                message = unknown_key(key, place, present=self.map.entries)
                self.report.problem(self.at(key), message, line=entry.line)

    def refuse_both(self, key: str, other: str) -> None:
        """Report two names for one thing, even when their values agree."""
        if self.has(key) and self.has(other):
            self.problem(other, f"a second name for `{self.at(key)}`; keep one of them")


def as_boolean(node: Node) -> bool:
    """Return a node's truth value, or raise ValueError."""
    if isinstance(node, Scalar) and not node.quoted:
        if node.text in TRUE:
            return True
        if node.text in FALSE:
            return False
    raise ValueError("write true or false, without quotes")


def _at_least(value: int, least: int) -> int:
    if value < least:
        raise ValueError(f"needs at least {least}")
    return value
