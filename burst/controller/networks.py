"""What was measured between islands by this person's runs, for the plan of the next one."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from burst.cost.network import Bridge, Link
from burst.records import moment, stamp

log = logging.getLogger(__name__)


class Networks:
    """One small file for each two islands, under a folder; the newest measurement stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, bridge: Bridge, at: datetime) -> None:
        """Keep a measurement. A plan can do without it, so a full disk is only said."""
        path = self._path(bridge.islands)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = path.with_suffix(".new")
            whole.write_text(json.dumps({"link": asdict(bridge.link), "at": stamp(at)}))
            whole.replace(path)
        except OSError as error:
            log.warning("what was measured is not kept for the next plan: %s", error)

    def known(self, islands: tuple[str, str]) -> tuple[Link, datetime] | None:
        """Return what was measured last between two islands, and when; None if nothing was."""
        try:
            raw = json.loads(self._path(islands).read_text())
            return Link(**raw["link"]), moment(raw["at"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s is damaged and left out: %s", self._path(islands), error)
            return None

    def _path(self, islands: tuple[str, str]) -> Path:
        return self._folder / f"{'--'.join(sorted(islands)).replace('/', '_')}.json"
