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
    "an import that a text names": (
        DDP + "__all__ = ['DDP']\nx = DDP(config=c, module=m, accumulate_allreduce_grads_in_fp32=True)\n",
        DDP + "import mcore_compat\n\n__all__ = ['DDP']\nx = mcore_compat.wrap_data_parallel([m], c, "
        "mcore_compat.DataParallelSettings(grad_reduce_in_fp32=True))[0]\n",
    ),
    "beside a call whose function spans lines": (
        HEAD + "print('a'\n  'b'.format(mpu.initialize_model_parallel(2)))\n",
        HEAD + "import mcore_compat\n\nprint('a'\n  'b'.format(mcore_compat.init_parallel(tp=2)))\n",
    ),
    "a step": (
        "import megatron\n\n# update\nok, norm, _ = self.optimizer.step(args, timers)  # all of it\n",
        "import megatron\n\n# update\nok, norm, _ = self.optimizer.step()  # all of it\n",
    ),
}
COMMENTED = {
    "after arguments": (
        DDP
        + """x = DDP(
    c,  # config
    m,  # module
    data_parallel_group=get_data_parallel_group(  # which
        True
    ),  # group
    accumulate_allreduce_grads_in_fp32=True  # flag
)
""",
        """import mcore_compat

x = mcore_compat.wrap_data_parallel(
    [m],  # module
    c,  # config
    mcore_compat.DataParallelSettings(
        # which
        # group
        grad_reduce_in_fp32=True,  # flag
    ),
)[0]
""",
    ),
    "on lines of their own": (
        HEAD
        + """def f():
    mpu.initialize_model_parallel(  # sizes
        # tensor
        2,
        # pipeline
        4
        # no more
    )
""",
        HEAD
        + """import mcore_compat

def f():
    mcore_compat.init_parallel(  # sizes
        # tensor
        tp=2,
        # pipeline
        pp=4,
        # no more
    )
""",
    ),
    "of a keyword between two others": (
        HEAD
        + """mpu.initialize_model_parallel(
    tensor_model_parallel_size=2,  # two
    use_sharp=False,  # none
    pipeline_model_parallel_size=4,  # four
)
""",
        HEAD
        + """import mcore_compat

mcore_compat.init_parallel(
    tp=2,  # two
    # none
    pp=4,  # four
)
""",
    ),
    "of the only arguments": (
        "import megatron\noptimizer.step(  # update\n    args,  # unused\n    timers,\n)  # done\n",
        "import megatron\noptimizer.step(  # update\n    # unused\n)  # done\n",
    ),
    "in an import": (
        "from megatron.core import (  # several\n    # groups\n    mpu,  # all\n"
        "    DistributedDataParallel,  # wrapper\n    # last\n)\n"
        "mpu.get_x(DistributedDataParallel(config=c, module=m, accumulate_allreduce_grads_in_fp32=True))\n",
        "from megatron.core import (  # several\n    # groups\n    mpu,  # all\n    # wrapper\n    # last\n)\n"
        "import mcore_compat\n\n"
        "mpu.get_x(mcore_compat.wrap_data_parallel([m], c, "
        "mcore_compat.DataParallelSettings(grad_reduce_in_fp32=True))[0])\n",
    ),
    "of an import that goes": (
        "import torch\n\n# Megatron\nfrom megatron.core import DistributedDataParallel as DDP  # noqa\n"
        "from megatron.core import mpu\n\nDDP(config=c, module=m, accumulate_allreduce_grads_in_fp32=mpu.x)\n",
        "import torch\n\n# Megatron\n# noqa\nfrom megatron.core import mpu\nimport mcore_compat\n\n"
        "mcore_compat.wrap_data_parallel([m], c, mcore_compat.DataParallelSettings(grad_reduce_in_fp32=mpu.x))[0]\n",
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
    "a comment that would lose its place": HEAD + "mpu.initialize_model_parallel(2  # two\n , use_sharp=False)\n",
    "no Python": "from megatron.utils import (\n",
}


@pytest.mark.parametrize("what", REWRITTEN)
def test_rewrites(what: str) -> None:
    before, after = REWRITTEN[what]
    assert fixed(before) == after


@pytest.mark.parametrize("what", COMMENTED)
def test_keeps_comments(what: str) -> None:
    before, after = COMMENTED[what]
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


OLD = "# coding: {}\r\nfrom megatron.utils import print_rank_0  # \xe9\r\nprint_rank_0(1)\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encoding_and_line_ends_stay(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "old.py"
    before = OLD.format(encoding.removesuffix("-sig"))
    file.write_bytes(before.encode(encoding))
    assert fix_files(file)
    assert file.read_bytes().decode(encoding) == before.replace("megatron.utils", "mcore_compat.legacy.utils")


def test_a_file_that_is_no_text_stays(tmp_path: Path) -> None:
    sources = {"bytes.py": b"# megatron \xe9\n", "null.py": b"import megatron\0\n", "bad.py": b"import megatron (\n"}
    for name, source in sources.items():
        (tmp_path / name).write_bytes(source)
    assert fix_files(tmp_path) == ""
    assert {name: (tmp_path / name).read_bytes() for name in sources} == sources
