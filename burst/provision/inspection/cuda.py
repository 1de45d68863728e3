"""Which NVIDIA driver a build of torch needs.

NVIDIA, "CUDA Compatibility", section "Minor Version Compatibility", table 1
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html): what is
built with any CUDA 13.x runs with drivers of branch 580 and later, 12.x with 525, 11.x with 450;
later drivers run what was built for earlier CUDAs. Kernels that are compiled from PTX at run time
need a driver of their own CUDA's minor version too ("limited feature-set", ibid.).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LEAST_DRIVER: Mapping[int, int] = {11: 450, 12: 525, 13: 580}  # by CUDA's major version
SOURCE = "https://docs.nvidia.com/deploy/cuda-compatibility/"
# What `pip install torch` brings: PyTorch, RELEASE.md, "PyTorch CUDA Support Matrix", and
# "Transitioning PyPI CUDA wheels to CUDA 13.0 as the stable" (dev-discuss.pytorch.org, 2.11).
ON_PYPI: Mapping[tuple[int, int], str] = {
    (2, 8): "12.8",
    (2, 9): "12.8",
    (2, 10): "12.8",
    (2, 11): "13.0",
    (2, 12): "13.0",
    (2, 13): "13.0",
}
_SET_UP = re.compile(r"(?:\+|/|\b)cu(\d{2})(\d)\b")  # torch==2.13.0+cu126, .../whl/cu126
_BUILT = re.compile(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """A build of torch, and who says that it is the one. `cuda` is None for a build without."""

    cuda: str | None
    source: str

    def needs(self) -> int | None:
        """Return the oldest driver branch that runs it; None: any, or nobody knows."""
        return None if self.cuda is None else LEAST_DRIVER.get(int(self.cuda.partition(".")[0]))


def of_nodes(version: str, setup: str | None) -> Torch | None:
    """Return the torch of a node: the CUDA that `setup` names, or PyPI's for a version.

    >>> of_nodes("2.13.0", "pip install torch==2.13.0+cu126").cuda
    '12.6'
    >>> of_nodes("2.13.0+cpu", None)
    Torch(cuda='13.0', source='torch 2.13.0 of PyPI')
    >>> of_nodes("1.0", None) is None
    True
    """
    if setup and (named := _SET_UP.search(setup)):
        return Torch(cuda=f"{named[1]}.{named[2]}", source="the task's setup")
    public = version.partition("+")[0]
    match = re.match(r"(\d+)\.(\d+)", public)
    cuda = ON_PYPI.get((int(match[1]), int(match[2]))) if match else None
    return None if cuda is None else Torch(cuda=cuda, source=f"torch {public} of PyPI")


def installed(package: Path) -> Torch | None:
    """Return the torch in a folder without importing it; None if its version.py does not say."""
    try:
        text = (package / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    built = _BUILT.search(text)
    return Torch(cuda=built[1] if built else None, source="torch here")


def verdict(driver: str, torch: Torch | None) -> tuple[bool | None, str, str]:
    """Return whether a driver runs a torch, that in words, and what to do.

    >>> verdict("535.104.05", Torch(cuda="13.0", source="torch here"))[:2]
    (False, 'driver 535.104.05; torch here is built with CUDA 13.0, which needs 580 or later')
    >>> verdict("535.104.05", Torch(cuda="12.6", source="torch here"))[0]
    True
    """
    match = re.match(r"\d+", driver)
    if match is None:
        fix = "run nvidia-smi there; it says what is wrong with the driver"
        return False, f"the driver does not answer: {driver}", fix
    if torch is None:
        return None, f"driver {driver}; which CUDA torch will need is not known", ""
    if torch.cuda is None:
        fix = "pip install torch of the usual index"
        return False, f"driver {driver}; {torch.source} is built without CUDA", fix
    least = torch.needs()
    if least is None:
        words = f"driver {driver}; what CUDA {torch.cuda} of {torch.source} needs is not known"
        return None, words, f"see {SOURCE}"
    words = f"driver {driver}; {torch.source} is built with CUDA {torch.cuda}, which needs {least}"
    fix = f"install driver {least} or later, or a torch of an older CUDA: {SOURCE}"
    return int(match[0]) >= least, f"{words} or later", fix
