# `make` or `make check` runs exactly what CI runs first. `make fix` repairs what can be repaired.
.PHONY: check fix layout lint types imports test docs integration e2e labs slow bench constraints
PYTEST := python -m pytest -q

check: layout lint types imports test docs

layout:
	@for a in storage checkpointing cost task_specs; do \
	  test "$$(readlink burst/$$a)" = "../$$a" || { echo "burst/$$a must be a link to ../$$a"; exit 1; }; \
	done
lint:
	ruff format --check . && ruff check .
types:
	mypy
imports:
	lint-imports --no-cache
test:
	$(PYTEST) -n auto --maxprocesses 8 -m "not integration and not e2e and not slow and not gpu and not cloud"
docs:
	$(PYTEST) --doctest-modules -p no:cacheprovider burst --ignore=burst/training --ignore=burst/provision

fix:
	ruff check --fix . ; ruff format .

# Local servers, real processes, real Ray.
integration:
	$(PYTEST) -m "integration and not slow"
e2e:
	$(PYTEST) -m "e2e and not slow"
labs: integration e2e
slow: labs
	$(PYTEST) -m slow --timeout 5400
bench:
	for b in benchmarks/bench_*.py; do python $$b || exit 1; done

# Pin what is installed now; run it in a venv made by `pip install -e .[dev]`.
constraints:
	pip freeze --exclude-editable | sed -E 's/\+cpu[0-9]*//' > constraints.txt
