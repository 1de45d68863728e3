"""Lambda Cloud, looked at: whether its key is good, and what it has now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from burst.errors import BurstError, TransientError
from burst.provision.inspection.port import Finding, Row, Wanted
from burst.provision.lambda_cloud.api import LambdaApi

KEY_PAGE = "https://cloud.lambda.ai/api-keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaPool:
    """See burst.provision.inspection.port.Inspected. Its API tells of no quota and no rights."""

    name: str = "lambda"
    connect: Callable[[], LambdaApi]

    def rows(self) -> tuple[Row, ...]:
        """Return which machine types are to be had anywhere."""
        types = self.connect().machine_types()
        there = sorted(name for name, one in types.items() if one.regions)
        words = f"in stock: {', '.join(there)}" if there else "nothing is in stock"
        return (Row(pool=self.name, healthy=True, detail=words),)

    def findings(self, wanted: Wanted) -> tuple[Finding, ...]:
        try:
            types = self.connect().machine_types()
        except TransientError as error:
            fix = "see whether cloud.lambda.ai is reachable, and the proxy settings"
            return (self._finding("reachable", error.message, works=False, fix=fix),)
        except BurstError as error:
            fix = error.hint or f"make a key: {KEY_PAGE}"
            return (self._finding("credentials", error.message, works=False, fix=fix),)
        mine = sorted({one.machine_type for one in wanted.machines if one.pool == self.name})
        found = [self._finding("credentials", "Lambda Cloud takes the key", works=True)]
        for name in mine:
            regions = types[name].regions if name in types else ()
            words = f"in stock in {', '.join(sorted(regions))}" if regions else "out of stock now"
            works = True if regions else None
            fix = "a run asks again and again, or elsewhere: name other machines too"
            found.append(self._finding(name, words, works=works, fix=fix))
        return tuple(found)

    def _finding(self, what: str, detail: str, *, works: bool | None, fix: str = "") -> Finding:
        return Finding(pool=self.name, what=what, works=works, detail=detail, fix=fix)
