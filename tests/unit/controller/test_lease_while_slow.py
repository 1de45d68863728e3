"""A controller shows that it lives, however long a pool takes to answer."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from fake_world import World

from burst.controller.loop import Controller
from burst.errors import OwnedError
from burst.provision.fake import FakeProvisioner
from burst.storage.lease import Lease

WAIT_S = 10.0


class Renewed:
    """A lease whose renewals can be waited for."""

    def __init__(self, lease: Lease, *, lost: bool = False) -> None:
        self._lease = lease
        self._lost = lost
        self.again = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    def renew(self) -> None:
        self.again.set()
        if self._lost:
            raise OwnedError("another controller took over")
        self._lease.renew()


def controller(world: World, *, lost: bool = False) -> tuple[Controller, Renewed]:
    made = world.controller()
    lease: Any = Renewed(made._tools.lease, lost=lost)
    made._tools = replace(made._tools, lease=lease, renew_s=0.01)
    return made, lease


@pytest.mark.parametrize("call", ["observe", "sweep"])
def test_the_lease_is_renewed_while_a_pool_takes_its_time(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    driven, lease = controller(world)
    quick = getattr(FakeProvisioner, call)
    waited: list[bool] = []

    def slow(*given: Any, **named: Any) -> Any:
        if not waited:
            lease.again.clear()
            world.seconds += 20
            waited.append(lease.again.wait(WAIT_S))
        return quick(*given, **named)

    monkeypatch.setattr(FakeProvisioner, call, slow)
    assert driven.run().reason == "finished"
    assert waited == [True]


def test_a_controller_that_was_replaced_meanwhile_asks_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    driven, lease = controller(world, lost=True)
    quick = FakeProvisioner.observe

    def slow(*given: Any, **named: Any) -> Any:
        world.seconds += 20
        lease.again.wait(WAIT_S)
        return quick(*given, **named)

    monkeypatch.setattr(FakeProvisioner, "observe", slow)
    with pytest.raises(OwnedError):
        driven.run()
    assert world.ever() == []
