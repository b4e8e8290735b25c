# Keyhole: everything is set up in .venv by the first target that needs it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

.PHONY: help demo test lint bench docs clean

help:
	@echo "make demo    place 25 buoys on sea-surface temperature; table, plan and report in demo/"
	@echo "make test    run the tests"
	@echo "make lint    ruff and mypy --strict"
	@echo "make bench   the paper's tables and figures, and ours, on the data that KEYHOLE_DATA holds (hours)"
	@echo "make docs    draw the pictures of the documentation and run its examples"
	@echo "make clean   remove everything that was made"

$(READY): pyproject.toml benchmarks/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e benchmarks
	touch $(READY)

demo: $(READY)
	$(BIN)/keyhole demo --out demo

# One thread for each worker: two that share two cores wait for each other most of the time.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/keyhole-bench quality
	$(BIN)/keyhole-bench ablation
	$(BIN)/keyhole-bench table1
	$(BIN)/keyhole-bench table2
	$(BIN)/keyhole-bench weights
	$(BIN)/keyhole-bench cgan
	$(BIN)/keyhole-bench graphs
	$(BIN)/keyhole-bench floor
	$(BIN)/keyhole-bench gradients
	$(BIN)/keyhole-bench figures
	$(BIN)/keyhole-bench show --readme README.md

docs: $(READY)
	$(BIN)/python scripts/make_images.py
	$(BIN)/python -m pytest tests/test_docs.py

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
