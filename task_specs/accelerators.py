"""`accelerators`, in every form that SkyPilot takes, and the spelling of each type.

One string asks for one type (`A100:8`, `A100`); a mapping for any of its types; a list for its
types in this order, best first. A list may hold one-key mappings too, which SkyPilot refuses. A
memory size stands for every type that has it: `24GB`, `40GB+`, `nvidia:80GB+:8`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from burst.task_specs.fields import Fields
from burst.task_specs.model import Accelerators
from burst.task_specs.nodes import ListNode, MapNode, Node, Scalar, is_null, kind_of
from burst.task_specs.problems import nearest

# catalog spelling -> GB of memory of one; the makers' data sheets
_NVIDIA = {
    "A10": 24, "A10G": 24, "A16": 16, "A30": 24, "A40": 48, "A100": 40, "A100-80GB": 80,
    "A100-80GB-SXM": 80, "B200": 192, "B300": 288, "GB200": 192, "GB300": 288, "GH200": 96,
    "H100": 80, "H100-80GB": 80, "H100-MEGA-80GB": 80, "H100-NVL": 94, "H100-SXM": 80,
    "H200": 141, "H200-SXM": 141, "K80": 12, "L4": 24, "L40": 48, "L40S": 48, "M60": 8,
    "P4": 8, "P100": 16, "T4": 16, "T4g": 16, "V100": 16, "V100-32GB": 32,
    "RTX2000-Ada": 16, "RTX3060": 12, "RTX3070": 8, "RTX3080": 10, "RTX3090": 24, "RTX4000": 8,
    "RTX4000-Ada": 20, "RTX4080": 16, "RTX4090": 24, "RTX5000": 16, "RTX5000-Ada": 32,
    "RTX5080": 16, "RTX5090": 32, "RTX6000": 24, "RTX6000-Ada": 48, "RTX8000": 48,
    "RTXA4000": 16, "RTXA4500": 20, "RTXA5000": 24, "RTXA6000": 48, "RTXPRO4500": 32,
    "RTXPRO6000": 96,
}  # fmt: skip
_AMD = {"MI210": 64, "MI250": 128, "MI300X": 192, "MI308X": 192, "MI325X": 256, "MI355X": 288}
_OTHERS = ("Gaudi HL-205", "Inferentia", "Inferentia2", "Trainium", "Trainium2")
_BY_MAKER = {"nvidia": _NVIDIA, "amd": _AMD}
_SPELLING = {name.lower(): name for name in (*_NVIDIA, *_AMD, *_OTHERS)}

_MEMORY = re.compile(r"(?:(nvidia|amd):)?([1-9][0-9]{0,5})gb(\+?)(?::(.+))?", re.IGNORECASE)
_COUNT_FIRST = re.compile(r"([0-9]+)\s*[x*]\s*([A-Za-z].*)")
_COUNT_GLUED = re.compile(r"([A-Za-z].*?)(?:\s*[*]\s*|\s+x?\s*)([0-9]+)")
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9 ._-]*")
_MIG = r"\d+g\.\d+gb.*"  # a part of a GPU, as in 1g.5gb
_OTHER_GPU = re.compile(rf"{_MIG}|ada|d|laptop|max|mobile|super|ti")
MAX_COUNT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The types asked for; `ordered` if the earlier is preferred."""

    options: tuple[Accelerators, ...]
    ordered: bool = False


def read_accelerators(fields: Fields, key: str = "accelerators") -> Choice | None:
    """Return what a mapping asks for under `key`; None if nothing, or nothing readable."""
    node = fields.node(key)
    if node is None:
        return None
    found: list[Accelerators] = []
    for text, line in _spelled(fields, key, node):
        try:
            found += _parse(text)
        except ValueError as error:
            fields.report.problem(fields.at(key), str(error), line=line, written=text)
    if not found:
        if isinstance(node, ListNode | MapNode) and _is_empty(node):
            fields.problem(key, "empty; name a type, as in A100:8, or leave it out")
        return None
    unique = tuple(dict.fromkeys(found))
    return Choice(options=unique, ordered=isinstance(node, ListNode) and len(unique) > 1)


def _is_empty(node: ListNode | MapNode) -> bool:
    return not (node.items if isinstance(node, ListNode) else node.entries)


def _spelled(fields: Fields, key: str, node: Node) -> list[tuple[str, int | None]]:
    """Return each option as one string `TYPE:COUNT`, and its line."""
    if isinstance(node, Scalar):
        return [(node.text, node.line)]
    if isinstance(node, MapNode):
        return _spelled_map(fields, key, node)
    spelled = []
    for index, item in enumerate(node.items):
        place = f"{key}[{index}]"
        if isinstance(item, ListNode) or (isinstance(item, MapNode) and len(item.entries) != 1):
            message = f"needs one type in each item, as in A100:8, not {kind_of(item)} of several"
            fields.report.problem(fields.at(place), message, line=item.line)
        else:
            spelled += _spelled(fields, place, item)
    return spelled


def _spelled_map(fields: Fields, key: str, node: MapNode) -> list[tuple[str, int | None]]:
    spelled = []
    for name, entry in node.entries.items():
        count = entry.value
        if is_null(count):
            spelled.append((name, entry.line))
        elif isinstance(count, Scalar) and ":" not in name:
            spelled.append((f"{name}:{count.text}", entry.line))
        else:
            written = count.text if isinstance(count, Scalar) else None
            message = "needs one count, as in {A100: 8, V100: 4}"
            fields.report.problem(
                f"{fields.at(key)}.{name}", message, line=entry.line, written=written
            )
    return spelled


def _parse(text: str) -> list[Accelerators]:
    """Read one option; a memory size gives several."""
    typed = text.strip()
    memory = _MEMORY.fullmatch(typed)
    if memory is not None:
        return _by_memory(memory[1], int(memory[2]), memory[3] == "+", _count(memory[4] or "1"))
    if "," in typed or "|" in typed:
        raise ValueError("several types go in a list, best first: [A100:8, H100:4]")
    if swapped := _COUNT_FIRST.fullmatch(typed):
        raise ValueError(f"count goes after the name: {_kind(swapped[2])}:{swapped[1]}")
    kind, colon, count = (part.strip() for part in typed.partition(":"))
    if not colon and (glued := _COUNT_GLUED.fullmatch(kind)) and kind.lower() not in _SPELLING:
        raise ValueError(f"a colon goes before the count: {_kind(glued[1])}:{glued[2]}")
    if not _TYPE.fullmatch(kind):
        raise ValueError("needs a type and a count, as in A100:8")
    return [Accelerators(kind=_kind(kind), count=_count(count) if colon else 1)]


def _kind(typed: str) -> str:
    typed = typed.strip()
    lower = typed.lower()
    return lower if lower.startswith("tpu-") else _SPELLING.get(lower, typed)


def is_kind(wanted: str, there: str) -> bool:
    """Say whether a task's name of a GPU means what a driver or Slurm calls one.

    It does if its words are among those, each whole or spread over some in a row, and no word is
    left that makes it another GPU (Ada, Ti, Laptop), or a part of one (MIG).

    >>> is_kind("A100-80GB", "A100-SXM4-80GB"), is_kind("RTX4090", "nvidia_geforce_rtx_4090")
    (True, True)
    >>> is_kind("A100-80GB", "a100"), is_kind("L40", "L40S"), is_kind("A100", "a100_1g.5gb")
    (False, False, False)
    """
    words, those = (re.split(r"[-_ ]+", name.casefold()) for name in (wanted, there))
    rows = {
        "".join(those[first:end])
        for first in range(len(those))
        for end in range(first + 1, len(those) + 1)
    }
    others = filter(_OTHER_GPU.fullmatch, those)
    asked = all(any(word.endswith(other) for word in words) for other in others)
    return rows.issuperset(words) and asked


def _count(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)(?:\.([0-9]*))?", text)
    if match is None or (len(match[1]) > 1 and match[1].startswith("0")):
        raise ValueError(f"the count {text or 'is missing; it'} needs to be a whole number from 1")
    if (match[2] or "").strip("0"):
        raise ValueError(f"a fraction of a GPU ({text}) cannot hold a worker; ask for 1 or more")
    if not 1 <= len(match[1]) <= len(str(MAX_COUNT)) or not 1 <= int(match[1]) <= MAX_COUNT:
        raise ValueError(f"the count {text} needs to be a whole number from 1")
    return int(match[1])


def _by_memory(maker: str | None, size_gb: int, or_more: bool, count: int) -> list[Accelerators]:  # noqa: FBT001 - as typed: 40GB+
    tables = [_BY_MAKER[maker.lower()]] if maker else list(_BY_MAKER.values())
    found = [
        Accelerators(kind=kind, count=count)
        for table in tables
        for kind, has_gb in table.items()
        if has_gb == size_gb or (or_more and has_gb > size_gb)
    ]
    if not found:
        raise ValueError(f"no known type has {size_gb} GB; add + for at least that much")
    return found


def advice_on(kind: str) -> str | None:
    """Return a warning about a type that no table here has, with the nearest one."""
    if kind in _SPELLING.values() or kind.startswith("tpu-"):
        return None
    guess = nearest(kind, _SPELLING.values())
    meant = f"; did you mean {guess}?" if guess else ""
    return f"accelerator {kind} is not a type burst knows{meant}"
