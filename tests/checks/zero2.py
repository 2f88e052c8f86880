"""An actor that DeepSpeed ZeRO-2 prepared in bf16, against references prepared otherwise and alike."""

from __future__ import annotations

import copy
import os
from dataclasses import asdict
from typing import Any

import torch


def step_zero() -> dict[str, Any]:
    """The verdicts of ``reference_parity`` before any update."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    from transformers import LlamaConfig, LlamaForCausalLM

    from mcore_compat import reference_parity

    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    pretrained = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=64)).eval()
    with torch.no_grad():
        for parameter in pretrained.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 2 / parameter.shape[1] ** 0.5)
    actor, alike = (_prepared(deepspeed, copy.deepcopy(pretrained)) for _ in range(2))
    batch = {"tokens": torch.randint(64, (4, 16), generator=torch.Generator().manual_seed(2))}
    return {
        "stage": actor.zero_optimization_stage(),
        "optimizer": type(actor.optimizer).__name__,
        "fp32 reference": asdict(reference_parity(actor, pretrained, batch)),
        "reference prepared alike": asdict(reference_parity(actor, alike, batch)),
    }


def _prepared(deepspeed: Any, model: torch.nn.Module) -> Any:
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
    }
    adam = torch.optim.Adam(model.parameters(), lr=1e-5)
    engine = deepspeed.initialize(model=model, optimizer=adam, config=settings, dist_init_required=True)[0]
    engine.eval()
    return engine
