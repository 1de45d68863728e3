"""The task file's JSON schema, for editors: completion, hover text, typing errors while typing.

It says less than parse does: an editor cannot know whether two fields agree. `python -m
burst.task_specs.schema` writes schema.json, which ships with the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from burst.task_specs.burst_block import KEEP_AT_LEAST, PRECISIONS, REDUCTIONS, SPOTS, STRATEGIES
from burst.task_specs.keys import PLACES
from burst.task_specs.mounts import MODES

SHIPPED = Path(__file__).parent / "schema.json"

_TEXT = {"type": "string"}
_SINGLE = {"type": ["string", "number", "boolean", "null"]}
_TEXTS = {"type": ["object", "null"], "additionalProperties": _SINGLE}
_ANY: dict[str, Any] = {}
_BOOLEAN = {"type": ["boolean", "null"]}
_NUMBER = {"type": ["number", "string", "null"]}
_COUNT = {"type": ["integer", "string", "null"], "minimum": 1}
_NATURAL = {"type": ["integer", "string", "null"], "minimum": 0}
_PATH_OR_MAP = {"type": ["string", "object", "null"]}
_LIST = {"type": ["array", "null"]}
_MAP = {"type": ["object", "null"]}
_DURATION = {"type": ["string", "null"], "examples": ["90s", "10m", "1h30m", "2d"]}


def _one_of(words: tuple[str, ...]) -> dict[str, Any]:
    return {"enum": [*words, None]}


_FIELDS: dict[str, dict[str, tuple[dict[str, Any], str]]] = {
    "": {
        "name": (_SINGLE, "shown to people; the file's name if left out"),
        "workdir": (_PATH_OR_MAP, "local folder whose files every node gets"),
        "num_nodes": (_COUNT, "machines"),
        "resources": (_ANY, "what each machine must be"),
        "envs": (_TEXTS, "variables, kept as typed; one without a value is wanted by --env"),
        "secrets": ({"type": ["object", "array", "null"]}, "variables whose values are kept out"),
        "file_mounts": (_MAP, "path on the node: local path, URI or bucket"),
        "setup": (_SINGLE, "commands that prepare a node"),
        "run": (_SINGLE, "the command; or give burst.train"),
        "train": (_MAP, "another name for burst.params"),
        "burst": (_ANY, "what burst adds to SkyPilot's format"),
    },
    "resources": {
        "infra": (_TEXT, "cloud, cloud/region or cloud/region/zone; * for any"),
        "accelerators": (
            {"type": ["string", "object", "array", "null"]},
            "A100:8; a mapping for any of its types, a list for the first that can be had",
        ),
        "cpus": (_NUMBER, "8, or 8+ for at least 8"),
        "memory": (_NUMBER, "GB: 64, 64GB, 64+, or 4x for 4 GB for each CPU"),
        "disk_size": (_NUMBER, "GB: 256, 256GB, 1TB"),
        "use_spot": (_BOOLEAN, "spot machines; see burst.spot"),
        "max_hourly_cost": (_NUMBER, "US dollars an hour for one machine"),
        "autostop": (
            {"type": ["boolean", "number", "string", "object", "null"]},
            "minutes or a duration until an idle machine goes away; true: 5 minutes; false: never",
        ),
        "local_disk": (_NUMBER, "nvme or ssd, GB or both: nvme, 500+, nvme:500+"),
        "ports": ({"type": ["integer", "string", "array", "null"]}, "8080, 10022-10040"),
        "labels": (_TEXTS, "tags of the machine"),
        "any_of": (_LIST, "candidates, the cheapest first"),
        "ordered": (_LIST, "candidates, in this order"),
    },
    "burst": {
        "train": (_TEXT, "function called in each worker: train.py:main"),
        "params": (_MAP, "hyper-parameters given to the function"),
        "workers": ({"type": ["integer", "string", "null"]}, "2, or 2..8"),
        "strategy": (_one_of(STRATEGIES), "how the model is spread over workers"),
        "precision": (_one_of(PRECISIONS), "what the model computes in"),
        "global_batch": (_COUNT, "samples for each optimizer step, however many workers"),
        "micro_batch": (_COUNT, "samples for each forward"),
        "epochs": (_COUNT, "passes over the data"),
        "steps": (_COUNT, "optimizer steps"),
        "seed": (_NATURAL, "of order and randomness"),
        "clip_norm": (_NUMBER, "largest norm of the gradients"),
        "reduction": (_one_of(REDUCTIONS), "how gradients are summed"),
        "run_uri": (
            _TEXT,
            "folder in object storage: s3://bucket/prefix, oss://bucket/prefix, file:///folder",
        ),
        "spot": (_one_of(SPOTS), "which machines to rent"),
        "spot_policy": (_one_of(SPOTS), "another name for spot"),
        "max_price": (_NUMBER, "another name for resources.max_hourly_cost"),
        "budget_usd": (_NUMBER, "US dollars the run may cost"),
        "deadline": (_DURATION, "how long the run may take"),
        "max_failures": (_NATURAL, "restarts after the task's own code failed"),
    },
    "burst.checkpoint": {
        "every": (_DURATION, "a duration, or `200 steps`"),
        "keep": ({"type": ["integer", "null"], "minimum": KEEP_AT_LEAST}, "complete ones kept"),
        "dir": (_TEXT, "with `run:`, the folder whose files are saved"),
    },
    "burst.pools": {
        "prefer": (_LIST, "pools to fill first: slurm/lab"),
        "overflow_after": (_DURATION, "wait before others are rented"),
        "return_after": (_DURATION, "how long own machines are vacant before the run goes back"),
    },
    "mount": {"mode": ({"type": "string"}, f"one of {', '.join(MODES)}")},
}


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12)."""
    checkpoint, pools = _object("burst.checkpoint"), _object("burst.pools")
    burst = _object("burst", checkpoint=checkpoint, pools=pools)
    candidate = _object("candidate")
    several = {"type": ["array", "null"], "items": candidate}
    resources = _object("resources", any_of=several, ordered=several)
    mounts = {
        "type": ["object", "null"],
        "additionalProperties": {"anyOf": [_TEXT, _object("mount")]},
    }
    top = _object("", resources=resources, burst=burst, file_mounts=mounts)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "burst task",
        "description": "A SkyPilot task and a burst block",
        **top,
        "patternProperties": {"^x-": {}},
    }


def _object(place: str, **inner: dict[str, Any]) -> dict[str, Any]:
    known = _FIELDS["resources" if place == "candidate" else place]
    properties: dict[str, Any] = {}
    for key in PLACES[place]:
        rule, text = known.get(key, (_ANY, "SkyPilot's"))
        properties[key] = {**inner.get(key, rule), "description": text}
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def shipped_text() -> str:
    """Return what schema.json must hold."""
    return json.dumps(json_schema(), indent=1) + "\n"


if __name__ == "__main__":
    SHIPPED.write_text(shipped_text(), encoding="utf-8")
