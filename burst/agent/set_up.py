"""Making a node fit for the task: packed files and workdir, then the task's own set-up, once."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from burst.agent.ray_node import Child, start
from burst.records import RUN, RunRecord, read_run
from burst.storage.port import Readable

LAST_LINES = 50


class SetUp:
    """Brings a node to where workers can start. Call `step` until it says that it is done."""

    def __init__(self, store: Readable, scratch: Path, *, index: int) -> None:
        self._store = store
        self._scratch = scratch
        self._index = index
        self._child: Child | None = None
        self.done = False
        self.error: str | None = None  # of the task's set-up; the agent's own are raised

    def step(self) -> None:
        """Do what can be done without waiting; StorageError if the store fails."""
        if self.done or self.error is not None:
            return
        if self._child is None:
            run = read_run(self._store.get(RUN))
            if run.head_apart and self._index == 0:  # it never sees the user's code
                self.done = True
                return
            try:
                self._mount(run.mounts)
            except (OSError, tarfile.TarError, subprocess.SubprocessError) as error:
                self.error = f"file_mounts: {error}"
                return
            os.environ["BURST_WORKDIR"] = str(self._workdir(run))
            if run.setup is None:
                self.done = True
                return
            self._child = self._start(run.setup)
        elif (code := self._child.exit_code) == 0:
            self.done = True
        elif code is not None:
            last = "\n".join(self._child.last_words().splitlines()[-LAST_LINES:])
            self.error = f"exit code {code}; its last lines:\n{last}"

    @property
    def child(self) -> Child | None:
        """The process of the task's set-up, if it was started."""
        return self._child

    def _mount(self, mounts: Mapping[str, str]) -> None:
        """Unpack the task's files where they belong, once: later they are the user's to change."""
        done = self._scratch / "mounted"
        if done.exists():
            return
        for key, folder in mounts.items():
            target = Path(folder).expanduser()
            make(target)
            unpack_into(self._store.get(key), target)
        done.touch()

    def _workdir(self, run: RunRecord) -> Path:
        """Return the folder of the user's code; unpack it first where it came packed."""
        if run.archive is None:
            return Path(run.workdir)
        folder = self._scratch / "work"
        if not folder.exists():
            unpack(self._store.get(run.archive), folder)
        return folder

    def _start(self, text: str) -> Child:
        """Start the task's set-up; nodes that share a machine take turns."""
        lock = Path(tempfile.gettempdir(), f"burst-set-up-{os.getuid()}.lock")
        argv = ["flock", str(lock), "bash", "-c", text]
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        env: Mapping[str, str] = json.loads(os.environ.get("BURST_USER_ENV", "{}"))
        folder = Path(os.environ["BURST_WORKDIR"])
        return start(argv, {"PATH": path, **env}, self._scratch / "setup.log", folder)


def make(folder: Path) -> None:
    """Make a folder that is this user's, as root if it has to be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except PermissionError:
        argv = ["sudo", "-n", "install", "-d", "-o", str(os.getuid()), "-g", str(os.getgid())]
        subprocess.run([*argv, str(folder)], check=True, capture_output=True)


def unpack_into(data: bytes, folder: Path) -> None:
    """Unpack a tar archive into a folder that is there, as root if it has to be: `/`, say.

    What is unpacked is this user's; the folder itself stays whose it is.
    """
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        try:
            archive.extractall(folder, filter="tar")
        except PermissionError:
            with tempfile.TemporaryDirectory() as scratch:
                archive.extractall(scratch, filter="tar")
                argv = ["sudo", "-n", "cp", "-a", "--", *map(str, Path(scratch).iterdir())]
                subprocess.run([*argv, str(folder)], check=True, capture_output=True)


def unpack(data: bytes, folder: Path) -> None:
    """Unpack a tar archive into a new folder, whole or not at all; links lead where they led."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(scratch, filter="tar")
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
