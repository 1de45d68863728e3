"""What of a training state is tensors, what is not, and what it is called.

Tensors go through torch.distributed.checkpoint (DCP), which spreads, stores and reshards them.
Everything else (learning rates, schedulers, generators) is small and goes into one pickled file.
Optimizer state is kept by parameter name. It is set directly, not with torch's
set_optimizer_state_dict: that runs a step of the optimizer to invent state, and refuses a
parameter that never had a gradient, or gives it a state that it did not have.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.nn.parallel import DistributedDataParallel

from burst.checkpointing.manifest import Layout
from burst.errors import CheckpointError

Tensors = dict[str, torch.Tensor]


class Stateful(Protocol):
    """Anything that can be saved and put back."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...  # noqa: ANN401 - torch's own


@dataclass(frozen=True, slots=True)
class TrainState:
    """Everything that decides how training goes on, by name where there may be several."""

    model: nn.Module
    optimizers: Mapping[str, torch.optim.Optimizer] = field(default_factory=dict)
    schedulers: Mapping[str, Stateful] = field(default_factory=dict)
    scaler: Stateful | None = None
    extras: Mapping[str, Stateful] = field(default_factory=dict)


# Names and shapes ---------------------------------------------------------------------------------


def layout_of(state: TrainState) -> Layout:
    """Return what must fit; see Layout."""
    tensors = _split(get_model_state_dict(_bare(state.model)))[0]
    return Layout(
        params=tuple((n, tuple(t.shape), _dtype(t.dtype)) for n, t in sorted(tensors.items())),
        groups=tuple(
            tuple(name for name, p in named if p.requires_grad)
            for _, optimizer in sorted(state.optimizers.items())
            for named in _named_groups(state.model, optimizer)
        ),
    )


def _bare(model: nn.Module) -> nn.Module:
    """Return the user's module without the wrapper of DDP or torch.compile."""
    inner = model.module if isinstance(model, DistributedDataParallel) else None
    if inner is None:
        inner = getattr(model, "_orig_mod", None)
    return _bare(inner) if isinstance(inner, nn.Module) else model


def _named_groups(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> list[list[tuple[str, nn.Parameter]]]:
    """Return the optimizer's groups, in order, with the model's names."""
    names = {id(p): name.replace("_orig_mod.", "") for name, p in _bare(model).named_parameters()}
    strange = [p for g in optimizer.param_groups for p in g["params"] if id(p) not in names]
    if strange:
        raise CheckpointError(
            f"the optimizer trains {len(strange)} parameters that are not the model's,"
            f" the first of shape {list(strange[0].shape)}; they have no name to be saved under",
            hint="give burst one model that holds every trained parameter",
        )
    return [[(names[id(p)], p) for p in group["params"]] for group in optimizer.param_groups]


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _split(values: Mapping[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    tensors = {k: v for k, v in values.items() if isinstance(v, torch.Tensor)}
    return tensors, {k: v for k, v in values.items() if k not in tensors}


def _model_key(name: str) -> str:
    return f"model/{name}"


def _state_key(optimizer: str, parameter: str, name: str) -> str:
    return f"optimizers/{optimizer}/{parameter}/{name}"


# Out of the live objects --------------------------------------------------------------------------


def take(state: TrainState) -> tuple[Tensors, dict[str, Any]]:
    """Return the state's tensors by key (no copies), and the rest as picklable objects.

    The rest is the same on every rank, except the generators: one rank's are saved.
    """
    tensors, model = _split(get_model_state_dict(_bare(state.model)))
    flat = {_model_key(name): tensor for name, tensor in tensors.items()}
    optimizers = {}
    for name, optimizer in state.optimizers.items():
        moments, optimizers[name] = _take_optimizer(state.model, name, optimizer)
        flat |= moments
    return flat, {
        "model": model,
        "optimizers": optimizers,
        "schedulers": {name: s.state_dict() for name, s in state.schedulers.items()},
        "scaler": None if state.scaler is None else state.scaler.state_dict(),
        "extras": {name: s.state_dict() for name, s in state.extras.items()},
        "rng": _generators(),
    }


def _take_optimizer(
    model: nn.Module, name: str, optimizer: torch.optim.Optimizer
) -> tuple[Tensors, dict[str, Any]]:
    live = optimizer.state_dict()
    names = [n for group in _named_groups(model, optimizer) for n, _ in group]
    flat: Tensors = {}
    state: dict[str, Any] = {}
    for index, values in live["state"].items():
        tensors, rest = _split(values)
        flat |= {_state_key(name, names[index], key): t for key, t in tensors.items()}
        state[names[index]] = {"tensors": sorted(tensors), "rest": rest}
    return flat, {"state": state, "groups": [_settings(group) for group in live["param_groups"]]}


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in group.items() if k not in {"params", "param_names"}}


def _generators() -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.is_available()
    return {
        "python": random.getstate(),
        "numpy": numpy.random.get_state() if numpy else None,
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if cuda else None,
    }


# Back into them -----------------------------------------------------------------------------------


def places(
    state: TrainState, objects: Mapping[str, Any], saved: Metadata, *, weights_only: bool
) -> Tensors:
    """Return the tensors that DCP is to fill: the model's own, and new ones for the optimizers.

    With `weights_only` just those of the model that were saved.
    """
    known = saved.state_dict_metadata
    tensors = _split(get_model_state_dict(_bare(state.model)))[0]
    flat = {_model_key(name): tensor for name, tensor in tensors.items()}
    if weights_only:
        return {key: tensor for key, tensor in flat.items() if key in known}
    for name, optimizer in state.optimizers.items():
        parameters = dict(p for group in _named_groups(state.model, optimizer) for p in group)
        for parameter, values in objects["optimizers"][name]["state"].items():
            for key in values["tensors"]:
                path = _state_key(name, parameter, key)
                flat[path] = _room(known[path], parameters[parameter])
    return flat


def _room(saved: object, parameter: nn.Parameter) -> torch.Tensor:
    """Return an empty tensor as saved; spread over devices like its parameter if it is as large."""
    assert isinstance(saved, TensorStorageMetadata)
    dtype = saved.properties.dtype
    if saved.size == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    return torch.empty(saved.size, dtype=dtype)


def put_back(
    state: TrainState, objects: Mapping[str, Any], tensors: Tensors, *, weights_only: bool
) -> None:
    """Set the live objects from what `places` named and DCP filled, and from the objects."""
    prefix = _model_key("")
    model = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
    set_model_state_dict(
        _bare(state.model),
        {**model, **objects["model"]},
        options=StateDictOptions(strict=not weights_only),
    )
    if weights_only:
        return
    for name, optimizer in state.optimizers.items():
        _put_optimizer(state.model, name, optimizer, objects["optimizers"][name], tensors)
    _put_all(state.schedulers, objects["schedulers"])
    _put_all(state.extras, objects["extras"])
    if state.scaler is not None and objects["scaler"] is not None:
        state.scaler.load_state_dict(objects["scaler"])
    _set_generators(objects["rng"])


def missing_objects(state: TrainState, objects: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each optimizer, scheduler or extra that only one side has."""
    sides: Iterable[tuple[str, Mapping[str, Any]]] = (
        ("optimizers", state.optimizers),
        ("schedulers", state.schedulers),
        ("extras", state.extras),
    )
    return tuple(
        f"{kind}: saved {sorted(objects[kind])}, now {sorted(now)}"
        for kind, now in sides
        if set(objects[kind]) != set(now)
    )


def _put_optimizer(
    model: nn.Module,
    name: str,
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, Any],
    tensors: Tensors,
) -> None:
    live = [pair for group in _named_groups(model, optimizer) for pair in group]
    state = {
        index: {
            **saved["state"][parameter]["rest"],
            **{k: tensors[_state_key(name, parameter, k)] for k in values["tensors"]},
        }
        for index, (parameter, _) in enumerate(live)
        if (values := saved["state"].get(parameter)) is not None
    }
    groups = [
        {**now, **settings}
        for now, settings in zip(
            optimizer.state_dict()["param_groups"], saved["groups"], strict=True
        )
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    for index, (_, parameter) in enumerate(live):
        _undo_casts(optimizer.state.get(parameter, {}), state.get(index, {}))


def _undo_casts(live: dict[str, Any], saved: Mapping[str, Any]) -> None:
    """Put back what torch cast to the parameter's dtype: moments kept in another lost bits."""
    for key, tensor in _split(saved)[0].items():
        if live[key].dtype != tensor.dtype:
            live[key] = tensor.to(live[key].device)


def _put_all(live: Mapping[str, Stateful], saved: Mapping[str, Any]) -> None:
    for name, stateful in live.items():
        stateful.load_state_dict(saved[name])


def _set_generators(saved: Mapping[str, Any]) -> None:
    random.setstate(saved["python"])
    numpy = sys.modules.get("numpy")
    if numpy and saved["numpy"] is not None:
        numpy.random.set_state(saved["numpy"])
    torch.set_rng_state(saved["torch"])
    if saved["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(saved["cuda"])
