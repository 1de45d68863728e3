"""Which driver a torch needs: NVIDIA's table of minor version compatibility."""

from __future__ import annotations

from pathlib import Path

import pytest

from burst.provision.inspection.cuda import Torch, installed, of_nodes, verdict

PYPI = Torch(cuda="13.0", source="torch 2.13.0 of PyPI")
FIX = (
    "install driver 580 or later, or a torch of an older CUDA: "
    "https://docs.nvidia.com/deploy/cuda-compatibility/"
)


@pytest.mark.parametrize(
    ("driver", "cuda", "works"),
    [
        ("580.65.06", "13.0", True),
        ("579.99", "13.2", False),
        ("535.104.05", "13.0", False),
        ("525.60.13", "12.0", True),
        ("525.60.13", "12.8", True),  # an older driver of the same major version
        ("524.0", "12.0", False),
        ("590.1", "11.8", True),  # later drivers run what is older
        ("450.80.02", "11.8", True),
        ("449.1", "11.1", False),
    ],
)
def test_the_branch_of_the_driver_decides(driver: str, cuda: str, works: bool) -> None:
    assert verdict(driver, Torch(cuda=cuda, source="torch here"))[0] is works


def test_it_is_said_which_driver_is_needed_and_where_that_is_written() -> None:
    works, words, fix = verdict("535.104.05", PYPI)
    assert works is False
    assert words == (
        "driver 535.104.05; torch 2.13.0 of PyPI is built with CUDA 13.0, which needs 580 or later"
    )
    assert fix == FIX


@pytest.mark.parametrize(
    ("driver", "torch", "works", "word"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate", PYPI, False, "does not answer"),
        ("", PYPI, False, "does not answer"),
        ("580.1", Torch(cuda=None, source="torch here"), False, "without CUDA"),
        ("580.1", Torch(cuda="19.0", source="torch here"), None, "not known"),
        ("580.1", None, None, "not known"),
    ],
)
def test_what_cannot_be_compared(
    driver: str, torch: Torch | None, works: bool | None, word: str
) -> None:
    found, words, _ = verdict(driver, torch)
    assert found is works
    assert word in words


@pytest.mark.parametrize(
    ("version", "setup", "cuda"),
    [
        ("2.13.0+cpu", None, "13.0"),  # nodes get PyPI's build, whatever is here
        ("2.10.1", "pip install -r requirements.txt", "12.8"),
        ("2.13.0", "pip install torch --index-url https://download.pytorch.org/whl/cu126", "12.6"),
        ("2.13.0", "pip install 'torch==2.6.0+cu124'", "12.4"),
        ("2.13.0", "pip install cupy-cuda12x occu123", "13.0"),
        ("9.9.9", None, None),
    ],
)
def test_the_torch_of_a_node(version: str, setup: str | None, cuda: str | None) -> None:
    found = of_nodes(version, setup)
    assert (found.cuda if found else None) == cuda


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip = None\n", "13.0"),
        ("cuda = '12.6'\n", "12.6"),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", None),
    ],
)
def test_an_installed_torch_is_not_imported(tmp_path: Path, text: str, cuda: str | None) -> None:
    (tmp_path / "version.py").write_text(text)
    assert installed(tmp_path) == Torch(cuda=cuda, source="torch here")


def test_no_torch(tmp_path: Path) -> None:
    assert installed(tmp_path) is None
