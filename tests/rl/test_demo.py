from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mcore_compat.errors import ConfigError
from mcore_compat.rl import sums
from mcore_compat.rl.demo import DemoOptions, run_demo, score_folder
from mcore_compat.rl.interrupt import StopRequest
from mcore_compat.rl.progress import Lines, Silent
from mcore_compat.rl.report import Report
from tests.launch import ROOT
from tests.rl.torch_backend import TorchBackend

SHORT = DemoOptions(steps=2, warm_up_steps=3)


def demo(options: DemoOptions, folder: Path) -> Report:
    return run_demo(
        replace(options, output=str(folder)),
        lambda _: TorchBackend(len(sums.CHARACTERS)),
        world_size=1,
        talk=Silent(),
        stop=StopRequest(),
    )


def series(report: Report) -> list[Mapping[str, float]]:
    return [
        {name: value for name, value in step.items() if not name.startswith(("timing_s", "perf"))}
        for step in report.steps
    ]


def test_ppo_corrects_the_textbook_and_transformers_agrees(tmp_path: Path) -> None:
    report = demo(DemoOptions(steps=4), tmp_path)
    assert report.score_before is not None
    assert report.score_after is not None
    assert report.score_after >= report.score_before + 0.2
    code = f"from mcore_compat.rl.demo import score_folder; print(score_folder('{report.export}'))"
    assert code in "\n".join(report.lines())
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(output.stdout) == report.score_after
    assert score_folder(tmp_path / "start" / "warm") == report.score_before


def test_the_demo_repeats_to_the_last_bit(tmp_path: Path) -> None:
    assert series(demo(SHORT, tmp_path / "a")) == series(demo(SHORT, tmp_path / "b"))


def test_settings_can_be_overridden(tmp_path: Path) -> None:
    report = demo(replace(SHORT, overrides=["trainer.total_training_steps=1", "data.seed=7"]), tmp_path)
    assert len(report.steps) == 1
    assert "seed: 7" in (tmp_path / "config.yaml").read_text()
    with pytest.raises(ConfigError, match=r"data\.seed"):
        demo(replace(SHORT, overrides=["data.sed=7"]), tmp_path / "b")


def test_a_stop_during_the_warm_up_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop = StopRequest()
    stop.requested = True
    options = replace(SHORT, output=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run_demo(options, lambda _: TorchBackend(14), world_size=1, talk=Lines(), stop=stop)
    assert "warm-up: 3 supervised steps" in capsys.readouterr().err
    assert not (tmp_path / "metrics.jsonl").exists()


def test_the_textbook_forgets_only_carries() -> None:
    prompts, answers = sums.textbook(0, 1)
    results = ["".join(sums.CHARACTERS[token] for token in answer[:-1]) for answer in answers]
    wrong = [(a, b) for (a, b), result in zip(sums.SUMS, results, strict=True) if int(result) != a + b]
    assert all(int(result) % 10 == (a + b) % 10 for (a, b), result in zip(sums.SUMS, results, strict=True))
    assert all(a + b >= 10 for a, b in wrong)
    assert 45 * 0.4 < len(wrong) < 45
    assert sums.textbook(0, 1) == (prompts, answers) != sums.textbook(1, 1)


def test_the_tokenizer_of_the_model_folder_is_the_alphabet(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    sums.write_model(tmp_path, 0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.encode("12+3=<eos>") == [*sums.encode("12+3="), 1]
    assert tokenizer.decode([*sums.encode("15"), 1, 0], skip_special_tokens=True) == "15"
