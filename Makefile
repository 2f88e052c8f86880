# Each command works on a fresh clone: set-up happens on first use, and again when pyproject.toml changes.
#   make demo    PPO on a tiny Llama, on the real Megatron-Core        make demo ARGS="--steps 5"
#   make test    all tests                                             make test ARGS=--all-releases
#   make lint    style, types, layers
# PYTHON picks the interpreter, TORCH the torch to install (make demo TORCH=torch==2.9.0).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH ?= torch==2.13.0
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint
demo: $(READY)
	$(BIN)/mcore-compat demo $(ARGS)

test: $(READY)
	$(BIN)/python -m tests.run $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One resolution for all, so that nothing replaces the torch that was asked for.
$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install 'pip>=25.1'
	$(BIN)/python -m pip install '$(TORCH)' -e '.[megatron,rl,patch,audit,matrix,cli]' --group test --group lint
	touch $@
