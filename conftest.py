"""The root of all tests: loads the plugin that knows claims. Fixtures live in tests/conftest.py."""

pytest_plugins = ("tests.plugins.claims",)
