"""What pods need of this machine, looked for before anything is asked of a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from importlib.util import find_spec

from burst.errors import UsageError
from burst.provision.k8s import cloud

INSTALL = {"kubernetes": "burst-trainer[kubernetes]", "sky": "burst-trainer[skypilot]"}
COMMANDS = {  # that SkyPilot 0.14.1 calls to make a pod and to reach it
    "kubectl": "kubernetes.io/docs/tasks/tools",
    "socat": "apt install socat",
    "nc": "apt install netcat-openbsd",
}


def check(named: Iterable[str]) -> None:
    """Raise UsageError with all that is missing for pods in some contexts; "" is the current one.

    Nothing named, nothing looked for.
    """
    named = tuple(dict.fromkeys(named))
    missing = tuple(_missing(named)) if named else ()
    if missing:
        what, how = zip(*missing, strict=True)
        raise UsageError(f"infra k8s needs {', '.join(what)}", hint="; ".join(how))


def _missing(named: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield what is not here, and what to do about it."""
    for package, extra in INSTALL.items():
        if find_spec(package) is None:
            yield f"the Python package {package}", f"pip install '{extra}'"
    for command, how in COMMANDS.items():
        if shutil.which(command) is None:
            yield f"the command {command}", f"{command}: {how}"
    if not cloud.config_files():
        words = f"a kubeconfig, of which there is none at {cloud.config_path()}"
        yield words, "write one, or name it in $KUBECONFIG"
    elif find_spec("kubernetes") is not None:
        there, current = cloud.known_contexts()
        for context in named:
            if not context and not current:
                words = "a context: the kubeconfig has no current one"
                yield words, "kubectl config use-context NAME, or infra: k8s/NAME"
            elif context and context not in there:
                known = ", ".join(there) or "none"
                words = f"the context {context}, which {cloud.config_path()} does not have"
                yield words, f"contexts there: {known}"
