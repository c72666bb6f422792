/* Preloaded, it counts what a thread asks of malloc: malloc_calls(). */
#define _GNU_SOURCE
#include <stddef.h>
static __thread long calls;
long malloc_calls(void) { return calls; }
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
void *malloc(size_t n) { calls++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { calls++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { calls++; return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { calls++; return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { calls++; return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { calls++; *p = __libc_memalign(a, n); return *p ? 0 : 12; }
