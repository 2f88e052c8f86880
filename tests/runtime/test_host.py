"""The host device answers what programs for GPUs ask torch."""

from __future__ import annotations

import pytest

from tests.launch import run_ranks

NEWEST = "0.19.2"


def test_cuda_in_every_spelling_means_the_cpu() -> None:
    (found,) = run_ranks("tests.runtime.programs:host_device", release=NEWEST)
    assert found["devices"] == ["cpu"]
    assert found["types"] == ["torch.cuda.HalfTensor", "torch.cuda.FloatTensor", "torch.float32"]
    assert found["isinstance"] == [True, True, False]
    assert found["meta"] == ["meta", "meta"]
    assert found["histogram"] == [1, 2, 0, 1]
    assert found["available"] is False
    assert found["elapsed"] == 0.0


def test_wrapped_factories_compile() -> None:
    (found,) = run_ranks("tests.runtime.programs:compilers", release=NEWEST)
    assert found["script"] == found["compile"] == [1.0, 1.0, 0.0, 0.0, 1.0]


def test_forked_random_numbers_are_reproducible(release: str) -> None:
    (found,) = run_ranks("tests.runtime.programs:random_states", release=release)
    (outer, forked), again = found["runs"]
    assert [outer, forked] == again
    assert outer == found["unforked"]
    assert forked[0] not in outer


def test_averaging_collectives() -> None:
    ranks = run_ranks("tests.runtime.programs:averages", release=NEWEST, nproc=2)
    for rank, found in enumerate(ranks):
        assert found["backend"] == "gloo"
        assert found["all"] == [1.5, 3.5]
        assert found["part"] == pytest.approx([1.5 + 2 * rank])
        assert found["kept"] == [1.0 + rank, 3.0 + rank]
        assert found["scaled"] == [0.75]
        assert "averages no torch.int64" in found["integers"]
