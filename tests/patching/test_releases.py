"""Every patch of the package on every release: what it answers, and that it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from mcore_compat import patching
from mcore_compat.matrix.overlay import overlay
from mcore_compat.matrix.table import releases
from mcore_compat.patching.catalogue import folder, rules, series
from tests.patching.megatrons import checkout_of, content, copy_of

# Patch -> first release that needs it, and the first one after that which does not ("" : none yet).
# On all releases between the two it must apply, on all others it must not be needed.
NEEDED = {
    "model-config-attribute": ("0.4.0", ""),
    "expert-grad-hook": ("0.4.0", "0.6.0"),
    "ddp-broadcast-params": ("0.6.0", "0.8.0"),
    "ddp-scale-context-parallel": ("0.8.0", "0.9.0"),
    "tied-embedding-start": ("0.6.0", "0.9.0"),
    "tied-embedding-padding": ("0.9.0", "0.13.0"),
    "bucket-param-index": ("0.13.0", "0.17.0"),
    "grad-sync-stream": ("0.19.0", ""),
    "frozen-layernorm-grads": ("0.4.0", "0.12.0"),
    "lr-mult-shadowed": ("0.6.0", "0.8.0"),
    "fp32-optimizer-state": ("0.6.0", "0.7.0"),
    "fp8-quantize-nothing": ("0.12.0", "0.13.0"),
    "distributed-optimizer-torch": ("0.8.0", "0.10.0"),
    "optimizer-state-before-step": ("0.9.0", ""),
    "reported-loss-kept": ("0.7.0", ""),
    "moe-loss-scale-device": ("0.5.0", "0.6.0"),
    "cross-entropy-logits-kept": ("0.8.0", ""),
    "fused-cross-entropy-dtype": ("0.8.0", ""),
    "attention-layer-number": ("0.4.0", "0.13.0"),
    "cp-comm-type-index": ("0.10.0", "0.17.0"),
    "softmax-offset-init": ("0.15.0", "0.16.0"),
    "rng-and-fp8-context": ("0.4.0", "0.10.0"),
    "moe-local-spec": ("0.10.0", "0.11.0"),
    "moe-router-gemm-name": ("0.13.0", "0.17.0"),
    "inference-spec-field": ("0.17.0", ""),
    "mtp-recompute-padding-mask": ("0.18.0", "0.19.0"),
    "gloo-groups-destroyed": ("0.4.0", "0.8.0"),
    "checkpoint-pickles": ("0.4.0", "0.11.0"),
    "async-writer-format": ("0.6.0", "0.13.0"),
    "numpy-product": ("0.4.0", "0.16.0"),
    "pkg-resources": ("0.4.0", "0.9.0"),
}
# What they change lies outside megatron.core, in the repository and in no wheel.
OF_THE_REPOSITORY = {
    "optimizer-without-args": ("0.4.0", "0.6.0"),
    "distributed-optimizer-any": ("0.4.0", "0.6.0"),
    "param-gather-hook": ("0.4.0", "0.6.0"),
    "lr-mult-shadowed": ("0.5.0", "0.8.0"),
    "unwrap-float16": ("0.4.0", "0.12.0"),
}
TABLE = tuple(row.version for row in releases())


@pytest.mark.parametrize("version", TABLE)
def test_a_patch_applies_exactly_where_it_is_needed(version: str) -> None:
    found = {result.id: result.state for result in patching.check(overlay(version)).results}
    assert found == {patch: _expected(NEEDED.get(patch), version) for patch in series()}


def test_a_release_is_as_before_after_a_round_trip(release: str, tmp_path: Path) -> None:
    _round_trip(copy_of(release, tmp_path / "tree"))


@pytest.mark.sampled("0.4.0", "0.5.0", "0.6.0", "0.11.0", "0.19.0")
def test_a_patch_applies_to_a_checkout_and_off_it(release: str, tmp_path: Path) -> None:
    tree = checkout_of(f"core_v{release}", tmp_path / "tree")
    expected = {patch: _expected((NEEDED | OF_THE_REPOSITORY)[patch], release) for patch in series()}
    assert _round_trip(tree) == expected


def test_every_patch_says_since_when_and_until_when_it_is_needed() -> None:
    stated = {patch: rules(patch) for patch in series()}
    assert {path.stem for path in folder().glob("*.yaml")} == set(stated)
    for patch, (first, last) in (NEEDED | OF_THE_REPOSITORY).items():
        upstream = stated[patch].upstream
        assert (stated[patch].since, upstream.release if upstream else "") == (first, last), patch


def _round_trip(tree: Path) -> dict[str, str]:
    """Apply, look, apply again and revert; what each patch answered at first."""
    before = content(tree)
    first = patching.apply(tree)
    assert first.written, first.results
    touched = [result.id for result in first.results if result.state == "applied"]
    standing = patching.status(tree)
    assert {result.id: result.state for result in standing.results} == dict.fromkeys(touched, "applied")
    again = patching.apply(tree)
    assert again.is_fine
    assert not again.written
    assert {result.id for result in again.results if result.state == "already applied"} == set(touched)
    assert patching.revert(tree).written
    assert content(tree) == before
    return {result.id: result.state for result in first.results}


def _expected(span: tuple[str, str] | None, version: str) -> str:
    if span is None:
        return "not needed"
    first, last = span
    within = Version(first) <= Version(version) and (not last or Version(version) < Version(last))
    return "applied" if within else "not needed"
