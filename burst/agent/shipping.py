"""Sending a node's growing log files to the run's store, in numbered pieces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from burst.storage.port import Writable

PIECE_BYTES = 1 << 20


class LogShipper:
    """Ships what is new in each file since the last call; a failed piece is sent again."""

    def __init__(self, store: Writable, node_id: str, files: Mapping[str, Path]) -> None:
        self._store = store
        self._node_id = node_id
        self._files = files
        self._sent = dict.fromkeys(files, 0)
        self._pieces = dict.fromkeys(files, 0)

    def ship(self) -> None:
        """Send everything new; StorageError if the store fails."""
        for stream, path in self._files.items():
            while path.exists() and path.stat().st_size > self._sent[stream]:
                self._ship_piece(stream, path)

    def _ship_piece(self, stream: str, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._sent[stream])
            piece = file.read(PIECE_BYTES)
        number = self._pieces[stream] + 1
        self._store.put(f"logs/{self._node_id}/{stream}/{number:06d}.log", piece)
        self._pieces[stream] = number
        self._sent[stream] += len(piece)
