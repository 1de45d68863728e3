"""A small transformer that learns to write Python from the standard library's own source.

Runs under `burst run task.yaml`, and unchanged under `python train.py` (one process, no saving).
"""

from __future__ import annotations

import hashlib
import math
import sysconfig
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

import burst

CONTEXT = 64  # bytes the model sees at once
LINES = 10  # of its own to show at the end


class Source(Dataset):
    """The standard library as bytes, cut into windows: int64, shape (CONTEXT + 1,)."""

    def __init__(self, megabytes: float = 4.0) -> None:
        text = bytearray()
        for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
            text += path.read_bytes()
            if len(text) > megabytes * 1e6:
                break
        self.text = torch.frombuffer(text, dtype=torch.uint8)

    def __len__(self) -> int:
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * CONTEXT
        return self.text[start : start + CONTEXT + 1].long()


class Block(nn.Module):
    """Attention, then a feed-forward layer, both on normed inputs."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norms[1](x))


class Model(nn.Module):
    """Bytes in, scores of the next byte out: (batch, length) -> (batch, length, 256)."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 256)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
                nn.init.zeros_(layer.bias)
            elif isinstance(layer, nn.Embedding):
                nn.init.normal_(layer.weight, std=0.1)
        for block in self.blocks:  # each block starts as the identity
            nn.init.zeros_(block.mix.weight)
            nn.init.zeros_(block.feed[2].weight)
        nn.init.normal_(self.out.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = self.places(torch.arange(x.shape[1], device=x.device))
        return self.out(self.norm(self.blocks(self.bytes(x) + places)))


@torch.no_grad()
def write(model: nn.Module, start: bytes, length: int = 420) -> str:
    """Let the model go on from `start`, at temperature 0.6."""
    device = next(model.parameters()).device
    text = torch.tensor([list(start)], device=device)
    for _ in range(length):
        scores = model(text[:, -CONTEXT:])[0, -1] / 0.6
        text = torch.cat([text, torch.multinomial(scores.softmax(-1), 1)[None]], dim=1)
    return bytes(text[0].tolist()).decode(errors="replace")


def fingerprint(model: nn.Module) -> str:
    """Return a hash of all weights: the same if and only if each bit is."""
    seen = hashlib.sha256()
    for weight in model.state_dict().values():
        seen.update(weight.cpu().numpy().tobytes())
    return seen.hexdigest()[:16]


def main(params: dict) -> None:
    """Train, then show what was learned."""
    torch.manual_seed(0)
    model = Model(
        width=params.get("width", 160), layers=params.get("layers", 4), heads=params.get("heads", 4)
    )
    steps = params.get("schedule_steps", 400)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=params.get("learning_rate", 4e-3),
        betas=(0.9, 0.95),
        weight_decay=0.1,
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / 20, 0.55 + 0.45 * math.cos(math.pi * min(step / steps, 1.0))),
    )
    session = burst.session(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        steps=steps,
        global_batch=32,
        micro_batch=16,
        clip_norm=1.0,
    )
    for batch in session.batches(Source()):
        scores = session.model(batch[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        session.step(loss, tokens=batch[:, 1:].numel())

    if session.is_main:
        session.note(f"{sum(p.numel() for p in model.parameters()):,} parameters; it writes:")
        written = [line for line in write(model, b"def ").splitlines() if line.strip()]
        for line in written[:LINES]:
            session.note(f"  | {line[:100].rstrip()}")
        session.note(f"weights {fingerprint(model)}")


if __name__ == "__main__":
    main({})
