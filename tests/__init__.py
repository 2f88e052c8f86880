"""Tests of mcore_compat; run them with ``make test``."""
