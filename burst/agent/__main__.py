"""`python -m burst.agent`: the agent of one node, in a process group of its own."""

from __future__ import annotations

import argparse
import logging
import select
import signal
import sys
import threading
from pathlib import Path

from burst.agent.deadman import DeadMan
from burst.agent.node import Agent, Place
from burst.processes import adopt_orphans
from burst.storage.open import open_store


def main() -> int:
    """Serve one node until it is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-uri", required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--node-id", required=True)
    parser.add_argument("--ip", required=True)
    parser.add_argument("--scratch", required=True, type=Path)
    parser.add_argument("--lease-ttl", type=float, required=True)
    parser.add_argument("--watch-fd", type=int)
    given = parser.parse_args()
    adopt_orphans()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    store = open_store(given.run_uri)
    local = store.uri.startswith("file:")
    place = Place(
        run_id=given.run_id,
        node_id=given.node_id,
        ip=given.ip,
        scratch=given.scratch,
        poll_s=0.1 if local else 2.0,  # in a bucket each look costs requests
        beat_s=1.0 if local else 10.0,
    )
    deadman = DeadMan(store, ttl_s=given.lease_ttl, watch_fd=given.watch_fd)
    agent = Agent(place=place, store=store, deadman=deadman)

    def stop(number: int, frame: object) -> None:
        del number, frame
        agent.stopped = True

    if given.watch_fd is not None:
        watch = threading.Thread(target=_watch, args=(agent, given.watch_fd), daemon=True)
        watch.start()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is the controller's business
    return agent.run()


def _watch(agent: Agent, fd: int) -> None:
    """Wait for the controller's end of the pipe to close."""
    select.select([fd], [], [])
    agent.last_resort()


if __name__ == "__main__":
    sys.exit(main())
