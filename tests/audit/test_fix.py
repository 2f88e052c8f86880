"""``audit --fix`` changes what it can replace exactly, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat.audit import fix
from mcore_compat.audit.fix import fix_files
from mcore_compat.audit.rewrite import fixed

HEAD = "from megatron.core import parallel_state as mpu\n"
DDP = "from megatron.core import DistributedDataParallel as DDP\n"
BACKWARD = "from megatron.core.pipeline_parallel import get_forward_backward_func\n"
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
    "in brackets that stand for a space": (
        BACKWARD
        + "def f():\n    return(get_forward_backward_func())\ndef g():\n    return not(get_forward_backward_func())\n",
        "import mcore_compat.legacy.calls\n\n"
        "def f():\n    return(mcore_compat.legacy.calls.get_forward_backward_func())\n"
        "def g():\n    return not(mcore_compat.legacy.calls.get_forward_backward_func())\n",
    ),
    "an import in a try, which something may depend on": (
        "try:\n    "
        + BACKWARD
        + "    HAVE = True\nexcept ImportError:\n    HAVE = False\nget_forward_backward_func()\n",
        "import mcore_compat.legacy.calls\n\ntry:\n    " + BACKWARD + "    HAVE = True\n"
        "except ImportError:\n    HAVE = False\nmcore_compat.legacy.calls.get_forward_backward_func()\n",
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
    "before a comma in an import": (
        "from megatron.core.pipeline_parallel import (\n    get_forward_backward_func  # which\n    , schedules\n)\n"
        "schedules.x(get_forward_backward_func())\n",
        "from megatron.core.pipeline_parallel import (\n    get_forward_backward_func  # which\n    , schedules\n)\n"
        "import mcore_compat.legacy.calls\n\nschedules.x(mcore_compat.legacy.calls.get_forward_backward_func())\n",
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
    "imports that work there": "from megatron.training.training import get_model\n"
    "from megatron.training.global_vars import get_args\n"
    "from megatron.training.optimizer_param_scheduler import OptimizerParamScheduler\n",
    "an import that an older release needs": "try:\n    from megatron.utils import unwrap_model\n"
    "except ImportError:\n    from megatron.core.utils import unwrap_model\n",
    "a branch of an older release": "from megatron.core import mpu\nif version < '0.6':\n"
    "    from megatron.optimizer import get_param_groups\n    mpu.initialize_model_parallel(2)\n",
    "what is called in brackets": HEAD + "def f():\n    return(mpu).initialize_model_parallel(2)\n",
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


TRAINING = "from megatron.training import get_model\n"
FLAT = DDP + "x = DDP(config=c, module=m, accumulate_allreduce_grads_in_fp32=True)\nx.zero_grad_buffer(True)\n"


@pytest.mark.parametrize(("source", "works"), [(TRAINING, "0.6.0"), (FLAT, "0.5.0")])
def test_what_works_on_all_targets_stays(source: str, works: str) -> None:
    broken = "0.5.0" if works == "0.6.0" else "0.6.0"
    assert fixed(source, [works]) == source
    assert "megatron" not in fixed(source, [works, broken])


@pytest.mark.parametrize(
    ("exporter", "importer"),
    [
        ("wrappers.py", "from wrappers import DDP"),
        ("wrappers.py", "from wrappers import *"),
        ("wrappers.py", "from .wrappers import (x, DDP)"),
        ("wrappers/__init__.py", "from framework.wrappers import DDP as Wrapper"),
        ("__init__.py", "from . import DDP"),
    ],
)
def test_a_name_that_another_file_imports_stays(tmp_path: Path, exporter: str, importer: str) -> None:
    (tmp_path / "wrappers").mkdir()
    exporting = tmp_path / exporter
    exporting.write_text(FLAT)
    (tmp_path / "trainer.py").write_text(f"{importer}\n")
    assert fix_files(tmp_path)
    assert exporting.read_text().startswith(f"{DDP}import mcore_compat\n")


def test_writes_nothing_where_one_file_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(FLAT + f"{name = }\n")

    def failing(source: str, *others: object) -> str:
        if "b.py" in source:
            raise ValueError("no such node")
        return fixed(source)

    monkeypatch.setattr(fix, "fixed", failing)
    with pytest.raises(ValueError, match="no such node"):
        fix_files(tmp_path)
    assert (tmp_path / "a.py").read_text().startswith(FLAT)


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
