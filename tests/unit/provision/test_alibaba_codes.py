"""Alibaba Cloud's codes and GPUs in burst's words; whose keys are used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burst.errors import SetupError
from burst.provision import refusals
from burst.provision.alibaba.codes import BUSY, REASONS
from burst.provision.alibaba.credentials import Credentials, find
from burst.provision.alibaba.errors import EcsBusyError, EcsError, refusal
from burst.provision.alibaba.gpus import machine_type

CODES = [(code, reason) for reason, codes in REASONS.items() for code in codes]


@pytest.mark.parametrize(("code", "reason"), CODES)
def test_a_code_means_the_same_in_a_text_of_skypilot(code: str, reason: str) -> None:
    error = refusal("RunInstances", 403, f"{code}.Something", "no", "")
    assert error.reason == reason
    text = f"Failed to provision\n{error}\nRetrying in another zone"
    assert refusals.reason_of(text) == reason
    assert code in refusals.gist(text)


@pytest.mark.parametrize("code", BUSY)
def test_a_busy_cloud_says_nothing_of_the_place(code: str) -> None:
    error = refusal("RunInstances", 400, code, "later", "")
    assert isinstance(error, EcsBusyError)
    assert refusals.reason_of(str(error)) == "unknown"


def test_an_error_says_what_was_asked_and_which_request() -> None:
    error = refusal("RunInstances", 403, "Forbidden.RAM", "User not authorized", "4C5D")
    assert type(error) is EcsError
    assert str(error) == (
        "Alibaba Cloud refused RunInstances: Forbidden.RAM: User not authorized (request 4C5D)"
    )


def kind(**more: Any) -> dict[str, Any]:
    known = {"InstanceTypeId": "ecs.x", "CpuCoreCount": 8, "MemorySize": 30.0}
    return {**known, "CpuArchitecture": "X86", **more}


@pytest.mark.parametrize(
    ("spec", "memory", "count", "name"),
    [
        ("NVIDIA T4", 16.0, 2, "T4"),
        ("NVIDIA V100", 32.0, 8, "V100-32GB"),
        ("NVIDIA A100", 80.0, 1, "A100-80GB"),
        ("GPU H", 96.0, 8, "H20"),
    ],
)
def test_gpus_have_the_names_that_task_files_use(
    spec: str, memory: float, count: int, name: str
) -> None:
    found = machine_type(kind(GPUSpec=spec, GPUMemorySize=memory, GPUAmount=count))
    assert found is not None
    assert found.accelerators is not None
    assert (found.accelerators.kind, found.accelerators.count) == (name, count)


@pytest.mark.parametrize(
    ("spec", "memory", "count"),
    [("NVIDIA T4", 4.0, 0), ("NVIDIA T4", 8.0, 1), ("G59", 72.0, 8), ("AMD MI308X", 192.0, 8)],
)
def test_parts_of_gpus_and_unknown_ones_are_left_out(spec: str, memory: float, count: int) -> None:
    assert machine_type(kind(GPUSpec=spec, GPUMemorySize=memory, GPUAmount=count)) is None


def test_a_machine_without_gpus() -> None:
    found = machine_type(kind(GPUSpec="", GPUAmount=0, CpuArchitecture="ARM"))
    assert found is not None
    assert (found.accelerators, found.arch) == (None, "arm64")


ENV = {"ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAI1", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "hush"}


def write(home: Path, *profiles: dict[str, str], current: str = "default") -> None:
    (home / ".aliyun").mkdir()
    config = {"current": current, "profiles": profiles}
    (home / ".aliyun/config.json").write_text(json.dumps(config))


def keys(key_id: str, secret: str, token: str = "", region: str = "") -> Credentials:
    return Credentials(key_id=key_id, secret=secret, token=token, region=region)


def test_keys_of_the_environment(tmp_path: Path) -> None:
    write(tmp_path, {"name": "default", "access_key_id": "LTAI2", "access_key_secret": "x"})
    found = find({**ENV, "ALIBABA_CLOUD_SECURITY_TOKEN": "t"}, tmp_path)
    assert found == keys("LTAI1", "hush", "t")
    assert "hush" not in repr(found)
    assert "token" not in repr(found)


def test_keys_of_the_aliyun_command(tmp_path: Path) -> None:
    assert find({}, tmp_path) is None
    role = {"name": "role", "mode": "StsToken", "access_key_id": "STS.1",
            "access_key_secret": "y", "sts_token": "t", "region_id": "cn-beijing"}  # fmt: skip
    plain = {"name": "default", "mode": "AK", "access_key_id": "LTAI2", "access_key_secret": "x"}
    write(tmp_path, plain, role)
    assert find({}, tmp_path) == keys("LTAI2", "x")
    wanted = keys("STS.1", "y", "t", "cn-beijing")
    assert find({"ALIBABA_CLOUD_PROFILE": "role"}, tmp_path) == wanted


def test_half_a_key_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="ALIBABA_CLOUD_ACCESS_KEY_SECRET is not"):
        find({"ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAI1"}, tmp_path)


def test_a_configuration_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"name": "default", "mode": "EcsRamRole"})
    with pytest.raises(SetupError, match="of mode EcsRamRole"):
        find({}, tmp_path)
    with pytest.raises(SetupError, match="no profile other"):
        find({"ALIBABA_CLOUD_PROFILE": "other"}, tmp_path)
    (tmp_path / ".aliyun/config.json").write_text("[]")
    with pytest.raises(SetupError, match="not what `aliyun configure` writes"):
        find({}, tmp_path)
