"""Alibaba Cloud, looked at: whether its keys are good, what they may do, and its vCPU quota."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from burst.cost.offers import Offer
from burst.errors import BurstError, SetupError, TransientError
from burst.provision.alibaba.client import Api
from burst.provision.alibaba.credentials import HINT
from burst.provision.alibaba.errors import EcsError
from burst.provision.alibaba.quotas import quota
from burst.provision.inspection.port import Finding, Row, Wanted, clock_finding

LOOKS = (  # of the documented rights, those that need no name of anything
    "DescribeAccountAttributes",
    "DescribeInstances",
    "DescribeInstanceTypes",
    "DescribeKeyPairs",
    "DescribeSecurityGroups",
    "DescribeVSwitches",
    "DescribeVpcs",
)
POLICY = "docs/alibaba.md, section Rights, has the policy"
WRONG_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurityToken")
QUOTA_PAGE = "https://quotas.console.aliyun.com/products/ecs/quotas"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlibabaPool:
    """See burst.provision.inspection.port.Inspected."""

    name: str = "alibaba"
    connect: Callable[[str], Api]
    region: str  # where to look without a task
    ahead_s: Callable[[str], float | None]  # how far the clock of a region's endpoint is ahead

    def rows(self) -> tuple[Row, ...]:
        """Return whether ECS answers; it tells what is in stock for a machine type only."""
        self.connect(self.region).call("DescribeRegions")
        detail = f"ECS in {self.region} answers"
        return (Row(pool=self.name, healthy=True, detail=detail),)

    def findings(self, wanted: Wanted) -> tuple[Finding, ...]:
        mine = [one for one in wanted.machines if one.pool == self.name]
        region = mine[0].region if mine else self.region
        try:
            api = self.connect(region)
            api.call("DescribeRegions")
        except EcsError as error:
            return (self._refused(error), *self._clock(region))
        except SetupError as error:
            return (self._finding("credentials", error.message, works=False, fix=error.hint or ""),)
        except TransientError as error:
            fix = f"see whether ecs.{region}.aliyuncs.com is reachable, and the proxy settings"
            return (self._finding("reachable", error.message, works=False, fix=fix),)
        return (
            self._finding("credentials", f"ECS in {region} takes them", works=True),
            *self._clock(region),
            self._rights(api),
            *self._quotas(mine, wanted.nodes, region),
        )

    def _finding(self, what: str, detail: str, *, works: bool | None, fix: str = "") -> Finding:
        return Finding(pool=self.name, what=what, works=works, detail=detail, fix=fix)

    def _refused(self, error: EcsError) -> Finding:
        if error.code.startswith("InvalidTimeStamp"):
            fix = "set this machine's clock: signatures are good for 15 min"
            return self._finding("clock", error.message, works=False, fix=fix)
        if error.code.startswith(WRONG_KEYS):
            return self._finding("credentials", error.message, works=False, fix=HINT)
        return self._finding("rights", error.message, works=False, fix=f"allow it: {POLICY}")

    def _clock(self, region: str) -> Iterator[Finding]:
        try:
            off_s = self.ahead_s(region)
        except TransientError:  # whether it answers is another finding
            return
        if off_s is not None:
            yield clock_finding(self.name, "clock", off_s)

    def _rights(self, api: Api) -> Finding:
        refused: list[str] = []
        for action in LOOKS:
            try:
                api.call(action)
            except EcsError as error:
                if error.reason == "rights":
                    refused.append(action)
            except TransientError as error:
                return self._finding("rights", error.message, works=None, fix="look once more")
        if refused:
            words = f"refused: {', '.join(refused)}"
            return self._finding("rights", words, works=False, fix=f"allow them: {POLICY}")
        words = f"{len(LOOKS)} calls that look are allowed; those that make things are not tried"
        return self._finding("rights", words, works=True)

    def _quotas(self, mine: Sequence[Offer], nodes: int, region: str) -> Iterator[Finding]:
        """Compare what is left with what the task's machines have, in each region and market."""
        asked: dict[tuple[str, bool], int] = {(o.region, o.spot): int(o.cpus) for o in mine[::-1]}
        for (where, spot), cpus in (asked or {(region, True): 0, (region, False): 0}).items():
            what = f"quota {where} {'spot' if spot else 'on-demand'}"
            try:
                found = quota(self.connect(where), spot=spot)
            except BurstError as error:
                yield self._finding(what, error.message, works=None, fix=f"see {QUOTA_PAGE}")
                continue
            needed = cpus * nodes
            words = f"{found}; the task wants {needed}" if needed else str(found)
            known = found.most is not None and found.used is not None
            left = (found.most or 0) - (found.used or 0)
            works = left >= needed if known else None
            yield self._finding(what, words, works=works, fix=f"ask for more: {QUOTA_PAGE}")
