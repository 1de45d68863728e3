"""`python -m burst.agent`: the agent of one node, in a process group of its own."""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import sys
import threading
from pathlib import Path

import psutil

from burst.agent.deadman import DeadMan
from burst.agent.node import Agent, Place
from burst.agent.notices import Notices, source
from burst.agent.set_up import SetUp
from burst.processes import adopt_orphans
from burst.storage.open import open_store


def main() -> int:
    """Serve one node until it is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-uri", required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--node-id", required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--ip", required=True)
    parser.add_argument("--scratch", required=True, type=Path)
    parser.add_argument("--lease-ttl", type=float, required=True)
    parser.add_argument("--watch-fd", type=int)
    parser.add_argument("--cloud", default="", help="whose notices to look for")
    given = parser.parse_args()
    adopt_orphans()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):  # else torch guesses
        os.environ.setdefault(name, interface_of(given.ip))
    store = open_store(given.run_uri)
    local = store.uri.startswith("file:")
    place = Place(
        run_id=given.run_id,
        node_id=given.node_id,
        index=given.index,
        ip=given.ip,
        scratch=given.scratch,
        poll_s=0.1 if local else 2.0,  # in a bucket each look costs requests
        beat_s=1.0 if local else 10.0,
    )
    deadman = DeadMan(store, ttl_s=given.lease_ttl, watch_fd=given.watch_fd)
    set_up = SetUp(store, given.scratch, index=given.index)
    notices = None
    if (ask := source(given.cloud, os.environ)) is not None:
        notices = Notices(ask, given.cloud)
        notices.start()
    agent = Agent(place=place, store=store, deadman=deadman, set_up=set_up, notices=notices)

    def stop(number: int, frame: object) -> None:
        del number, frame
        agent.stopped = True

    def hurry(number: int, frame: object) -> None:
        del number, frame
        if notices is not None:
            notices.hurry()

    if given.watch_fd is not None:
        watch = threading.Thread(target=_watch, args=(agent, given.watch_fd), daemon=True)
        watch.start()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGUSR1, hurry)  # a queue's word that there is a notice
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is the controller's business
    return agent.run()


def interface_of(ip: str) -> str:
    """Return the network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == ip for address in addresses):
            return name
    return "lo"  # 127.x.y.z: all of them are, and none is listed


def _watch(agent: Agent, fd: int) -> None:
    """Wait for the controller's end of the pipe to close."""
    select.select([fd], [], [])
    agent.last_resort()


if __name__ == "__main__":
    sys.exit(main())
