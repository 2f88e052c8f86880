"""The planner by itself: known sizes, kinds of parameters, options, and rules by name and by source."""

from __future__ import annotations

import pytest

from mcore_compat import ConfigError, DataParallelSettings, FeatureUnavailable
from mcore_compat.buffers.plan import Bucket, ChunkLayout, Parameter, plan_buffers
from mcore_compat.detect import Facts
from mcore_compat.matrix.overlay import overlay
from mcore_compat.seams.param_padding import padding_rule, seam

SHARDED = DataParallelSettings(use_distributed_optimizer=True)
OVERLAPPED = DataParallelSettings(use_distributed_optimizer=True, overlap_grad_reduce=True)
SIZES = (10, 193, 128, 7, 1000)
PACKED, ALIGNED = [0, 1000, 1007, 1135, 1328], [0, 1024, 1088, 1216, 1472]


def some() -> list[Parameter]:
    return [Parameter(f"p{index}", (size,)) for index, size in enumerate(SIZES)]


def starts(layout: ChunkLayout) -> list[int]:
    return [place.start for buffer in layout.buffers for place in buffer.places]


@pytest.mark.parametrize(
    ("version", "dp", "expected", "numel"),
    [
        ("0.4.0", 2, PACKED, 1338),
        ("0.5.0", 8, PACKED, 1344),
        ("0.6.0", 8, PACKED, 1344),
        ("0.7.0", 2, PACKED, 1408),
        ("0.7.0", 3, PACKED, 1536),
        ("0.8.0", 2, ALIGNED, 1536),
        ("0.15.1", 2, ALIGNED, 1536),
        ("0.19.2", 3, ALIGNED, 1536),
    ],
)
def test_known_sizes(version: str, dp: int, expected: list[int], numel: int) -> None:
    layout = plan_buffers(some(), SHARDED, dp=dp, release=version)
    assert starts(layout) == expected
    assert layout.buffers[0].numel == numel
    unsharded = plan_buffers(some(), dp=dp, release=version)
    assert (starts(unsharded), unsharded.buffers[0].numel) == (PACKED, sum(SIZES))


def test_a_rule_by_name_is_the_rule_by_source(release: str) -> None:
    chosen = seam.select(Facts(overlay(release))).variant
    by_source = next(variant for variant in seam.variants if variant.name == chosen)
    assert by_source.bind()() == padding_rule(release)


def test_kinds_have_buffers_of_their_own() -> None:
    drawn = [
        Parameter("frozen", (8,), frozen=True),
        Parameter("expert", (8,), expert=True),
        Parameter("dense", (8,)),
        Parameter("router", (8,), "float32"),
        Parameter("quantised", (8,), fp8=True),
    ]
    layout = plan_buffers(drawn, SHARDED, dp=2, release="0.19.2")
    kinds = [(buffer.parameter_type, buffer.gradient_type, buffer.expert) for buffer in layout.buffers]
    assert kinds == [
        ("bfloat16", "float32", False),
        ("float32", "float32", False),
        ("uint8", "float32", False),
        ("bfloat16", "float32", True),
    ]
    oldest = plan_buffers(drawn[:4], SHARDED, dp=2, release="0.4.0")
    assert [place.name for place in oldest.buffers[0].places] == ["router", "dense"]
    assert oldest.unbuffered == ("expert",)


def test_bucket_size_by_default_grows_with_the_ranks() -> None:
    drawn = [Parameter("last", (5,)), Parameter("first", (40_000_000,))]

    def buckets(version: str, dp: int, **where: int) -> int:
        return len(plan_buffers(drawn, OVERLAPPED, dp=dp, release=version, **where).buffers[0].buckets)

    assert (buckets("0.6.0", 2), buckets("0.6.0", 64)) == (2, 2)
    assert (buckets("0.7.0", 2), buckets("0.7.0", 64)) == (2, 1)
    assert buckets("0.4.0", 2) == 1, "a bucket of these releases holds two parameters"
    assert buckets("0.19.2", 2, stage=1) == buckets("0.19.2", 2, chunk=1) == 1


def test_a_tied_embedding_in_the_padding_of_another_bucket_is_reported() -> None:
    drawn = [Parameter("tied", (256,), tied=True), Parameter("rest", (130,))]
    old = plan_buffers(drawn, SHARDED, dp=2, release="0.12.3").buffers[0]
    new = plan_buffers(drawn, SHARDED, dp=2, release="0.13.1").buffers[0]
    assert (old.misplaced, new.misplaced) == (("tied",), ())
    assert new.buckets == (Bucket(0, 256, 192), Bucket(256, 512, 256))
    with pytest.raises(ConfigError, match="tied embedding would start at element 131"):
        plan_buffers([drawn[0], Parameter("rest", (131,))], SHARDED, dp=2, release="0.6.0")


@pytest.mark.parametrize(
    ("settings", "version", "first"),
    [
        (DataParallelSettings(pad_buckets_for_high_nccl_busbw=True), "0.11.0", "0.12.0"),
        (DataParallelSettings(num_distributed_optimizer_instances=2), "0.9.0", "0.10.0"),
    ],
)
def test_an_option_that_a_release_lacks_is_refused(settings: DataParallelSettings, version: str, first: str) -> None:
    with pytest.raises(FeatureUnavailable, match=first):
        plan_buffers(some(), settings, dp=2, release=version)
    plan_buffers(some(), settings, dp=2, release=first)


@pytest.mark.parametrize("version", ["0.3.0", "newest"])
def test_no_such_release(version: str) -> None:
    with pytest.raises(ConfigError, match="no release of Megatron-Core"):
        plan_buffers(some(), dp=2, release=version)


@pytest.mark.parametrize("size", ["dp", "cp", "expert_dp"])
def test_sizes_below_one(size: str) -> None:
    with pytest.raises(ConfigError, match=f"{size} must be at least 1, found 0"):
        plan_buffers(some(), **({"dp": 1} | {size: 0}), release="0.19.2")


def test_parameters_of_torch_are_not_those_of_the_planner() -> None:
    with pytest.raises(ConfigError, match=r"expected a list of .*Parameter, found tuple in it"):
        plan_buffers([("weight", None)], dp=1, release="0.19.2")  # type: ignore[list-item]
