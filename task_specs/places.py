"""The places that a task file names, one by one, and whether there are such pools of one's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from burst.task_specs.fields import Fields
from burst.task_specs.infra import parse_infra
from burst.task_specs.model import Infra
from burst.task_specs.nodes import ListNode, MapNode, Node, Scalar, as_typed
from burst.task_specs.problems import nearest


@dataclass(frozen=True, slots=True)
class Names:
    """The names of pools of a kind, and where they are written."""

    where: str
    there: Callable[[], Collection[str]]


EXAMPLES = {
    "ssh": "`ssh: {lab: {hosts: [10.0.0.7]}}`",
    "slurm": "`Host lab` and below it `HostName login.example.org`",
}
Known: TypeAlias = Mapping[str, Names]  # by kind: ssh, slurm, k8s; of others nothing is known


def candidates(resources: Fields) -> Iterator[Fields]:
    """Yield what is written of each candidate: in `resources` itself, and in its lists."""
    yield resources
    for key in ("any_of", "ordered"):
        node = resources.node(key)
        for index, item in enumerate(node.items if isinstance(node, ListNode) else ()):
            if isinstance(item, MapNode):
                yield Fields(item, f"{resources.at(key)}[{index}]", resources.report)


def check_places(root: Fields, known: Known) -> None:
    """Report each pool that a task names, for its machines or as preferred, and nobody set up."""
    for path, node, infra in _named(root):
        problem = _unknown(infra, known)
        if problem:
            root.report.problem(path, problem, line=node.line, written=as_typed(node))


def _named(root: Fields) -> Iterator[tuple[str, Node, Infra]]:
    """Yield every place with where it is written; what cannot be read is told elsewhere."""
    resources = root.node("resources")
    if isinstance(resources, MapNode):
        for one in candidates(Fields(resources, "resources", root.report)):
            yield from _place(one)
    prefer = _below(_below(root.node("burst"), "pools"), "prefer")
    for index, item in enumerate(prefer.items if isinstance(prefer, ListNode) else ()):
        yield from _read(f"burst.pools.prefer[{index}]", item, item)


def _below(node: Node | None, key: str) -> Node | None:
    entry = node.entries.get(key) if isinstance(node, MapNode) else None
    return None if entry is None else entry.value


def _place(one: Fields) -> Iterator[tuple[str, Node, Infra]]:
    infra = one.node("infra")
    if infra is not None:
        yield from _read(one.at("infra"), infra, infra)
        return
    cloud, region = one.node("cloud"), one.node("region")
    if isinstance(cloud, Scalar):
        key, node = ("cloud", cloud) if region is None else ("region", region)
        yield from _read(one.at(key), node, cloud, *([] if region is None else [region]))


def _read(path: str, node: Node, *parts: Node) -> Iterator[tuple[str, Node, Infra]]:
    texts = [part.text for part in parts if isinstance(part, Scalar)]
    try:
        yield path, node, parse_infra("/".join(texts))
    except ValueError:
        return


def _unknown(infra: Infra, known: Known) -> str:
    """Say what is wrong with a place; "" if there is such a pool, or nobody can tell."""
    names = known.get(infra.cloud or "")
    if names is None:
        return ""
    there = sorted(names.there())
    if infra.region in there or (infra.region is None and there):
        return ""
    if not there:
        example = EXAMPLES.get(infra.cloud or "")
        more = f"; write it there, as in {example}" if example else ""
        return f"{names.where} has no {infra.cloud} pool{more}"
    meant = nearest(infra.region or "", there)
    guess = f"; did you mean {infra.cloud}/{meant}?" if meant else ""
    said = ", ".join(f"{infra.cloud}/{name}" for name in there)
    return f"{names.where} has no such pool{guess} (there: {said})"
