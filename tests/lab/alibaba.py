"""Alibaba Cloud in the lab: the stand-in of ECS, whose machines are hosts like EC2's."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ecs_cloud import EcsCloud, Machine
from ecs_http import EcsServer
from tests.lab import hosts
from tests.lab.market import ECS_PORT


class LabEcs(EcsCloud):
    """ECS whose machines are reached at their private addresses: the lab is one network."""

    def public_ip(self, private: str) -> str:
        return private


class Alibaba:
    """ECS, its front door and its metadata service."""

    def __init__(self) -> None:
        self.ecs = LabEcs()
        self.door = EcsServer(self.ecs, (hosts.GATEWAY, ECS_PORT))
        metadata = EcsServer(self.ecs, (hosts.ECS_METADATA, 80))
        metadata.lock = self.door.lock  # one state, two doors
        for server in (self.door, metadata):
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def running(self) -> dict[str, Machine]:
        """Return the machines that run, by id."""
        with self.door.lock:
            self.ecs.tick()
            return dict(self.ecs.machines)

    def sold_out(self, table: dict[str, dict[str, int]]) -> None:
        """Say how many of a type ("*": of any) are left in a zone."""
        with self.door.lock:
            self.ecs.stock = {
                (zone, kind): left for zone, kinds in table.items() for kind, left in kinds.items()
            }

    def take(self, name: str, seconds: float) -> bool:
        """Take a machine back after a notice; False if it is not one of ECS."""
        with self.door.lock:
            if name not in self.ecs.machines:
                return False
            self.ecs.reclaim(name, timedelta(seconds=seconds))
        return True

    def told(self) -> list[dict[str, Any]]:
        """Return all machines there ever were, in the words of the lab's EC2."""
        with self.door.lock:
            gone = [_told(machine, "terminated") for machine, _ in self.ecs.gone.values()]
            return gone + [_told(machine, "running") for machine in self.ecs.machines.values()]


def key_of(machine: Machine, read: Callable[[str], str]) -> str:
    """Return the SSH keys that a machine's cloud-init data brings."""
    return read(base64.b64decode(machine.asked["UserData"]).decode())


def _told(machine: Machine, state: str) -> dict[str, Any]:
    return {
        "id": machine.id,
        "region": machine.region,
        "zone": machine.zone,
        "type": machine.kind.name,
        "state": state,
        "ip": machine.ip,
        "spot": machine.spot,
        "price_limit": machine.asked.get("SpotPriceLimit"),
        "tags": machine.tags,
    }
