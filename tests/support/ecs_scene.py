"""A day at Alibaba Cloud: its stand-in, somebody's keys, and a clock that a test turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from burst.provision.alibaba.client import ENDPOINT, Api, Client, connect
from burst.provision.alibaba.machines import Order
from burst.provision.alibaba.network import furnish, key_pair
from ecs_cloud import EcsCloud
from ecs_http import KEY_ID, SECRET, EcsServer

REGION, ZONE, OTHER_ZONE = "ap-southeast-1", "ap-southeast-1a", "ap-southeast-1b"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGxuZXdhY2NvdW50a2V5Zm9ydGVzdHMwMDAwMDA= me@here"
T4 = "ecs.gn6i-c4g1.xlarge"


class Time:
    """See burst.ports.Clock; sleeping takes no time."""

    def __init__(self) -> None:
        self.at = datetime(2026, 12, 2, 10, 0, 30, tzinfo=UTC)
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def elapsed(self) -> float:
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)


class Scene:
    """A cloud and a way to call it."""

    def __init__(self, server: EcsServer, time: Time) -> None:
        self.server = server
        self.cloud = server.cloud
        self.time = time

    def api(self, region: str = REGION) -> Client:
        return connect(region, self.time)

    def order(
        self, *, api: Api | None = None, zones: Sequence[str] = (ZONE, OTHER_ZONE), **more: object
    ) -> Order:
        """Return an order of one machine, in a network made for it."""
        api = api or self.api()
        network = furnish(api, zones)
        zone = str(more.get("zone", ZONE))
        given = {
            "zone": zone,
            "machine_type": T4,
            "image_family": "acs:ubuntu_22_04_x64",
            "vswitch_id": network.vswitches[zone],
            "security_group_id": network.security_group_id,
            "key_pair": key_pair(api, KEY),
            "name": "burst-toy-n001",
            "tags": {"burst-run": "toy-abc123", "burst-node": "n001"},
            "spot": True,
            **more,
        }
        return Order(**given)  # type: ignore[arg-type]  # what a test changes is its business


@contextmanager
def at_alibaba(patch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Serve a cloud, and point this process at it."""
    time = Time()
    with EcsServer(EcsCloud(time.now)) as server:
        patch.setenv(ENDPOINT, server.url)
        patch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", KEY_ID)
        patch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", SECRET)
        for name in ("SECURITY_TOKEN", "REGION_ID", "PROFILE"):
            patch.delenv(f"ALIBABA_CLOUD_{name}", raising=False)
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.delenv(name, raising=False)
        yield Scene(server, time)
