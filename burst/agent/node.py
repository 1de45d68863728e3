"""The agent of one node: makes the node what the controller wants it to be, and says what it is."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from burst.agent.deadman import DeadMan
from burst.agent.notices import Notices
from burst.agent.probe import Probe
from burst.agent.ray_node import Child, ready, start, start_ray
from burst.agent.set_up import SetUp
from burst.agent.shipping import LogShipper
from burst.errors import SetupError, StorageError
from burst.processes import Mark, kill_all, reap_orphans, start_time
from burst.records import RAY_TOKEN, desired_key, encode, notice_key, stamp, status_key
from burst.storage.port import ObjectStore

log = logging.getLogger(__name__)
ABANDONED = 3  # the exit code when the controller is gone; see burst.agent.boot
LAST_RESORT_S = 5.0
LOGS = ("agent", "setup", "ray", "driver")
RAY_FALLS = 3  # ends of Ray in a row after which the node is no good
RAY_STANDS_S = 60.0  # having lived so long, it has not fallen in a row
RAY_PAUSE_S = 3.0  # between an end of Ray and the next start


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which node this is and where it keeps its files."""

    run_id: str
    node_id: str
    ip: str
    index: int
    scratch: Path  # a folder of this node alone
    poll_s: float
    beat_s: float  # also how often logs are shipped


@dataclass(slots=True)
class _Driver:
    number: int
    child: Child


@dataclass(slots=True)
class _Told:
    """What the status says besides names and times."""

    ray: str = "waiting"  # waiting, starting, up, down, failed, ended
    cluster: int = 0  # which of the run's Ray clusters it is or was in
    address: str | None = None
    error: str | None = None
    notice: Mapping[str, Any] | None = None
    driver: dict[str, Any] | None = None


@dataclass(slots=True)
class Agent:
    """The loop of one node. `run` returns its exit code once nothing of the node is left."""

    place: Place
    store: ObjectStore
    deadman: DeadMan
    set_up: SetUp
    notices: Notices | None = None
    stopped: bool = False  # set by a signal handler
    abandoned: bool = False  # it ended because its controller is gone
    _told: _Told = field(default_factory=_Told)
    _probe: Probe | None = None
    _ray: Child | None = None
    _ray_since: float = 0.0
    _falls: int = 0
    _driver: _Driver | None = None
    _beat: int = 0
    _beat_at: float = 0.0
    _written: bytes = b""

    def run(self) -> int:
        """Serve until told to end, the controller is gone, or Ray fails."""
        shipper = self._shipper()
        try:
            log.info("ending: %s", self._serve(shipper))
        except BaseException:
            log.exception("ending: the agent failed")
            self._told.ray = "failed"
            raise
        finally:  # whatever happened, nothing of the node stays
            code = self._end(shipper)
        return code

    def _serve(self, shipper: LogShipper) -> str:
        """Go round until there is a reason to end, and return it."""
        while True:
            try:
                why = self._step(shipper)
            except StorageError as error:
                log.warning("the store fails, trying on: %s", error)
                why = self.deadman.gone(time.monotonic())
                self.abandoned = why is not None
            if why is not None:
                return why
            time.sleep(self.place.poll_s)  # noqa: TID251 - the agent's only pause

    def last_resort(self) -> None:
        """End the node from a thread whose main thread hangs, in the store for example."""
        self.stopped = True
        time.sleep(LAST_RESORT_S)  # noqa: TID251 - the orderly end gets its chance first
        kill_all(self._mark())
        os._exit(1)

    def _mark(self) -> Mark:
        marks = {"BURST_RUN_ID": self.place.run_id, "BURST_NODE_ID": self.place.node_id}
        return Mark(variables=marks, session=own_session(), ancestor=os.getpid())

    def _shipper(self) -> LogShipper:
        scratch = self.place.scratch
        files = {name: scratch / f"{name}.log" for name in LOGS}
        return LogShipper(self.store, self.place.node_id, files)

    def _step(self, shipper: LogShipper) -> str | None:
        """Do one round; return why to end, if so."""
        wanted = _read(self.store, desired_key(self.place.node_id)) or {}
        if self.stopped or wanted.get("end"):
            return "told to"
        if (why := self.deadman.gone(time.monotonic())) is not None:
            self.abandoned = True
            return why
        self.set_up.step()
        if wanted.get("probe") is not None and self.set_up.done:
            self._measure(wanted["probe"])
        elif self._probe is not None:
            self._probe.close()
        if wanted.get("ray") and self.set_up.done:
            self._follow(wanted)
        if self.notices is not None and self._told.notice is None:
            self._told.notice = self.notices.newest()
        self._tell()
        if time.monotonic() - self._beat_at >= self.place.beat_s:
            self._told.notice = self._told.notice or _read(
                self.store, notice_key(self.place.node_id)
            )
            self._tell(beat=True)
            shipper.ship()
            reap_orphans([child.process.pid for child in self._children()])
        return "ray failed" if self._told.ray == "failed" else None

    def _children(self) -> list[Child]:
        driver = self._driver.child if self._driver else None
        return [child for child in (self._ray, driver, self.set_up.child) if child is not None]

    def _measure(self, wanted: Mapping[str, Mapping[str, str]]) -> None:
        """Measure the network to nodes of other islands, and let them measure it to this one."""
        if self._probe is None:
            secret = self.store.get(RAY_TOKEN)
            self._probe = Probe(self.place.node_id, self.place.ip, secret)
        try:
            self._probe.follow(wanted["ask"], wanted["reach"])
        except OSError as error:
            log.warning("the network cannot be measured: %s", error)

    def _follow(self, wanted: Mapping[str, Any]) -> None:
        """Be part of the wanted Ray cluster; one that fell is started again, some times."""
        ray, told = wanted["ray"], self._told
        if told.cluster != ray["cluster"]:
            self._leave_ray()
            self._start_ray(ray)
        elif self._ray is None:
            if time.monotonic() - self._ray_since >= RAY_PAUSE_S and ray["role"] == "worker":
                self._start_ray(ray)
        elif self._ray.exit_code is not None:
            self._fallen(self._ray)
        elif told.ray == "starting" and ready(self._ray):
            told.ray = "up"
        if told.ray == "up":
            self._drive(wanted.get("driver"))

    def _leave_ray(self) -> None:
        """End everything of the node but this process."""
        kill_all(self._mark())
        self._ray, self._driver = None, None
        self._told.driver, self._told.address = None, None

    def _fallen(self, ray: Child) -> None:
        """Ray ended by itself: its head is gone, or something of it was killed here."""
        if time.monotonic() - self._ray_since >= RAY_STANDS_S:
            self._falls = 0
        self._falls += 1
        why = f"ray ended with exit code {ray.exit_code}: {ray.last_words()}"
        log.warning("%s", why)
        driver = self._told.driver
        self._leave_ray()
        self._told.driver = driver and {**driver, "state": "exited", "exit_code": None}
        self._ray_since = time.monotonic()
        self._told.ray = "failed" if self._falls >= RAY_FALLS else "down"
        self._told.error = why

    def _start_ray(self, ray: Mapping[str, Any]) -> None:
        head = ray["address"] if ray["role"] == "worker" else None
        token = self.store.get(RAY_TOKEN).decode()
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token)
        self._told.cluster, self._ray_since = int(ray["cluster"]), time.monotonic()
        try:
            self._ray, self._told.address = start_ray(
                self.place.ip, int(ray["num_cpus"]), head, self.place.scratch
            )
            self._told.ray, self._told.error = "starting", None
        except (SetupError, OSError) as error:
            self._told.ray, self._told.error = "failed", str(error)

    def _drive(self, wanted: Mapping[str, Any] | None) -> None:
        """Start the driver once per number, and report its end."""
        if wanted is None:
            return
        number = int(wanted["attempt"])
        if self._driver is None or self._driver.number != number:
            if self._driver is not None:
                self._driver.child.process.kill()
            env = {**wanted.get("env", {}), "RAY_ADDRESS": str(self._told.address)}
            argv = [sys.executable, *wanted["argv"]]
            child = start(argv, env, self.place.scratch / "driver.log")
            self._driver = _Driver(number, child)
        code = self._driver.child.exit_code
        state = "running" if code is None else "exited"
        self._told.driver = {"attempt": number, "state": state, "exit_code": code}

    def _tell(self, *, beat: bool = False) -> None:
        """Write the status when something changed, and as heartbeat."""
        told = self._told
        said = {
            "node_id": self.place.node_id,
            "pid": os.getpid(),
            "start_time": start_time(os.getpid()),
            "ip": self.place.ip,
            "setup": "done" if self.set_up.done else "running",
            "setup_error": self.set_up.error,
            "ray": told.ray,
            "cluster": told.cluster,
            "address": told.address,
            "driver": told.driver,
            "notice": told.notice,
            "error": told.error,
            **({"probe": self._probe.told} if self._probe else {}),
        }
        if encode(said) == self._written and not beat:
            return
        self._written = encode(said)
        self._beat += 1
        self._beat_at = time.monotonic()
        whole = {**said, "beat": self._beat, "time": stamp(datetime.now(UTC))}
        self.store.put(status_key(self.place.node_id), encode(whole))

    def _end(self, shipper: LogShipper) -> int:
        """End everything of this node but this process; say so and send the last of the logs."""
        failed = self._told.ray == "failed"
        left = kill_all(self._mark())
        self._told.ray = "failed" if failed else "ended"
        try:
            self._tell(beat=True)
            shipper.ship()
        except StorageError as error:
            log.warning("the last status or logs were not stored: %s", error)
        for process in left:
            log.error("cannot be ended: %s", process)
        if self.abandoned:
            return ABANDONED
        return 1 if failed or left else 0


def own_session() -> int | None:
    """Return this process's session if it leads it; started by hand, that is a person's shell's."""
    return os.getpid() if os.getsid(0) == os.getpid() else None


def _read(store: ObjectStore, key: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(store.get(key))
    except FileNotFoundError:
        return None
    return found
