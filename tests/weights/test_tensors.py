"""Laws of cutting and fusing: together they lose nothing, for any number of ranks."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from mcore_compat.weights.architecture import Architecture
from mcore_compat.weights.names import (
    EMBEDDING,
    LAYER_RULES,
    Rule,
    body_entries,
    cut_dimension,
    hf_shape,
    local_shape,
)
from mcore_compat.weights.tensors import fuse, join, pad_rows, unfuse


@st.composite
def architectures(draw: st.DrawFn) -> tuple[Architecture, int]:
    """An architecture, and a number of ranks that divides what it has to."""
    tp = draw(st.sampled_from([1, 2, 3, 4]))
    kv_heads = tp * draw(st.integers(1, 2))
    return Architecture(
        family="qwen3",
        num_layers=draw(st.integers(1, 3)),
        hidden_size=draw(st.integers(1, 5)),
        ffn_hidden_size=tp * draw(st.integers(1, 4)),
        num_heads=kv_heads * draw(st.integers(1, 3)),
        num_kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 3)),
        vocab_size=draw(st.integers(1, 20)),
        max_positions=8,
        rms_eps=1e-6,
        rope_theta=1e4,
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
    ), tp


def numbered(shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
    """Tensors in which every element is unique."""
    sizes = [torch.Size(shape).numel() for shape in shapes]
    flat = torch.arange(sum(sizes), dtype=torch.float64).split(sizes)
    return [part.reshape(shape) for part, shape in zip(flat, shapes, strict=True)]


def cut(rule: Rule, full: torch.Tensor, tp: int) -> list[torch.Tensor]:
    dimension = cut_dimension(rule)
    return [full] * tp if dimension is None else list(full.chunk(tp, dimension))


def parts_of(architecture: Architecture, rule: Rule) -> list[torch.Tensor]:
    return numbered([hf_shape(architecture, rule, part) for part in range(len(rule.hf))])


@given(architectures(), st.sampled_from(LAYER_RULES))
def test_unfusing_and_joining_undo_cutting_and_fusing(case: tuple[Architecture, int], rule: Rule) -> None:
    architecture, tp = case
    full = parts_of(architecture, rule)
    cuts = [cut(rule, part, tp) for part in full]
    ranks = [unfuse(architecture, rule, fuse(architecture, rule, ours)) for ours in zip(*cuts, strict=True)]
    joined = [join(pieces, cut_dimension(rule)) for pieces in zip(*ranks, strict=True)]
    assert all(torch.equal(found, part) for found, part in zip(joined, full, strict=True))


@given(architectures(), st.sampled_from(LAYER_RULES))
def test_a_fused_parameter_has_the_computed_shape(case: tuple[Architecture, int], rule: Rule) -> None:
    architecture, tp = case
    ours = [cut(rule, part, tp)[-1] for part in parts_of(architecture, rule)]
    assert tuple(fuse(architecture, rule, ours).shape) == local_shape(architecture, rule, tp, 0)


@given(architectures())
def test_ranks_fused_apart_are_the_whole_fused_at_once(case: tuple[Architecture, int]) -> None:
    """Query groups stay together: the ranks' parameters, one below the other, are that of one rank."""
    architecture, tp = case
    rule = next(rule for rule in LAYER_RULES if rule.megatron == "self_attention.linear_qkv.weight")
    full = parts_of(architecture, rule)
    cuts = [cut(rule, part, tp) for part in full]
    ranks = [fuse(architecture, rule, ours) for ours in zip(*cuts, strict=True)]
    assert torch.equal(torch.cat(ranks), fuse(architecture, rule, full))


def test_a_fused_projection_by_hand() -> None:
    """Two groups of two query heads, heads of one row: q0 q1 k0 v0, q2 q3 k1 v1."""
    architecture = Architecture("llama", 1, 1, 1, 4, 2, 1, 1, 1, 1e-6, 1e4)
    rule = next(rule for rule in LAYER_RULES if rule.megatron == "self_attention.linear_qkv.weight")
    query, key, value = (torch.tensor(rows).reshape(-1, 1) for rows in ([0, 1, 2, 3], [10, 11], [20, 21]))
    assert fuse(architecture, rule, [query, key, value]).flatten().tolist() == [0, 1, 10, 20, 2, 3, 11, 21]


@given(architectures(), st.integers(0, 5))
def test_padding_adds_zero_rows_only(case: tuple[Architecture, int], extra: int) -> None:
    rows = torch.ones(hf_shape(case[0], EMBEDDING, 0))
    padded = pad_rows(rows, rows.shape[0] + extra)
    assert torch.equal(padded[: rows.shape[0]], rows)
    assert padded.shape[0] == rows.shape[0] + extra
    assert not padded[rows.shape[0] :].any()


@given(architectures())
def test_no_name_occurs_twice(case: tuple[Architecture, int]) -> None:
    entries = list(body_entries(case[0]))
    names = [name for entry in entries for name in entry.hf]
    assert len(set(names)) == len(names)
    assert len({entry.megatron for entry in entries}) == len(entries)
