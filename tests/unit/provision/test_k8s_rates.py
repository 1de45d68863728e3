"""What pods cost, and what burst adds to them."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from burst.agent.notices import source
from burst.cost.offers import Offer
from burst.cost.quotes import RULE_UNKNOWN, Quote
from burst.provision.k8s import pod
from burst.provision.k8s.rates import priced, read_rates
from burst.records import POD_NOTICE
from burst.task_specs.model import Accelerators

NOW = datetime(2026, 12, 2, tzinfo=UTC)
RATES = {"k8s": {"lab": {"usd_per_gpu_hour": "1.10", "usd_per_cpu_hour": "0.02"}, "free": None}}


def offer(pool: str, usd: str = "0") -> Offer:
    return Offer(
        pool=pool,
        region="",
        zone="",
        machine_type="8CPU--32GB--H100:2",
        cpus=8.0,
        memory_gb=32.0,
        accelerators=Accelerators(kind="H100", count=2),
        spot=False,
        quote=Quote(
            usd_per_hour=Decimal(usd),
            source="SkyPilot's catalog",
            observed_at=NOW,
            billing=RULE_UNKNOWN,
            free=True,
        ),
    )


@pytest.mark.parametrize(
    ("context", "usd", "price", "words"),
    [
        ("lab", "0", "2.36", "pools.yaml"),
        ("lab", "9", "2.36", "pools.yaml"),  # the nearer word counts
        ("free", "9", "0", "pools.yaml"),
        ("other", "9", "9", "SkyPilot's kubernetes.pricing"),
        ("other", "0", "0", "own machine, no price set in pools.yaml"),
    ],
)
def test_a_pod_costs_what_pools_yaml_says_or_else_skypilot(
    context: str, usd: str, price: str, words: str
) -> None:
    (found,) = priced([offer(f"k8s/{context}", usd)], read_rates(RATES), NOW)
    assert (found.quote.usd_per_hour, found.quote.source) == (Decimal(price), words)
    assert found.owned


def test_other_pools_keep_their_prices() -> None:
    theirs = offer("aws", "3")
    assert priced([theirs], read_rates(RATES), NOW) == (theirs,)
    assert read_rates({}) == {}


def test_what_the_kubelet_runs_is_what_the_agent_reads(tmp_path: Path) -> None:
    path = tmp_path / "notice"
    ask = source("k8s", {"BURST_POD_NOTICE": str(path)})
    assert ask is not None
    assert ask() is None
    path.touch()
    with pytest.raises(ValueError, match="invalid literal"):  # which is no notice yet
        ask()
    before = int(datetime.now(UTC).timestamp())
    tell = pod.TELL.replace(POD_NOTICE, str(path))
    subprocess.run(["/bin/sh", "-c", tell], check=True)
    ends = ask()
    assert ends is not None
    assert 0 <= ends.timestamp() - before - pod.GRACE_S <= 60
