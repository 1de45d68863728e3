"""pools.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from burst.errors import SpecError
from burst.task_specs import units
from burst.task_specs.places import Names
from burst.task_specs.pools import read_pools

OR_SBATCH = f"{units.UNITS}; or as sbatch has it: 90 (minutes), 4:00:00, 1-12 (written"


def test_no_file_is_no_pools(tmp_path: Path) -> None:
    assert read_pools(tmp_path / "pools.yaml") == {}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "~\n", "ssh:\nslurm:\n"])
def test_a_file_that_says_nothing_is_no_pools(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(text)
    assert not any(read_pools(path).values())


def test_values_are_text_as_typed(tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text("local: {usd_per_hour: 0.10}\nssh: {lab: {user: , hosts: [a, 010]}}\n")
    assert read_pools(path) == {
        "local": {"usd_per_hour": "0.10"},
        "ssh": {"lab": {"user": None, "hosts": ["a", "010"]}},
    }


SAME = "is the same host as ssh.lab.hosts[0]"
ONE = "needs the address of one host; write each of them"
ALONE = "ssh.lab.hosts[0]: needs an address alone"


def problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "pools.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_pools(path)
    assert (caught.value.source, caught.value.exit_code) == (str(path), 2)
    return [str(problem) for problem in caught.value.problems]


def test_every_problem_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    text = """\
loca: {usd_per_hour: 0.12}
local: {usd_per_hour: 1e400, usd_per_hours: 1}
shh: {}
ssh:
  one: 10.0.0.1
  two: {hosts: []}
  three: {hostz: b, usd_per_hour: -1, hosts: [-oProxyCommand=x, a, a, {port: 22}]}
  four:
    user: a b
    port: 99999
    hosts:
    - {ip: a, port: ssh}
    - {ip: b, user: "c@d"}
    - {ip: [c]}
  five: {user: me}
rented: {dead_man: 29s}
"""
    whole = "needs dollars per hour as a plain number from 0 to 100000, as in 0.40"
    word = "needs one word without quotes, spaces or @, and not with a - first"
    address = "needs an address, as in 10.0.0.7 or {ip: 10.0.0.7, port: 2222}"
    hosts = "needs a list of hosts, as in `hosts: [10.0.0.7, {ip: 10.0.0.8, port: 2222}]`"
    short = "machines would end under a controller that lives; write at least 30s"
    mapping = "needs a mapping (`name: value` lines below it), not a single value"
    assert problems(tmp_path, text) == [
        "line 1: loca: is not known; did you mean local?",
        "line 2: local.usd_per_hours: is not known; did you mean usd_per_hour?",
        f"line 2: local.usd_per_hour: {whole} (written: 1e400)",
        "line 3: shh: is not known; did you mean ssh?",
        f"line 5: ssh.one: {mapping} (written: 10.0.0.1)",
        f"line 6: ssh.two.hosts: {hosts}",
        "line 7: ssh.three.hostz: is not known; did you mean hosts?",
        f"line 7: ssh.three.usd_per_hour: {whole} (written: -1)",
        f"line 7: ssh.three.hosts[0]: {word} (written: -oProxyCommand=x)",
        (
            "line 7: ssh.three.hosts[2]: is the same host as ssh.three.hosts[1]; name each host "
            "once, in one pool (written: a)"
        ),
        f"line 7: ssh.three.hosts[3]: {address}",
        f"line 9: ssh.four.user: {word} (written: a b)",
        "line 10: ssh.four.port: needs a port from 1 to 65535 (written: 99999)",
        "line 12: ssh.four.hosts[0].port: needs a port from 1 to 65535 (written: ssh)",
        f'line 13: ssh.four.hosts[1].user: {word} (written: "c@d")',
        f"line 14: ssh.four.hosts[2]: {address}",
        f"line 15: ssh.five.hosts: {hosts}",
        f"line 16: rented.dead_man: {short} (written: 29s)",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{regions: cn-beijing}", "regions: needs a list, as in `regions: [ap-southeast-1]`"),
        ("{regions: [[a]]}", "regions[0]: needs a single value, not a list"),
        ("{region: cn-beijing}", "region: is not known; did you mean regions?"),
        ("{cny: 0.14}", "cny: needs a mapping"),
        ("{cny: {usd: 0.14}}", "cny.on: is missing, as in `cny: {usd: 0.14, on: 2026-12-01}`"),
        ("{cny: {usd: much, on: 2026-12-01}}", "cny.usd: needs US dollars as a plain number"),
        (
            "{cny: {usd: 7.14, on: 2026-12-01}}",
            "cny.usd: needs the dollars for one yuan, as in 0.14, not yuan for a dollar",
        ),
        ("{cny: {usd: 0.14, on: today}}", "cny.on: needs a day, as in 2026-12-01 (written: today)"),
    ],
)
def test_what_is_not_understood_of_alibaba_cloud_is_told(
    tmp_path: Path, text: str, problem: str
) -> None:
    (told,) = problems(tmp_path, f"alibaba: {text}\n")
    assert told.startswith(f"line 1: alibaba.{problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ssh: {lab: }", "ssh.lab: needs a list of hosts"),
        ("ssh: {lab: {hosts: [a], identity_file: ~nobody-here/x}}", "ssh.lab.identity_file: "),
        ("ssh: {lab: {hosts: ['10.0.0.7:2222']}}", "ssh.lab.hosts[0]: needs an address, as in"),
        ("ssh: {lab: {hosts: ['ssh://a']}}", "ssh.lab.hosts[0]: needs an address, as in"),
        ("ssh: {lab: {hosts: [../../a]}}", "ssh.lab.hosts[0]: needs an address, as in"),
        ("ssh: {lab: {hosts: [a, A]}}", f"ssh.lab.hosts[1]: {SAME}"),
        ("ssh: {lab: {hosts: [a, a.]}}", f"ssh.lab.hosts[1]: {SAME}"),
        ("ssh: {lab: {hosts: ['::1', '0:0::1']}}", f"ssh.lab.hosts[1]: {SAME}"),
        ("ssh: {lab: {hosts: [a, me@a]}}", f"ssh.lab.hosts[1]: {SAME}"),
        ("ssh: {lab: {hosts: [a, {ip: a, user: you}]}}", f"ssh.lab.hosts[1]: {SAME}"),
        ("ssh: {lab: {port: 22, hosts: [a, {ip: a}]}}", f"ssh.lab.hosts[1]: {SAME}"),
        ("ssh: {lab: {hosts: [a, {ip: a, port: 022}]}}", f"ssh.lab.hosts[1]: {SAME}"),
        ("ssh: {lab: {hosts: [a]}, den: {hosts: [b, a]}}", f"ssh.den.hosts[1]: {SAME}"),
        ("ssh: {lab: {hosts: [me@a]}}", "ssh.lab.hosts[0]: needs an address alone; write {ip: a, "),
        (
            "ssh: {lab: {hosts: [me@a:22]}}",
            "ssh.lab.hosts[0]: needs an address alone; write {ip: a, user: me, port: 22}",
        ),
        ("ssh: {lab: {hosts: ['me@::1']}}", f"{ALONE}; write {{ip: ::1, user: me}}"),
        ("ssh: {lab: {hosts: ['ssh://me@a']}}", f"{ALONE}; write {{ip: a, user: me}}"),
        ("ssh: {lab: {hosts: ['10.0.0.[1-4]']}}", f"ssh.lab.hosts[0]: {ONE}"),
        ("ssh: {lab: {hosts: ['gpu{1..4}']}}", f"ssh.lab.hosts[0]: {ONE}"),
        ("ssh: {lab: {hosts: ['a,b']}}", f"ssh.lab.hosts[0]: {ONE}"),
        ("ssh: {'*': {hosts: [a]}}", "ssh.*: needs a name without slashes, spaces and *"),
        ("lab: {hosts: [a]}", "lab: is not known; a pool of hosts belongs under ssh, as in"),
        ("ssh: {lab: {hosts: [{ip: a, host: b}]}}", "ssh.lab.hosts[0].host: is not known; did you"),
        ("ssh: {lab: {hosts: [a], password: x}}", "ssh.lab.password: is not known; burst logs in"),
        ("slurm: {lab: {partition: x}}", "slurm.lab.partition: is not known; a task names it"),
        ('ssh: {lab: {hosts: ["a\\nb"]}}', "ssh.lab.hosts[0]: needs one word"),
        ("ssh: {lab: {port: \uff12\uff12, hosts: [a]}}", "ssh.lab.port: needs a port"),
        ("slurm: {lab: {time: 4 hours}}", f"slurm.lab.time: not a duration; {OR_SBATCH}: 4 hours)"),
        (
            "slurm: {lab: {time: 9999-0}}",
            "slurm.lab.time: longer than 3650 days; 0 is no limit (written: 9999-0)",
        ),
        ("slurm: {lab: {wait: 90}}", f"slurm.lab.wait: needs a unit; {units.UNITS} (written: 90)"),
        ("slurm: {lab: {spot: [~]}}", "slurm.lab.spot[0]: needs a single value, not nothing"),
        ("alibaba: {regions: [~]}", "alibaba.regions[0]: needs a single value"),
    ],
)
def test_what_would_fail_later_is_told_here(tmp_path: Path, text: str, problem: str) -> None:
    (told,) = problems(tmp_path, text + "\n")
    assert told.startswith(f"line 1: {problem}")


def test_what_is_no_host_is_no_second_one_either(tmp_path: Path) -> None:
    text = "ssh:\n  lab:\n    hosts:\n    - ~\n    - ~\n  den: {hosts: [{}, a, a.b]}\n"
    told = problems(tmp_path, text)
    assert len(told) == 3
    assert all("needs an address, as in" in line for line in told)


def test_hosts_behind_one_address_are_told_by_their_ports(tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text("ssh: {lab: {hosts: [a, {ip: a, port: 2201}, {ip: a, port: 2202}, '::1']}}\n")
    assert len(read_pools(path)["ssh"]["lab"]["hosts"]) == 4


@pytest.mark.parametrize("text", ["0", "29s", "-5m", "soon", "[1]"])
def test_a_machine_that_would_end_at_once_is_refused(tmp_path: Path, text: str) -> None:
    (told,) = problems(tmp_path, f"rented: {{dead_man: {text}}}\n")
    assert told.startswith("line 1: rented.dead_man: ")


@pytest.mark.parametrize(
    "text", ["local: 0.12\n", "[a]\n", "local: {a: 1}\nlocal: {b: 2}\n", "a: [\n"]
)
def test_a_file_that_is_no_pools_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_pools(path)
    assert caught.value.problems


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="1 problem"):
        read_pools(tmp_path)


def test_what_is_wrong_with_slurm_is_told_with_the_rest(tmp_path: Path) -> None:
    text = "slurm: {lab: {usd_per_hour: -1, spot: {a: 1}, tiem: 4h, wait: x, qos: a b}, two: 3}\n"
    told = problems(tmp_path, text)
    fields = ("usd_per_hour", "spot", "tiem", "wait", "qos")
    assert all(any(f"slurm.lab.{field}" in one for one in told) for field in fields), told
    assert len(told) == 6
    assert any("did you mean time?" in one for one in told)


def test_every_mistake_in_the_prices_of_pods_is_told(tmp_path: Path) -> None:
    text = """\
k8s:
  a: {usd_per_gpu_hour: much}
  b: 1.10
  c: {usd_per_hour: 1}
  arn:aws:eks:eu-west-1:1:cluster/d: {usd_per_cpu_hour: 0.02}
  e:
"""
    number = "needs dollars per hour as a plain number from 0 to 100000, as in 0.40"
    mapping = "needs a mapping (`name: value` lines below it), not a single value"
    assert problems(tmp_path, text) == [
        f"line 2: k8s.a.usd_per_gpu_hour: {number} (written: much)",
        f"line 3: k8s.b: {mapping} (written: 1.10)",
        "line 4: k8s.c.usd_per_hour: is not known; did you mean usd_per_gpu_hour?",
    ]


def test_a_slurm_cluster_without_a_login_is_told_with_all_else(tmp_path: Path) -> None:
    path, config = tmp_path / "pools.yaml", tmp_path / "config"
    path.write_text("slurm:\n  lab:\n  la: {wait: never}\n")
    with pytest.raises(SpecError) as caught:
        read_pools(path, Names(str(config), lambda: ["lab"]))
    other, told = map(str, caught.value.problems)
    assert told == f"line 3: slurm.la: {config} has no `Host la`; write its login there"
    assert other.startswith("line 3: slurm.la.wait: not a duration")
