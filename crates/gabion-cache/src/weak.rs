//! A handle for what the cache itself holds.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::cache::Cache;
use crate::core::Core;
use crate::flight::Flights;

/// A handle that keeps no cache alive, made by [`Cache::downgrade`]: for what the cache itself holds, such as its
/// listener.
#[derive(Clone)]
pub struct WeakCache {
    core: Weak<Core>,
    flights: Weak<Flights>,
}

impl WeakCache {
    /// The cache, as long as another handle of it, or of one of its tables, is there.
    pub fn upgrade(&self) -> Option<Cache> {
        Some(Cache::with(self.core.upgrade()?, self.flights.upgrade()?))
    }
}

impl Cache {
    /// A handle that does not keep the cache alive.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use gabion_cache::{Cache, PutOptions, ReadBuf};
    ///
    /// let cache = Cache::new(64 << 20)?;
    /// let weak = cache.downgrade();
    /// // Whatever leaves is noted in a table of the same cache.
    /// cache.on_departure(Some(Arc::new(move |departure| {
    ///     let Some(cache) = weak.upgrade() else { return };
    ///     if let Some(left) = cache.table("left", Default::default()).filter(|left| left.name() != departure.table) {
    ///         left.put(departure.key, b"", &PutOptions::default());
    ///     }
    /// })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn downgrade(&self) -> WeakCache {
        let table = self.default_table();
        WeakCache { core: Arc::downgrade(&table.core), flights: Arc::downgrade(&table.flights) }
    }
}

impl fmt::Debug for WeakCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakCache").field("is_alive", &(self.core.strong_count() > 0)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{PutOptions, Span};

    #[test]
    fn a_listener_with_a_weak_handle_uses_the_cache_and_lets_it_go() {
        let cache = Cache::new(64 << 20).unwrap();
        let (weak, heard) = (cache.downgrade(), Arc::new(()));
        let (holds, listens) = (Arc::downgrade(&heard), weak.clone());
        cache.on_departure(Some(Arc::new(move |departure| {
            let _ = &heard;
            let cache = listens.upgrade().expect("whoever evicts has a handle");
            cache.put(&[departure.key, b" left"].concat(), departure.value, &PutOptions::default());
        })));
        cache.put(b"k", b"v", &PutOptions { ttl: Span::Of(Duration::ZERO), ..PutOptions::default() });
        std::thread::sleep(Duration::from_millis(3));
        cache.expire();
        assert!(weak.upgrade().is_some_and(|again| again.contains(b"k left")));
        drop(cache);
        assert!(weak.upgrade().is_none() && holds.upgrade().is_none(), "{weak:?}");
    }
}
