"""Logs arrive whole and in order, also after the store failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from burst.agent.shipping import LogShipper
from burst.controller.logs import LogReader
from burst.errors import TransientError
from burst.storage.faults import Fault, FaultyStore
from burst.storage.memory import MemoryStore


def test_what_grows_is_shipped_once_and_read_in_order(tmp_path: Path) -> None:
    store = MemoryStore()
    path = tmp_path / "driver.log"
    shipper = LogShipper(store, "n002", {"driver": path, "ray": tmp_path / "none.log"})
    reader = LogReader(store)
    shipper.ship()
    assert list(reader.new()) == []
    path.write_text("one\n")
    shipper.ship()
    with path.open("a") as file:
        file.write("two\n")
    shipper.ship()
    shipper.ship()
    assert list(reader.new()) == [("n002/driver", "one"), ("n002/driver", "two")]
    assert list(reader.new()) == []


def test_a_piece_that_failed_is_sent_again(tmp_path: Path) -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, [Fault(kind="fail", verbs=("put",), times=1)])
    path = tmp_path / "driver.log"
    path.write_text("one\n")
    shipper = LogShipper(store, "n002", {"driver": path})
    with pytest.raises(TransientError):
        shipper.ship()
    shipper.ship()
    assert list(LogReader(inner).new()) == [("n002/driver", "one")]


def test_a_line_cut_by_a_piece_comes_out_whole(tmp_path: Path) -> None:
    store = MemoryStore()
    path = tmp_path / "driver.log"
    shipper, reader = LogShipper(store, "n002", {"driver": path}), LogReader(store)
    path.write_text("on")
    shipper.ship()
    assert list(reader.new()) == []
    path.write_text("one\ntw")
    shipper.ship()
    assert list(reader.new()) == [("n002/driver", "one")]
    assert list(reader.rest()) == [("n002/driver", "tw")]
