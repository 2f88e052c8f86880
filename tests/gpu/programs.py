"""What the GPU tests run with a release in front."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from mcore_compat.contracts import OptimizerSettings, ParallelLayout, Precision

STEPS = 8


def train(device: str, precision: Precision) -> dict[str, Any]:
    """Supervised steps of the demo's model on one batch of sums."""
    from mcore_compat.bridge import MegatronBackend
    from mcore_compat.rl import sums
    from mcore_compat.rl.experience import pack
    from mcore_compat.rl.warmup import cross_entropy

    backend = MegatronBackend(ParallelLayout(), device=device, precision=precision, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        sums.write_model(Path(folder), seed=1)
        model = backend.actor(Path(folder), OptimizerSettings(lr=3e-3, precision=precision))
    prompts, answers = sums.textbook(0, seed=1)
    width = sums.PROMPT_LENGTH + sums.RESPONSE_LENGTH
    batch = pack(prompts, answers, width=width, pad_token_id=0, device=backend.device)
    updates = [model.update(batch, 50, cross_entropy(backend.vocab)) for _ in range(STEPS)]
    return {
        "device": backend.device.type,
        "losses": [update.loss for update in updates],
        "norms": [update.step.grad_norm for update in updates],
    }
