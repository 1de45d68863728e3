"""Lambda Cloud in the lab: the emulator, whose machines are hosts like EC2's, in real time."""

from __future__ import annotations

from typing import Any

from burst.clock import SystemClock
from lambda_emulator import ENDED, LambdaEmulator, Vm
from tests.lab import hosts
from tests.lab.market import LAMBDA_PORT

NETWORK = "10.19.0."
BOOT_S = 3.0


class Lambda:
    """Its API, and what the lab does with its machines."""

    def __init__(self) -> None:
        self.api = LambdaEmulator(SystemClock(), hosts.GATEWAY, LAMBDA_PORT)
        self.api.boot_s = BOOT_S
        self.api.address = lambda number: f"{NETWORK}{number}"
        self.api.start()

    def running(self) -> dict[str, tuple[str, str]]:
        """Return address and SSH key of each machine that is up, by its id."""
        with self.api.lock:
            keys = {key["name"]: key["public_key"].strip() + "\n" for key in self.api.keys}
            up = [vm for vm in self.api.vms.values() if self.api.state(vm) == "active"]
            return {vm.instance_id: (vm.ip, keys[vm.body["ssh_key_names"][0]]) for vm in up}

    def sold_out(self, table: dict[str, dict[str, int]]) -> None:
        """Say how many of a type may run in a region; all others have enough."""
        with self.api.lock:
            self.api.stock.update(dict.fromkeys(self.api.stock, 8))
            self.api.stock.update(
                {(kind, region): left for region, kinds in table.items()
                 for kind, left in kinds.items()}
            )  # fmt: skip

    def take(self, name: str) -> None:
        """End one of its machines as somebody at Lambda's console does."""
        with self.api.lock:
            if name in self.api.vms:
                self.api.end(self.api.vms[name])

    def times(self) -> dict[str, dict[str, str]]:
        """Return from when until when each machine was paid for."""
        with self.api.lock:
            return {name: _times(vm) for name, vm in self.api.vms.items()}

    def account(self) -> dict[str, Any]:
        """Return what the account has and did besides machines."""
        with self.api.lock:
            return {
                "ssh_keys": [key["name"] for key in self.api.keys],
                "calls": dict(self.api.calls),
                "limited": dict(self.api.limited),
            }

    def told(self) -> list[dict[str, Any]]:
        """Return all machines there ever were, in the words of the lab's EC2."""
        with self.api.lock:
            return [self._told(vm) for vm in self.api.vms.values()]

    def _told(self, vm: Vm) -> dict[str, Any]:
        return {
            "id": vm.instance_id,
            "region": vm.body["region_name"],
            "zone": vm.body["region_name"],
            "type": vm.body["instance_type_name"],
            "state": "terminated" if self.api.state(vm) in ENDED else "running",
            "ip": vm.ip,
            "spot": False,
            "tags": {tag["key"]: tag["value"] for tag in vm.body["tags"]},
        }


def _times(vm: Vm) -> dict[str, str]:
    times = {"since": vm.born.isoformat()}
    return times if vm.ended is None else {**times, "until": vm.ended.isoformat()}
