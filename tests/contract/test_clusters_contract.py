"""What everything that makes machines for burst must do (burst.provision.rented.Clusters)."""

from __future__ import annotations

from pathlib import Path

import pytest

from burst.errors import TransientError
from burst.provision.refusals import RefusedError, reason_of
from burst.provision.rented import NODE_TAG, RUN_TAG, Clusters, MachineRequest, cluster_name
from pool_bench import OTHER_RUN, RUN
from pool_benches import BENCHES
from rented_bench import RentedBench

KINDS = [pytest.param(name, marks=kind.marks) for name, kind in BENCHES.items() if kind.rents]
pytestmark = [pytest.mark.timeout(60), pytest.mark.parametrize("bench", KINDS, indirect=True)]
N1, N2 = (cluster_name(RUN, name) for name in ("n001", "n002"))
OURS = cluster_name(RUN, "")


@pytest.fixture
def clusters(bench: RentedBench) -> Clusters:
    return bench.clusters()


def launch(bench: RentedBench, clusters: Clusters, run_id: str, node_id: str) -> None:
    clusters.launch(
        MachineRequest(
            name=cluster_name(run_id, node_id),
            place=bench.place,
            wanted={},
            labels={RUN_TAG: run_id, NODE_TAG: node_id},
            log=bench.log,
        )
    )


def test_a_name_has_one_machine_however_often_it_is_asked_for(
    bench: RentedBench, clusters: Clusters
) -> None:
    launch(bench, clusters, RUN, "n001")
    launch(bench, clusters, RUN, "n001")
    launch(bench, bench.clusters(), RUN, "n001")
    assert bench.there() == {"n001"}
    assert list(clusters.states(OURS, refresh=True)) == [N1]


def test_a_refusal_says_why_and_leaves_nothing(bench: RentedBench, clusters: Clusters) -> None:
    bench.fill()
    with pytest.raises(RefusedError) as refused:
        launch(bench, clusters, RUN, "n001")
    assert reason_of(refused.value.said) == "capacity"
    assert (bench.there(), dict(clusters.states(OURS, refresh=True))) == (set(), {})


def test_machines_are_found_by_how_their_names_begin(
    bench: RentedBench, clusters: Clusters
) -> None:
    for node_id in ("n001", "n002"):
        launch(bench, clusters, RUN, node_id)
    launch(bench, clusters, "else-abcdef", "n001")
    for one in (clusters, bench.clusters()):
        for refresh in (False, True):
            assert set(one.states(OURS, refresh=refresh)) == {N1, N2}
            assert one.states("burst-nobody", refresh=refresh) == {}


def test_an_end_takes_one_machine_and_may_be_asked_for_again(
    bench: RentedBench, clusters: Clusters
) -> None:
    launch(bench, clusters, RUN, "n001")
    launch(bench, clusters, RUN, "n002")
    launch(bench, clusters, OTHER_RUN, "n001")
    successor = bench.clusters()
    for _ in range(2):
        successor.down(N1)
        clusters.down(N1)
    successor.down("burst-nobody-abcdef-n001")
    assert (bench.there(), bench.there(OTHER_RUN)) == ({"n002"}, {"n001"})
    assert N1 not in successor.states(OURS, refresh=True)


def test_a_login_leads_to_a_machine_that_is_there(
    bench: RentedBench, clusters: Clusters, tmp_path: Path
) -> None:
    launch(bench, clusters, RUN, "n001")
    logins = {one.login(N1, tmp_path).host for one in (clusters, bench.clusters())}
    assert len(logins) == 1
    with pytest.raises(TransientError):
        clusters.login(N2, tmp_path)


def test_vacancies_are_counted_or_not_told(bench: RentedBench, clusters: Clusters) -> None:
    before = clusters.vacant(bench.place)
    launch(bench, clusters, RUN, "n001")
    assert clusters.vacant(bench.place) == max(before - 1, 0)
    bench.fill()
    assert clusters.vacant(bench.place) == 0
