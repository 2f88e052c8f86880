"""One side of ``matrix diff``, in a process of its own: ``python -m mcore_compat.cli._trace FOLDER STEPS [CONFIG]``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcore_compat.cli._job import make_backend
from mcore_compat.errors import ConfigError, McoreCompatError

if TYPE_CHECKING:
    from mcore_compat.rl.config import Config

# Both sides run on one process, whatever the settings say.
_MEGATRON = "actor_rollout_ref.actor.megatron"
_ONE_PROCESS = (
    f"{_MEGATRON}.tensor_model_parallel_size=1",
    f"{_MEGATRON}.pipeline_model_parallel_size=1",
    f"{_MEGATRON}.virtual_pipeline_model_parallel_size=null",
    f"{_MEGATRON}.sequence_parallel=false",
)
_DEMO = ("actor_rollout_ref.actor.optim.weight_decay=0.01",)
_SEED = 1
_ROWS = 8


def main(folder: Path, steps: int, config: Path | None) -> None:
    """Make the model that the settings name, the demo's without any, and trace its steps."""
    import torch

    from mcore_compat.bridge import MegatronModel
    from mcore_compat.bridge.trace import trace
    from mcore_compat.rl.config_resolve import actor_optimizer

    # Sums then have one order, on both sides and on every machine.
    torch.set_num_threads(1)
    settings = _configured(config) if config else _demo(folder)
    path = settings.actor_rollout_ref.model.path
    if path is None:
        raise ConfigError("the settings name no model", hint="set actor_rollout_ref.model.path")
    backend = make_backend(settings)
    model = backend.actor(Path(path), actor_optimizer(settings))
    assert isinstance(model, MegatronModel)
    trace(model, _batches(settings, backend, steps), backend.vocab, folder)


def _configured(path: Path) -> Config:
    from mcore_compat.rl.config_load import load_config

    return load_config(path, _ONE_PROCESS)


def _demo(folder: Path) -> Config:
    from mcore_compat.rl import sums
    from mcore_compat.rl.demo import DemoOptions, demo_config

    sums.write_model(folder / "start" / "warm", _SEED)
    return demo_config(DemoOptions(overrides=_DEMO), folder, 1)


def _batches(settings: Config, backend: Any, steps: int) -> Iterator[dict[str, Any]]:
    """Random tokens in the shape of the settings' prompts and responses."""
    import torch

    from mcore_compat.rl.experience import pack

    prompt, response = settings.data.max_prompt_length, settings.data.max_response_length
    generator = torch.Generator().manual_seed(_SEED)
    for _ in range(steps):
        drawn = torch.randint(backend.vocab.size, (_ROWS, prompt + response), generator=generator)
        rows = [(row[:prompt], row[prompt:]) for row in drawn.tolist()]
        prompts, responses = zip(*rows, strict=True)
        yield pack(prompts, responses, width=prompt + response, pad_token_id=0, device=backend.device)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None)
    except McoreCompatError as error:
        sys.exit(f"error: {error}")
