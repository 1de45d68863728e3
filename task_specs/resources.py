"""The `resources` block: one candidate, or several of which any (or the first that can) will do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from burst.task_specs import units
from burst.task_specs.accelerators import Choice, read_accelerators
from burst.task_specs.fields import Fields, as_boolean
from burst.task_specs.infra import read_infra
from burst.task_specs.keys import AUTOSTOP, PLACES, RECOVERY, RESOURCES_HANDED_ON
from burst.task_specs.model import Autostop, Resources
from burst.task_specs.nodes import ListNode, MapNode, Scalar, as_typed, is_null, kind_of
from burst.task_specs.plain import handed_on
from burst.task_specs.problems import nearest

AUTOSTOP_TRUE_MINUTES = 5  # `autostop: true`; SkyPilot's reference says so too, 0.14.1 takes 0
DISK_TIERS = ("low", "medium", "high", "ultra", "best")  # these three as SkyPilot 0.14.1 has them
NETWORK_TIERS = ("standard", "best")
LOCAL_DISKS = ("nvme", "ssd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Every machine that will do; `ordered` if the earlier is preferred."""

    all: tuple[Resources, ...] = (Resources(),)
    ordered: bool = False


def read_resources(fields: Fields | None) -> Candidates:
    """Return the candidates. Fields of `resources` hold for every candidate that has not its own.

    Labels of both are joined; everything else of a candidate replaces what `resources` says.
    """
    if fields is None:
        return Candidates()
    fields.refuse_unknown(PLACES["resources"], "resources")
    if fields.has("any_of") and fields.has("ordered"):
        fields.problem("ordered", "`any_of` is given too; keep one of them")
    key = "ordered" if fields.has("ordered") else "any_of"
    items = fields.items(key)
    if not items:
        return _expand(fields)
    common = {k: e for k, e in fields.map.entries.items() if k not in {"any_of", "ordered"}}
    _expand(Fields(MapNode(common), fields.path, fields.report))  # its problems, under its own name
    found: list[Resources] = []
    for index, item in enumerate(items):
        place = f"{fields.at(key)}[{index}]"
        if not isinstance(item, MapNode):
            message = f"needs a mapping, not {kind_of(item)}, as in `{{infra: aws}}`"
            fields.report.problem(place, message, line=item.line, written=as_typed(item))
            continue
        own = Fields(item, place, fields.report)
        own.refuse_unknown(PLACES["candidate"], "candidate")
        joined = {**common, **item.entries}
        if "labels" in common and "labels" in item.entries:
            joined["labels"] = replace(item.entries["labels"], value=_joined_labels(fields, own))
        several = _expand(Fields(MapNode(joined, item.line), place, fields.report))
        if len(several.all) > 1 and (several.ordered or key == "ordered"):
            message = f"several accelerators in an order, inside `{key}`; give each its own item"
            own.report.problem(f"{place}.accelerators", message, line=item.line)
        found += several.all
    found = found or [Resources()]  # every item was wrong; reading goes on
    unique = [one for index, one in enumerate(found) if one not in found[:index]]
    return Candidates(all=tuple(unique), ordered=key == "ordered" and len(unique) > 1)


def _joined_labels(outer: Fields, own: Fields) -> MapNode:
    nodes = [fields.node("labels") for fields in (outer, own)]
    entries = [node.entries for node in nodes if isinstance(node, MapNode)]
    return MapNode({key: entry for each in entries for key, entry in each.items()})


def _expand(fields: Fields) -> Candidates:
    """Return one candidate for each type of accelerator asked for."""
    choice = read_accelerators(fields)
    one = _one(fields)
    if choice is None:
        return Candidates(all=(one,))
    return _with_each(one, choice)


def _with_each(one: Resources, choice: Choice) -> Candidates:
    options = tuple(replace(one, accelerators=option) for option in choice.options)
    return Candidates(all=options, ordered=choice.ordered)


def _one(fields: Fields) -> Resources:
    image, image_by_region = _image(fields)
    other: dict[str, Any] = {**image_by_region}
    for key in RESOURCES_HANDED_ON:
        node = fields.node(key)
        if node is not None:
            other[key] = handed_on(node, fields.at(key), fields.report)
    _check_recovery(fields)
    _check_tiers(fields)
    return Resources(
        infra=read_infra(fields),
        instance_type=fields.text("instance_type"),
        cpus=fields.read("cpus", units.cpus),
        memory_gb=fields.read("memory", units.memory_gb),
        disk_size_gb=fields.read("disk_size", units.size_gb),
        use_spot=fields.boolean("use_spot"),
        image_id=image,
        max_hourly_usd=fields.read("max_hourly_cost", units.usd),
        autostop=read_autostop(fields),
        ports=_ports(fields),
        labels=_labels(fields),
        other=other,
    )


def _check_recovery(fields: Fields) -> None:
    """Refuse a misspelt field of job_recovery; SkyPilot leaves room there for plug-ins' own."""
    node = fields.node("job_recovery")
    if not isinstance(node, MapNode):
        return
    inner = Fields(node, fields.at("job_recovery"), fields.report)
    for key in node.entries:
        meant = None if key in RECOVERY else nearest(key, RECOVERY)
        if meant is not None:
            inner.problem(key, f"unknown field; did you mean {meant}?")


def _check_tiers(fields: Fields) -> None:
    """Refuse what no cloud has; SkyPilot finds it out when each of them is asked."""
    fields.word("disk_tier", DISK_TIERS, {})
    fields.word("network_tier", NETWORK_TIERS, {})
    fields.read("local_disk", _local_disk)


def _local_disk(text: str) -> str:
    """Read a kind of disk, its least or exact size in GB, or both."""
    kind, colon, size = text.strip().lower().partition(":")
    if not colon and kind not in LOCAL_DISKS:
        kind, colon, size = LOCAL_DISKS[0], ":", kind
    if kind not in LOCAL_DISKS or (colon and not _is_size(size.removesuffix("+"))):
        raise ValueError("needs a kind, GB or both, as in nvme, 500+, nvme:500+ or ssd:500")
    return text


def _is_size(text: str) -> bool:
    return units.is_number(text) and units.number(text) > 0


def _image(fields: Fields) -> tuple[str | None, dict[str, Any]]:
    """Return one image for everywhere, or SkyPilot's map of regions to images."""
    node = fields.node("image_id")
    if isinstance(node, MapNode):
        return None, {"image_id": handed_on(node, fields.at("image_id"), fields.report)}
    return fields.text("image_id"), {}


def _ports(fields: Fields) -> tuple[str, ...]:
    node = fields.node("ports")
    if isinstance(node, MapNode):
        fields.problem("ports", "needs a port or a list of ports, not a mapping")
        return ()
    return tuple(fields.scalars("ports", units.ports))


def _labels(fields: Fields) -> dict[str, str]:
    labels = fields.fields("labels")
    if labels is None:
        return {}
    for key in labels.map.entries:
        if not labels.has(key):
            labels.problem(key, "has no value; write text, or leave it out")
    return {key: text for key in labels.map.entries if (text := labels.text(key)) is not None}


def read_autostop(fields: Fields) -> Autostop | None:
    """Return when an idle machine goes away: true, false, a duration (a number is minutes), a map.

    `true` is 5 minutes. 0 is as soon as it is idle.
    """
    node = fields.node("autostop")
    if node is None:
        return None
    if isinstance(node, MapNode):
        return _autostop_map(Fields(node, fields.at("autostop"), fields.report))
    if isinstance(node, ListNode):
        fields.problem("autostop", "needs true, false, a duration or a mapping, not a list")
        return None
    if _is_boolean(node):
        return Autostop(idle_minutes=AUTOSTOP_TRUE_MINUTES if as_boolean(node) else None)
    minutes = fields.read("autostop", _minutes)
    return None if minutes is None else Autostop(idle_minutes=minutes)


def _is_boolean(node: Scalar) -> bool:
    try:
        as_boolean(node)
    except ValueError:
        return False
    return not is_null(node)


def _autostop_map(fields: Fields) -> Autostop:
    fields.refuse_unknown(AUTOSTOP, "autostop")
    minutes = fields.read("idle_minutes", _minutes)
    others = ((key, fields.node(key)) for key in ("wait_for", "hook", "hook_timeout"))
    return Autostop(
        idle_minutes=AUTOSTOP_TRUE_MINUTES if minutes is None else minutes,
        down=fields.boolean("down") or False,
        other={
            key: handed_on(node, fields.at(key), fields.report)
            for key, node in others
            if node is not None
        },
    )


def _minutes(text: str) -> int:
    if text.strip().startswith("-"):
        raise ValueError("cannot be negative; use false for never")
    return int(units.duration_s(text, default="m", shortest="m") // 60)
