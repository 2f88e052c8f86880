"""Published frameworks on three releases each: what cannot be imported there is what the audit says."""

from __future__ import annotations

import pytest

from mcore_compat.audit import audit
from tests.clients.wheels import client
from tests.launch import run_ranks

CLIENTS = {
    "mbridge": ("0.15.1", "0.12", ("0.12.3", "0.15.3", "0.19.2")),
    "verl": ("0.7.1", "0.12", ("0.12.3", "0.15.3", "0.19.2")),
    "nemo_aligner": ("0.7.0", "0.9", ("0.9.0", "0.12.3", "0.19.2")),
}


@pytest.mark.parametrize(
    ("name", "target"), [(name, target) for name, (_, _, targets) in CLIENTS.items() for target in targets]
)
def test_only_what_the_audit_names_cannot_be_imported(request: pytest.FixtureRequest, name: str, target: str) -> None:
    if not request.config.getoption("--all-releases"):
        pytest.skip("nine imports of whole frameworks: run with --all-releases")
    version, era, _ = CLIENTS[name]
    folder = client(name, version)
    (failed,) = run_ranks("tests.clients.imports:failures", name, str(folder), era, release=target, timeout=200)
    known = {finding.use for finding in audit(folder / name, [target]).findings}
    unexplained = {
        module: error
        for module, error in failed.items()
        # Megatron-Bridge is a package of its own, which its client can do without.
        if "megatron.bridge" not in error
        and not any(use.startswith("megatron.") and use.rpartition(".")[0] in error for use in known)
    }
    assert not unexplained
