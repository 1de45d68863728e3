"""What goes to a rented node: this code, the workdir, and nothing that does not belong there."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from burst.agent import boot
from burst.agent.boot import skew
from burst.agent.set_up import unpack
from burst.controller import packing
from burst.controller.packing import files_of, pack
from burst.errors import SetupError
from burst.provision.bundle import bundle, packages_bytes, packages_name, pins


def test_the_bundle_is_this_very_code_with_its_versions() -> None:
    packed = bundle()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed.data))) as archive:
        names = archive.getnames()
        said = archive.extractfile("pins.txt")
        assert said is not None
        assert tuple(said.read().decode().splitlines()) == pins()
    assert {"burst/agent/start.sh", "burst/storage/port.py", "python.txt"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or "tests" in name]
    bundle.cache_clear()
    assert bundle() == packed, "the same code is brought once"


def test_pins_are_exact_and_without_what_nodes_do_not_need() -> None:
    found = dict(pin.split("==") for pin in pins())
    assert {"ray", "torch", "boto3", "s3fs", "psutil", "fsspec"} <= found.keys()
    assert not {"skypilot", "moto", "pytest", "burst-trainer"} & found.keys()
    assert not [version for version in found.values() if "+" in version]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "data/big.bin", "data/keep.txt", ".git/config", "a/__pycache__/x.pyc"):
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "work/run.sh").symlink_to("train.py")
    (tmp_path / "work/.gitignore").write_text("*.bin\n")
    return tmp_path / "work"


def packed_names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in files_of(folder) if not p.is_dir()}


def test_a_workdir_arrives_as_it_was_but_for_what_is_ignored(folder: Path, tmp_path: Path) -> None:
    unpack(pack(folder), tmp_path / "there")
    there = {str(p.relative_to(tmp_path / "there")) for p in (tmp_path / "there").rglob("*")}
    assert there == {".gitignore", "a", "data", "data/keep.txt", "run.sh", "train.py"}
    assert (tmp_path / "there/run.sh").readlink() == Path("train.py")


def test_links_out_of_a_workdir_arrive_as_links_and_pipes_do_not(
    folder: Path, tmp_path: Path
) -> None:
    """A virtual environment has some; a node must not fall over them, again and again."""
    (folder / "python").symlink_to("/usr/bin/python3")
    (folder / "beside").symlink_to("../other")
    os.mkfifo(folder / "pipe")
    unpack(pack(folder), tmp_path / "there")
    assert (tmp_path / "there/python").readlink() == Path("/usr/bin/python3")
    assert (tmp_path / "there/beside").readlink() == Path("../other")
    assert not (tmp_path / "there/pipe").exists()


def test_a_skyignore_counts_alone(folder: Path) -> None:
    (folder / ".skyignore").write_text("data/keep.txt\n")
    assert "data/big.bin" in packed_names(folder)
    assert "data/keep.txt" not in packed_names(folder)


def test_a_workdir_full_of_data_is_refused_with_advice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST_BYTES", 20)
    with pytest.raises(SetupError, match="holds more than") as refused:
        pack(folder)
    assert ".skyignore" in str(refused.value.hint)


def test_nothing_leaves_its_folder_on_the_way(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../outside"), io.BytesIO(b""))
    with pytest.raises(tarfile.TarError):
        unpack(data.getvalue(), tmp_path / "in" / "work")
    assert not (tmp_path / "in/outside").exists()
    assert list((tmp_path / "in").iterdir()) == []


def test_other_versions_are_named() -> None:
    mine = dict(pin.split("==") for pin in pins())
    assert skew({"python": "3.11", "ray": mine["ray"]}) == ""
    assert skew({"python": "3.12", "ray": "2.0.0", "nonesuch": "1"}) == (
        f"nonesuch none for 1, python 3.11 for 3.12, ray {mine['ray']} for 2.0.0"
    )


def test_the_packages_have_the_name_that_the_node_gives_them(tmp_path: Path) -> None:
    """As start.sh makes it, of the file that the bundle brings."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle().data))) as archive:
        said = archive.extractfile("pins.txt")
        assert said is not None
        (tmp_path / "pins.txt").write_bytes(said.read())
    command = f"sha256sum {tmp_path}/pins.txt | cut -c1-12"
    there = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert packages_name() == there.stdout.strip()
    script = (Path(boot.__file__).parent / "start.sh").read_text()
    assert 'sha256sum "$code/pins.txt" | cut -c1-12' in script
    assert packages_bytes() > 100 * 1024**2  # Ray and torch are among them
