"""Code written for one Megatron runs on another: the names and call shapes of an era, served on what is there.

::

    from mcore_compat import legacy

    legacy.install(era="0.4")  # before anything imports megatron

Each redirect is a row of :mod:`mcore_compat.audit.table`; it acts only where the release lacks the name or takes
another shape, and warns once with the stable call to use instead.
"""

from mcore_compat.legacy.session import Redirects, install, uninstall
from mcore_compat.legacy.warn import LegacyUse

__all__ = ["LegacyUse", "Redirects", "install", "uninstall"]
