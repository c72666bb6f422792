/* gabion for C: memory that is packed by kind, warm buffers, and objects behind 64-bit pointers.
 *
 *     gabion_slots *slots = gabion_slots_global();
 *     void *node;
 *     if (gabion_slots_alloc(slots, GABION_NODES, sizeof(struct node), 0, &node) != GABION_OK)
 *         fprintf(stderr, "%s\n", gabion_last_error());
 *     gabion_slots_free(slots, node);
 *
 * Three parts, each of which may be used alone:
 *   gabion_slots_*                  small objects of any size, packed by affinity
 *   gabion_rent, gabion_return      warm memory of the pool, for pixels and arrays
 *   gabion_pile_*                   bytes behind checked 64-bit pointers
 *
 * What holds for every function
 *   Threads    Any function may be called from any thread at any time, also beside others on the same handle, unless
 *              its text says otherwise. A handle is deleted by one thread, while no other uses it.
 *   Errors     A gabion_status; 0 is success. gabion_last_error() says more, for this thread. A failed call changes
 *              nothing and writes nothing, except where a buffer is too small: then the needed size, and of a text
 *              (gabion_slots_affinity_name, gabion_slots_report) what fits. Nothing ever throws, panics or unwinds into
 *              the caller, and nothing is a cancellation point: a thread that pthread_cancel has asked to end comes
 *              back (one with PTHREAD_CANCEL_ASYNCHRONOUS must not be in gabion then).
 *   Memory     What allocates says GABION_NO_MEMORY where there is none. Calls that make books or reports of variable
 *              size (new handles and affinities, figures, reports, releases, trims, validations) take some from the
 *              system's malloc, and so does the pool when it gives everything back because the system has no more;
 *              where malloc has nothing left at all, they may end the process.
 *   Arguments  NULL, unknown numbers, and sizes or alignments that make no sense are answered by a status; only
 *              gabion_slots_free_sized takes numbers at their word. A handle that was deleted or is something else is
 *              refused as far as its memory still shows it.
 *   Ownership  What a function gives stays the caller's until it is given back by the function named in its text.
 *              Strings that are returned belong to the library.
 *   Forks      A child has its own copy of everything. It may use the pool and slots, whatever other threads were
 *              doing. It may use a pile only if no other thread was in a call on that pile at the moment of the fork;
 *              else a call may wait for ever for a lock whose holder the child does not have. Where other threads use
 *              piles, fork while they rest, or use none of these piles in the child. A pile in a file that is open to
 *              write stays its parent's: the child may only delete it, and end its views, whose bytes may change; all
 *              else is GABION_IN_USE. What a child puts into a pile in memory has pointers of its own, which its parent
 *              and its sisters refuse nearly always. What other threads had allocated in slots can be used and freed
 *              there, but its memory stays the child's until it ends.
 */
#ifndef GABION_H
#define GABION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GABION_VERSION "0.1.0"
#define GABION_VERSION_MAJOR 0
#define GABION_VERSION_MINOR 1
#define GABION_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* --- Status ------------------------------------------------------------------------------------ */

/* What became of a call. Values are never renumbered; later versions may add some. */
typedef int32_t gabion_status;

enum {
    GABION_OK = 0,
    GABION_NO_MEMORY = 1,      /* the system has no memory left */
    GABION_LIMIT = 2,          /* a limit or budget forbids it */
    GABION_TIMED_OUT = 3,      /* no room came free in time */
    GABION_BAD_ARGUMENT = 4,   /* an argument makes no sense */
    GABION_BAD_HANDLE = 5,     /* the handle is NULL, deleted, or of another kind or copy of the library */
    GABION_BAD_POINTER = 6,    /* nothing live begins at this pointer */
    GABION_FOREIGN = 7,        /* the memory does not belong here */
    GABION_DOUBLE_FREE = 8,    /* it is free already */
    GABION_WRONG_AFFINITY = 9, /* it has another affinity; told by checked builds */
    GABION_WRONG_SIZE = 10,    /* it has another size or alignment; told by checked builds, and by all of a slot that
                                * is freed as more than 1 KiB */
    GABION_TOO_SMALL = 11,     /* the buffer is too small; the needed size was told */
    GABION_INVALID = 12,       /* the books are broken: memory was overwritten */
    GABION_INTERNAL = 13,      /* a fault of the library itself */
    GABION_FILE = 14,          /* the file cannot be opened, read or written */
    GABION_IN_USE = 15,        /* the file is open elsewhere */
    GABION_DAMAGED = 16,       /* the file is damaged, or is no file of this library */
    GABION_FORMAT = 17         /* the file is in a format that this version does not know: nothing is wrong with it */
};

/* What a status means in general: a constant string, also for numbers that are none. */
const char *gabion_status_text(gabion_status status);

/* What this thread's last failed call has to say: what was asked, what is the case, what to do. Empty before the first.
 * Valid until this thread's next failed call. To ask for a size, by a buffer that is NULL and a place for the size, is
 * no failed call in this sense, though its status is GABION_TOO_SMALL. */
const char *gabion_last_error(void);

/* The version of the library that is loaded; GABION_VERSION is that of this header. A constant string. */
const char *gabion_version(void);

/* Stands for the lack of a limit. A limit of 0 allows nothing, except for gabion_pile_new; Python's
 * gabion.memory.configure() takes it for no limit. */
#define GABION_NO_LIMIT UINT64_MAX

/* --- Slots ------------------------------------------------------------------------------------- */

/* Objects of one kind lie together, in blocks of 4 MiB of their own: up to 1 KiB in pages of one size without headers,
 * up to 1 MiB in chunks, above that in memory of their own from the pool. A thread allocates and frees without a lock;
 * what another thread allocated goes back to it by message. */
typedef struct gabion_slots gabion_slots;

/* Affinities: the kinds that objects are packed by. gabion_slots_affinity makes more, up to 255 with
 * these four. */
enum {
    GABION_OBJECTS = 0, /* anything that is no other kind; alignment 8 unless set */
    GABION_DATA = 1,    /* payloads: arrays, buffers, texts; alignment 16 */
    GABION_NODES = 2,   /* what links to each other and is walked; alignment 8 */
    GABION_PHYSICS = 3  /* what vector instructions work on; alignment 16 */
};

/* Every affinity together, where figures are asked for. */
#define GABION_ALL_AFFINITIES UINT32_MAX

/* Makes slots of the caller's own in *out, to be deleted by gabion_slots_delete. */
gabion_status gabion_slots_new(gabion_slots **out);

/* The slots of the process: made at the first call, never deleted, so that objects may be freed until the very end. The
 * same handle every time; NULL only when there is no memory to make them. */
gabion_slots *gabion_slots_global(void);

/* Deletes slots and gives back all of their memory; what is still allocated in them is gone. No thread may use the
 * handle or any of the objects from here on. NULL does nothing; the slots of the process are refused. */
gabion_status gabion_slots_delete(gabion_slots *slots);

/* Makes an affinity, or finds the one of that name and leaves its settings as they are, whatever is asked for here;
 * gabion_slots_settings tells them. *out is its number.
 * name: UTF-8, copied. alignment: the least of all its objects, a power of two up to 64; 0 for 8. max_blocks: how many
 * blocks of 4 MiB it may take, or GABION_NO_LIMIT. */
gabion_status gabion_slots_affinity(gabion_slots *slots, const char *name, size_t alignment, uint64_t max_blocks,
                                    uint32_t *out);

/* Gives an affinity another alignment and budget, for what is allocated from now on; the numbers are as above. */
gabion_status gabion_slots_configure(gabion_slots *slots, uint32_t affinity, size_t alignment, uint64_t max_blocks);

/* An affinity's alignment in *alignment and its budget in *max_blocks, GABION_NO_LIMIT if it has none; either may be
 * NULL. */
gabion_status gabion_slots_settings(const gabion_slots *slots, uint32_t affinity, size_t *alignment,
                                    uint64_t *max_blocks);

/* Allocates size bytes in *out, to be given back by gabion_slots_free or its like.
 * alignment: a power of two up to 4 MiB, or 0 for the affinity's; sizes that are a multiple of 16 are aligned to 16 in
 * any case. 0 bytes are served as 1. The contents are undefined.
 * A few nanoseconds up to 1 KiB; constant time up to 1 MiB; above that the time of a mapping, unless the pool has a
 * warm one. GABION_NO_MEMORY, GABION_LIMIT (the affinity's budget, or more than the machine has),
 * GABION_BAD_ARGUMENT. */
gabion_status gabion_slots_alloc(gabion_slots *slots, uint32_t affinity, size_t size, size_t alignment, void **out);

/* The same, and all bytes are zero. */
gabion_status gabion_slots_alloc_zeroed(gabion_slots *slots, uint32_t affinity, size_t size, size_t alignment,
                                        void **out);

/* Gives an object another size. It may move to *out, with its contents up to the smaller size; the old pointer is gone
 * then. When the call fails, the object is as it was. object may be NULL: then it allocates.
 * affinity must be the object's own; alignment as in gabion_slots_alloc. An object stays where it is within a size
 * class of slots, and within a chunk, or memory of its own, that would not become half empty; a chunk of the same
 * thread grows into what is free behind it. What is larger and grows by less than half gets room for a quarter more, so
 * that few of many small steps move it. Constant time, and a copy when it moves. What gets smaller can be refused:
 * where there is no memory for less, a chunk that stays one (above 1 KiB) and memory of its own that stays such (above
 * 1 MiB) stay where they are, but what becomes a slot of another size class, or a chunk, needs room there. An object
 * that is free already, or none, is refused as by gabion_slots_free. */
gabion_status gabion_slots_realloc(gabion_slots *slots, uint32_t affinity, void *object, size_t size, size_t alignment,
                                   void **out);

/* Frees an object of these slots, whichever thread allocated it. NULL does nothing. Constant time.
 * GABION_DOUBLE_FREE, GABION_BAD_POINTER (nothing was handed out there) and GABION_FOREIGN say what is wrong as far as
 * it shows; nothing is changed then. What two threads free twice shows later, when both frees have reached the owner,
 * and is counted in late_double_frees; unless its place was handed out again before that: then the later free is taken
 * for one of the new object. GABION_NO_MEMORY when this is the thread's first call on these slots and there is no
 * memory for its books: the object stays allocated then, to be freed again later. */
gabion_status gabion_slots_free(gabion_slots *slots, void *object);

/* A faster gabion_slots_free, for a caller that knows the allocation's affinity, size and alignment, or those of its
 * last reallocation. GABION_NO_MEMORY as above. Checked builds compare them and report GABION_WRONG_AFFINITY and
 * GABION_WRONG_SIZE; other builds report only that a slot is freed as more than 1 KiB, and take any affinity.
 * WARNING: in those a size up to 1 KiB is not checked: with a pointer that is not of these slots the call reads and
 * writes memory that is not the library's. */
gabion_status gabion_slots_free_sized(gabion_slots *slots, uint32_t affinity, void *object, size_t size,
                                      size_t alignment);

/* How many bytes of an object may be used: at least what was asked for. 0 for NULL and for what is not of these
 * slots. */
size_t gabion_slots_usable_size(const gabion_slots *slots, const void *object);

/* Whether an address lies in memory of these slots, allocated or free. Any address may be asked about. */
bool gabion_slots_owns(const gabion_slots *slots, const void *address);

/* Frees everything of one affinity at once, in all threads, and gives its blocks back, except one that the calling
 * thread keeps for what it allocates next; takes time in proportion to the blocks, not to the objects. *bytes, unless
 * NULL, is how much that was, with the one that is kept if something was in it.
 * No thread may use an object of this affinity from here on, or allocate or free one until this returns. */
gabion_status gabion_slots_release(gabion_slots *slots, uint32_t affinity, uint64_t *bytes);

/* Sends what this thread has freed of other threads' objects on its way. Happens by itself after a while; worth calling
 * before a thread goes idle for long. */
gabion_status gabion_slots_flush(gabion_slots *slots);

/* Gives blocks that are empty back to the pool: this thread's, those of threads that have ended, and of other threads
 * those for slots of which everything was freed, except one for each affinity. What others keep for chunks they give
 * back themselves, by a trim of their own or when they end. Returns the bytes by which mapped_bytes falls for that:
 * whole blocks of slots, and of blocks of chunks the pages that were touched. */
uint64_t gabion_slots_trim(gabion_slots *slots);

/* Figures of one affinity. Bytes unless said otherwise. */
typedef struct gabion_slots_figures {
    uint64_t live_objects;      /* objects allocated and not freed, large ones included; by number */
    uint64_t live_bytes;        /* what they take, with what they were rounded up to */
    uint64_t peak_bytes;        /* the most in use at one time, exact to some pages of 64 KiB for each thread */
    uint64_t free_bytes;        /* mapped, and free for objects */
    uint64_t wasted_bytes;      /* headers, and room that no object fits in */
    uint64_t blocks;            /* blocks of 4 MiB, by number */
    uint64_t large_objects;     /* objects with memory of their own, by number */
    uint64_t large_bytes;       /* what these take */
    uint64_t mapped_bytes;      /* all that the affinity holds: live_bytes + free_bytes + wasted_bytes. Whole blocks of
                                 * slots, though only the pages that were touched take memory of the machine */
    uint64_t late_double_frees; /* of two threads, that showed when the second free reached the owner; a number */
} gabion_slots_figures;

/* How many affinities there are; their numbers are 0 up to that. Constant time. */
uint32_t gabion_slots_affinities(const gabion_slots *slots);

/* An affinity's name, written as snprintf does: cut to fit, and ended by a zero byte. *needed, unless NULL, is told the
 * bytes of the whole with the zero byte. GABION_TOO_SMALL when it was cut; buffer may be NULL to ask for the size.
 * Constant time. */
gabion_status gabion_slots_affinity_name(const gabion_slots *slots, uint32_t affinity, char *buffer, size_t capacity,
                                         size_t *needed);

/* The figures of one affinity, or the sum with GABION_ALL_AFFINITIES. Takes time in proportion to the pages
 * in use (a cache line each) and to threads; large objects, and blocks that go back, wait meanwhile. */
gabion_status gabion_slots_stats(const gabion_slots *slots, uint32_t affinity, gabion_slots_figures *out);

/* The same as a table: a line for each affinity in use, and the sum. Written as by gabion_slots_affinity_name. */
gabion_status gabion_slots_report(const gabion_slots *slots, char *buffer, size_t capacity, size_t *needed);

/* Checks every equation of the books of this thread and of threads that have ended: GABION_INVALID when one does not
 * hold. Takes time in proportion to all that is mapped. */
gabion_status gabion_slots_validate(const gabion_slots *slots);

/* --- The pool ---------------------------------------------------------------------------------- */

/* For gabion_rent: the memory reads as zero. Otherwise it holds whatever an earlier user left. */
#define GABION_CLEAN UINT32_C(1)

/* Lends at least bytes bytes of contiguous memory in *out, aligned to 64 at least, to be given back by gabion_return.
 * flags: 0 or GABION_CLEAN. Constant time when there is warm memory of the size, otherwise the time of a mapping.
 * GABION_LIMIT, GABION_NO_MEMORY. */
gabion_status gabion_rent(size_t bytes, uint32_t flags, void **out);

/* The same, but waits up to milliseconds for room below the pool's total limit, in order of arrival:
 * GABION_TIMED_OUT. */
gabion_status gabion_rent_wait(size_t bytes, uint32_t flags, uint64_t milliseconds, void **out);

/* Gives back what gabion_rent lent, once, from any thread. Its memory stays warm for the next one. NULL does nothing.
 * An address where nothing that is lent begins is GABION_FOREIGN, and nothing is changed. So is a second return, except
 * for two that are not found: of memory that was lent again, and of up to 1 MiB that another thread has returned and
 * still keeps. */
gabion_status gabion_return(void *memory);

/* How many bytes may be used of what gabion_rent lent at this address; 0 where gabion_return would be refused. Any
 * address may be asked about. */
size_t gabion_rented_size(const void *memory);

/* Figures of the pool. Bytes unless said otherwise; mapped = in_use + idle. */
typedef struct gabion_pool_figures {
    uint64_t in_use;   /* lent */
    uint64_t idle;     /* mapped, and lent to nobody */
    uint64_t mapped;   /* mapped for gabion_rent */
    uint64_t peak;     /* the most that mapped has been */
    uint64_t held;     /* lent to slots and piles, which count apart; what they emptied and keep warm is part of it */
    uint64_t live;     /* what is lent at this moment, by number */
    uint64_t requests; /* calls that were served, by number */
    uint64_t fresh;    /* mappings made, by number */
    uint64_t trimmed;  /* given back to the system so far */
    uint64_t refused;  /* calls that were not served, by number */
} gabion_pool_figures;

gabion_status gabion_pool_stats(gabion_pool_figures *out);

/* Gives idle memory back to the system: all of it, or what the pool's policy has no use for now. Returns bytes. */
uint64_t gabion_pool_trim(bool all);

/* What gabion_pool_configure changes. */
enum {
    GABION_POOL_BYTES = 0,            /* what the pool keeps mapped; unless set, 1/8 of what the process may use */
    GABION_POOL_ARENAS = 1,           /* how many arenas threads are spread over: a power of two up to 256 */
    GABION_POOL_TRIM_PERIOD_MS = 2,   /* the time over which need is judged, in milliseconds; unless set, 60,000 */
    GABION_POOL_ALLOCATION_LIMIT = 3, /* the most that one call may ask for, or GABION_NO_LIMIT */
    GABION_POOL_TOTAL_LIMIT = 4       /* the most that is mapped for gabion_rent, or GABION_NO_LIMIT */
};

/* Changes one setting, from the next call on. GABION_BAD_ARGUMENT when it makes no sense. */
gabion_status gabion_pool_configure(int32_t setting, uint64_t value);

/* --- The pile ---------------------------------------------------------------------------------- */

/* A pile keeps copies of bytes and gives a 64-bit pointer for each: a plain number, never 0, below 2^60. A pointer is
 * checked at every use: one whose object was removed, or that is of another pile, or no live one, is
 * GABION_BAD_POINTER, for ever. It is no secret: who has seen one can guess others. An object takes its bytes, rounded
 * up, and 8 more. */
typedef struct gabion_pile gabion_pile;

/* Makes a pile in *out, to be deleted by gabion_pile_delete. max_bytes: the most that it may take; 0 for as much as the
 * process may use. */
gabion_status gabion_pile_new(uint64_t max_bytes, gabion_pile **out);

/* Opens the pile in a file, which is made where it is not there, in *out, to be deleted by gabion_pile_delete. It is as
 * any other, but that it outlives the process: pointers stay valid, and whatever a call had done when it returned is
 * there for the next opening, however the process ends; the machine's end is what gabion_pile_flush is for. A
 * replacement needs room beside what it replaces. max_bytes: the most that the file may hold; 0 for 4 TiB.
 *   GABION_READ_ONLY    nothing of it can be changed (GABION_FILE), and any number of processes may open the file at
 *                       one time
 *   GABION_MUST_EXIST   it is not made
 * GABION_FILE, GABION_IN_USE, GABION_DAMAGED, GABION_FORMAT, GABION_NO_MEMORY. Takes time in proportion to the pile.
 * Deleting it does not wait for the disk: that is gabion_pile_flush. */
#define GABION_READ_ONLY UINT32_C(1)
#define GABION_MUST_EXIST UINT32_C(2)
gabion_status gabion_pile_open(const char *path, uint64_t max_bytes, uint32_t flags, gabion_pile **out);

/* Waits until all that was done before is on the disk. Does nothing for a pile without a file. GABION_FILE. */
gabion_status gabion_pile_flush(gabion_pile *pile);

/* Saves a pile, in memory or in a file, as it is at one moment, in a file of its own, which gabion_pile_open opens: all
 * objects are there under their pointers. It is written aside and gets its name when it is on the disk; it may replace
 * a pile's file that nobody has open to write. Takes time in proportion to the pile; other threads may use it
 * meanwhile. GABION_FILE, GABION_IN_USE (also for the pile's own file), GABION_DAMAGED for what is no pile's,
 * GABION_NO_MEMORY; what had the name has it still then. */
gabion_status gabion_pile_save(gabion_pile *pile, const char *path);

/* *out: the pointer that was kept last, or 0: where the next process begins. It is as any pointer. To keep one it has
 * to be live, or 0. */
gabion_status gabion_pile_root(const gabion_pile *pile, uint64_t *out);
gabion_status gabion_pile_set_root(gabion_pile *pile, uint64_t pointer);

/* Deletes a pile with all that is in it; what lies in a file stays there, and the file is free for others. Where there
 * are views, that is so when the last of them is ended. No other thread may use the handle any more. NULL does
 * nothing. */
gabion_status gabion_pile_delete(gabion_pile *pile);

/* Stores a copy of length bytes; *out is its pointer. reserve: bytes kept free behind it, so that a replacement may
 * grow by so much in place; up to 1 MiB together with them. data may be NULL when length is 0. Constant time, and a
 * copy. GABION_NO_MEMORY, GABION_LIMIT; of a pile in a file GABION_FILE, also where the disk has no room. */
gabion_status gabion_pile_put(gabion_pile *pile, const void *data, size_t length, size_t reserve, uint64_t *out);

/* Copies an object into the caller's buffer. *length, unless NULL, is told how long it is, also when the buffer is too
 * small: GABION_TOO_SMALL. Takes no lock up to 1 MiB. */
gabion_status gabion_pile_get(const gabion_pile *pile, uint64_t pointer, void *buffer, size_t capacity, size_t *length);

/* The same, and removes the object in one step: of several threads that pop it, one gets it. What does not fit
 * stays. */
gabion_status gabion_pile_pop(gabion_pile *pile, uint64_t pointer, void *buffer, size_t capacity, size_t *length);

/* An object's bytes where they lie, without a copy: *length bytes at *data, until the view in *out is ended by
 * gabion_pile_unview, once, from any thread. Until then they stay where they are and as they are, and nobody may write
 * to them: a replacement's bytes lie elsewhere, and room of an object that was removed is kept as long as it is viewed.
 * So is the pile: gabion_pile_delete ends its handle, and the last view gives back its memory, and lets its file go.
 * Any number of views may be there at one time. The bytes begin at a multiple of 8. Constant time: takes a lock for a
 * moment, and some memory of malloc's. GABION_NO_MEMORY. */
typedef struct gabion_view gabion_view;
gabion_status gabion_pile_view(gabion_pile *pile, uint64_t pointer, const void **data, size_t *length,
                               gabion_view **out);

/* Ends a view. Nobody may use its bytes any more. NULL does nothing. */
gabion_status gabion_pile_unview(gabion_view *view);

/* Gives an object other bytes of any length; the pointer stays valid. Others read the old bytes or the new. Errors as
 * gabion_pile_put, and the object is as it was. */
gabion_status gabion_pile_replace(gabion_pile *pile, uint64_t pointer, const void *data, size_t length);

/* Removes an object. Its pointer is refused from now on. */
gabion_status gabion_pile_remove(gabion_pile *pile, uint64_t pointer);

/* How long an object is. */
gabion_status gabion_pile_size_of(const gabion_pile *pile, uint64_t pointer, size_t *out);

/* Whether a pointer is live. */
bool gabion_pile_contains(const gabion_pile *pile, uint64_t pointer);

/* How many objects there are. */
uint64_t gabion_pile_len(const gabion_pile *pile);

/* A place in a walk over a pile: the caller's, all zero before the first call, and of no meaning but to
 * gabion_pile_next. It owns nothing, so it may be dropped at any time, and a copy of it walks on from the same place.
 * It is used by one thread at a time. */
typedef struct gabion_pile_cursor {
    uint64_t state[64];
} gabion_pile_cursor;

/* The next pointer of a walk over all objects, in no particular order: *out, which is 0 at the end, and stays it.
 *
 *     gabion_pile_cursor cursor = {0};
 *     uint64_t pointer;
 *     while (gabion_pile_next(pile, &cursor, &pointer) == GABION_OK && pointer != 0)
 *         use(pile, pointer);
 *
 * Every object that is there from begin to end is met exactly once. The pile may be used and changed meanwhile, by this
 * thread, too: what is put or removed then may be met or not, and a pointer that was met may be stale when it is used.
 * What comes to lie in blocks that are newer than the walk is not met, so a walk ends, even if each step puts objects.
 * Needs no memory, and takes a lock for a moment for each block of 4 MiB; a walk takes time in proportion to the pile.
 * GABION_BAD_ARGUMENT when the cursor was not zero at first, or walks another pile. */
gabion_status gabion_pile_next(const gabion_pile *pile, gabion_pile_cursor *cursor, uint64_t *out);

/* Removes all objects. Their memory stays warm for what is put next; it goes back to the system when it was not needed
 * for a while, or at once by gabion_pool_trim(true). */
gabion_status gabion_pile_clear(gabion_pile *pile);

/* Brings objects back that outgrew their place, those of 1 KiB to 1 MiB closer together, and gives what is empty back
 * to the system at once: *out bytes, unless it is NULL. Pointers stay valid. Takes time in proportion to the pile. */
gabion_status gabion_pile_compact(gabion_pile *pile, uint64_t *out);

/* Sets the most that the pile may take, as gabion_pile_new. What is stored beyond it stays; only further growth is
 * refused. */
gabion_status gabion_pile_set_max_bytes(gabion_pile *pile, uint64_t max_bytes);

/* Figures of a pile. Bytes unless said otherwise; reserved_bytes = used_bytes + overhead_bytes. */
typedef struct gabion_pile_figures {
    uint64_t objects;        /* by number */
    uint64_t used_bytes;     /* what is stored */
    uint64_t reserved_bytes; /* what is taken for it */
    uint64_t overhead_bytes; /* rounding, headers, free room */
    uint64_t max_bytes;      /* the most that reserved_bytes may become */
    uint64_t blocks;         /* blocks of 4 MiB, by number */
    uint64_t large_objects;  /* objects over 1 MiB, by number */
} gabion_pile_figures;

gabion_status gabion_pile_stats(const gabion_pile *pile, gabion_pile_figures *out);

/* Checks every equation of the pile's books: GABION_INVALID when one does not hold. Takes time in proportion to the
 * pile; others wait meanwhile. */
gabion_status gabion_pile_validate(const gabion_pile *pile);

#ifdef __cplusplus
}
#endif

#endif
