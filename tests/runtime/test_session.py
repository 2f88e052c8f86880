"""``prepare()`` and ``restore()``: what they refuse, leave behind and put back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mcore_compat.runtime import Action, Report
from tests.launch import ROOT, run_ranks

GPT = ("megatron.core.models.gpt", "megatron.core.models.gpt.gpt_layer_specs")


def run(program: str, *args: object, release: str | None, **options: Any) -> Any:
    return run_ranks(f"tests.runtime.programs:{program}", *args, release=release, **options)[0]


def in_front(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def test_importing_the_runtime_loads_neither_torch_nor_megatron() -> None:
    program = "import sys, mcore_compat.runtime; print(*{'torch', 'megatron', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_is_refused_where_there_is_none() -> None:
    found = run("refused", "cuda", release="0.19.2")
    assert found["error"] == "EnvironmentMismatch"
    assert "no CUDA device" in found["text"]


def test_too_late_is_an_error_that_says_what_to_do() -> None:
    found = run("refused", "cpu", "megatron.core", release="0.12.3")
    assert found["error"] == "EnvironmentMismatch"
    assert "megatron.core (" in found["text"]
    assert "prepare() before" in found["text"]


def test_a_missing_package_is_named_with_its_importer(tmp_path: Path) -> None:
    core = tmp_path / "megatron" / "core"
    core.mkdir(parents=True)
    (core / "__init__.py").write_text("import torch\nfrom no_such_package import thing\n")
    found = run("refused", "cpu", release=None, env=in_front(tmp_path))
    assert found["error"] == "EnvironmentMismatch"
    assert "no_such_package; megatron.core imports" in found["text"]


def test_an_old_checkout_without_its_neighbours_imports(tmp_path: Path) -> None:
    files = {
        "__init__.py": "import six\nfrom tools.retro.utils import get_args_path\nassert six.PY3\n",
        "core/__init__.py": "",
        "optimizer/__init__.py": "from apex.optimizers import FusedAdam as Adam\n",
    }
    for name, text in files.items():
        path = tmp_path / "megatron" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = run("old_checkout", release=None, env=in_front(tmp_path))
    assert found["Adam"] == "mcore_compat.runtime.optimizers"
    assert found["refusal"].startswith("get_args_path needs the tools folder")
    assert found["stand-ins"] == ["apex", "six", "tools"]


def test_a_report_is_readable() -> None:
    host = [Action("host", f"torch.cuda.f{number}", "no device") for number in range(5)]
    report = Report("cpu", (Action("stand-in", "apex", "absent"), *host))
    assert str(report).splitlines() == [
        "device: cpu",
        "stand-in  apex: absent",
        "host      torch.cuda.f0, torch.cuda.f1, torch.cuda.f2 and 2 more: no device",
    ]


def test_preparing_again_is_a_no_op_and_for_another_device_an_error() -> None:
    found = run("another_device", release="0.19.2")
    assert (found["same"], found["device"], found["host"]) == (True, "cpu", True)
    assert found["error"] == "EnvironmentMismatch"
    assert "prepared for cpu, not cuda" in found["text"]


def test_restore_leaves_torch_as_it_was() -> None:
    found = run("round_trip", release="0.19.2")
    assert found == {"changed": 6, "restored": True, "report": True, "again": "cpu"}


OLD_STAND_INS = {
    "0.4.0": ["pkg_resources", "transformer_engine"],
    "0.6.0": ["amp_C", "apex", "pkg_resources", "transformer_engine"],
}


@pytest.mark.releases(*OLD_STAND_INS)
def test_stand_ins_are_seen_only_by_those_who_need_them(release: str) -> None:
    found = run("leaves_no_stand_in", *GPT, release=release)
    assert found["stand-ins"] == OLD_STAND_INS[release]
    assert found["in sys.modules"] == found["importable"] == []
    assert found["versions"] == ["transformer-engine"]
    assert found["FusedLayerNorm"] == "mcore_compat.runtime.norm"
    assert found["FusedLayerNorm restored"] == "megatron.core.fusions.fused_layer_norm"


@pytest.mark.releases("0.8.0", "0.12.3", "0.19.2")
def test_releases_that_probe_find_packages_absent(release: str) -> None:
    found = run("leaves_no_stand_in", *GPT, release=release)
    assert not {"apex", "transformer_engine"} & set(found["stand-ins"])
    assert found["HAVE_TE"][GPT[1]] is False
    assert found["versions"] == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_program_that_never_prepares_gets_its_packages_only() -> None:
    found = run("unmodified", False, release="0.6.0")
    assert (found["device"], found["untouched"]) == ("none", True)
    assert "before prepare()" in found["text"]


def test_forced_host_outlives_what_the_program_prepares_and_restores() -> None:
    found = run("unmodified", True, release="0.6.0")
    assert (found["device"], found["untouched"]) == ("cpu", False)
    assert (found["available"], found["place"], found["host"]) == (True, "cpu", True)
