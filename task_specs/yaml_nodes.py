"""YAML text as a tree that remembers lines and the very characters typed.

Built from parser events and not by PyYAML's constructor, because a task file needs what that
throws away: `0755` and `yes` as typed, every repeated key, the line of each value. Anchors, aliases
and merge keys work: a merge is shallow, a map's own key wins, of several merged maps the first one
wins (two `<<` lines are read like one `<<` with a list). Aliases share nodes, and what the tree
would hold with every alias written out is counted before it is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from burst.task_specs.nodes import Entry, ListNode, MapNode, Node, Scalar, is_null, kind_of
from burst.task_specs.problems import Report
from burst.task_specs.yaml_errors import line_and_reason

MAX_CHARACTERS = 262_144
MAX_NODES = 50_000
MAX_DEPTH = 40
_CORE = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_CORE + name for name in ("int", "float", "bool", "null")}


def read_document(data: str | bytes, report: Report, empty: str = "") -> Node | None:
    """Return the one document in `data`; None if there is none or it cannot be read.

    `empty` is the problem of a file that says nothing; "" if it is none. Empty documents do not
    count. Every problem found is in the report; repeated keys leave the first one in the tree, so
    that reading can go on.
    """
    text = _decoded(data, report)
    if text is None:
        return None
    documents: list[tuple[int, Node]] = []
    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                node = _Builder(events, report).document()
                if not is_null(node):
                    documents.append((_line(event), node))
    except _UnreadableError as error:
        report.problem("", error.reason, line=error.line)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        line, reason = line_and_reason(error, text)
        report.problem("", reason, line=line)
    else:
        return _only(documents, report, empty)
    return None


def _only(documents: list[tuple[int, Node]], report: Report, empty: str) -> Node | None:
    if len(documents) == 1:
        return documents[0][1]
    if not documents:
        if empty:
            report.problem("", empty)
        return None
    lines = ", ".join(str(line) for line, _ in documents)
    report.problem(
        "",
        f"{len(documents)} documents found (starting at lines {lines}); burst runs one task per "
        "file: put each in a file of its own",
    )
    return None


def _decoded(data: str | bytes, report: Report) -> str | None:
    text = data if isinstance(data, str) else _utf(data, report)
    if text is not None and len(text) > MAX_CHARACTERS:
        report.problem("", f"{len(text)} characters; a task file has at most {MAX_CHARACTERS}")
        return None
    return text and text.removeprefix("\ufeff")


def _utf(data: bytes, report: Report) -> str | None:
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # as some Windows editors save
    try:
        return data.decode("utf-16" if wide else "utf-8")
    except UnicodeDecodeError as error:
        line = None if wide else data.count(b"\n", 0, error.start) + 1
        report.problem("", "not UTF-8 text here; save the file as UTF-8", line=line)
        return None


class _UnreadableError(Exception):
    """The tree cannot be built."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


class _Builder:
    """Builds one document from its events."""

    def __init__(self, events: Iterator[yaml.Event], report: Report) -> None:
        self._events = events
        self._report = report
        self._count = 0  # nodes so far, aliases written out
        self._anchors: dict[str, tuple[Node, int] | None] = {}  # None: still being built

    def document(self) -> Node:
        return self._node(next(self._events), ())

    def _node(self, event: yaml.Event, path: tuple[str, ...]) -> Node:
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor or "", line)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        before = self._count
        self._grow(1, line)
        if len(path) > MAX_DEPTH:
            raise _UnreadableError(line, f"nested more than {MAX_DEPTH} deep")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node = self._value(event, path, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, self._count - before)
        return node

    def _value(
        self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, path: tuple[str, ...], line: int
    ) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event, line)
        if event.tag not in (None, "!", _CORE + "map", _CORE + "seq"):
            raise _UnreadableError(line, "a `!tag`; a task file has none, write the value plainly")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(path, line)
        return self._map(path, line)

    def _list(self, path: tuple[str, ...], line: int) -> ListNode:
        items: list[Node] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, f"[{len(items)}]")))
        return ListNode(tuple(items), line)

    def _map(self, path: tuple[str, ...], line: int) -> MapNode:
        own: dict[str, Entry] = {}
        merged: list[MapNode] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, path)
            value = self._node(next(self._events), (*path, key.text))
            if key.text == "<<" and not key.quoted:
                merged += self._merged(value, key)
            elif key.text in own:
                self._repeated(key, own[key.text].line, path)
            else:
                own[key.text] = Entry(value, key.line)
        for source in merged:
            self._grow(len(source.entries), line)
            own = {**source.entries, **own}
        return MapNode(own, line)

    def _key(self, event: yaml.Event, path: tuple[str, ...]) -> Scalar:
        key = self._node(event, (*path, "?"))
        if isinstance(key, Scalar):
            return key
        raise _UnreadableError(
            _line(event), f"{kind_of(key)} as a key; put text with braces or brackets in quotes"
        )

    def _repeated(self, key: Scalar, first: int | None, path: tuple[str, ...]) -> None:
        self._report.problem(
            ".".join((*path, key.text)).replace(".[", "["),
            f"`{key.text}` on line {key.line} repeats line {first}; keep one of them",
            line=key.line,
        )

    def _merged(self, value: Node, key: Scalar) -> list[MapNode]:
        """Return the maps of a merge key, in order of precedence."""
        nodes = value.items if isinstance(value, ListNode) else (value,)
        maps = [node for node in nodes if isinstance(node, MapNode)]
        if len(maps) < len(nodes):
            self._report.problem(
                "<<", "takes a mapping or a list of mappings: `<<: [*one, *two]`", line=key.line
            )
        return maps

    def _alias(self, name: str, line: int) -> Node:
        found = self._anchors.get(name)
        if found is not None:
            self._grow(found[1], line)
            return found[0]
        if name in self._anchors:
            raise _UnreadableError(line, "an alias inside its own anchor: a loop without end")
        raise _UnreadableError(
            line,
            "YAML reads an unquoted * as an alias, and no anchor (&) of this name is above; "
            "put the value in quotes",
        )

    def _grow(self, nodes: int, line: int) -> None:
        self._count += nodes
        if self._count > MAX_NODES:
            raise _UnreadableError(
                line, f"more than {MAX_NODES} values once every alias is written out"
            )


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None
    return int(event.start_mark.line) + 1


def _scalar(event: yaml.ScalarEvent, line: int) -> Scalar:
    quoted = event.style is not None
    if event.tag in _PLAIN_TAGS:
        quoted = False
    elif event.tag in ("!", _CORE + "str"):
        quoted = True
    elif event.tag is not None:
        raise _UnreadableError(line, "a `!tag`; a task file has none, put a value with ! in quotes")
    return Scalar(_characters(event.value, line), quoted, line)


def _characters(text: str, line: int) -> str:
    """Join surrogate pairs, which JSON escapes are made of; refuse half ones and NUL."""
    if "\0" in text:
        raise _UnreadableError(line, "a NUL character; no variable, path or command can hold one")
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _UnreadableError(line, "half a character (a lone surrogate escape)") from None
