"""Reading the samples of slots, in the script's process or in loader processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset

from burst.training.order import Slot
from burst.training.randomness import mix, seed_all


class MapDataset(Protocol):
    """What `session.batches` takes: any dataset with a length and an index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...  # noqa: ANN401 - the user's own type


class _Seeded(Dataset[Any]):
    """The user's dataset, with the generators set per sample."""

    def __init__(self, inner: MapDataset, seed: int) -> None:
        self._inner = inner
        self._seed = seed

    def __getitem__(self, key: tuple[int, int]) -> Any:  # noqa: ANN401 - the user's own type
        epoch, index = key
        seed_all(mix("sample", self._seed, epoch, index))
        return self._inner[index]


class _Keys:
    """The batch sampler: the (epoch, index) keys of each slot."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self._slots = slots

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for slot in self._slots:
            yield [(slot.epoch, index) for index in slot.indices]


def read(
    dataset: MapDataset,
    slots: Iterable[Slot],
    *,
    seed: int,
    loader_workers: int = 0,
    collate: Callable[[Sequence[Any]], Any] | None = None,
) -> Iterator[Any]:
    """Yield one collated batch per slot, in order.

    Loader processes are spawned. A fork of a process that holds threads and network clients can
    hang; the children of a fork server do not notice when this process is killed, and stay.
    """
    loader: DataLoader[Any] = DataLoader(
        _Seeded(dataset, seed),
        batch_sampler=_Keys(slots),
        collate_fn=collate,
        num_workers=loader_workers,
        multiprocessing_context="spawn" if loader_workers else None,
        generator=torch.Generator().manual_seed(0),  # keep off the global generator
    )
    return iter(loader)
