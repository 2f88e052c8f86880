"""What of a framework breaks on another Megatron, read from its source: nothing of it is imported, no torch needed."""

from mcore_compat.audit.search import Audit, Finding, audit

__all__ = ["Audit", "Finding", "audit"]
