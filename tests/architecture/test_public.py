"""The public surface, and what importing it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import mcore_compat

CALLS = """
build_model build_optimizer explain forward_backward get_model_config gpt_model groups init_parallel iter_weights
load_checkpoint load_hf memory_buffers offload plan_buffers prepare reference_parity reload reset restore
save_checkpoint save_hf seed sync transformer_config unwrap wrap_data_parallel zero_grad
"""
TYPES = """
Choice DataParallelSettings EvaluatedModel Explanation Group Groups LoadReport LossTerm OptimizerSettings
ParallelLayout Restored RolloutEngine Sampling StepResult TrainState TrainableModel TrainingBackend UpdateGuard
UpdateResult VocabShard
"""
ERRORS = """
AmbiguousMegatron CheckpointError ConfigError DataError EnvironmentMismatch FeatureUnavailable FrozenUpdate
McoreCompatError MegatronNotFound NumericalError PatchError PeerLost ReferenceMismatch RuntimeDrift
StaleParameter UnsupportedMegatron WeightsError
"""
SURFACE = sorted([*CALLS.split(), *TYPES.split(), *ERRORS.split()])


ROOT = Path(mcore_compat.__file__).parents[1]


def loaded(program: str, *names: str) -> str:
    """Which of these modules a bare interpreter holds after the program."""
    full = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {program}"
    full += f"; print(*[name for name in {names!r} if name in sys.modules])"
    # -S: start-up files of the environment may import what they like.
    done = subprocess.run([sys.executable, "-S", "-c", full], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_surface_is_the_promised_one() -> None:
    assert mcore_compat.__all__ == SURFACE  # type: ignore[attr-defined]
    assert set(SURFACE) <= set(dir(mcore_compat))


@pytest.mark.parametrize("name", SURFACE)
def test_every_name_is_there(name: str) -> None:
    assert getattr(mcore_compat, name).__name__ == name


def test_every_error_is_public() -> None:
    text = Path(mcore_compat.__file__).with_name("errors.py").read_text(encoding="utf-8")
    classes = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    assert sorted(classes) == sorted(ERRORS.split())


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = mcore_compat.no_such_name  # type: ignore[attr-defined]


def test_version_is_the_distributions() -> None:
    assert mcore_compat.__version__ == version("mcore-compat")


def test_import_loads_nothing() -> None:
    assert loaded("import mcore_compat", "torch", "megatron", "transformers", "click", "typing") == ""


def test_errors_types_and_explanations_load_no_torch() -> None:
    where = f"sys.path += {[path for path in sys.path if path.endswith('site-packages')]!r}"
    program = f"{where}; import mcore_compat as m; m.ConfigError; m.Groups; m.explain()"
    assert loaded(program, "torch", "megatron", "transformers") == ""
