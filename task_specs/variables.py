"""`envs` and `secrets`: names and values for the task's processes, kept exactly as typed.

No value is ever part of a problem. Values that came from the caller's shell (`--env NAME`) and
those whose name says credential are private: they are written down nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from burst.task_specs.fields import Fields
from burst.task_specs.nodes import ListNode, MapNode, Node, Scalar, is_null, kind_of
from burst.task_specs.problems import Report

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_CREDENTIAL = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|KEY)(?:_|$)",
    re.IGNORECASE,
)
_NAME_RULE = "letters, digits and underscores, no digit first"
_OURS = "BURST_"
MANAGED = "secrets:"  # SkyPilot's mark of a secret that its server keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the command line gives: `NAME=VALUE`, or `NAME` for its value in `environ`."""

    envs: tuple[str, ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """Everything the task's processes find in their environment."""

    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    private: frozenset[str] = frozenset()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    managed: tuple[str, ...] = ()  # secrets only SkyPilot's server knows
    declared: frozenset[str] = frozenset()  # every name, those still without a value too

    def substitute(self, text: str) -> str:
        """Put the values of public envs for `$NAME` and `${NAME}`; leave all others."""

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            known = name in self.envs and name not in self.private
            return self.envs[name] if known else match[0]

        return _REFERENCE.sub(value, text)

    def refers(self, text: str) -> bool:
        """Say whether `text` holds a `$NAME` or `${NAME}`."""
        return _REFERENCE.search(text) is not None

    def unknown(self, text: str) -> str | None:
        """Return the first variable in `text` that the task does not have."""
        for match in _REFERENCE.finditer(text):
            name = match[1] or match[2]
            if name not in self.declared:
                return str(name)
        return None


def looks_secret(name: str) -> bool:
    """Say whether a variable's or parameter's name is that of a credential."""
    return _CREDENTIAL.search(name) is not None


def read_variables(root: Fields, given: Given) -> Variables:
    """Return the file's variables with the command line's on top."""
    report = root.report
    envs = _block(root, "envs", _given(given.envs, given.environ, "--env", report))
    given_secrets = _given(given.secrets, given.environ, "--secret", report)
    managed = _managed(root)
    secrets = _block(root, "secrets", given_secrets)
    for name in sorted(envs.keys() & secrets.keys()):
        root.problem("secrets", f"{name} is in `envs` too; keep one of them")
    from_shell = {item for item in given.envs if "=" not in item}
    return Variables(
        envs=envs,
        private=frozenset(name for name, value in envs.items() if value and looks_secret(name))
        | (from_shell & envs.keys()),
        secrets=secrets,
        managed=managed,
        declared=frozenset({*envs, *secrets, *managed, *_declared(root)}),
    )


def _declared(root: Fields) -> set[str]:
    names: set[str] = set()
    for key in ("envs", "secrets", "managed_secrets"):
        node = root.node(key)
        if isinstance(node, MapNode):
            names.update(node.entries)
        if isinstance(node, ListNode):
            names.update(item.text for item in node.items if isinstance(item, Scalar))
    return names


def _given(
    items: tuple[str, ...], environ: Mapping[str, str], option: str, report: Report
) -> dict[str, str]:
    """Read `NAME=VALUE` and `NAME`; the last of several for one name counts."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not _NAME.fullmatch(name):
            report.problem(option, f"needs NAME=VALUE or NAME: {_NAME_RULE}")
        elif not equals and name not in environ:
            report.problem(f"{option} {name}", "is not set in this shell; set it or give a value")
        else:
            found[name] = value if equals else environ[name]
            if "\0" in found[name]:
                report.problem(f"{option} {name}", "holds a NUL character")
    return found


def _block(root: Fields, key: str, given: dict[str, str]) -> dict[str, str]:
    """Return a block of the file with `given` on top."""
    option = "--env" if key == "envs" else "--secret"
    node = root.node(key)
    if isinstance(node, ListNode) and key == "secrets":
        return given  # see _managed
    if node is not None and not isinstance(node, MapNode):
        message = f"needs a mapping (`NAME: value` lines below it), not {kind_of(node)}"
        root.report.problem(key, message, line=node.line)
        return given
    block: dict[str, str] = {}
    for name, entry in (node.entries if node is not None else {}).items():
        if name in given or (name.startswith(MANAGED) and key == "secrets"):
            continue
        wrong = _wrong_name(name) or _wrong_value(entry.value, f"{option} {name}")
        if wrong is None and isinstance(entry.value, Scalar):
            block[name] = entry.value.text
        else:
            field = key if _may_be_value(name, entry.value) else f"{key}.{name}"
            root.report.problem(field, str(wrong), line=entry.line)
    return {**block, **given}


def _wrong_name(name: str) -> str | None:
    if not _NAME.fullmatch(name):
        better = ", so MY_VAR and not MY-VAR" if "-" in name else ""
        return f"not a name for a variable: {_NAME_RULE}{better}"
    if name.startswith(_OURS):
        return f"names that begin with {_OURS} are set by burst itself"
    return None


def _wrong_value(value: Node, given_by: str) -> str | None:
    if not isinstance(value, Scalar):
        return f"needs text, not {kind_of(value)}"
    if is_null(value):
        return f'has no value; give it with {given_by}, or write "" for empty'
    return None


def _may_be_value(name: str, value: Node) -> bool:
    """Say whether a wrong name may be a secret that lost its name: `{sk-abc}`, `{A=sk-abc}`."""
    return not _NAME.fullmatch(name) and (is_null(value) or "=" in name)


def _managed(root: Fields) -> tuple[str, ...]:
    """Return the names of SkyPilot's managed secrets, which burst hands on by name."""
    node = root.node("secrets")
    names: list[str] = []
    if isinstance(node, MapNode):
        names = [name for name in node.entries if name.startswith(MANAGED)]
        for name in names:
            if not is_null(node.entries[name].value):
                line = node.entries[name].line
                root.report.problem(f"secrets.{name}", "is kept elsewhere; no value", line=line)
    if isinstance(node, ListNode):
        for index, item in enumerate(node.items):
            if isinstance(item, Scalar) and item.text.startswith(MANAGED):
                names.append(item.text)
            else:
                message = "a list holds only names with `secrets:` before them; use a mapping"
                root.report.problem(f"secrets[{index}]", message, line=item.line)
    return tuple(name.removeprefix(MANAGED) for name in names)
