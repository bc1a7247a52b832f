/* failing_memory.c -- memory and threads of the core that run out when a test says so.
 *
 * Linked with --wrap for each name below: calls from csrc come here, those of libc, of the
 * interpreter and of other libraries do not. Counts what is allocated and not freed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *memory, size_t size);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *memory, size_t size);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
void failing_memory_arm(int64_t first, int64_t count);
int64_t failing_memory_count(void);
int64_t failing_memory_blocks(void);
int64_t failing_memory_mappings(void);

static _Atomic int64_t calls;
static _Atomic int64_t first_failing;
static _Atomic int64_t last_failing = -1; /* below first_failing: none fails */
static _Atomic int64_t blocks;
static _Atomic int64_t mappings;

/* Requests number first .. first + count - 1 from here on fail. */
void failing_memory_arm(int64_t first, int64_t count)
{
    atomic_store(&calls, 0);
    atomic_store(&first_failing, first);
    atomic_store(&last_failing, first + count - 1);
}

/* Requests since arming. */
int64_t failing_memory_count(void)
{
    return atomic_load(&calls);
}

/* Allocated and not freed. */
int64_t failing_memory_blocks(void)
{
    return atomic_load(&blocks);
}

int64_t failing_memory_mappings(void)
{
    return atomic_load(&mappings);
}

static int is_planned(void)
{
    int64_t number = atomic_fetch_add(&calls, 1);
    return number >= atomic_load(&first_failing) && number <= atomic_load(&last_failing);
}

static void *counted(void *memory)
{
    if (memory)
        atomic_fetch_add(&blocks, 1);
    else
        errno = ENOMEM;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return counted(is_planned() ? NULL : __real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return counted(is_planned() ? NULL : __real_calloc(count, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return counted(is_planned() ? NULL : __real_aligned_alloc(alignment, size));
}

char *__wrap_strdup(const char *text)
{
    return counted(is_planned() ? NULL : __real_strdup(text));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (is_planned()) {
        errno = ENOMEM;
        return NULL;
    }
    void *made = __real_realloc(old, size);
    if (made && !old)
        atomic_fetch_add(&blocks, 1);
    return made;
}

void __wrap_free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&blocks, 1);
    __real_free(memory);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (is_planned()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *mapped = __real_mmap(at, size, protection, flags, fd, offset);
    if (mapped != MAP_FAILED)
        atomic_fetch_add(&mappings, 1);
    return mapped;
}

int __wrap_munmap(void *memory, size_t size)
{
    int result = __real_munmap(memory, size);
    if (result == 0)
        atomic_fetch_sub(&mappings, 1);
    return result;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    return is_planned() ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}
