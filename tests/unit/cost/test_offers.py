"""What fits a task, in which order, why the rest does not, and the most it can cost."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.cost.offers import Offer, candidates, choices_of, least_nodes, plan, rejections
from burst.cost.quotes import PER_HOUR, PER_SECOND, BillingRule, Quote
from burst.records import choice_json, read_choice
from burst.task_specs.model import (
    Accelerators,
    Amount,
    Burst,
    Infra,
    Pools,
    Range,
    Resources,
    Task,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def offer(
    pool: str = "aws", usd: str = "1", *, billing: BillingRule = PER_SECOND, **kwargs: Any
) -> Offer:
    values: dict[str, Any] = {
        "region": "r1",
        "zone": "r1a",
        "machine_type": "m",
        "cpus": 8,
        "memory_gb": 32,
        "accelerators": None,
        "spot": False,
        **kwargs,
    }
    quote = Quote(
        usd_per_hour=Decimal(usd), source="test", observed_at=NOON, billing=billing, free=True
    )
    return Offer(pool=pool, quote=quote, **values)


def task(*wanted: Resources, nodes: int = 1, ordered: bool = False, **burst: Any) -> Task:
    return Task(
        name="t",
        source="t.yaml",
        num_nodes=nodes,
        candidates=wanted or (Resources(),),
        ordered=ordered,
        burst=Burst(**burst),
    )


def pools(one: Task, *offers: Offer) -> list[str]:
    return [candidate.offer.pool for candidate in candidates(one, offers)]


def test_the_cheapest_comes_first_and_equals_stay_as_offered() -> None:
    offers = [offer("b", "2"), offer("c", "1"), offer("a", "2")]
    assert pools(task(), *offers) == ["c", "b", "a"]


def test_preferred_pools_come_before_cheaper_ones() -> None:
    offers = [offer("aws", "1"), offer("slurm/lab", "3"), offer("slurm/old", "2")]
    one = task(pools=Pools(prefer=("slurm/lab", "slurm")))
    assert pools(one, *offers) == ["slurm/lab", "slurm/old", "aws"]


def test_an_ordered_task_is_taken_at_its_word() -> None:
    wanted = (Resources(infra=Infra(cloud="gcp")), Resources(infra=Infra(cloud="aws")))
    offers = [offer("aws", "1"), offer("gcp", "5")]
    assert pools(task(*wanted), *offers) == ["aws", "gcp"]
    assert pools(task(*wanted, ordered=True), *offers) == ["gcp", "aws"]


GCP = Infra(cloud="gcp")
A100_8 = Accelerators(kind="A100", count=8)


@pytest.mark.parametrize(
    ("wanted", "there", "reason"),
    [
        ({"infra": Infra(cloud="gcp")}, {}, "not asked, the task names infra gcp"),
        ({"infra": Infra(region="r2")}, {}, "not asked, the task names infra */r2"),
        ({"infra": Infra(zone="r1b")}, {}, "not asked, the task names infra */*/r1b"),
        ({"instance_type": "x"}, {}, "is a m, the task wants x"),
        ({"accelerators": A100_8}, {}, "has no accelerator, the task wants A100:8"),
        (
            {"accelerators": A100_8},
            {"accelerators": Accelerators(kind="A100", count=4)},
            "has A100:4, the task wants A100:8",
        ),
        ({"cpus": Amount(value=16)}, {}, "has 8 CPUs, the task wants 16"),
        (
            {"memory_gb": Amount(value=8, per_cpu=True)},
            {},
            "has 32 GB of memory, the task wants 64",
        ),
        ({"use_spot": True}, {}, "is on-demand, the task wants spot"),
        ({"use_spot": False}, {"spot": True}, "is spot, the task wants on-demand"),
        ({"max_hourly_usd": 0.9}, {}, "costs 1 USD per hour, the task allows 0.9 for a node"),
        (
            {"other": {"image_id": {"r2": "ami-2", "r3": "ami-3"}}},
            {},
            "is in r1, the task has images for r2, r3 alone",
        ),
    ],
)
def test_why_an_offer_does_not_fit(
    wanted: dict[str, Any], there: dict[str, Any], reason: str
) -> None:
    one, bad, good = task(Resources(**wanted)), offer(**there), offer("other")
    (rejected,) = rejections(one, [bad])
    assert (rejected.offer, rejected.reason) == (bad, reason)
    assert candidates(one, [bad]) == ()
    assert candidates(task(), [bad, good]) != ()


@pytest.mark.parametrize(
    ("caps", "most"),
    [((None,), None), ((2.5,), "2.5"), ((2.5, 3), "3"), ((2.5, None), None), ((0.9, 2.5), "2.5")],
)
def test_what_a_node_may_cost_is_what_the_most_generous_that_fits_allows(
    caps: tuple[float | None, ...], most: str | None
) -> None:
    wanted = task(*[Resources(max_hourly_usd=cap) for cap in caps])
    (choice,) = choices_of(wanted, candidates(wanted, [offer()]))
    assert choice.most_usd_per_hour == (None if most is None else Decimal(most))
    assert read_choice(json.loads(json.dumps(choice_json(choice)))) == choice


def test_a_place_is_for_the_candidate_that_it_fits() -> None:
    """What the others say of disks and images is not meant for it."""
    wanted = task(Resources(infra=Infra(cloud="gcp")), Resources(infra=Infra(cloud="aws")))
    found = choices_of(wanted, candidates(wanted, [offer("aws", "1"), offer("gcp", "5")]))
    assert [(c.place.pool, c.candidate) for c in found] == [("aws", 1), ("gcp", 0)]
    old = {key: value for key, value in choice_json(found[0]).items() if key != "candidate"}
    assert read_choice(old).candidate == 0


def test_a_place_is_for_no_candidate_that_it_was_not_made_for() -> None:
    """The cloud lacks the first one's disk tier, say."""
    wanted = task(Resources(), Resources(infra=Infra(cloud="aws"), max_hourly_usd=2.0))
    (found,) = choices_of(wanted, candidates(wanted, [offer("aws", "1", made_for=(1,))]))
    assert found.candidate == 1
    ordered = replace(wanted, ordered=True)
    both = [offer("aws", "1", made_for=(1,)), offer("gcp", "2", made_for=(0,))]
    assert pools(ordered, *both) == ["gcp", "aws"]
    (told,) = rejections(wanted, [offer("aws", "3", made_for=(1,))])
    assert told.reason == "costs 3 USD per hour, the task allows 2.0 for a node"


def test_images_of_regions_are_no_business_of_ones_own_machines() -> None:
    wanted = task(Resources(other={"image_id": {"r2": "ami-2"}}))
    assert pools(wanted, offer("slurm/lab")) == ["slurm/lab"]


def test_images_of_a_kubernetes_cluster_go_by_its_context() -> None:
    """SkyPilot refuses to launch a pod where the map has none."""
    wanted = task(Resources(other={"image_id": {"lab": "docker:mine"}}))
    there = [replace(offer(pool), region="") for pool in ("k8s/lab", "k8s/den")]
    assert pools(wanted, *there) == ["k8s/lab"]
    (told,) = rejections(wanted, there)
    assert told.reason == "is in den, the task has images for lab alone"


def test_what_fits_exactly_or_with_room_to_spare() -> None:
    wanted = Resources(
        infra=Infra(cloud="slurm", region="lab"),
        accelerators=Accelerators(kind="a100", count=8),
        cpus=Amount(value=8, at_least=True),
        memory_gb=Amount(value=4, per_cpu=True),
        max_hourly_usd=1,
    )
    assert candidates(task(wanted), [offer("slurm/lab", accelerators=A100_8)])


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        ("A100", "A100-SXM4-40GB"),
        ("A100-80GB", "A100-SXM4-80GB"),
        ("A100-80GB", "A100-80GB-PCIe"),
        ("H100", "H100-80GB-HBM3"),
        ("H100-NVL", "H100-NVL"),
        ("GH200", "GH200-480GB"),
        ("T4", "Tesla-T4"),
        ("V100-32GB", "Tesla-V100-SXM2-32GB"),
        ("RTX4090", "GeForce-RTX-4090"),
        ("RTX3080Ti", "GeForce-RTX-3080-Ti"),
        ("RTXA6000", "RTX-A6000"),
        ("RTX6000-Ada", "RTX-6000-Ada-Generation"),
    ],
)
def test_a_task_names_gpus_as_catalogs_do_and_own_machines_as_drivers_do(
    wanted: str, there: str
) -> None:
    one = task(Resources(accelerators=Accelerators(kind=wanted, count=2)))
    gpus = Accelerators(kind=there, count=2)
    assert candidates(one, [offer("ssh/lab", accelerators=gpus)])
    if wanted != there:
        assert not candidates(one, [offer("aws", accelerators=gpus)])


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        ("A100-80GB", "A100-SXM4-40GB"),
        ("L40", "L40S"),
        ("T4", "T400-4GB"),
        ("A10", "A100"),
        ("RTX6000", "RTX-6000-Ada-Generation"),
        ("RTX3080", "GeForce-RTX-3080-Ti"),
        ("RTX4070", "GeForce-RTX-4070-Laptop-GPU"),
        ("RTX4070", "GeForce-RTX-4070-SUPER"),
        ("RTX4090", "GeForce-RTX-4090-D"),
    ],
)
def test_another_gpu_of_own_machines_does_not_do(wanted: str, there: str) -> None:
    one = task(Resources(accelerators=Accelerators(kind=wanted, count=1)))
    own = offer("ssh/lab", accelerators=Accelerators(kind=there, count=1))
    (rejected,) = rejections(one, [own])
    assert rejected.reason == f"has {there}:1, the task wants {wanted}:1"


def test_each_candidate_that_may_be_there_gives_its_reason_once() -> None:
    wanted = (
        Resources(infra=Infra(cloud="gcp")),
        Resources(cpus=Amount(value=16)),
        Resources(cpus=Amount(value=16)),
        Resources(infra=Infra(cloud="aws"), use_spot=True),
    )
    (rejected,) = rejections(task(*wanted), [offer()])
    assert rejected.reason == "has 8 CPUs, the task wants 16; is on-demand, the task wants spot"


def test_a_place_that_no_candidate_names_is_told_which_are_named() -> None:
    lab = Infra(cloud="ssh", region="lab")
    wanted = (Resources(infra=lab), Resources(infra=lab, use_spot=False), Resources(infra=GCP))
    (rejected,) = rejections(task(*wanted), [offer("local", region="", zone="")])
    assert rejected.reason == "not asked, the task names infra ssh/lab or gcp"
    assert rejected.offer.where == "local"
    assert offer("aws").where == "aws/r1a"


@pytest.mark.parametrize(("spot", "fits"), [("spot", 1), ("on-demand", 1), ("auto", 2)])
def test_the_blocks_spot_word_counts_where_resources_are_silent(spot: str, fits: int) -> None:
    offers = [offer(spot=True), offer(spot=False)]
    assert len(candidates(task(spot=spot), offers)) == fits
    told = candidates(task(Resources(use_spot=True), spot=spot), offers)
    assert [candidate.offer.spot for candidate in told] == [True]


def test_own_machines_that_nobody_takes_serve_as_spot_and_as_on_demand() -> None:
    own = [offer("local"), offer("ssh/lab"), offer("slurm/lab")]
    for spot in (True, False):
        assert len(candidates(task(Resources(use_spot=spot)), own)) == len(own)


def test_own_machines_that_may_be_taken_are_spot() -> None:
    scavenged = offer("slurm/lab", zone="scav", spot=True)
    assert scavenged.owned
    assert candidates(task(spot="spot"), [scavenged])
    (rejected,) = rejections(task(spot="on-demand"), [scavenged])
    assert rejected.reason == "is spot, the task wants on-demand"


def test_a_place_says_that_it_is_spot_whoever_has_it() -> None:
    offers = [offer("slurm/lab", spot=True), offer("slurm/lab"), offer("aws", spot=True), offer()]
    places = [str(choice.place) for choice in choices_of(task(), candidates(task(), offers))]
    assert [place.split()[2:] for place in places] == [["spot"], [], ["spot"], ["on-demand"]]


@pytest.mark.parametrize(
    ("burst", "usd", "most", "why"),
    [
        ({}, "2", None, "give burst.budget_usd or burst.deadline"),
        ({"budget_usd": 40.1}, "2", "40.1", "the budget"),
        (
            {"deadline_s": 5400.0},
            "2",
            "6",
            "the deadline of 1.5 h at up to 4 USD per hour",
        ),
        (
            {"deadline_s": 5400.0, "budget_usd": 7.0},
            "2",
            "6",
            "the deadline of 1.5 h at up to 4 USD per hour",
        ),
        ({"deadline_s": 5400.0, "budget_usd": 5.0}, "2", "5", "the budget"),
        ({}, "0", "0", "the machines cost nothing per hour"),
        ({"budget_usd": 5.0}, "0", "0", "the machines cost nothing per hour"),
    ],
)
def test_the_most_it_can_cost(burst: dict[str, Any], usd: str, most: str | None, why: str) -> None:
    found = plan(task(nodes=2, **burst), [offer("local", usd)])
    assert found.usd_per_hour == Decimal(usd) * 2
    assert found.most_usd == (None if most is None else Decimal(most))
    assert found.why == why


def test_the_most_counts_the_dearest_and_whole_billing_units() -> None:
    """C95: an hour begun is an hour paid."""
    offers = [offer("a", "1"), offer("b", "3", billing=PER_HOUR), offer("c", "3.1")]
    found = plan(task(deadline_s=5400.0), offers)
    assert found.usd_per_hour == 1
    assert found.most_usd == 6
    assert found.why == "the deadline of 1.5 h at up to 3.1 USD per hour"


def test_a_plan_where_nothing_fits_says_so() -> None:
    found = plan(task(Resources(accelerators=A100_8), budget_usd=5.0), [offer("local", "0")])
    assert (found.candidates, found.usd_per_hour, found.most_usd) == ((), None, None)
    assert found.why == "nothing fits"
    assert [rejected.reason for rejected in found.rejected] == [
        "has no accelerator, the task wants A100:8"
    ]


@given(
    prices=st.lists(st.integers(0, 9), max_size=8),
    cpus=st.integers(1, 16),
    shuffle=st.randoms(use_true_random=False),
)
def test_every_offer_is_either_a_candidate_or_rejected(
    prices: list[int], cpus: int, shuffle: Random
) -> None:
    one = task(Resources(cpus=Amount(value=cpus)))
    offers = [offer(f"p{n}", str(usd), cpus=usd + 1) for n, usd in enumerate(prices)]
    found = plan(one, offers)
    seen = [candidate.offer for candidate in found.candidates]
    assert sorted(o.pool for o in [*seen, *(r.offer for r in found.rejected)]) == sorted(
        o.pool for o in offers
    )
    ladder = [candidate.usd_per_hour for candidate in found.candidates]
    assert ladder == sorted(ladder)
    shuffle.shuffle(offers)
    assert [c.usd_per_hour for c in plan(one, offers).candidates] == ladder


OWN_AND_RENTED = (offer("aws", "1"), offer("ssh/lab", "3"), offer("gcp", "2"))


def waits(one: Task) -> dict[str, float]:
    found = choices_of(one, candidates(one, OWN_AND_RENTED))
    return {choice.place.pool: choice.after_s for choice in found}


def test_own_machines_come_first_and_the_others_after_a_wait() -> None:
    assert waits(task()) == {"ssh/lab": 0.0, "aws": 0.0, "gcp": 0.0}
    assert list(waits(task())) == ["ssh/lab", "aws", "gcp"]
    assert waits(task(pools=Pools(overflow_after_s=60.0))) == {
        "ssh/lab": 0.0,
        "aws": 60.0,
        "gcp": 60.0,
    }


def test_preferred_pools_are_waited_for_as_well() -> None:
    one = task(pools=Pools(prefer=("gcp",), overflow_after_s=60.0))
    assert list(waits(one)) == ["gcp", "ssh/lab", "aws"]
    assert waits(one) == {"gcp": 0.0, "ssh/lab": 0.0, "aws": 60.0}


def test_without_anything_to_wait_for_there_is_no_wait() -> None:
    one = task(Resources(infra=Infra(cloud="aws")), pools=Pools(overflow_after_s=60.0))
    assert waits(one) == {"aws": 0.0}


# How many nodes there can be ----------------------------------------------------------------------

LAB = offer("ssh/lab", "0.5", most=2)


def test_a_pool_with_too_few_machines_is_no_place_for_a_task() -> None:
    made = plan(task(nodes=4), [LAB])
    assert (made.candidates, made.usd_per_hour, made.nodes) == ((), None, 0)
    (told,) = made.rejected
    assert told.reason == "has 2 of these machines, the task needs 4 nodes"
    assert plan(task(nodes=2), [LAB]).rejected == ()


def test_places_that_may_be_mixed_hold_a_task_together() -> None:
    den = offer("ssh/den", "0.7", machine_type="other", most=1)
    three, four = plan(task(nodes=3), [LAB, den]), plan(task(nodes=4), [LAB, den])
    assert [(c.offer.pool, c.nodes) for c in three.candidates] == [("ssh/lab", 2), ("ssh/den", 1)]
    assert (three.nodes, three.usd_per_hour) == (3, Decimal("1.7"))
    assert four.candidates == ()
    assert {told.reason.partition(", the")[0] for told in four.rejected} == {
        "has 2 of these machines, 3 with those like it",
        "has 1 of these machines, 3 with those like it",
    }


def test_what_own_machines_lack_is_rented_and_paid_for() -> None:
    made = plan(task(nodes=4, deadline_s=3600.0), [LAB, offer("aws", "3")])
    assert [(c.offer.pool, c.nodes) for c in made.candidates] == [("ssh/lab", 2), ("aws", 4)]
    assert made.usd_per_hour == Decimal(7)  # two of one's own, two rented
    assert made.most_usd == Decimal(12)  # if all had to be rented


def test_the_dearest_places_are_counted_as_often_as_there_are_machines() -> None:
    dear = offer("ssh/den", "9", most=1)
    made = plan(task(nodes=3, deadline_s=3600.0), [LAB, dear])
    assert (made.usd_per_hour, made.most_usd) == (Decimal(10), Decimal(10))
    assert made.why == "the deadline of 1 h at up to 10.0 USD per hour"


def test_a_machine_that_may_be_of_several_kinds_counts_once_and_as_the_dearest() -> None:
    """One host of three is silent."""
    cheap = offer("ssh/lab", "1", most=2, unsure=1)
    dear = offer("ssh/lab", "9", machine_type="big", most=2, unsure=1)
    three = plan(task(nodes=3, deadline_s=3600.0), [cheap, dear])
    assert (three.nodes, three.usd_per_hour, three.most_usd) == (3, Decimal(11), Decimal(19))
    assert plan(task(nodes=2, deadline_s=3600.0), [cheap, dear]).most_usd == Decimal(18)
    (first, _) = plan(task(nodes=4), [cheap, dear]).rejected
    assert first.reason == "has 2 of these machines, 3 with those like it, the task needs 4 nodes"
    big = Resources(instance_type="big")
    assert [c.nodes for c in candidates(task(big, nodes=2), [cheap, dear])] == [2]


def test_an_elastic_task_takes_what_there_is_if_that_is_enough() -> None:
    elastic = task(nodes=4, train="t.py:main", workers=Range(low=2, high=4))
    made = plan(elastic, [LAB])
    assert (made.nodes, made.usd_per_hour) == (2, Decimal(1))
    more = task(nodes=4, train="t.py:main", workers=Range(low=3, high=4))
    assert [told.reason for told in plan(more, [LAB]).rejected] == [
        "has 2 of these machines, the task needs 3 nodes"
    ]


def test_machines_with_other_numbers_of_gpus_are_not_mixed_so_they_do_not_help() -> None:
    wanted = [Resources(accelerators=Accelerators(kind="A100", count=n)) for n in (1, 2)]
    one, two = (
        offer(f"ssh/{n}", most=2, accelerators=Accelerators(kind="A100", count=n)) for n in (1, 2)
    )
    assert pools(task(wanted[1], nodes=3), two) == []
    assert pools(task(*wanted, nodes=4), one, two) == ["ssh/1", "ssh/2"]  # each may stand for one
    wider = task(wanted[1], Resources(accelerators=Accelerators(kind="T4", count=1)), nodes=3)
    t4 = offer("aws", "9", accelerators=Accelerators(kind="T4", count=1))
    assert pools(wider, two, t4) == ["aws"]


@pytest.mark.parametrize(
    ("nodes", "low", "high", "least"), [(4, 2, 4, 2), (4, 1, 16, 1), (4, 9, 16, 3), (4, 1, 2, 1)]
)
def test_workers_say_how_few_nodes_will_do(nodes: int, low: int, high: int, least: int) -> None:
    assert least_nodes(task(nodes=nodes, train="t:m", workers=Range(low=low, high=high))) == least
    assert least_nodes(task(nodes=nodes, workers=Range(low=low, high=high))) == nodes
    assert least_nodes(task(nodes=nodes, train="t:m")) == nodes
