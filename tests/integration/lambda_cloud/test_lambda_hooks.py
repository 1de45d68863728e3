"""One test for each place at which SkyPilot's Lambda is changed, and for what is done there."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from burst.cost.placement import Place
from burst.errors import TransientError
from burst.provision.lambda_cloud.cluster import HEAD
from burst.provision.refusals import RefusedError, reason_of
from burst.provision.rented import MachineRequest, cluster_name
from burst.task_specs.names import MAX_CLOUD_NAME
from lambda_emulator import LAUNCH, Fault, LambdaEmulator, StepClock

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # SkyPilot's own
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("sky_home"),
]


@pytest.fixture(autouse=True)
def registered(sky_home: Path) -> None:
    from burst.provision.sky_plugin.register import register

    assert "lambda" in register()
    register()


def config(count: int = 1) -> Any:
    from sky.provision import common

    return common.ProvisionConfig(
        provider_config={"region": "us-east-1"},
        authentication_config={"remote_key_name": "sky-key-me"},
        docker_config={},
        node_config={"InstanceType": "gpu_1x_a10"},
        count=count,
        tags={},
        resume_stopped_nodes=True,
        ports_to_open_on_launch=None,
    )


def run(name: str = "burst-toy-abcdef-n001", count: int = 1) -> Any:
    from sky import provision

    return provision.run_instances("Lambda", "us-east-1", name, f"{name}-0a0b", config(count))


def test_the_version_is_the_one_that_was_read() -> None:
    assert importlib.metadata.version("skypilot") == "0.14.1"


def test_every_function_of_ours_takes_what_skypilot_gives() -> None:
    from sky import provision

    from burst.provision.sky_plugin import lambda_provision

    names = "run_instances wait_instances query_instances terminate_instances get_cluster_info"
    for name in names.split():
        theirs = list(inspect.signature(getattr(provision, name)).parameters)[1:]
        ours = list(inspect.signature(getattr(lambda_provision, name)).parameters)
        assert ours == theirs, name


def test_hook_provisioner_calls_come_to_us(emulator: LambdaEmulator) -> None:
    """SkyPilot calls it `Lambda`, routes it as `lambda_cloud`, and would ignore `lambda`."""
    from sky import clouds, provision

    assert repr(clouds.Lambda()) == "Lambda"
    record = run()
    (made,) = emulator.running()
    assert (record.head_instance_id, record.created_instance_ids) == (made, [made])
    assert record.provider_name == "lambda"
    provision.wait_instances("Lambda", "us-east-1", "burst-toy-abcdef-n001-0a0b", state=None)
    (vm,) = emulator.named(f"burst-toy-abcdef-n001-0a0b-{HEAD}")
    tags = {tag["key"]: tag["value"] for tag in vm.body["tags"]}
    assert (tags["burst-run"], tags["burst-node"]) == ("toy-abcdef", "n001")


def test_a_lost_worker_is_made_anew_where_skypilot_waits_for_ever(
    emulator: LambdaEmulator,
) -> None:
    from sky import provision

    record = run("theirs", count=3)
    emulator.lose(record.created_instance_ids[2])
    assert len(run("theirs", count=3).created_instance_ids) == 1
    info = provision.get_cluster_info("Lambda", "us-east-1", "theirs-0a0b", {"region": "x"})
    assert info.head_instance_id == record.head_instance_id
    assert info.num_instances == 3
    assert len({ip for ip, _ in info.ip_tuples()}) == 3
    provision.terminate_instances("Lambda", "theirs-0a0b", {}, worker_only=True)
    assert emulator.running() == [record.head_instance_id]


@pytest.mark.parametrize(
    ("state", "status"),
    [("active", "UP"), ("booting", "INIT"), ("unhealthy", "INIT"), ("preempted", None)],
)
def test_states_are_told_in_skypilots_words(
    emulator: LambdaEmulator, state: str, status: str | None
) -> None:
    from sky import provision

    name = run().head_instance_id
    emulator.vms[name].state = state
    query: Any = ("Lambda", "burst-toy-abcdef-n001", "burst-toy-abcdef-n001-0a0b", {})
    told = {key: found and found.value for key, (found, _) in
            provision.query_instances(*query).items()}  # fmt: skip
    assert told == ({name: status} if status else {})
    everything = provision.query_instances(*query, non_terminated_only=False)
    assert list(everything) == [name]


def test_ending_twice_is_no_error(emulator: LambdaEmulator) -> None:
    from sky import provision

    run()
    for _ in range(2):
        provision.terminate_instances("Lambda", "burst-toy-abcdef-n001-0a0b", {})
    assert emulator.running() == []


def test_a_refusal_comes_as_an_error_that_can_be_handed_on(emulator: LambdaEmulator) -> None:
    import pickle

    from sky.provision import common

    emulator.stock["gpu_1x_a10", "us-east-1"] = 0
    with pytest.raises(common.ProvisionerError) as error:
        run()
    assert error.value.errors[0]["code"].endswith("insufficient-capacity")
    assert reason_of(str(pickle.loads(pickle.dumps(error.value)))) == "capacity"  # noqa: S301
    assert emulator.calls[f"POST {LAUNCH}"] == 0


def test_what_we_leave_out_is_skypilots_own() -> None:
    from sky import provision

    with pytest.raises(NotImplementedError):
        provision.stop_instances("Lambda", "c", {})
    provision.cleanup_ports("Lambda", "c", [], {})


def test_hook_client_skypilots_own_one_asks_by_our_api(
    emulator: LambdaEmulator, clock: StepClock
) -> None:
    """Its SSH keys and checks keep the limits, and their calls end."""
    from sky import authentication, clouds

    found = authentication.setup_lambda_authentication({"auth": {}})
    _, key = emulator.keys
    assert found["auth"]["remote_key_name"] == key["name"]
    assert authentication.setup_lambda_authentication({"auth": {}}) == found
    assert len(emulator.keys) == 2
    assert clouds.Lambda._check_compute_credentials() == (True, None)
    assert emulator.limited.total() == 0
    emulator.faults.append(Fault("/instances", 401))
    works, _ = clouds.Lambda._check_compute_credentials()
    assert not works
    emulator.faults.append(Fault("/instances", 503, times=99))
    works, why = clouds.Lambda._check_compute_credentials()
    assert (works, "network connection" in str(why)) == (False, True)


def test_hook_keys_the_accounts_one_stays_here_when_burst_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sky import check, clouds
    from sky.server.requests import payloads

    from burst.provision import skypilot
    from burst.provision.sky_plugin.lambda_hooks import KEYLESS_VAR

    there = "~/.lambda_cloud/lambda_keys"
    assert there in check.get_cloud_credential_file_mounts(None)  # SkyPilot's way, for others
    assert KEYLESS_VAR not in payloads.request_body_env_vars()
    with skypilot._keyless():
        assert payloads.request_body_env_vars()[KEYLESS_VAR] == "1"
        assert there not in check.get_cloud_credential_file_mounts(None)
    assert there in clouds.Lambda().get_credential_file_mounts()


def test_names_on_the_cloud_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from sky import clouds
    from sky.utils import common_utils, resources_utils

    longest = cluster_name("r" * MAX_CLOUD_NAME, "n0001")
    limit = clouds.Lambda.max_cluster_name_length()
    there = common_utils.make_cluster_name_on_cloud(longest, limit)
    assert there.startswith(f"{longest}-")
    assert len(f"{there}-worker") <= 64  # Lambda's limit
    assert str(resources_utils.ClusterName(longest, there)) == longest  # what run_instances gets


# The server -----------------------------------------------------------------------------------


def test_with_a_key_of_lambda_a_server_loads_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sky.server import plugins

    from burst.provision.sky_plugin import register

    monkeypatch.setenv(register.PLUGINS_FILE, str(tmp_path / "none.yaml"))
    register.tell_server(tmp_path)
    assert os.environ[register.PLUGINS_FILE] == str(tmp_path / "sky-plugins.yaml")
    monkeypatch.setattr(plugins, "_PLUGINS", {})
    plugins.load_plugins(plugins.ExtensionContext(context=plugins.PluginContext.EXECUTOR))
    loaded = [(one.name, one.version) for one in plugins.get_plugins()]
    assert loaded == [(register.NAME, register.VERSION)]


def test_without_a_key_nobody_is_bothered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from burst.provision.sky_plugin import register

    monkeypatch.setenv("HOME", str(tmp_path))
    assert "lambda" not in register.wanted()


class Answer:
    def __init__(self, told: Any) -> None:
        self.told = told

    def raise_for_status(self) -> None: ...

    def json(self) -> Any:
        return self.told


class Plugin:
    """As much of a plugin as the server's list tells."""

    hidden_from_display = requires_early_init = False
    js_extension_path = None

    def __init__(self, name: str, version: str | None = None) -> None:
        self.name, self.version = name, version


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> list[Plugin]:
    """The plugins of SkyPilot's server, which its own function lists."""
    import asyncio

    from sky.server import common, plugins
    from sky.server import server as sky_server

    loaded: list[Plugin] = []

    def ask(method: str, path: str, **_: object) -> Answer:
        assert (method, path) == ("GET", "/api/plugins")
        return Answer(asyncio.run(sky_server.list_plugins()))

    monkeypatch.setattr(common, "make_authenticated_request", ask)
    monkeypatch.setattr(plugins, "get_plugins", lambda: loaded)
    return loaded


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([("other", None)], "runs without burst's plugin, which lambda needs"),
        ([("burst", "0")], "with version 0 of burst's plugin"),
    ],
)
def test_a_server_that_would_rent_by_skypilots_own_code_is_told_apart(
    server: list[Plugin],
    told: list[tuple[str, str | None]],
    says: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from burst.provision import skypilot

    server += [Plugin(*one) for one in told]
    left, lame = skypilot._rentable(["aws", "lambda"])
    assert (left, [*lame]) == (["aws"], ["lambda"])
    error = skypilot._unusable({"lambda"}, lame)
    assert says in error.message
    assert "sky api stop" in str(error.hint)
    assert skypilot._rentable(["aws"]) == (["aws"], {})
    place = Place(pool="lambda", region="us-east-1", machine_type="gpu_1x_a10")
    request = MachineRequest(
        name="burst-toy-abcdef-n001", place=place, wanted={}, labels={}, log=tmp_path / "log"
    )
    with pytest.raises(RefusedError, match=says):
        skypilot.launch(request)


def test_a_server_with_it_is_as_good_as_any(server: list[Plugin]) -> None:
    from burst.provision import skypilot
    from burst.provision.sky_plugin.register import VERSION

    server += [Plugin("other"), Plugin("burst", VERSION)]
    assert skypilot._rentable(["aws", "lambda"]) == (["aws", "lambda"], {})


def test_a_server_that_does_not_answer_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sky.server import common

    from burst.provision.sky_plugin.server import check_plugin

    def ask(*_: object, **__: object) -> Answer:
        raise OSError("connection refused")

    monkeypatch.setattr(common, "make_authenticated_request", ask)
    with pytest.raises(TransientError, match="connection refused"):
        check_plugin("lambda")
