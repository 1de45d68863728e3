"""A pool with the levers that the tests common to all pools pull."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Any, Literal, TypeVar

from burst.cost.placement import Choice, Place
from burst.errors import TransientError
from burst.ports import NodeRequest, Provisioner
from burst.provision.ssh import Ssh

RUN, OTHER_RUN = "toy-abcdef", "toy-abcdef-n001-zyxwvu"  # names that begin alike
NODES = ("n001", "n002", "n003")
T = TypeVar("T")
Ability = Literal["refuse", "fall silent", "fall silent in part"]


class Calls:
    """The calls by which a node is set up; one of them can be made to go wrong."""

    def __init__(self) -> None:
        self.made = 0
        self._fault: tuple[int, BaseException, bool] | None = None
        self._lock = threading.Lock()

    def fail(self, number: int, error: BaseException, *, after: bool) -> None:
        """Have a call, counted from now, fail: before anything happens, or when it has."""
        with self._lock:
            self.made, self._fault = 0, (number, error, after)

    def make(self, call: Callable[[], T]) -> T:
        with self._lock:
            self.made += 1
            fault = self._fault if self._fault and self._fault[0] == self.made else None
        if fault and not fault[2]:
            raise fault[1]
        result = call()
        if fault:
            raise fault[1]
        return result

    def of_launches(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return the function with those of its calls counted that a node's launch makes."""

        def call(*given: Any, **named: Any) -> T:
            launches = threading.current_thread().name.startswith("launch")
            made = self.counted(function) if launches else function
            return made(*given, **named)

        return call

    def counted(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return the function with its calls counted."""
        return lambda *given, **named: self.make(lambda: function(*given, **named))


class Killed(BaseException):
    """The controller's process is gone in the middle of a call."""


class Bench(ABC):
    """A pool under test."""

    can: Collection[Ability] = ("refuse", "fall silent")  # what this pool can do to us
    trouble: Callable[[str], Exception] = TransientError  # what a call that goes wrong raises
    place: Place

    def __init__(self) -> None:
        self.calls = Calls()

    @abstractmethod
    def open(self) -> Provisioner:
        """Return what a controller that starts now has, over the pool there is."""

    @abstractmethod
    def there(self, run_id: str = RUN) -> set[str]:
        """Return the nodes whose machine is there: the truth, whoever asks."""

    @abstractmethod
    def lose(self, node_id: str) -> None:
        """Take a node's machine away."""

    @abstractmethod
    def fill(self) -> None:
        """Have the pool give no further machine."""

    @abstractmethod
    def silent(self) -> AbstractContextManager[None]:
        """Have the pool not answer."""

    def silent_about(self, node_id: str) -> AbstractContextManager[None]:
        """Have the part of the pool that has a node not answer; all of it if it has no parts."""
        del node_id
        return self.silent()

    def wait(self) -> None:
        """Let a little time pass."""
        time.sleep(0.01)  # noqa: TID251 - threads and processes are at work

    def place_of(self, node_id: str) -> Place:
        del node_id
        return self.place

    def request(self, node_id: str, run_id: str = RUN) -> NodeRequest:
        choice = Choice(place=self.place_of(node_id), usd_per_hour=Decimal(1))
        uri = f"s3://b/runs/{run_id}"
        return NodeRequest(run_id=run_id, node_id=node_id, run_uri=uri, index=0, choice=choice)


def as_told(ssh: Ssh, bench: Any, *given: Any, **named: Any) -> str:
    """Run a command on a machine of a bench."""
    said: str = bench._run(ssh, *given, **named)
    return said
