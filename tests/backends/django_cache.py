"""Django's tests of caches, on gabion's. Copied beside them, as `cache.gabion`, and run by Django's own runner."""

import contextlib
import time

import pytest
from django.core.cache import cache, caches
from django.test import TestCase, override_settings

from gabion import monitor

from .tests import BaseCacheTests, caches_setting_for_tests

BACKEND = "gabion.backends.django.GabionCache"
# Culling is by the number of entries; gabion's limit is in bytes, and Django's tests leave such caches out.
BY_NUMBER = {"cull", "zero_cull"}


@override_settings(CACHES=caches_setting_for_tests(BACKEND=BACKEND, exclude=BY_NUMBER))
class GabionCacheTests(BaseCacheTests, TestCase):
    """All of Django's tests for back ends, and what local memory promises besides."""

    def tearDown(self):
        cache.clear()

    @override_settings(CACHES={"default": {"BACKEND": BACKEND}, "other": {"BACKEND": BACKEND, "LOCATION": "other"}})
    def test_multiple_caches(self):
        cache.set("value", 42)
        assert caches["default"].get("value") == 42
        assert caches["other"].get("value") is None

    @override_settings(CACHES={"default": {"BACKEND": BACKEND}})
    def test_a_cache_without_a_location_has_a_name(self):
        caches["default"].set("value", 42)
        assert "django" in [one["name"] for one in monitor.figures()["caches"]]

    def test_incr_decr_timeout(self):
        for _ in range(20):
            cache.set("value", 1, timeout=0.3)
            # A busy machine may let it end before.
            with contextlib.suppress(ValueError):
                changed = [cache.incr("value"), cache.decr("value", 5), cache.get("value")]
                if changed[-1] is not None:
                    break
        assert changed == [2, -3, -3]
        time.sleep(0.4)
        assert cache.get("value") is None
        with pytest.raises(ValueError, match="not found"):
            cache.incr("value")
