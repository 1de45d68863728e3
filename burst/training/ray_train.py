"""The driver: hands the workers to Ray Train and lets it restart and resize them.

Started by the head node's agent as `python -m burst.training.ray_train`; ends when training is
over. It keeps no state: everything is in the run's store.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import ray
from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
    get_or_create_autoscaling_coordinator,
)
from ray.train.torch import TorchConfig
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.torch.torch_trainer import TorchTrainer

from burst.records import RUN, RunRecord, read_run
from burst.storage.open import open_store
from burst.training.command import run_command
from burst.training.worker import train_worker

log = logging.getLogger(__name__)

# Ray Train's defaults cost a minute per lost node: it polls every 2 s, trusts a node list of up
# to 20 s of age, and waits 60 s for workers on a node that is gone.
FAST = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "15",
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "60",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # notices come through the controller
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "5",
}
RESIZE_CHECK_S = 2.0
COLLECTIVE_TIMEOUT_S = 120


def main() -> int:
    """Run the workers of one run until they are through; 0 when Ray Train says so."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-uri", required=True)
    parser.add_argument("--driver", type=int, required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for name, value in FAST.items():
        os.environ.setdefault(name, value)
    run = read_run(open_store(given.run_uri).get(RUN))
    address = os.environ["RAY_ADDRESS"]
    # Several nodes may share this machine; the driver must hang on the head's raylet, which is
    # not the one that gets lost.
    ray.init(address=address, namespace=run.run_id, _node_ip_address=address.rpartition(":")[0])
    stop = threading.Event()
    threading.Thread(target=_refresh_node_list, args=(stop,), daemon=True).start()
    try:
        _trainer(run, given.run_uri, given.driver).fit()
    finally:
        stop.set()
        ray.shutdown()
    return 0


class _Trainer(TorchTrainer):
    """TorchTrainer without the cleaner of placement groups.

    That one is a detached actor which asks Ray's dashboard once a second whether the driver lives
    and complains when there is no dashboard. The cluster lives no longer than the run.
    """

    def _create_default_callbacks(self) -> list[Any]:
        callbacks: list[Any] = super()._create_default_callbacks()
        return [c for c in callbacks if not isinstance(c, PlacementGroupCleanerCallback)]


def _trainer(run: RunRecord, run_uri: str, driver: int) -> TorchTrainer:
    """Return the trainer of the task: its training function, or its command on each node."""
    low, high = run.workers_low, run.workers_high
    resources = {"CPU": 1.0}  # a node declares as many CPUs as it has slots for workers
    if run.gpus_per_worker:
        resources["GPU"] = float(run.gpus_per_worker)
    return _Trainer(
        train_worker if run.train else run_command,
        train_loop_config={"run_uri": run_uri, "driver": driver},
        torch_config=TorchConfig(
            backend=None if run.gpus_per_worker else "gloo", timeout_s=COLLECTIVE_TIMEOUT_S
        ),
        scaling_config=ScalingConfig(
            num_workers=(low, high) if low < high else high,
            use_gpu=bool(run.gpus_per_worker),
            resources_per_worker=resources,
            elastic_resize_monitor_interval_s=RESIZE_CHECK_S,
        ),
        run_config=RunConfig(
            name=f"driver-{driver}",
            storage_path=_scratch(run.run_id),
            # burst.cost.decide counts failures by who is to blame; Ray just starts again.
            failure_config=FailureConfig(max_failures=-1, controller_failure_limit=-1),
        ),
    )


def _scratch(run_id: str) -> str:
    """Return a folder for Ray Train's own files; nothing of value lies there."""
    folder = Path(os.environ.get("BURST_NODE_DIR", tempfile.gettempdir()), f"ray-train-{run_id}")
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


def _refresh_node_list(stop: threading.Event) -> None:
    """Make Ray's coordinator look at the cluster each second instead of each 20 s.

    Its tick interval is a constant, and it is what tells the elastic policy of lost and new
    nodes; asking with recompute=True forces a tick.
    """
    coordinator = get_or_create_autoscaling_coordinator()  # type: ignore[no-untyped-call]
    while not stop.wait(1.0):
        try:
            ray.get(coordinator.get_reserved_resources.remote("burst", recompute=True), timeout=5)
        except ray.exceptions.RayError as error:
            log.info("the node list was not refreshed: %s", error)


if __name__ == "__main__":
    sys.exit(main())
