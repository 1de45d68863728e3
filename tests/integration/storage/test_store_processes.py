"""Stores across kills and forks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burst.storage.backends.local import LocalStore
from burst.storage.backends.s3 import S3Store
from burst.storage.keys import UNFINISHED
from burst.storage.settings import StoreSettings

pytestmark = pytest.mark.integration

WRITER = """
import sys
from pathlib import Path
from typing import Any
from burst.storage.backends.local import LocalStore
store = LocalStore(Path(sys.argv[1]))
print("ready", flush=True)
n = 0
while True:
    store.put("a/b", bytes([n % 251]) * 2_000_000)
    n += 1
"""


@pytest.mark.parametrize("delay_ms", [3, 7, 12, 21, 33])
def test_kill_in_the_middle_of_a_put_shows_no_part(tmp_path: Path, delay_ms: int) -> None:
    """Whatever is there after the kill is one whole write."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    threading.Event().wait(delay_ms / 1000)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    store = LocalStore(tmp_path)
    for key in list(store.keys()):
        assert key == "a/b"
        data = store.get(key)
        assert len(data) == 2_000_000
        assert data == data[:1] * len(data)
    store.sweep_unfinished(older_than_s=-60)
    assert list(tmp_path.rglob(f"{UNFINISHED}*")) == []
    store.put("a/b", b"the lock died with its holder")


def work(store: S3Store, number: int) -> None:
    assert store.get("shared") == b"x"
    made = store._connection._made
    assert made is not None
    assert made.pid == os.getpid()  # a client shared with the parent works, until it does not
    store.put(f"from-{number}", str(os.getpid()).encode())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_use_the_store_of_their_parent(
    method: str, moto_url: str, new_bucket: Callable[[], str]
) -> None:
    """C52: opened and used before the fork, with an upload thread at work meanwhile."""
    store = S3Store(
        new_bucket(), "root", StoreSettings(endpoint=moto_url, region="us-east-1", max_threads=2)
    )
    store.put("shared", b"x")
    stop = threading.Event()

    def keep_writing() -> None:
        while not stop.is_set():
            store.put("parent", bytes(100_000))

    writer = threading.Thread(target=keep_writing)
    writer.start()
    context: Any = multiprocessing.get_context(method)
    workers = [context.Process(target=work, args=(store, number)) for number in range(2)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(timeout=25)
        assert [worker.exitcode for worker in workers] == [0, 0]
    finally:
        stop.set()
        writer.join()
        for worker in workers:
            if worker.is_alive():
                worker.kill()
    pids = {store.get(f"from-{number}") for number in range(2)}
    assert len(pids) == 2
