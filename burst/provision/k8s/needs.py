"""What pods need of this machine, looked for before anything is asked of a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from importlib.util import find_spec

from burst.errors import UsageError, installing
from burst.provision.k8s import client

INSTALL = {"kubernetes": "kubernetes", "sky": "skypilot"}  # extras of burst, by package
COMMANDS = {  # that SkyPilot 0.14.1 calls to make a pod and to reach it
    "kubectl": "https://kubernetes.io/docs/tasks/tools/",
    "socat": "apt install socat",
    "nc": "apt install netcat-openbsd",
}


def check(contexts: Iterable[str]) -> None:
    """Raise UsageError with all that is missing for pods in some contexts; "" is the current one.

    Without contexts nothing is looked for.
    """
    contexts = tuple(dict.fromkeys(contexts))
    missing = tuple(_missing(contexts)) if contexts else ()
    if missing:
        what, how = zip(*missing, strict=True)
        raise UsageError(f"infra k8s needs {', '.join(what)}", hint="; ".join(how))


def _missing(contexts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield what is not here, and what to do about it."""
    for package, extra in INSTALL.items():
        if find_spec(package) is None:
            yield f"the package {package}", installing(extra)
    for command, how in COMMANDS.items():
        if shutil.which(command) is None:
            yield f"the command {command}", f"{command}: {how}"
    if not client.config_files():
        words = f"a kubeconfig (there is none at {client.config_path()})"
        yield words, "write one, or say in $KUBECONFIG where it is"
    elif find_spec("kubernetes") is not None:
        yield from _missing_contexts(contexts)


def _missing_contexts(contexts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    there, current = client.known_contexts()
    known = f"{client.config_path()} has {', '.join(there) or 'no context'}"
    for context in contexts:
        if not context and not current:
            yield "a current context", f"{known}: write infra: k8s/CONTEXT"
        elif context and context not in there:
            yield f"the context {context}", known
