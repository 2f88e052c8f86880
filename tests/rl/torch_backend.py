"""The protocols of ``contracts`` in plain torch, one process, for tests of ``rl`` that need no Megatron.

Models are transformers' own; the optimizer is AdamW.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoModel, AutoModelForCausalLM

from mcore_compat.contracts import (
    LossFunction,
    OptimizerSettings,
    OutputFunction,
    StepResult,
    UpdateResult,
    VocabShard,
)

ResultT = TypeVar("ResultT")
Batch = Mapping[str, torch.Tensor]
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model")


class TorchBackend:
    """A training engine of one process."""

    def __init__(self, vocab_size: int) -> None:
        self.release = "torch"
        self.rank = 0
        self.data_parallel = (0, 1)
        self.device = torch.device("cpu")
        self.vocab = VocabShard(0, vocab_size, vocab_size)

    def actor(self, folder: Path, settings: OptimizerSettings) -> TorchModel:
        return TorchModel(_Policy(folder), folder, settings)

    def critic(self, folder: Path, settings: OptimizerSettings) -> TorchModel:
        return TorchModel(_Value(folder), folder, settings)

    def reference(self, folder: Path) -> TorchModel:
        return TorchModel(_Policy(folder), folder, OptimizerSettings())

    def save_checkpoint(
        self,
        folder: Path,
        models: Mapping[str, TorchModel],
        *,
        step: int,
        state: Mapping[str, Any],
        keep: int | None = None,
    ) -> None:
        target = folder / f"step-{step}"
        target.mkdir(parents=True)
        parts = {role: (model.module.state_dict(), model.optimizer.state_dict()) for role, model in models.items()}
        torch.save(parts, target / "models.pt")
        (target / "state.json").write_text(json.dumps({"step": step, "state": state, "keep": keep}))

    def load_checkpoint(
        self, folder: Path, models: Mapping[str, TorchModel], *, fresh_optimizer: Sequence[str] = ()
    ) -> tuple[int, Mapping[str, Any]]:
        newest = max(folder.glob("step-*"), key=lambda path: int(path.name[5:]), default=folder)
        for role, (module, optimizer) in torch.load(newest / "models.pt").items():
            models[role].module.load_state_dict(module)
            if role not in fresh_optimizer:
                models[role].optimizer.load_state_dict(optimizer)
        found = json.loads((newest / "state.json").read_text())
        return found["step"], found["state"]

    def on_rank_zero(self, work: Callable[[], ResultT]) -> ResultT:
        return work()

    def each_data_parallel_rank(self, work: Callable[[int, int], Sequence[ResultT]]) -> list[ResultT]:
        return list(work(0, 1))


class _Policy(torch.nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.hf = AutoModelForCausalLM.from_pretrained(folder).float()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.hf(input_ids=tokens, use_cache=False).logits

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.hf.named_parameters()


class _Value(torch.nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.hf = AutoModel.from_pretrained(folder).float()
        self.score = torch.nn.Linear(self.hf.config.hidden_size, 1, bias=False)
        torch.nn.init.zeros_(self.score.weight)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.score(self.hf(input_ids=tokens, use_cache=False).last_hidden_state)[..., 0]

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from ((f"model.{name}", weight) for name, weight in self.hf.named_parameters())
        yield "score.weight", self.score.weight


class TorchModel:
    """A trainable model of the backend."""

    def __init__(self, module: Any, folder: Path, settings: OptimizerSettings) -> None:
        self.module, self.folder, self.settings = module.train(), folder, settings
        decays = [p for p in module.parameters() if p.dim() > 1]
        others = [p for p in module.parameters() if p.dim() <= 1]
        groups = [{"params": decays}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, settings.lr, settings.betas, settings.eps, settings.weight_decay)

    def evaluate(self, batch: Batch, micro_batch_size: int, output: OutputFunction) -> dict[str, torch.Tensor]:
        with _evaluating(self.module), torch.no_grad():
            parts = [output(self.module(part["tokens"]), part) for part in _split(batch, micro_batch_size)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def stream(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from ((name, weight.detach().clone()) for name, weight in self.module.named_weights())

    def update(self, batch: Batch, micro_batch_size: int, loss: LossFunction) -> UpdateResult:
        self.optimizer.zero_grad()
        terms = []
        for part in _split(batch, micro_batch_size):
            term = loss(self.module(part["tokens"]), part)
            term.sum.backward()
            terms.append(replace(term, sum=term.sum.detach()))
        count = sum(float(term.count) for term in terms)
        for parameter in self.module.parameters():
            parameter.grad.div_(count)
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.settings.clip_grad or float("inf"))
        self.optimizer.step()
        metrics = {name: _mean([term.metrics[name] for term in terms]) for name in terms[0].metrics}
        total = sum(float(term.sum) for term in terms)
        return UpdateResult(StepResult(True, norm.item(), None), total / count, metrics)

    def set_lr(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def save_hf(self, folder: Path) -> None:
        self.module.hf.save_pretrained(folder)
        for name in TOKENIZER_FILES:
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, folder)


def _split(batch: Batch, size: int) -> list[dict[str, torch.Tensor]]:
    rows = len(batch["tokens"])
    return [{name: tensor[start : start + size] for name, tensor in batch.items()} for start in range(0, rows, size)]


def _mean(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    return sum(float(total) for total, _ in pairs) / sum(float(count) for _, count in pairs)


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
