"""The public contract suite on our three backends."""

from __future__ import annotations

from turnkeeper.testing import BackendContract


class TestContract(BackendContract):
    """Takes `connect` from tests/conftest.py, which takes `backend`."""
