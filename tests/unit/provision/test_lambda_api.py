"""Lambda's API against an emulator that keeps the documented limits."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from burst.errors import SetupError, TransientError
from burst.provision.lambda_cloud import api as lambda_api
from burst.provision.lambda_cloud.api import (
    LambdaApi,
    LambdaError,
    Launch,
    LostAnswerError,
    connect,
    read_key,
)
from burst.provision.lambda_cloud.pace import BELIEVABLE_S, Pace
from burst.provision.refusals import reason_of
from lambda_emulator import KEY, LAUNCH, Fault, LambdaEmulator, StepClock

A10 = Launch(
    name="c-head",
    region="us-east-1",
    machine_type="gpu_1x_a10",
    ssh_key="sky-key-me",
    tags={"burst-run": "toy-abcdef"},
)


def test_a_machine_is_launched_boots_and_is_ended(
    api: LambdaApi, emulator: LambdaEmulator, clock: StepClock
) -> None:
    made = api.launch(A10)
    (one,) = api.instances()
    assert (one.instance_id, one.state, one.ip) == (made, "booting", "")
    assert (one.name, one.region, one.machine_type) == ("c-head", "us-east-1", "gpu_1x_a10")
    assert one.tags["burst-run"] == "toy-abcdef"
    assert one.since is not None
    assert timedelta(0) <= clock.now() - one.since < timedelta(seconds=3)
    clock.sleep(emulator.boot_s)
    (one,) = api.instances()
    assert (one.state, one.ip, one.works, one.costs) == ("active", "10.19.0.1", True, True)
    api.terminate([made])
    (one,) = api.instances()
    assert (one.state, one.works, one.costs) == ("terminating", False, False)
    clock.sleep(emulator.end_s)
    assert api.instances() == ()
    assert emulator.running() == []


def test_ending_nothing_asks_nothing(api: LambdaApi, emulator: LambdaEmulator) -> None:
    api.terminate([])
    assert emulator.calls.total() == 0


def test_prices_are_in_dollars_and_regions_those_with_stock(
    api: LambdaApi, emulator: LambdaEmulator
) -> None:
    emulator.stock["gpu_1x_a10", "us-west-1"] = 0
    found = api.machine_types()["gpu_1x_a10"]
    assert str(found.usd_per_hour) == "1.29"
    assert found.regions == ("us-east-1",)


@pytest.mark.parametrize("word", ["unhealthy", "preempted", "terminated", "asleep"])
def test_a_machine_of_no_use_is_told(api: LambdaApi, emulator: LambdaEmulator, word: str) -> None:
    emulator.vms[api.launch(A10)].state = "terminating" if word == "terminated" else word
    (one,) = api.instances()
    assert not one.works
    assert one.costs == (word in {"unhealthy", "asleep"})  # a word that is new: better end it
    assert one.instance_id in str(one)


# Pace -----------------------------------------------------------------------------------------


def test_calls_and_launches_keep_the_limits(
    api: LambdaApi, emulator: LambdaEmulator, clock: StepClock
) -> None:
    for _ in range(3):
        api.launch(A10)
        api.instances()
        api.instances()
    assert emulator.limited.total() == 0
    assert emulator.calls[f"POST {LAUNCH}"] == 3
    assert 25 <= clock.monotonic() - 1000 <= 40  # two launches waited twelve seconds


def test_another_process_keeps_them_too(tmp_path: Path) -> None:
    """Ten processes call five times each: fifty moments, each a second from the next."""
    code = (
        "import sys; from pathlib import Path; from burst.provision.lambda_cloud import pace\n"
        "class Clock:\n"
        "    monotonic = staticmethod(lambda: 1000.0)\n"
        "    def sleep(self, s): print(1000.0 + s)\n"
        "p = pace.Pace(Path(sys.argv[1]), Clock())\n"
        "pace.BELIEVABLE_S = 1e6\n"
        "for _ in range(5): p.call()\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(10)
    ]
    said = [child.communicate(timeout=25)[0].decode() for child in started]
    moments = sorted(float(line) for text in said for line in text.splitlines())
    assert len(moments) == 49  # the first did not wait
    gaps = [later - earlier for earlier, later in zip([1000.0, *moments], moments, strict=False)]
    assert min(gaps) >= 1.0


def test_a_time_of_before_a_restart_and_a_torn_file_hold_nobody_up(
    tmp_path: Path, clock: StepClock
) -> None:
    pace = Pace(tmp_path, clock)
    for written in (json.dumps({"call_s": 1e9, "launch_s": 1e9}), "{", '{"other": 1}'):
        (tmp_path / "pace.json").write_text(written)
        before = clock.monotonic()
        pace.call()
        with pace.launching():
            pass
        assert clock.monotonic() == before, written
        clock.sleep(60)


def test_too_many_is_honoured_by_everybody(
    api: LambdaApi, emulator: LambdaEmulator, clock: StepClock, tmp_path: Path
) -> None:
    emulator.faults.append(Fault("/instances", 429, headers={"Retry-After": "42"}))
    other = LambdaApi(KEY, Pace(tmp_path / "pace", clock), clock, emulator.url)
    api.instances()
    assert clock.monotonic() >= 1042
    emulator.faults.append(Fault("/instances", 429))
    before = clock.monotonic()
    other.instances()
    assert clock.monotonic() - before >= lambda_api.TOO_MANY_S


def test_too_many_for_ever_comes_to_an_end(api: LambdaApi, emulator: LambdaEmulator) -> None:
    emulator.faults.append(Fault(LAUNCH, 429, times=99))
    with pytest.raises(TransientError, match="asked too often"):
        api.launch(A10)
    assert emulator.running() == []
    assert emulator.calls[f"POST {LAUNCH}"] == lambda_api.TRIES


def test_a_hold_is_not_for_ever(tmp_path: Path, clock: StepClock) -> None:
    Pace(tmp_path, clock).hold(1e9)
    Pace(tmp_path, clock).call()
    assert clock.monotonic() == 1000 + BELIEVABLE_S


# Failures -------------------------------------------------------------------------------------

REFUSALS = [
    ("global/invalid-api-key", 401, "rights"),
    ("global/account-inactive", 403, "rights"),
    ("global/quota-exceeded", 400, "quota"),
    ("instance-operations/launch/insufficient-capacity", 400, "capacity"),
    ("global/invalid-parameters", 400, "unknown"),
]


@pytest.mark.parametrize(("code", "status", "reason"), REFUSALS)
def test_a_documented_refusal_has_its_code_and_is_not_tried_again(
    api: LambdaApi, emulator: LambdaEmulator, code: str, status: int, reason: str
) -> None:
    body = json.dumps({"error": {"code": code, "message": "No.", "suggestion": "Do."}}).encode()
    emulator.faults.append(Fault(LAUNCH, status, body=body))
    with pytest.raises(LambdaError) as error:
        api.launch(A10)
    assert str(error.value) == f"{code}: No. Do."
    assert (error.value.status, error.value.code) == (status, code)
    assert reason_of(str(error.value)) == reason
    assert emulator.calls[f"POST {LAUNCH}"] == 1


def test_a_wrong_key_is_refused_and_not_told(emulator: LambdaEmulator, tmp_path: Path) -> None:
    clock = StepClock()
    api = LambdaApi("secret_wrong", Pace(tmp_path, clock), clock, emulator.url)
    with pytest.raises(LambdaError, match="global/invalid-api-key") as error:
        api.instances()
    assert "secret_wrong" not in f"{error.value!r} {api!r} {vars(error.value)}"


@pytest.mark.parametrize("fault", [
    Fault("/instances", 0), Fault("/instances", 502, body=b"<html>bad gateway"),
    Fault("/instances", 503), Fault("/instances", 200),
], ids=["cut", "gateway", "busy", "fine"])  # fmt: skip
def test_what_may_be_asked_again_is(api: LambdaApi, emulator: LambdaEmulator, fault: Fault) -> None:
    emulator.faults.append(fault)
    assert api.instances() == ()
    fault.times = 99
    if fault.status != 200:
        with pytest.raises(TransientError, match="Lambda Cloud"):
            api.instances()


@pytest.mark.parametrize("status", [0, 500, 502])
def test_a_launch_without_an_answer_is_made_once(
    api: LambdaApi, emulator: LambdaEmulator, status: int
) -> None:
    emulator.faults.append(Fault(LAUNCH, status))
    with pytest.raises(LostAnswerError):
        api.launch(A10)
    assert emulator.calls[f"POST {LAUNCH}"] == 1
    assert len(emulator.running()) == (status == 0)


ODD: list[tuple[str, object]] = [
    ("instances", None),
    ("instances", [{"id": "i1", "status": "active", "region": None, "instance_type": None}]),
    ("instances", [{"id": "i1", "status": "active"}]),
    ("machine_types", []),
    ("machine_types", {"a": {"instance_type": {"price_cents_per_hour": None}}}),
    ("launch", {"instance_ids": []}),
    ("launch", {"instance_ids": ["i1", "i2"]}),
    ("launch", None),
]


@pytest.mark.parametrize(("call", "data"), ODD)
def test_an_answer_of_another_shape_is_one_that_was_lost(
    api: LambdaApi, monkeypatch: pytest.MonkeyPatch, call: str, data: object
) -> None:
    monkeypatch.setattr(LambdaApi, "request", lambda *_, **__: data)
    ask = {"instances": api.instances, "machine_types": api.machine_types}
    with pytest.raises(LostAnswerError, match="makes no sense"):
        ask.get(call, lambda: api.launch(A10))()


def test_a_server_that_is_not_there_is_transient(tmp_path: Path, clock: StepClock) -> None:
    api = LambdaApi(KEY, Pace(tmp_path, clock), clock, "http://127.0.0.1:9/api/v1")
    with pytest.raises(TransientError, match="does not answer"):
        api.instances()


def test_every_call_has_a_limit_in_time(api: LambdaApi, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def answer(request: object, timeout: float) -> io.BytesIO:
        asked.append(timeout)
        return io.BytesIO(b'{"data": []}')

    monkeypatch.setattr(api._opener, "open", answer)
    api.instances()
    api.terminate(["x"])
    assert asked == [lambda_api.SILENT_S] * 2


def test_a_redirect_takes_the_key_nowhere(
    api: LambdaApi, emulator: LambdaEmulator, tmp_path: Path
) -> None:
    clock = StepClock()
    with LambdaEmulator(clock) as elsewhere:
        emulator.faults.append(
            Fault("/instances", 302, headers={"Location": f"{elsewhere.url}/instances"})
        )
        with pytest.raises(LambdaError, match="http-302"):
            api.instances()
        assert elsewhere.calls.total() == 0


# Keys -----------------------------------------------------------------------------------------


def test_the_key_is_that_by_which_skypilot_rents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    env: Mapping[str, str] = {"LAMBDA_API_KEY": "of-the-environment"}
    assert read_key(env) == "of-the-environment"
    with pytest.raises(SetupError, match="no key of Lambda Cloud") as error:
        read_key({})
    assert "lambda_keys" in str(error.value.hint)
    folder = tmp_path / ".lambda_cloud"
    folder.mkdir()
    (folder / "lambda_keys").write_text("# mine\napi_key = of-the-file\n")
    assert read_key(env) == "of-the-file"
    (folder / "lambda_keys").write_text("api_key =\n")
    assert read_key(env) == "of-the-environment"
    (folder / "lambda_keys").write_bytes(b"\xff\xfe")
    with pytest.raises(SetupError, match="lambda_keys cannot be read"):
        read_key(env)


def test_the_address_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulator: LambdaEmulator, clock: StepClock
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    env = {"LAMBDA_API_KEY": KEY, "BURST_LAMBDA_URL": emulator.url}
    assert connect(env, clock).instances() == ()
    assert emulator.calls.total() == 1
