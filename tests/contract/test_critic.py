"""A critic of a tied configuration on one rank and on two pipeline stages (C15)."""

from __future__ import annotations

from tests.contract.checks import equals_reference
from tests.contract.conftest import Found

TIME_LIMIT_SECONDS = 30.0
VALUES_OF_A_MICROBATCH = [2, 8]


def test_its_head_is_a_tensor_of_its_own(found: Found, release: str) -> None:
    (critic,) = found(release, 1, "critics.one_process")
    assert critic["shape"] == [1, 32]
    assert critic["inside the embedding"] is False
    assert critic["changed"] == critic["parameters"] == 28


def test_two_stages_equal_one_process(found: Found, release: str) -> None:
    for stage in found(release, 2, "critics.pipeline"):
        equals_reference(stage["step"])
        assert stage["seconds"] < TIME_LIMIT_SECONDS


def test_only_the_last_stage_has_the_head_and_trains_it(found: Found, release: str) -> None:
    first, last = found(release, 2, "critics.pipeline")
    assert (first["stage"], first["head"], first["embedding"], first["seen"]) == (0, None, True, [])
    assert (last["stage"], last["head"], last["embedding"]) == (1, [1, 32], False)
    assert last["seen"] == [VALUES_OF_A_MICROBATCH] * 2
    assert last["gradient"] > 0
    assert last["head changed"]


def test_a_language_model_leaves_the_head_as_initialised(found: Found, release: str) -> None:
    first, last = found(release, 2, "critics.pipeline")
    assert (first["new"], last["new"]) == ([], ["output_layer.weight"])
    assert first["unexpected"] == last["unexpected"] == []
    assert (first["loaded"], last["loaded"]) == (first["parameters"], last["parameters"] - 1)
    assert last["head kept"]
