"""``audit --fix`` changes what it can replace exactly, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat.audit.fix import fix_files, fixed

HEAD = "from megatron.core import parallel_state as mpu\n"
DDP = "from megatron.core import DistributedDataParallel as DDP\n"
REWRITTEN = {
    "an import": (
        "from megatron.optimizer import get_param_groups as groups  # why\n",
        "from mcore_compat.legacy.optimizer import get_param_groups as groups  # why\n",
    ),
    "an import of a submodule": (
        "from megatron.optimizer.grad_scaler import (\n    ConstantGradScaler,  # fixed\n)\n",
        "from mcore_compat.legacy.optimizer import (\n    ConstantGradScaler,  # fixed\n)\n",
    ),
    "the layout": (
        HEAD + "mpu.initialize_model_parallel(2, pipeline_model_parallel_size=4, use_sharp=False)\nmpu.get_x()\n",
        HEAD + "import mcore_compat\n\nmcore_compat.init_parallel(tp=2, pp=4)\nmpu.get_x()\n",
    ),
    "the wrapper": (
        DDP + "x = DDP(c, module=m, data_parallel_group=get_data_parallel_group(), "
        "accumulate_allreduce_grads_in_fp32=True)  # wrap\n",
        "import mcore_compat\n\nx = mcore_compat.wrap_data_parallel([m], c, "
        "mcore_compat.DataParallelSettings(grad_reduce_in_fp32=True))[0]  # wrap\n",
    ),
    "a step": (
        "import megatron\n\n# update\nok, norm, _ = self.optimizer.step(args, timers)  # all of it\n",
        "import megatron\nimport mcore_compat\n\n# update\nok, norm, _ = self.optimizer.step()  # all of it\n",
    ),
}
LEFT = {
    "names of which one is not served": "from megatron.utils import print_rank_0, report_memory\n",
    "a split rank": HEAD + "mpu.initialize_model_parallel(2, pipeline_model_parallel_split_rank=1)\n",
    "hidden arguments": HEAD + "mpu.initialize_model_parallel(*sizes)\n",
    "a group of its own": DDP + "DDP(c, m, mine, accumulate_allreduce_grads_in_fp32=True)\n",
    "a subclass": DDP + "class Mine(DDP):\n    pass\n",
    "the new wrapper": DDP + "DDP(config, ddp_config, module)\n",
    "another step": "import megatron\nenvironment.step(action, True)\n",
    "no Python": "from megatron.utils import (\n",
}


@pytest.mark.parametrize("what", REWRITTEN)
def test_rewrites(what: str) -> None:
    before, after = REWRITTEN[what]
    assert fixed(before) == after


@pytest.mark.parametrize("what", LEFT)
def test_leaves(what: str) -> None:
    assert fixed(LEFT[what]) == LEFT[what]


def test_fixing_twice_changes_nothing_more(tmp_path: Path) -> None:
    file = tmp_path / "old.py"
    file.write_text("".join(before for before, _ in REWRITTEN.values()))
    diff = fix_files(tmp_path)
    assert diff.startswith(f"--- {file}")
    assert "+from mcore_compat.legacy.optimizer" in diff
    once = file.read_text()
    assert fix_files(tmp_path) == ""
    assert file.read_text() == once
