#!/bin/sh
# Starts a node's agent: finds or makes the Python it needs, once per set of versions, and becomes
# `python -m burst.agent.boot`, whose input this script's is. An image may bring its own Python:
# its path in ~/.burst/env-base.
set -eu
code=$(cd "$(dirname "$0")/../.." && pwd)
home=$HOME/.burst
if [ -f "$home/env-base" ]; then
    python=$(cat "$home/env-base")
else
    want=$(sha256sum "$code/pins.txt" | cut -c1-12)
    env=$home/env-$want
    python=$env/bin/python
    exec 9>"$env.lock"
    flock 9 # nodes of a cluster share their home
    if [ ! -f "$env/.whole" ]; then
        uv=$(command -v uv || echo "$HOME/.local/bin/uv")
        if [ ! -x "$uv" ]; then
            curl -LsSf https://astral.sh/uv/install.sh | sh >&2
            uv=$HOME/.local/bin/uv
        fi
        rm -rf "$env"
        "$uv" venv -q --seed --python "$(cat "$code/python.txt")" "$env" >&2
        "$uv" pip install -q --python "$python" -r "$code/pins.txt" >&2
        touch "$env/.whole"
    fi
    exec 9>&-
fi
PYTHONPATH=$code exec "$python" -m burst.agent.boot
