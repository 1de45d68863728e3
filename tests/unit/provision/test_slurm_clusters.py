"""Several Slurm clusters at once, of which one may not answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from burst.cost.placement import Place
from burst.errors import TransientError
from burst.ports import Clock
from burst.provision.rented import Machine, MachineRequest
from burst.provision.slurm import Slurm
from burst.provision.slurm_site import read_clusters
from burst.provision.ssh import Ssh
from cli_scene import StillClock
from slurm_stand_in import SlurmStandIn, usual

RUN = "toy-abcdef"
N1, N2 = f"burst-{RUN}-n001", f"burst-{RUN}-n002"


class Site:
    """Clusters `lab` and `lab2`, and a controller that uses both."""

    def __init__(self, home: Path, lab: SlurmStandIn, lab2: SlurmStandIn, clock: Clock) -> None:
        self.home, self.lab, self.lab2, self.clock = home, lab, lab2, clock
        config = home / "config"
        config.write_text("Host lab lab2\n")
        self.clusters = read_clusters({}, config)
        self.pool = Slurm(self.clusters, home, clock)

    def launch(self, name: str, cluster: str) -> None:
        place = Place(pool=f"slurm/{cluster}", zone="gpu", machine_type="2CPU--4GB", owned=True)
        log = self.home / f"{name}.log"
        self.pool.launch(MachineRequest(name=name, place=place, wanted={}, labels={}, log=log))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    clock, logins = StillClock(), tmp_path / "logins"
    monkeypatch.setenv("PATH", f"{logins}:{os.environ['PATH']}")
    with usual("lab", logins, clock) as lab, usual("lab2", logins, clock) as lab2:
        yield Site(tmp_path, lab, lab2, clock)


def costing(machines: Mapping[str, Machine]) -> set[str]:
    return {node_id for node_id, machine in machines.items() if machine.costs}


def test_what_a_silent_cluster_has_is_what_it_had_last(site: Site) -> None:
    site.launch(N1, "lab")
    site.launch(N2, "lab2")
    before = site.pool.machines(RUN)
    assert costing(before) == {"n001", "n002"}
    site.lab.down = True
    site.pool.down(N2)
    assert costing(site.pool.machines(RUN)) == {"n001"}
    assert site.pool.states(f"burst-{RUN}-", refresh=True) == {N1: "up"}
    site.lab.down = False
    assert site.pool.machines(RUN)["n001"] == before["n001"]


def test_a_node_that_was_ended_is_over_though_its_cluster_falls_silent(site: Site) -> None:
    site.launch(N1, "lab")
    site.launch(N2, "lab2")
    assert costing(site.pool.machines(RUN)) == {"n001", "n002"}
    site.pool.down(N1)
    site.lab.down = True
    assert costing(site.pool.machines(RUN)) == {"n002"}
    assert site.pool.states(f"burst-{RUN}-", refresh=True) == {N2: "up"}
    site.lab.down, site.lab2.down = False, True
    site.pool.down(N1)  # once more: where it was is known, so the other need not be asked


def test_a_node_that_is_asked_for_again_after_its_end_is_there(site: Site) -> None:
    site.launch(N1, "lab")
    site.pool.down(N1)
    site.launch(N1, "lab")
    assert costing(site.pool.machines(RUN)) == {"n001"}
    site.lab.down = True
    assert site.pool.states(f"burst-{RUN}-", refresh=True) == {N1: "up"}


def test_a_controller_that_takes_over_while_a_cluster_is_silent_keeps_its_nodes(
    site: Site,
) -> None:
    site.launch(N1, "lab")
    site.lab.down = True
    successor = Slurm(site.clusters, site.home, site.clock, {N1: "slurm/lab"})
    assert successor.states(N1, refresh=True) == {N1: "up"}
    assert successor.machines(RUN) == {}
    site.lab2.down = True
    for ask in (lambda: successor.states(N1, refresh=True), lambda: successor.machines(RUN)):
        with pytest.raises(TransientError, match="no Slurm cluster answers"):
            ask()


def test_runs_whose_names_begin_alike_have_each_their_own_jobs(site: Site) -> None:
    other = f"{RUN}-n001-zyxwvu"
    site.launch(N1, "lab")
    site.launch(f"burst-{other}-n002", "lab")
    for _ in range(2):
        assert list(site.pool.machines(RUN)) == ["n001"]
        assert list(site.pool.machines(other)) == ["n002"]


def test_a_look_that_began_earlier_ends_no_job_that_a_later_one_saw(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch looks at its own machine while the controller looks at all of them."""
    ask, listed, go_on = Ssh.run, threading.Event(), threading.Event()

    def run(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        said = ask(ssh, command, data, limit_s=limit_s)
        if not listed.is_set():  # the first list, without the job, takes its time to get here
            listed.set()
            go_on.wait()
        return said

    monkeypatch.setattr(Ssh, "run", run)
    with ThreadPoolExecutor() as threads:
        early = threads.submit(site.pool.machines, RUN)
        listed.wait()
        site.launch(N1, "lab")
        late = threads.submit(site.pool.machines, RUN)
        wait([late], timeout=0.2)  # it may have to wait for the early one
        go_on.set()
        assert costing(early.result()) == set(early.result())
        assert costing(late.result()) == {"n001"}


def test_a_job_that_only_a_look_at_machines_found_is_over_once_slurm_forgets_it(
    site: Site,
) -> None:
    site.launch(N1, "lab")
    successor = Slurm(site.clusters, site.home, site.clock)
    assert costing(successor.machines(RUN)) == {"n001"}
    site.lab.jobs.clear()
    assert costing(successor.machines(RUN)) == set()
