"""Values that still serve for a time after their own, while one caller makes newer ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gabion._arguments import given_of_put
from gabion._flights import MISSING, Deadline
from gabion._making import Maker, check_factory, is_asynchronous
from gabion._native import CacheTable, _import

if TYPE_CHECKING:
    from datetime import date, datetime, timedelta
    from uuid import UUID

_K = TypeVar("_K", bound="str | bytes | float | date | UUID | tuple[Any, ...] | None")
_V = TypeVar("_V")


# Seconds for which a value serves on at most, some thirty years: what lives longer has no end by which to tell its age.
_LONGEST = 1e9


def seconds_of_stale(stale: object) -> float:
    """How long a value serves after its time; 0 for not at all."""
    seconds = 0.0 if stale is None else CacheTable._seconds("stale", stale)
    return _LONGEST if seconds is None else min(seconds, _LONGEST)


def longer_lived(table: CacheTable, as_put: dict[str, Any], stale: float) -> dict[str, Any]:
    """Return the keywords of a put for a value that lives for ``stale`` seconds more than they say."""
    _limit, own_ttl, own_idle = CacheTable._settings(table)
    if "expires_at" in as_put:
        raise ValueError("stale= counts from the end of a ttl, not of expires_at: give ttl= in its place")
    if own_idle is not None or "idle" in as_put:
        raise ValueError(
            "stale= counts from the end of a ttl: it goes with no idle time, neither given nor the table's"
        )
    given = as_put.get("ttl")

    def longer(name: str, ttl: object) -> float | None:
        seconds = own_ttl if ttl is None else CacheTable._seconds(name, ttl)
        return None if seconds is None else seconds + stale

    if not callable(given):
        ttl = longer("ttl", given)
        if ttl is None:
            raise ValueError("stale= counts from the end of a ttl: give ttl=, or use a table that has one")
        return {**as_put, "ttl": ttl}

    def of_value(made: object) -> object:
        ttl = given(made)
        seconds = longer("what ttl returned", ttl)
        # One that is not to be kept (the old one is dropped, too) has no time to be stale in, one without end never is.
        return ttl if seconds is None or seconds == stale else seconds

    return {**as_put, "ttl": of_value}


def _log(key: object) -> None:
    """Tell of the error at hand, which its caller does not get."""
    # Only here: it takes a while to import.
    _import("logging").getLogger("gabion.cache").warning(
        "a newer value of %.100r could not be made; the old one serves on", key, exc_info=True
    )


class Renewer(Maker[_K, _V]):
    """A table as far as its values are made, and made anew."""

    def _gabion_get_or_put(
        self,
        key: Any,
        factory: Callable[[], Any],
        *,
        ttl: Any = None,
        stale: float | str | timedelta | None = None,
        idle: float | str | timedelta | None = None,
        expires_at: float | datetime | None = None,
        priority: int = 0,
        timeout: float | str | timedelta | None = None,
    ) -> Any:
        """What get_or_put() does when its factory is anything but a plain function, or comes by name."""
        as_put = given_of_put(ttl, idle, expires_at, priority)
        if as_put:
            # Before the factory runs, which may take long.
            CacheTable._check_put(ttl, idle, expires_at, priority)
        seconds = None if timeout is None else CacheTable._seconds("timeout", timeout)
        past = seconds_of_stale(stale)
        if past:
            as_put = longer_lived(self, as_put, past)
        if is_asynchronous(factory):
            return self._gabion_get_or_put_async(key, factory, as_put, seconds, past)
        value = CacheTable.get(self, key, MISSING)
        if value is not MISSING:
            return self._gabion_newer(key, value, factory, as_put, past) if past else value
        check_factory(factory)
        return CacheTable._make(self, key, factory, as_put, None if seconds is None else Deadline(seconds))

    # What its errors call it: the method that was called.
    _gabion_get_or_put.__qualname__ = "Table.get_or_put"

    async def _gabion_get_or_put_async(
        self,
        key: Any,
        factory: Callable[[], Awaitable[Any]],
        as_put: dict[str, Any],
        timeout: float | None,
        stale: float = 0.0,
        *,
        own_task: bool = True,
    ) -> Any:
        value = CacheTable.get(self, key, MISSING)
        if value is not MISSING:
            return await self._gabion_newer_async(key, value, factory, as_put, stale) if stale else value
        deadline = None if timeout is None else Deadline(timeout)
        return await self._gabion_make_async(key, factory, as_put, deadline, own_task=own_task)

    def _gabion_newer(
        self, key: Any, old: Any, factory: Callable[[], Any], as_put: dict[str, Any], stale: float
    ) -> Any:
        """A newer value in place of one whose time is over, made by this call if by no other; the old one otherwise."""
        if self._gabion_is_fresh(key, stale):
            return old
        check_factory(factory)
        making = CacheTable._making(self, key, None)
        try:
            if not making.begin_anew():
                return old
            # Another may have made it between the look and the begin.
            if self._gabion_is_fresh(key, stale):
                return CacheTable._look_making(self, key, old)
            try:
                value = factory()
            except Exception as error:
                # Those who came when the old one was gone wait for this.
                making.fail(error)
                _log(key)
                return old
            making.keep(value, as_put)
            return value
        except Exception as error:
            making.fail(error)
            raise
        finally:
            making.end()

    async def _gabion_newer_async(
        self, key: Any, old: Any, factory: Callable[[], Awaitable[Any]], as_put: dict[str, Any], stale: float
    ) -> Any:
        """As _gabion_newer(), for a coroutine function."""
        if self._gabion_is_fresh(key, stale):
            return old
        failed = False

        async def made() -> Any:
            nonlocal failed
            try:
                return await factory()
            except Exception:
                failed = True
                raise

        try:
            return await self._gabion_make_async(key, made, as_put, None, old=old, stale=stale)
        except Exception:
            if not failed:
                raise
            _log(key)
            return old
