"""Whether the function of `burst.train` is there: its file is read, and never run."""

from __future__ import annotations

import ast
import os.path
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from burst.task_specs.fields import Fields
from burst.task_specs.model import Task
from burst.task_specs.mounts import Local
from burst.task_specs.nodes import MapNode
from burst.task_specs.problems import nearest

SHOWN = 5  # functions of a file
_BODIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_ANYTHING = frozenset({"globals", "exec", "__getattr__"})  # who uses these may define any name
_OWN_NAMES = frozenset({"locals", "vars"})  # without arguments, those of where they are called


def check_train(root: Fields, task: Task, local: Local) -> None:
    """Report that the file of `burst.train` is not there, or the function not in the file."""
    file, _, name = (task.burst.train or "").rpartition(":")
    if not file.endswith(".py") or "workdir" in task.other:
        return
    workdir = task.workdir or local.folder
    path = os.path.normpath(os.path.join(workdir, file))  # noqa: PTH118 - as Local.path
    wrong: str | None = None
    if not (task.setup or task.mounts or local.exists(path)):
        wrong = f"there is no file {path}"
    elif path.startswith(f"{workdir}/") and not _may_be_replaced(task, path):
        wrong = _missing(name, local.content(path), PurePosixPath(path).name)
    node = root.node("burst")
    if wrong and isinstance(node, MapNode):
        Fields(node, "burst", root.report).problem("train", wrong)


def _may_be_replaced(task: Task, path: str) -> bool:
    """Whether a node may have another file there than this machine: of a mount, or by `setup`."""
    whole = PurePosixPath(path)
    mounted = {PurePosixPath(mount.target).name for mount in task.mounts}
    return whole.name in (task.setup or "") or bool(mounted & {*whole.parts, "sky_workdir"})


def _missing(name: str, source: bytes | None, file: str) -> str | None:
    there = None if source is None else defined_in(source)
    if there is None or name in there:
        return None
    if like := nearest(name, there.functions):
        return f"{file} has no function {name}; did you mean {like}?"
    some = ", ".join(sorted(there.functions)[:SHOWN])
    return f"{file} has no function {name}" + (f"; it has {some}" if some else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined:
    """The names at the top of a file."""

    functions: frozenset[str]
    others: frozenset[str]  # assigned, imported, or declared global in a function

    def __contains__(self, name: str) -> bool:
        return name in self.functions | self.others


def defined_in(source: bytes) -> Defined | None:
    """Return what a file defines; None where it is no Python, or only running it would tell.

    Also of an empty one, which somebody has yet to write.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not tree.body or any(map(_defines_anything, ast.walk(tree))):
        return None
    top = list(_top(tree))
    functions = {node.name for node in top if isinstance(node, _BODIES[:2])}
    told = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    others = told | {name for node in top for name in _bound(node)}
    return Defined(functions=frozenset(functions), others=frozenset(others))


def _defines_anything(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module=module, names=names):
            return any(alias.name == "*" or (module == "sys" and alias.name == "modules")
                       for alias in names)  # fmt: skip
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
            return name in _ANYTHING | _OWN_NAMES
        case ast.Name(id=name) | ast.FunctionDef(name=name):
            return name in _ANYTHING
        case ast.Attribute(value=ast.Name(id="sys"), attr="modules"):
            return True
        case _:
            return False


def _top(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what belongs to the file itself, not to a function or class in it."""
    left = [node]  # not by recursion: a tree may be deeper than Python's stack
    while left:
        for child in ast.iter_child_nodes(left.pop()):
            yield child
            if not isinstance(child, _BODIES):
                left.append(child)


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node gives a value."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in names)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name
        case _:
            pass
