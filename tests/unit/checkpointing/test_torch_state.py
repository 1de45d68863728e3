"""Saving and loading a training state in one process, against a store in memory."""

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from burst.checkpointing.commit import list_checkpoints
from burst.checkpointing.manifest import Manifest
from burst.checkpointing.torch_ranks import ALONE
from burst.checkpointing.torch_state import TrainState, load, save
from burst.errors import (
    CheckpointError,
    CheckpointMismatchError,
    ConflictError,
    StorageError,
    TransientError,
)


class Net(nn.Module):
    """Five parameters, one buffer that counts, one layer that never has a gradient."""

    def __init__(self, hidden: int = 6) -> None:
        super().__init__()
        self.first = nn.Linear(4, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.last = nn.Linear(hidden, 1, bias=False)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(nn.functional.dropout(self.norm(self.first(x)).relu(), 0.3))
        return y


class Counter:
    """An extra with a state whose keys are not known beforehand."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return self.seen

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state


Grouping = Callable[[nn.Module], list[dict[str, Any]]]


def by_decay(model: nn.Module) -> list[dict[str, Any]]:
    wide = [p for p in model.parameters() if p.ndim > 1]
    flat = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": wide, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0.0}]


def adamw(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=0.05)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": adamw,
    "amsgrad": lambda groups: torch.optim.Adam(groups, lr=0.05, amsgrad=True),
    "momentum": lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9),
    "plain sgd": lambda groups: torch.optim.SGD(groups, lr=0.05),
    "adafactor": lambda groups: torch.optim.Adafactor(groups, lr=0.05),
}


def state(
    model: nn.Module | None = None,
    grouping: Grouping = by_decay,
    make: Callable[[Any], torch.optim.Optimizer] = adamw,
) -> TrainState:
    model = model or Net()
    optimizer = make(grouping(model))
    return TrainState(
        model=model,
        optimizers={"optimizer": optimizer},
        schedulers={"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)},
        scaler=torch.amp.GradScaler("cpu", enabled=True),
        extras={"counter": Counter()},
    )


def train(states: TrainState, steps: int) -> list[float]:
    optimizer = states.optimizers["optimizer"]
    scheduler: Any = states.schedulers["scheduler"]
    dtype = next(states.model.parameters()).dtype
    losses = []
    for _ in range(steps):
        x = torch.randn(8, 4, dtype=dtype) + random.random()
        loss = states.model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def put(store: Any, tmp_path: Path) -> Callable[..., Manifest]:
    def put(states: TrainState, step: int = 3, **options: Any) -> Manifest:
        folder = tmp_path / "out" / str(step)
        return save(
            states,
            store,
            step=step,
            attempt=1,
            staging=folder,
            position={"step": step},
            ranks=ALONE,
            **options,
        )

    return put


@pytest.fixture
def get(store: Any, tmp_path: Path) -> Callable[..., Manifest | None]:
    def get(states: TrainState, **options: Any) -> Manifest | None:
        return load(states, store, staging=tmp_path / "in", ranks=ALONE, **options)

    return get


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_as_if_nothing_had_happened(name: str, put: Any, get: Any) -> None:
    make = OPTIMIZERS[name]
    first = state(make=make)
    first.extras["counter"].load_state_dict({"best": torch.tensor([0.5]), "seen": [1, 2]})
    train(first, 3)
    put(first)
    expected = train(first, 4)
    torch.manual_seed(99)
    random.seed(99)
    second = state(make=make)
    manifest = get(second)
    assert manifest.position == {"step": 3}
    assert train(second, 4) == expected
    for name_, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, second.model.state_dict()[name_]), name_
    assert second.extras["counter"].state_dict()["seen"] == [1, 2]


def test_a_parameter_that_never_had_a_gradient_has_no_state_afterwards_either(
    put: Any, get: Any
) -> None:
    first, second = state(), state()
    train(first, 2)
    put(first)
    get(second)
    live = second.optimizers["optimizer"].state
    parameters = dict(second.model.named_parameters())
    assert parameters["unused.weight"] not in live
    assert float(live[parameters["first.weight"]]["step"]) == 2.0


def test_moments_of_another_dtype_keep_their_bits(put: Any, get: Any) -> None:
    first, second = state(Net().bfloat16()), state(Net().bfloat16())
    train(first, 1)
    for values in first.optimizers["optimizer"].state.values():
        values["exp_avg"] = torch.full_like(values["exp_avg"], 1 / 3, dtype=torch.float32)
    put(first)
    get(second)
    for values in second.optimizers["optimizer"].state.values():
        assert values["exp_avg"].dtype == torch.float32
        assert values["exp_avg"].eq(torch.tensor(1 / 3)).all()


def test_no_checkpoint_changes_nothing(get: Any) -> None:
    assert get(state()) is None


def test_nothing_stays_behind_on_the_local_disk(put: Any, get: Any, tmp_path: Path) -> None:
    put(state())
    get(state())
    assert [p for p in tmp_path.rglob("*") if p.name != "out"] == []


# What does not fit --------------------------------------------------------------------------------


def all_in_one(model: nn.Module) -> list[dict[str, Any]]:
    return [{"params": list(model.parameters())}]


def one_moved(model: nn.Module) -> list[dict[str, Any]]:
    wide, flat = by_decay(model)
    return [
        {**wide, "params": wide["params"][1:]},
        {**flat, "params": [*flat["params"], wide["params"][0]]},
    ]


def swapped(model: nn.Module) -> list[dict[str, Any]]:
    wide, flat = by_decay(model)
    return [{**wide, "params": wide["params"][::-1]}, {**flat, "params": flat["params"][::-1]}]


def frozen() -> Net:
    model = Net()
    model.first.requires_grad_(requires_grad=False)
    return model


def larger() -> Net:
    model = Net()
    model.extra = nn.Linear(3, 3)
    return model


MISFITS: dict[str, tuple[Callable[[], TrainState], str]] = {
    "a": (lambda: state(grouping=all_in_one), "current group 0: first.weight, first.bias, norm"),
    "b": (lambda: state(grouping=one_moved), "current group 0: last.weight, unused.weight\n"),
    "d": (lambda: state(frozen()), "current group 0: last.weight, unused.weight\n"),
    "e": (lambda: state(larger()), "extra.weight: in the model now, not saved"),
    "shape": (lambda: state(Net(hidden=7)), "first.bias: saved as [6] float32, now [7] float32"),
    "dtype": (
        lambda: state(Net().bfloat16()),
        "first.bias: saved as [6] float32, now [6] bfloat16",
    ),
}


@pytest.mark.parametrize("variant", MISFITS)
def test_what_does_not_fit_is_named_and_nothing_is_changed(
    variant: str, put: Any, get: Any
) -> None:
    """C37."""
    first = state()
    train(first, 2)
    put(first)
    make, said = MISFITS[variant]
    second = make()
    before = {k: v.clone() for k, v in second.model.state_dict().items()}
    with pytest.raises(CheckpointMismatchError) as caught:
        get(second)
    assert said in caught.value.message
    assert "checkpoints/step-00000003-a0001 does not fit" in caught.value.message
    assert all(torch.equal(v, before[k]) for k, v in second.model.state_dict().items())


def test_groups_of_both_sides_are_listed_by_name(put: Any, get: Any) -> None:
    """C37 a."""
    put(state())
    with pytest.raises(CheckpointMismatchError) as caught:
        get(state(grouping=all_in_one))
    assert caught.value.message.split("\n  ")[1:3] == [
        "saved group 0: first.weight, last.weight, unused.weight",
        "saved group 1: first.bias, norm.weight, norm.bias, unused.bias",
    ]


def test_another_order_within_a_group_keeps_each_moment_with_its_tensor(put: Any, get: Any) -> None:
    """C37 c: torch alone would put the moments on the wrong tensors."""
    first, second = state(), state(grouping=swapped)
    train(first, 3)
    put(first)
    get(second)
    live = dict(second.model.named_parameters())
    for name, parameter in first.model.named_parameters():
        saved = first.optimizers["optimizer"].state.get(parameter, {})
        now = second.optimizers["optimizer"].state.get(live[name], {})
        assert saved.keys() == now.keys()
        assert all(torch.equal(saved[key], now[key]) for key in saved)


@pytest.mark.parametrize("variant", ["d", "e"])
def test_weights_only_goes_on_with_a_fresh_optimizer_and_says_so(
    variant: str, put: Any, get: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """C37 d, e."""
    first = state()
    train(first, 2)
    put(first)
    second = MISFITS[variant][0]()
    assert get(second, weights_only=True).step == 3
    assert torch.equal(first.model.last.weight, second.model.last.weight)  # type: ignore[union-attr, arg-type]
    assert not second.optimizers["optimizer"].state
    assert "optimizer, schedule and the rest start fresh" in caplog.text
    assert ("extra.weight: in the model now" in caplog.text) == (variant == "e")


def test_weights_only_still_refuses_another_shape(put: Any, get: Any) -> None:
    put(state())
    with pytest.raises(CheckpointMismatchError, match=r"first.bias: saved as \[6\]"):
        get(state(Net(hidden=7)), weights_only=True)


def test_an_optimizer_more_is_named(put: Any, get: Any) -> None:
    put(state())
    second = TrainState(model=Net(), optimizers=state().optimizers)
    with pytest.raises(CheckpointError):
        get(second)  # its optimizer trains another model's parameters
    model = Net()
    second = TrainState(model=model, optimizers={"optimizer": adamw(by_decay(model))})
    with pytest.raises(
        CheckpointMismatchError, match=r"schedulers: saved \['scheduler'\], now \[\]"
    ):
        get(second)


# Faults -------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_before_training_goes_on(store: Any, put: Any, get: Any) -> None:
    """C34: torch alone loads it without complaint."""
    chance = random.Random(5)
    put(state(), step=10)
    put(state(), step=20)
    for name in ("__0_0.distcp", ".metadata", "objects.pt"):
        key = f"checkpoints/step-00000020-a0001/{name}"
        good = store.get(key)
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 4
        store.put(key, bytes(bad))
        assert get(state()).step == 10
        store.put(key, good)
    assert get(state()).step == 20


def test_a_failed_upload_leaves_nothing_and_the_next_try_works(
    store: Any, put: Any, tmp_path: Path
) -> None:
    """C28, C85: rank, key and reason are said."""
    store.faults["upload"] = lambda k: TransientError("503") if k.endswith("objects.pt") else None
    with pytest.raises(TransientError) as caught:
        put(state())
    assert caught.value.message == (
        "saving step 3 failed on rank 0: checkpoints/step-00000003-a0001/objects.pt: 503"
    )
    assert list(store.keys()) == []
    assert [p for p in tmp_path.rglob("*") if p.name != "out"] == []
    store.faults.clear()
    put(state())
    assert [found.complete for found in list_checkpoints(store)] == [True]


def test_a_full_disk_is_a_storage_error_with_numbers(
    put: Any, get: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """C40: the save before it stays the one to resume from."""
    put(state(), step=10)

    def write_data(_self: Any, _plan: Any, _planner: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FileSystemWriter, "write_data", write_data)
        with pytest.raises(StorageError) as caught:
            put(state(), step=20)
    assert "saving step 20 failed on rank 0: cannot write" in caught.value.message
    assert "No space left on device" in caught.value.message
    assert "bytes needed" in caught.value.message
    assert [p for p in tmp_path.rglob("*") if p.name != "out"] == []
    assert get(state()).step == 10


def test_a_state_that_cannot_be_taken_is_a_checkpoint_error(put: Any) -> None:
    class Broken(Counter):
        def state_dict(self) -> dict[str, Any]:
            raise KeyError("lost")

    broken = TrainState(model=Net(), extras={"broken": Broken()})
    with pytest.raises(CheckpointError, match=r"saving step 3 failed on rank 0: KeyError: 'lost'"):
        put(broken)


def test_a_committed_step_is_not_saved_over(store: Any, put: Any, get: Any) -> None:
    first = state()
    manifest = put(first)
    train(first, 1)
    with pytest.raises(ConflictError):
        put(first)
    assert get(state()) == manifest
    assert [found.complete for found in list_checkpoints(store)] == [True]
