"""Running commands on a node over SSH: OpenSSH's own client, one host key per node."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from burst.errors import SetupError, TransientError

UNREACHABLE = 255  # ssh's own exit code
CONNECT_S = 10
MARK = "\x1e"  # ASCII's record separator: what comes before it is the login shell's own
_EVAL = 'eval "$(printf %b "$1")"'
_RAW = re.compile(rb"[^A-Za-z0-9 _./:=,@%+-]")  # what a shell may take for more than it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a node is reached. `ip` is its address among its own kind; `host` is ours.

    Where the host is only the way in, `inside` is what brings a command from there to the node.
    What is not said here is OpenSSH's to find, in `config` if that is given.
    """

    host: str
    ip: str
    user: str = ""
    key: Path | None = None
    port: int | None = None
    proxy_command: str | None = None
    config: Path | None = None
    inside: tuple[str, ...] = ()


class Ssh:
    """Commands on one node. The host's key is trusted at first sight and must stay the same."""

    def __init__(self, login: Login, known_hosts: Path) -> None:
        self.login = login
        self._known_hosts = known_hosts

    def argv(self, *, interactive: bool = False) -> list[str]:
        """Return the command line up to the remote command, or that of a shell on the node.

        Secrets never go into it.
        """
        login = self.login
        options = {
            "BatchMode": "no" if interactive else "yes",
            "ConnectTimeout": str(CONNECT_S),
            "LogLevel": "ERROR",
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "6",
            "StrictHostKeyChecking": "accept-new",
            "UserKnownHostsFile": '"' + str(self._known_hosts).replace("%", "%%") + '"',
        }
        if login.key:
            options["IdentitiesOnly"] = "yes"
        if login.proxy_command:
            options["ProxyCommand"] = login.proxy_command
        known = {"-F": login.config, "-p": login.port, "-i": login.key, "-l": login.user}
        argv = [
            "ssh",
            *(word for flag, value in known.items() if value for word in (flag, str(value))),
        ]
        argv += [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        if interactive and login.inside:
            return [*argv, "-t", login.host, shlex.join([*login.inside, "--pty", "bash", "-i"])]
        return [*argv, login.host]

    def run(self, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        """Run a command with `data` as its input; return its output.

        TransientError when the node cannot be reached or takes too long, SetupError when the
        command fails.
        """
        self._known_hosts.parent.mkdir(parents=True, exist_ok=True)
        remote = shlex.join([*self.login.inside, *for_any_shell(command)])
        try:
            done = subprocess.run(
                [*self.argv(), remote],
                input=data,
                capture_output=True,
                check=False,
                timeout=limit_s,
                env={**os.environ, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            raise TransientError(f"{self.login.host}: no answer within {limit_s:.0f} s") from None
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode == UNREACHABLE:
            raise TransientError(f"{self.login.host} cannot be reached by ssh: {said}")
        if done.returncode:
            out = done.stdout.decode(errors="replace").strip()
            raise SetupError(
                f"{self.login.host}: exit code {done.returncode}: {(said or out)[-2000:]}"
            )
        before, mark, told = done.stdout.decode(errors="replace").partition(MARK)
        return told if mark else before


def for_any_shell(command: str) -> list[str]:
    r"""Return words that run a command of sh, whatever the login shell that takes them.

    csh and fish read sh's words otherwise; these they take as they are. What the command prints
    comes after `MARK`, as a login shell's own files may print something first.

    >>> for_any_shell("ls *")[-1]
    'printf \\0047\\0134036\\0047\\0012ls \\0052'
    """
    script = f"printf '\\036'\n{command}".encode("utf-8", "surrogateescape")
    plain = _RAW.sub(lambda raw: b"\\0%03o" % raw[0][0], script)
    return ["sh", "-c", _EVAL, "sh", plain.decode("ascii")]
