"""dogpile.cache's tests for back ends, on gabion's."""

from dogpile.cache import register_backend
from dogpile.testing.fixtures import _GenericBackendTestSuite, _GenericSerializerTestSuite

register_backend("gabion", "gabion.backends.dogpile", "GabionBackend")


class GabionBackendTest(_GenericBackendTestSuite):
    """Values as they are."""

    backend = "gabion"
    config_args = {"arguments": {"max_bytes": "8 MiB"}}  # noqa: RUF012


class GabionBackendSerializerTest(_GenericSerializerTestSuite, GabionBackendTest):
    """Values as bytes of the caller's serializer."""
