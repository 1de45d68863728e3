"""From the text of a task file to a Task, once, at the edge. Only SpecError ever leaves."""

from __future__ import annotations

import os.path
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from burst.errors import Problem, SpecError
from burst.task_specs import units
from burst.task_specs.advice import advise
from burst.task_specs.burst_block import Around, read_burst
from burst.task_specs.fields import Fields
from burst.task_specs.foreign import foreign, is_script
from burst.task_specs.functions import check_train
from burst.task_specs.infra import ON_DEMAND_ONLY
from burst.task_specs.keys import PLACES, TOP_HANDED_ON
from burst.task_specs.model import Burst, Task
from burst.task_specs.mounts import Local, read_mounts
from burst.task_specs.names import check_name
from burst.task_specs.nodes import ListNode, MapNode, kind_of
from burst.task_specs.overrides import Overrides, override
from burst.task_specs.places import Known, candidates, check_places
from burst.task_specs.plain import handed_on
from burst.task_specs.problems import Report
from burst.task_specs.resources import Candidates, read_resources
from burst.task_specs.variables import Variables, read_variables
from burst.task_specs.yaml_nodes import read_document

__all__ = ["Overrides", "load", "parse"]

NO_OVERRIDES = Overrides()
NO_NAMES: Known = MappingProxyType({})
MAX_NODES = 100_000
EMPTY = "the file is empty; a task needs at least `run:` or `burst.train`"
HINT = "burst schema prints every field; examples/ has complete task files"


def load(path: Path, overrides: Overrides = NO_OVERRIDES, known: Known = NO_NAMES) -> Task:
    """Read a task file; local files it names must exist. Raises SpecError with all problems."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        problem = Problem(field="", message=f"cannot be read: {(reason or 'unknown').lower()}")
    else:
        return parse(
            data,
            source=str(path),
            overrides=overrides,
            exists=os.path.exists,
            known=known,
            content=_content,
        )
    raise SpecError(str(path), (problem,))


def _content(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if os.path.isfile(path) else None  # noqa: PTH113 - no pipe
    except OSError:
        return None


def parse(
    text: str | bytes,
    *,
    source: str,
    overrides: Overrides = NO_OVERRIDES,
    exists: Callable[[str], bool] = lambda _: True,
    known: Known = NO_NAMES,
    content: Callable[[str], bytes | None] = lambda _: None,
) -> Task:
    """Return the task in `text`, or raise SpecError with every problem found.

    Relative local paths are taken from the folder of `source`. `exists` is asked about each local
    path; without it none is looked for. So it is with the pools that are `known`, and with the
    `content` of the file of `burst.train`, which is None if it cannot be read.
    """
    report = Report()
    root = None if is_script(text, report) else read_document(text, report, EMPTY)
    task = None
    if root is not None and not foreign(root, report) and isinstance(root, MapNode):
        folder = os.path.abspath(os.path.dirname(source))  # noqa: PTH100, PTH120 - `source` need not be a path
        local = Local(folder=folder, exists=exists, content=content)
        root = override(root, overrides)
        task = _task(root, source, overrides, local, report)
        check_places(Fields(root, "", report), known)
    if report.problems or task is None:
        raise SpecError(source, report.problems, hint=HINT)
    return replace(task, warnings=report.warnings)


def _task(node: MapNode, source: str, overrides: Overrides, local: Local, report: Report) -> Task:
    known = {key: e for key, e in node.entries.items() if not key.startswith("x-")}
    root = Fields(replace(node, entries=known), "", report)
    root.refuse_unknown(PLACES[""], "")
    variables = read_variables(root, overrides.given)
    num_nodes = root.read("num_nodes", _num_nodes) or 1
    resources = _resources(root)
    machines = _with_max_price(read_resources(resources), root, resources)
    mounts = read_mounts(root, variables, local)
    burst = read_burst(root, Around(num_nodes=num_nodes, candidates=machines.all, local=local))
    _check_market(root, resources, machines, burst)
    workdir, git = _workdir(root, variables, local)
    task = Task(
        name=root.read("name", check_name) or _name_of(source),
        source=source,
        workdir=workdir,
        num_nodes=num_nodes,
        candidates=machines.all,
        ordered=machines.ordered,
        envs=variables.envs,
        private_envs=variables.private,
        secrets=variables.secrets,
        mounts=mounts,
        setup=_script(root, "setup"),
        run=_script(root, "run"),
        other={**git, **_handed_on(root, variables)},
        burst=burst,
    )
    _check_something_runs(root)
    check_train(root, task, local)
    for warning in advise(task):
        report.warn(warning)
    return task


def _resources(root: Fields) -> Fields | None:
    """Return the block; candidates that are not named as such are answered with how."""
    node = root.node("resources")
    if node is None or isinstance(node, MapNode):
        return root.fields("resources")
    instead = "{any_of: [...]}" if isinstance(node, ListNode) else "{infra: aws}"
    message = f"needs a mapping, not {kind_of(node)}, as in `resources: {instead}`"
    root.problem("resources", message)
    return None


def _num_nodes(text: str) -> int:
    count = units.whole(text)
    if not 1 <= count <= MAX_NODES:
        raise ValueError(f"needs 1 to {MAX_NODES} nodes")
    return count


def _name_of(source: str) -> str:
    """Return the file's name without its ending, `task` if that cannot be a name."""
    try:
        return check_name(os.path.splitext(os.path.basename(source))[0])  # noqa: PTH119, PTH122
    except ValueError:
        return "task"


def _with_max_price(machines: Candidates, root: Fields, resources: Fields | None) -> Candidates:
    """Apply `burst.max_price`, dstack's name for resources.max_hourly_cost."""
    node = root.node("burst")
    if not isinstance(node, MapNode):
        return machines
    burst = Fields(node, "burst", root.report)
    price = burst.read("max_price", units.usd)
    if price is None:
        return machines
    if resources is not None and any(one.max_hourly_usd is not None for one in machines.all):
        burst.problem("max_price", "a second name for resources.max_hourly_cost; keep one of them")
    priced = tuple(replace(one, max_hourly_usd=price) for one in machines.all)
    return replace(machines, all=priced)


def _check_market(
    root: Fields, resources: Fields | None, machines: Candidates, burst: Burst
) -> None:
    """Refuse spot machines where there are none, which no cloud would ever say."""
    clouds = {one.infra.cloud for one in machines.all}
    if burst.spot != "spot" or not clouds <= ON_DEMAND_ONLY:
        return
    message = f"{', '.join(map(str, clouds))} rents no spot machines; write on-demand"
    block = root.fields("burst")
    for key in ("spot", "spot_policy"):
        if block is not None and block.has(key):
            block.problem(key, message)
            return
    for one in candidates(resources) if resources is not None else ():
        if one.has("use_spot"):
            one.problem("use_spot", message.replace("on-demand", "false"))


def _workdir(root: Fields, variables: Variables, local: Local) -> tuple[str | None, dict[str, Any]]:
    """Return a local folder, or SkyPilot's git form (url and ref) for `other`."""
    node = root.node("workdir")
    if isinstance(node, MapNode):
        git = Fields(node, "workdir", root.report)
        for key in node.entries:
            if key not in {"url", "ref"}:
                git.problem(key, "unknown field; a git workdir takes url and ref")
        if not git.has("url"):
            root.problem("workdir", "needs a `url`")
        found = ((key, git.read(key, variables.substitute)) for key in ("url", "ref"))
        return None, {"workdir": {key: text for key, text in found if text is not None}}
    typed = root.read("workdir", variables.substitute)
    if typed is None:
        return None, {}
    path = local.path(typed)
    if not typed.strip() or not local.exists(os.path.join(path, "")):  # noqa: PTH118 - the slash asks for a folder
        root.problem("workdir", "there is no such folder on this machine")
    return path, {}


def _script(root: Fields, key: str) -> str | None:
    """Return commands byte for byte; a list of commands is refused with the form to write."""
    if isinstance(root.node(key), ListNode | MapNode):
        root.problem(key, f"needs text; write `{key}: |` and the commands below it")
        return None
    return root.text(key) or None


def _handed_on(root: Fields, variables: Variables) -> dict[str, Any]:
    other: dict[str, Any] = {}
    for key in TOP_HANDED_ON:
        node = root.node(key)
        if node is not None:
            substituted = key in {"service", "volumes"}  # as SkyPilot does
            value = handed_on(node, key, root.report)
            other[key] = _substituted(value, variables) if substituted else value
    root.boolean("api_server_access")
    if variables.managed:
        other["managed_secrets"] = [*other.get("managed_secrets", []), *variables.managed]
    return other


def _substituted(value: Any, variables: Variables) -> Any:  # noqa: ANN401 - YAML
    if isinstance(value, str):
        return variables.substitute(value)
    if isinstance(value, list):
        return [_substituted(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: _substituted(item, variables) for key, item in value.items()}
    return value


def _check_something_runs(root: Fields) -> None:
    """Refuse a task that would do nothing, and one that says twice what to do."""
    node = root.node("burst")
    has_run = root.has("run") and not (root.is_single("run") and root.text("run") == "")
    trains = isinstance(node, MapNode) and Fields(node, "burst", root.report).has("train")
    if trains and has_run:
        root.problem("run", "`burst.train` is given too; one of them starts the training")
    if not trains and not has_run:
        root.report.problem("", "nothing to run: give `run:` (a command) or `burst.train`")
