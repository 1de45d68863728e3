"""`pools.yaml` in a person's burst folder: what this machine and other pools are and cost.

Everything in it is checked here, all at once, each problem with its line. What the pools' adapters
get is the same mapping as text, and right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

from burst.errors import Problem, SpecError
from burst.task_specs import units
from burst.task_specs.fields import Fields
from burst.task_specs.nodes import ListNode, MapNode, Node, Scalar, as_typed, is_null
from burst.task_specs.places import Names
from burst.task_specs.problems import Report, nearest
from burst.task_specs.yaml_nodes import read_document

MOST_USD_PER_HOUR = 100_000
LEAST_DEAD_MAN_S = 30.0  # a living controller may be silent for half of that
HOST = ("user", "identity_file", "port")  # of a pool for all its hosts, or of one host
PRICES = ("usd_per_hour", "usd_per_gpu_hour")
SLURM = (*PRICES, "spot", "account", "qos", "time", "wait", "gpu")
POD_PRICES = ("usd_per_gpu_hour", "usd_per_cpu_hour")
EXAMPLE = "as in `local: {usd_per_hour: 0.12}`"
HOSTS_EXAMPLE = "needs a list of hosts, as in `hosts: [10.0.0.7, {ip: 10.0.0.8, port: 2222}]`"
SEVERAL = re.compile(r"[][{}*?,]")  # what shells and lists of hosts have for more than one
OTHER_NAMES = {"address": "ip", "host": "ip", "hostname": "ip", "key": "identity_file"}
NOT_HERE = {
    "password": "burst logs in with a key, named by identity_file",
    "partition": "a task names it, as in `infra: slurm/lab/gpu`",
}
Check = Callable[[Fields], None]


def read_pools(path: Path, logins: Names | None = None) -> Mapping[str, Any]:
    """Return the file's mapping, every value as the text typed; empty if there is no file.

    SpecError with every problem if it cannot be read or understood, or names a Slurm cluster that
    is not among `logins`.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        reason = (error.strerror or "unknown").lower()
        problem = Problem(field="", message=f"cannot be read: {reason}")
        raise SpecError(str(path), (problem,)) from error
    report = Report()
    root = read_document(data, report)
    if isinstance(root, MapNode):
        _check(Fields(root, "", report), logins)
    elif root is not None and not is_null(root):
        report.problem("", f"needs a mapping, {EXAMPLE}", line=root.line, written=as_typed(root))
    if report.problems:
        raise SpecError(str(path), report.problems)
    return _typed(root) if isinstance(root, MapNode) else {}


def _check(root: Fields, logins: Names | None) -> None:
    _only(root, tuple(SECTIONS))
    for name, check in SECTIONS.items():
        section = root.fields(name)
        if section is not None:
            check(section)
            if name == "slurm" and logins is not None:
                _have_logins(section, logins)


def _local(local: Fields) -> None:
    _only(local, ("usd_per_hour",))
    local.read("usd_per_hour", _usd_per_hour)


def _rented(rented: Fields) -> None:
    _only(rented, ("dead_man",))
    rented.read("dead_man", _dead_man_s)


def _ssh(ssh: Fields) -> None:
    seen: dict[tuple[str, str], str] = {}
    for name in ssh.map.entries:
        if not name or set(name) & set("/ *"):
            ssh.problem(name, "needs a name without slashes, spaces and *, as in `ssh: {lab: ...}`")
        pool = ssh.fields(name)
        if not ssh.has(name):
            _missing(ssh, name, HOSTS_EXAMPLE)
        if pool is not None:
            _only(pool, ("hosts", *PRICES, *HOST))
            _prices(pool)
            _login(pool)
            _hosts(pool, seen)


def _hosts(pool: Fields, seen: dict[tuple[str, str], str]) -> None:
    """Check a pool's hosts; `seen` are those of all pools, which have one node at a time each."""
    node = pool.node("hosts")
    if node is None:
        _missing(pool, "hosts", HOSTS_EXAMPLE)
        return
    if not isinstance(node, ListNode) or not node.items:
        pool.problem("hosts", HOSTS_EXAMPLE)
        return
    for number, item in enumerate(node.items):
        at = f"{pool.at('hosts')}[{number}]"
        if isinstance(item, MapNode):
            host = Fields(item, at, pool.report)
            _only(host, ("ip", *HOST))
            _login(host)
            address: Node | None = host.node("ip")
        else:
            address = item
        text = address.text if isinstance(address, Scalar) and not is_null(address) else ""
        own = item.entries.get("port") if isinstance(item, MapNode) else None
        port = pool.node("port") if own is None or is_null(own.value) else own.value
        there = (_plain(text), port.text.lstrip("0") if isinstance(port, Scalar) else "22")
        problem = _address_problem(text, seen.get(there, ""))
        if problem:
            line = item.line if address is None else address.line
            pool.report.problem(at, problem, line=line, written=as_typed(address))
        seen.setdefault(there, at)


def _plain(address: str) -> str:
    """Return an address in one of its spellings, without a user; no name server is asked.

    >>> _plain("me@GPU1.lab."), _plain("::0001")
    ('gpu1.lab', '::1')
    """
    host = address.rpartition("@")[2]
    try:
        return str(ip_address(host))
    except ValueError:
        return host.casefold().rstrip(".")


def _address_problem(text: str, known: str) -> str:
    if text and known:
        return f"is the same host as {known}; name each host once, in one pool"
    user, _, host = text.removeprefix("ssh://").rpartition("@")
    if user:
        address, _, port = (host, "", "") if _is_ipv6(host) else host.partition(":")
        more = f", port: {port}" if port else ""
        return f"needs an address alone; write {{ip: {address}, user: {user}{more}}}"
    if not text or "/" in text or (":" in text and not _is_ipv6(text)):
        return "needs an address, as in 10.0.0.7 or {ip: 10.0.0.7, port: 2222}"
    if SEVERAL.search(text):
        return "needs the address of one host; write each of them"
    try:
        _word(text)
    except ValueError as error:
        return str(error)
    return ""


def _is_ipv6(text: str) -> bool:
    try:
        return isinstance(ip_address(text), IPv6Address)
    except ValueError:
        return False


def _prices(fields: Fields, keys: Iterable[str] = PRICES) -> None:
    for key in keys:
        fields.read(key, _usd_per_hour)


def _login(fields: Fields) -> None:
    fields.read("user", _word)
    fields.read("port", _port)
    fields.read("identity_file", _file)


def _slurm(slurm: Fields) -> None:
    for name in slurm.map.entries:
        cluster = slurm.fields(name)
        if cluster is None:
            continue
        _only(cluster, SLURM)
        _prices(cluster)
        cluster.read("time", units.slurm_time_s)
        cluster.read("wait", units.duration_s)
        for key in ("account", "qos", "gpu"):
            cluster.read(key, _word)
        for _ in cluster.scalars("spot", _word):
            pass


def _have_logins(slurm: Fields, logins: Names) -> None:
    there = logins.there()
    for name, cluster in slurm.map.entries.items():
        if name not in there:
            message = f"{logins.where} has no `Host {name}`; write its login there"
            slurm.report.problem(slurm.at(name), message, line=cluster.line)


def _k8s(k8s: Fields) -> None:
    for name in k8s.map.entries:  # a context may be called anything
        context = k8s.fields(name)
        if context is not None:
            _only(context, POD_PRICES)
            _prices(context, POD_PRICES)


def _alibaba(alibaba: Fields) -> None:
    _only(alibaba, ("regions", "cny"))
    regions = alibaba.node("regions")
    if regions is not None and not (isinstance(regions, ListNode) and regions.items):
        alibaba.problem("regions", "needs a list, as in `regions: [ap-southeast-1]`")
    elif regions is not None:
        for _ in alibaba.scalars("regions", _word):
            pass
    rate = alibaba.fields("cny")
    if rate is not None:
        _only(rate, ("usd", "on"))
        for name in ("usd", "on"):
            if not rate.has(name):
                _missing(rate, name, "is missing, as in `cny: {usd: 0.14, on: 2026-12-01}`")
        rate.read("usd", _usd_per_yuan)
        rate.read("on", _day)


def _usd_per_yuan(text: str) -> float:
    usd = units.usd(text)
    if usd >= 1:
        raise ValueError(
            f"needs the dollars for one yuan, as in {1 / usd:.3g}, not yuan for a dollar"
        )
    return usd


SECTIONS: Mapping[str, Check] = {
    "local": _local,
    "ssh": _ssh,
    "slurm": _slurm,
    "k8s": _k8s,
    "rented": _rented,
    "alibaba": _alibaba,
}


def _only(fields: Fields, known: tuple[str, ...]) -> None:
    """Report every other name, with what was meant."""
    for key, entry in fields.map.entries.items():
        if key not in known:
            told = _instead(key, entry.value, known)
            fields.report.problem(fields.at(key), f"is not known; {told}", line=entry.line)


def _instead(key: str, value: Node, known: tuple[str, ...]) -> str:
    """Say what to write instead of a name that is not known."""
    if "ssh" in known and isinstance(value, MapNode) and "hosts" in value.entries:
        return f"a pool of hosts belongs under ssh, as in `ssh: {{{key}: {{hosts: ...}}}}`"
    if key in NOT_HERE:
        return NOT_HERE[key]
    other = OTHER_NAMES.get(key)
    meant = other if other in known else nearest(key, known)
    return f"did you mean {meant}?" if meant else f"what can be here: {', '.join(known)}"


def _missing(fields: Fields, key: str, message: str) -> None:
    """Report a name that is not there, with the line of what it is missing in."""
    fields.report.problem(fields.at(key), message, line=fields.line(key) or fields.map.line)


def _usd_per_hour(text: str) -> float:
    try:
        price = units.number(text)
    except ValueError:
        price = -1
    if not 0 <= price <= MOST_USD_PER_HOUR:
        raise ValueError(
            f"needs dollars per hour as a plain number from 0 to {MOST_USD_PER_HOUR}, as in 0.40"
        )
    return float(price)


def _dead_man_s(text: str) -> float:
    seconds = units.duration_s(text, default="s")
    if seconds < LEAST_DEAD_MAN_S:
        raise ValueError(
            "machines would end under a controller that lives; write at least "
            f"{LEAST_DEAD_MAN_S:.0f}s"
        )
    return seconds


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= units.LAST_PORT:
        raise ValueError(f"needs a port from 1 to {units.LAST_PORT}")
    return int(text)


def _file(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("needs a file; nobody here has that home") from None


def _word(text: str) -> str:
    """Read what can be a part of ssh's command line: one word that is no option."""
    if not text or text[0] == "-" or re.search(r"[\s@'\"]", text):
        raise ValueError("needs one word without quotes, spaces or @, and not with a - first")
    return text


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("needs a day, as in 2026-12-01") from None


def _typed(node: Node) -> Any:  # noqa: ANN401 - the file's own shape
    match node:
        case MapNode():
            return {name: _typed(entry.value) for name, entry in node.entries.items()}
        case ListNode():
            return [_typed(item) for item in node.items]
        case Scalar():
            return None if is_null(node) else node.text
