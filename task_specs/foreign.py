"""Files written for another tool: recognised by their keys, refused, and told what to write."""

from __future__ import annotations

from dataclasses import dataclass

from burst.task_specs.nodes import ListNode, MapNode, Node, Scalar
from burst.task_specs.problems import Report

_DSTACK_TYPES = {"task", "service", "dev-environment", "fleet", "gateway", "volume"}


@dataclass(frozen=True, slots=True)
class _Tool:
    """A tool, the keys that together give its files away, and our names for its keys."""

    title: str
    keys: frozenset[str]
    names: str


_DSTACK = _Tool(
    "a dstack task",
    frozenset({"type"}),
    "env -> envs (a mapping, not a list), commands -> run, nodes -> num_nodes, python -> setup; "
    "under resources: gpu -> accelerators, cpu -> cpus, disk -> disk_size; spot_policy -> "
    "resources.use_spot or burst.spot, max_price -> resources.max_hourly_cost, regions -> "
    "resources.infra. An unquoted `python: 3.10` is the number 3.1",
)
_TOOLS = (
    _Tool(
        "a Kubernetes manifest",
        frozenset({"apiVersion", "kind"}),
        "metadata.name -> name, spec.replicas -> num_nodes, image -> resources.image_id, command "
        "and args -> run, env -> envs, resources.limits -> resources.accelerators, cpus, memory",
    ),
    _Tool(
        "a Ray cluster file",
        frozenset({"cluster_name", "available_node_types"}),
        "max_workers -> num_nodes, setup_commands -> setup, file_mounts -> file_mounts",
    ),
    _Tool("a GitHub workflow", frozenset({"on", "jobs"}), "a step's run -> run, env -> envs"),
    _Tool(
        "an accelerate config",
        frozenset({"compute_environment", "distributed_type"}),
        "num_machines -> num_nodes, mixed_precision -> burst.precision",
    ),
    _Tool(
        "a DeepSpeed config",
        frozenset({"zero_optimization"}),
        "zero_optimization.stage -> burst.strategy (zero1 to zero3), bf16 -> burst.precision, "
        "train_batch_size -> burst.global_batch, gradient_clipping -> burst.clip_norm",
    ),
    _Tool(
        "a trainer's config (axolotl or the like)",
        frozenset({"base_model"}),
        "put the file in workdir and start the trainer with it in `run:`, or its values under "
        "burst.params",
    ),
    _Tool(
        "a LLaMA-Factory config",
        frozenset({"model_name_or_path"}),
        "put the file in workdir and start the trainer with it in `run:`, or its values under "
        "burst.params",
    ),
    _Tool(
        "a SkyPilot job group's header",
        frozenset({"execution"}),
        "burst runs one task per file; start each of its tasks by itself",
    ),
)
_COMPOSE = _Tool(
    "a compose file",
    frozenset({"services"}),
    "a service's image -> resources.image_id (docker:IMAGE), command -> run, environment -> envs, "
    "volumes -> file_mounts, deploy.replicas -> num_nodes",
)


def foreign(root: Node, report: Report) -> bool:
    """Report a file that is no task file but another tool's; say whether it was one."""
    if isinstance(root, MapNode):
        tool = _tool(root)
        if tool is not None:
            message = f"looks like {tool.title}, and burst reads SkyPilot's format: {tool.names}"
            report.problem("", message, line=root.line)
        return tool is not None
    what = "a list" if isinstance(root, ListNode) else "plain text"
    message = f"{what}; a task file is a mapping, as in `run: python train.py`"
    report.problem("", message, line=root.line)
    return True


def is_script(data: str | bytes, report: Report) -> bool:
    """Report a file that begins as scripts do; say whether it did."""
    if data[:2] not in {"#!", b"#!"}:
        return False
    message = "a script, not a task file; put its commands below `run: |`"
    report.problem("", message, line=1)
    return True


def _tool(root: MapNode) -> _Tool | None:
    keys = root.entries.keys()
    if "run" in keys or "burst" in keys:
        return None  # begun as a task file: each wrong key is told
    kind = root.entries.get("type")
    if kind is not None and isinstance(kind.value, Scalar) and kind.value.text in _DSTACK_TYPES:
        return _DSTACK
    if "commands" in keys and keys & {"nodes", "env", "python", "spot_policy", "ide"}:
        return _DSTACK
    services = root.entries.get("services")
    if services is not None and isinstance(services.value, MapNode):
        return _COMPOSE
    return next((tool for tool in _TOOLS if tool.keys <= keys), None)
