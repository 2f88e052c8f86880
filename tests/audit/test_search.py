"""What the audit sees in a source file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat.audit import audit
from mcore_compat.errors import ConfigError

EVALUATES = """from megatron.core.pipeline_parallel import get_forward_backward_func
class Scorer:
    def score(self):
        run = get_forward_backward_func()
        return run(model=self.scorer, forward_only=MODE)
    def offload(self):
        for chunk in self.scorer:
            for name, p in chunk.named_parameters():
                p.data = p.data.cpu()
"""
BREAKS = {
    "a moved module": ("from megatron.optimizer import get_param_groups", "megatron.optimizer.get_param_groups"),
    "a submodule of it": ("import megatron.optimizer.grad_scaler", "megatron.optimizer.grad_scaler"),
    "through an alias": (
        "from megatron.core import mpu as m\nm.get_pipeline_model_parallel_split_rank()",
        "megatron.core.parallel_state.get_pipeline_model_parallel_split_rank",
    ),
    "through the whole path": (
        "import megatron.core\nmegatron.core.parallel_state.is_inside_encoder()",
        "megatron.core.parallel_state.is_inside_encoder",
    ),
    "a keyword": (
        "from megatron.core import DistributedDataParallel as DDP\nDDP(c, m, accumulate_allreduce_grads_in_fp32=True)",
        "DistributedDataParallel(accumulate_allreduce_grads_in_fp32=)",
    ),
    "positions": (
        "from megatron.core.distributed import DistributedDataParallel\nDistributedDataParallel(1, 2, 3, 4, 5, 6)",
        "DistributedDataParallel(6 positional arguments)",
    ),
    "a schedule, called later": (
        "from megatron.core.pipeline_parallel import get_forward_backward_func\n"
        "class A:\n    def f(self):\n        self.run = get_forward_backward_func()\n        self.run(hidden_size=1)",
        "forward_backward_func(hidden_size=)",
    ),
    "a schedule, called at once": (
        "from megatron.core.pipeline_parallel.schedules import get_forward_backward_func as g\ng()(tensor_shape=1)",
        "forward_backward_func(tensor_shape=)",
    ),
    "arguments of a step": ("# megatron\nself.actor_optimizer.step(args, timers)", "step(...)"),
    "clearing": ("# megatron\nchunk.zero_grad_buffer(zero_buffer=False)", "zero_grad_buffer(zero_buffer=)"),
    "moving parameters": (
        "# megatron\nfor name, p in sorted(module.named_parameters()):\n    p.data = buffer.get(p.shape)",
        "p.data =",
    ),
    "moving parameters of a model that is trained as well": (EVALUATES.replace("MODE", "not training"), "p.data ="),
    "a field of the configuration": (
        "from megatron.core import ModelParallelConfig as C\nC(async_tensor_model_parallel_allreduce=True)",
        "ModelParallelConfig(async_tensor_model_parallel_allreduce=)",
    ),
}
FINE = {
    "the new call": "from megatron.core.distributed import DistributedDataParallel as D\nD(config, ddp_config, module)",
    "behind a try": "try:\n    from megatron.optimizer import x\nexcept ImportError:\n    x = None",
    "behind a version": "if VERSION < (0, 6):\n    from megatron.optimizer import x",
    "another optimizer": "import megatron\noptimizer.step()\nenvironment.step(action, True)",
    "another package": "from megatronium.optimizer import x\nfrom .megatron.optimizer import y",
    "its own buffer": "# megatron\nfor buffer in buffers:\n    buffer.data = buffer.data.cpu()",
    "no Megatron at all": "for p in module.parameters():\n    p.data = p.data.cpu()",
    "parameters of a model that is only evaluated": EVALUATES.replace("MODE", "True"),
    "another engine": "# megatron\nfor p in self.model_runner.model.parameters():\n    p.data = p.data.cpu()",
    "names in text": "'''from megatron.optimizer import x'''  # megatron.optimizer",
}


def uses(folder: Path, source: str, target: str = "0.19.2") -> list[str]:
    (folder / "module.py").write_text(source + "\n")
    return [finding.use for finding in audit(folder, [target]).findings]


@pytest.mark.parametrize("what", BREAKS)
def test_sees(tmp_path: Path, what: str) -> None:
    source, use = BREAKS[what]
    assert uses(tmp_path, source) == [use]


@pytest.mark.parametrize("what", FINE)
def test_passes_over(tmp_path: Path, what: str) -> None:
    assert uses(tmp_path, FINE[what].replace("VERSION", "version")) == []


def test_what_a_release_does_not_have_yet(tmp_path: Path) -> None:
    source = "from megatron.core.process_groups_config import ProcessGroupCollection"
    assert uses(tmp_path, source, "0.14.0") == ["megatron.core.process_groups_config.ProcessGroupCollection"]
    assert uses(tmp_path, source, "0.15.0") == []


def test_a_finding_says_where_what_and_what_instead(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("import torch\nfrom megatron.utils import unwrap_model\n")
    (finding,) = audit(tmp_path, ["0.5.0", "0.6.0", "0.19.2"]).findings
    assert (finding.path, finding.line) == (str(tmp_path / "old.py"), 2)
    assert finding.breaks == ("0.6.0", "0.19.2")
    assert finding.change.startswith("last worked in 0.5.0")
    assert finding.instead == "mcore_compat.unwrap(model)"


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import megatron (\n")
    (tmp_path / "b.py").write_text("import megatron.timers\n")
    found = audit(tmp_path)
    assert [path for path, _ in found.unread] == [str(tmp_path / "a.py")]
    assert len(found.findings) == 1


def test_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file or folder"):
        audit(tmp_path / "absent")


def test_encodings(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\nname = 'caf\xe9'\nimport megatron.timers\n")
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbfimport megatron.timers\n")
    found = audit(tmp_path)
    assert found.unread == ()
    assert [finding.line for finding in found.findings] == [3, 1]


def test_only_the_sources_of_the_framework(tmp_path: Path) -> None:
    for folder in (".ipynb_checkpoints", ".venv", "build", "__pycache__", "megatron.py"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "copy.py").write_text("import megatron.timers\n")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    found = audit(tmp_path)
    assert [finding.path for finding in found.findings] == [str(tmp_path / "megatron.py" / "copy.py")]
    assert (found.files, found.unread) == (1, ())
