"""What the command line changes in a task. It beats the file, and false counts too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from burst.task_specs.nodes import Entry, ListNode, MapNode, Node, Scalar, is_null
from burst.task_specs.variables import Given


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Options as typed; None: not given.

    `envs` and `secrets` hold `NAME=VALUE`, or `NAME` for its value in `environ`. `run_uri` as a
    relative path is taken from the task file's folder, like one in the file.
    """

    name: str | None = None
    num_nodes: str | int | None = None
    use_spot: bool | None = None
    workers: str | int | None = None
    budget_usd: str | float | None = None
    deadline: str | None = None
    run_uri: str | None = None
    envs: tuple[str, ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def given(self) -> Given:
        """Return the variables among them."""
        return Given(envs=self.envs, secrets=self.secrets, environ=self.environ)


def override(root: MapNode, overrides: Overrides) -> MapNode:
    """Return the file's tree with the options put in as if they had been written there."""
    for key in ("name", "num_nodes"):
        root = _set(root, key, getattr(overrides, key))
    for key in ("workers", "budget_usd", "deadline", "run_uri"):
        root = _set_below(root, "burst", key, getattr(overrides, key))
    return root if overrides.use_spot is None else _set_spot(root, use_spot=overrides.use_spot)


def _set(node: MapNode, key: str, value: str | float | None) -> MapNode:
    return node if value is None else node.with_value(key, Scalar(str(value)))


def _set_below(root: MapNode, block: str, key: str, value: str | float | None) -> MapNode:
    if value is None:
        return root
    inner = _mapping(root, block)
    return root if inner is None else root.with_value(block, _set(inner, key, value))


def _mapping(root: MapNode, block: str) -> MapNode | None:
    """Return a block, an empty one if it is not there; None if it is no mapping."""
    entry = root.entries.get(block)
    if entry is None or is_null(entry.value):
        return MapNode({})
    return entry.value if isinstance(entry.value, MapNode) else None


def _set_spot(root: MapNode, *, use_spot: bool) -> MapNode:
    """Set use_spot for every candidate and take out all else that speaks of spot."""
    resources, burst = _mapping(root, "resources"), _mapping(root, "burst")
    if resources is None or burst is None:
        return root
    resources = resources.with_value("use_spot", Scalar("true" if use_spot else "false"))
    entries = {key: replace(e, value=_without_spot(key, e)) for key, e in resources.entries.items()}
    root = root.with_value("resources", replace(resources, entries=entries))
    if not burst.entries.keys() & {"spot", "spot_policy"}:
        return root
    return root.with_value("burst", burst.with_value("spot", None).with_value("spot_policy", None))


def _without_spot(key: str, entry: Entry) -> Node:
    if key not in {"any_of", "ordered"} or not isinstance(entry.value, ListNode):
        return entry.value
    items = entry.value.items
    return ListNode(
        tuple(i.with_value("use_spot", None) if isinstance(i, MapNode) else i for i in items),
        entry.value.line,
    )
