/*
 * LD_PRELOAD shim (Linux, glibc, 64 bit): records what a process really asks of the disk, in one total order, and can
 * make the disk fail. The reader is trace.py, the meaning of the events is in model.py, the rules are in README.md.
 *
 * How it works
 *   - An fd is judged by /proc/self/fd at each call. A table of open fds was refused: dup, vfork, close_range, exec and
 *     passed fds would all have to keep it right, and Python's subprocess closes fds in a vfork child that shares our memory.
 *   - Every call goes to the kernel by syscall(), so there is no "real" symbol to look up and no start-up order to get wrong.
 *   - Call and record happen under one lock (a mutex for threads, a POSIX lock on the trace for processes), so the order of
 *     the records is the order of the effects. Syncs are the exception: they run unlocked, between a BEGAN and an ENDED.
 *   - What cannot be recorded truthfully is refused with the errno that makes programs fall back to plain writes
 *     (sendfile, copy_file_range, splice, writable shared mmap, hole punching, rename or link across the root).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#if !defined(__linux__) || !defined(__GLIBC__) || !defined(__LP64__)
#error "the power-loss shim needs 64-bit Linux with glibc"
#endif

/* The record format. trace.py holds the same numbers; a change here is a change of MAGIC. */
#define MAGIC 0x3153474cu /* "LGS1" */
enum kind {
    OPENED = 1, WROTE, RESIZED, RENAMED, UNLINKED, LINKED, DIRECTORY_MADE, DIRECTORY_REMOVED,
    SYNC_BEGAN, SYNC_ENDED, SYNC_FAILED, MARKED,
};
enum { OPENED_CREATED = 1, OPENED_DIRECTORY = 2, OPENED_NAMELESS = 4 };
enum { RENAMED_EXCHANGE = 1 };
enum scope { SCOPE_FILE, SCOPE_FILE_DATA, SCOPE_FILESYSTEM };
struct header {
    uint32_t magic, length; /* length counts the header too */
    uint16_t kind, flags;
    uint32_t pid;
    uint64_t a, b;
};

enum where { OUTSIDE, TRACKED, MARKS };

static int active;
static char root[PATH_MAX], trace[PATH_MAX], marks[PATH_MAX], full_flag[PATH_MAX];
static size_t root_length;
static int full_short, short_write_given;
static unsigned long fail_from, fail_to, syncs_counted, syncs_begun;
static int trace_fd = -1;
static dev_t trace_dev;
static ino_t trace_ino;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void die(const char *what)
{
    dprintf(2, "lograft power-loss shim: %s: %s\n", what, strerror(errno));
    abort();
}

/* ---- paths ---------------------------------------------------------------------------------------------------- */

static int path_of_fd(int fd, char *out)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
    if (size < 0)
        return -1;
    out[size] = 0;
    return 0;
}

/* The part below the root ("" for the root itself), or NULL for a path outside and for the marks file. */
static const char *below_root(const char *path)
{
    if (strncmp(path, root, root_length) != 0 || strcmp(path, marks) == 0)
        return NULL;
    if (path[root_length] == 0)
        return path + root_length;
    return path[root_length] == '/' ? path + root_length + 1 : NULL;
}

static int canonical(int dirfd, const char *path, int flags, char *out)
{
    int fd = syscall(SYS_openat, dirfd, path, O_PATH | O_CLOEXEC | flags, 0);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            die("no descriptor left to look up a path");
        return -1;
    }
    int failed = path_of_fd(fd, out);
    syscall(SYS_close, fd);
    return failed;
}

/* Where a directory entry lives: links in the folder part are followed, the last name is taken as it is. */
static const char *entry_place(int dirfd, const char *path, char *out)
{
    char copy[PATH_MAX];
    size_t size = path ? strlen(path) : 0;
    if (!active || size == 0 || size >= sizeof copy)
        return NULL;
    memcpy(copy, path, size + 1);
    while (size > 1 && copy[size - 1] == '/')
        copy[--size] = 0;
    char *slash = strrchr(copy, '/');
    const char *name = slash ? slash + 1 : copy;
    const char *folder = !slash ? "." : slash == copy ? "/" : copy;
    if (slash)
        *slash = 0;
    if (canonical(dirfd, folder, O_DIRECTORY, out) != 0)
        return NULL;
    size = strlen(out);
    if (size + strlen(name) + 2 > PATH_MAX)
        return NULL;
    if (size > 1)
        out[size++] = '/';
    strcpy(out + size, name);
    const char *below = below_root(out);
    return below && *below ? below : NULL;
}

/* Where the file behind a path is, or would be created. */
static const char *file_place(int dirfd, const char *path, int flags, char *out)
{
    if (!active || !path)
        return NULL;
    if (canonical(dirfd, path, flags & O_NOFOLLOW, out) == 0)
        return below_root(out);
    return entry_place(dirfd, path, out);
}

static int is_modelled(const struct stat *st) { return S_ISREG(st->st_mode) || S_ISDIR(st->st_mode); }

static enum where where_is(int fd, struct stat *st)
{
    char path[PATH_MAX];
    int saved = errno;
    enum where answer = OUTSIDE;
    if (active && fstat(fd, st) == 0 && is_modelled(st) && path_of_fd(fd, path) == 0)
        answer = strcmp(path, marks) == 0 ? MARKS : below_root(path) ? TRACKED : OUTSIDE;
    errno = saved;
    return answer;
}

/* ---- the trace ------------------------------------------------------------------------------------------------ */

static void open_trace(void)
{
    struct stat st;
    /* The program may have closed "all" descriptors, and may by now use our number for a file of its own. */
    if (trace_fd >= 0 && fstat(trace_fd, &st) == 0 && st.st_dev == trace_dev && st.st_ino == trace_ino)
        return;
    int low = syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (low < 0 || fstat(low, &st) != 0)
        die("cannot open the trace");
    trace_dev = st.st_dev;
    trace_ino = st.st_ino;
    /* A high number, so that the program sees the descriptors it would see without us. */
    trace_fd = syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, 500);
    if (trace_fd < 0)
        trace_fd = low;
    else
        syscall(SYS_close, low);
}

static void lock_trace(short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    while (syscall(SYS_fcntl, trace_fd, F_SETLKW, &range) != 0)
        if (errno != EINTR)
            die("cannot lock the trace");
}

static void enter(void)
{
    int saved = errno;
    pthread_mutex_lock(&mutex);
    open_trace();
    lock_trace(F_WRLCK);
    errno = saved;
}

static void leave(void)
{
    int saved = errno;
    lock_trace(F_UNLCK);
    pthread_mutex_unlock(&mutex);
    errno = saved;
}

static void record(enum kind kind, int flags, uint64_t a, uint64_t b, const struct iovec *parts, int count, size_t size)
{
    int saved = errno;
    size_t length = sizeof(struct header) + size;
    char *buffer = malloc(length);
    if (!buffer || length > UINT32_MAX)
        die("no memory for an event");
    struct header header = {MAGIC, (uint32_t)length, (uint16_t)kind, (uint16_t)flags, (uint32_t)getpid(), a, b};
    memcpy(buffer, &header, sizeof header);
    char *at = buffer + sizeof header;
    for (int i = 0; i < count && size > 0; i++) {
        size_t take = parts[i].iov_len < size ? parts[i].iov_len : size;
        memcpy(at, parts[i].iov_base, take);
        at += take;
        size -= take;
    }
    if (syscall(SYS_write, trace_fd, buffer, length) != (long)length)
        die("cannot write the trace");
    free(buffer);
    errno = saved;
}

static void record_paths(enum kind kind, int flags, uint64_t a, const char *first, const char *second)
{
    struct iovec parts[2] = {{(void *)first, strlen(first) + (second != NULL)}, {(void *)second, second ? strlen(second) : 0}};
    record(kind, flags, a, 0, parts, 2, parts[0].iov_len + parts[1].iov_len);
}

static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void after_fork_parent(void) { pthread_mutex_unlock(&mutex); }
static void after_fork_child(void) { pthread_mutex_init(&mutex, NULL); }

static int read_path(const char *variable, char *out)
{
    const char *value = getenv(variable);
    if (!value || !*value || strlen(value) >= PATH_MAX)
        return 0;
    strcpy(out, value);
    return 1;
}

__attribute__((constructor)) static void start(void)
{
    char given[PATH_MAX], resolved[PATH_MAX];
    if (!read_path("LOGRAFT_SHIM_ROOT", root) || !read_path("LOGRAFT_SHIM_TRACE", trace))
        return;
    strcpy(given, root);
    if (realpath(given, resolved))
        strcpy(root, resolved);
    root_length = strlen(root);
    active = 1; /* entry_place() below needs it */
    if (read_path("LOGRAFT_SHIM_MARKS", given)) {
        *resolved = 0;
        entry_place(AT_FDCWD, given, resolved); /* wanted for what it leaves in `resolved`: marks may be outside the root */
        strcpy(marks, *resolved ? resolved : given);
    }
    read_path("LOGRAFT_SHIM_FULL_FLAG", full_flag);
    full_short = getenv("LOGRAFT_SHIM_FULL_SHORT") != NULL;
    const char *failing = getenv("LOGRAFT_SHIM_FAIL_SYNC");
    if (failing && *failing) {
        char *end;
        fail_from = strtoul(failing, &end, 10);
        fail_to = *end == '+' ? ULONG_MAX : fail_from;
    }
    open_trace(); /* now, so that an empty trace says "nothing happened" and a missing one "not loaded" */
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* ---- the full disk -------------------------------------------------------------------------------------------- */

static int disk_is_full(void)
{
    int saved = errno;
    int full = *full_flag && syscall(SYS_faccessat, AT_FDCWD, full_flag, F_OK) == 0;
    if (!full)
        short_write_given = 0;
    errno = saved;
    return full;
}

static int refuse(int error)
{
    errno = error;
    return -1;
}

/* ---- open ----------------------------------------------------------------------------------------------------- */

static int traced_open(int dirfd, const char *path, int flags, mode_t mode)
{
    char place[PATH_MAX];
    struct stat before, st;
    int saved = errno;
    const char *below = flags & O_PATH ? NULL : file_place(dirfd, path, flags, place);
    /* A FIFO may block until another thread opens it too: never under the lock. */
    int special = below && fstatat(dirfd, path, &before, 0) == 0 && !is_modelled(&before);
    errno = saved;
    if (!below || special)
        return syscall(SYS_openat, dirfd, path, flags, mode);
    enter();
    int nameless = (flags & O_TMPFILE) == O_TMPFILE;
    int existed = !nameless && fstatat(dirfd, path, &before, 0) == 0;
    int creates = nameless || (!existed && (flags & O_CREAT));
    errno = saved;
    int fd = creates && disk_is_full() ? refuse(ENOSPC) : (int)syscall(SYS_openat, dirfd, path, flags, mode);
    if (fd >= 0 && fstat(fd, &st) == 0 && is_modelled(&st) && path_of_fd(fd, place) == 0 && (below = below_root(place))) {
        int directory = S_ISDIR(st.st_mode) ? OPENED_DIRECTORY : 0;
        record_paths(OPENED, (creates ? OPENED_CREATED : 0) | directory | (nameless ? OPENED_NAMELESS : 0), st.st_ino,
                     nameless ? "" : below, NULL);
        if (existed && (flags & O_TRUNC) && before.st_size > 0)
            record(RESIZED, 0, st.st_ino, 0, NULL, 0, 0);
    }
    leave();
    return fd;
}

#define MODE_ARGUMENT(flags, mode)                                  \
    mode_t mode = 0;                                                \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest;                                               \
        va_start(rest, flags);                                      \
        mode = va_arg(rest, mode_t);                                \
        va_end(rest);                                               \
    }

int open(const char *path, int flags, ...)
{
    MODE_ARGUMENT(flags, mode)
    return traced_open(AT_FDCWD, path, flags, mode);
}
int openat(int dirfd, const char *path, int flags, ...)
{
    MODE_ARGUMENT(flags, mode)
    return traced_open(dirfd, path, flags, mode);
}
int creat(const char *path, mode_t mode) { return traced_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int dirfd, const char *path, int flags, ...) __attribute__((alias("openat")));
int creat64(const char *path, mode_t mode) __attribute__((alias("creat")));
/* What _FORTIFY_SOURCE makes of an open without a mode. */
int __open_2(const char *path, int flags) { return traced_open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) __attribute__((alias("__open_2")));
int __openat_2(int dirfd, const char *path, int flags) { return traced_open(dirfd, path, flags, 0); }
int __openat64_2(int dirfd, const char *path, int flags) __attribute__((alias("__openat_2")));

/* ---- data ----------------------------------------------------------------------------------------------------- */

static ssize_t send_to_kernel(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    if (offset < 0 && flags == 0)
        return syscall(SYS_writev, fd, iov, count);
    return syscall(SYS_pwritev2, fd, iov, count, offset, 0, flags);
}

/* A full disk that still had a little room: half of the bytes. */
static ssize_t send_half(int fd, const struct iovec *iov, int count, off_t offset, int flags, size_t total)
{
    struct iovec *cut = malloc(sizeof *cut * (size_t)count);
    size_t left = total / 2;
    int used = 0;
    if (!cut)
        die("no memory for a short write");
    for (; used < count && left > 0; used++) {
        cut[used] = iov[used];
        if (cut[used].iov_len > left)
            cut[used].iov_len = left;
        left -= cut[used].iov_len;
    }
    ssize_t written = send_to_kernel(fd, cut, used, offset, flags);
    int saved = errno;
    free(cut);
    errno = saved;
    return written;
}

/* offset -1 means the position of the descriptor. */
static ssize_t traced_write(enum where where, int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    struct stat st;
    int saved = errno;
    ssize_t written;
    enter();
    if (where == MARKS) {
        written = send_to_kernel(fd, iov, count, offset, flags);
        if (written > 0)
            record(MARKED, 0, 0, 0, iov, count, (size_t)written);
        leave();
        return written;
    }
    if (fstat(fd, &st) != 0)
        die("cannot stat a traced file");
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    /* On Linux O_APPEND wins over the offset of pwrite. */
    int appends = (flags & RWF_APPEND) || (syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND);
    off_t at = appends ? st.st_size : offset >= 0 ? offset : (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
    errno = saved;
    if (disk_is_full() && at + (off_t)total > st.st_size) {
        if (full_short && !short_write_given && total >= 2) {
            short_write_given = 1;
            written = send_half(fd, iov, count, offset, flags, total);
        } else {
            written = refuse(ENOSPC);
        }
    } else {
        written = send_to_kernel(fd, iov, count, offset, flags);
    }
    if (written > 0)
        record(WROTE, 0, st.st_ino, (uint64_t)at, iov, count, (size_t)written);
    leave();
    return written;
}

ssize_t write(int fd, const void *data, size_t size)
{
    struct stat st;
    struct iovec part = {(void *)data, size};
    enum where where = where_is(fd, &st);
    return where == OUTSIDE ? syscall(SYS_write, fd, data, size) : traced_write(where, fd, &part, 1, -1, 0);
}
ssize_t writev(int fd, const struct iovec *iov, int count)
{
    struct stat st;
    enum where where = count > 0 ? where_is(fd, &st) : OUTSIDE;
    return where == OUTSIDE ? syscall(SYS_writev, fd, iov, count) : traced_write(where, fd, iov, count, -1, 0);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    struct stat st;
    struct iovec part = {(void *)data, size};
    enum where where = offset >= 0 ? where_is(fd, &st) : OUTSIDE;
    return where == OUTSIDE ? syscall(SYS_pwrite64, fd, data, size, offset) : traced_write(where, fd, &part, 1, offset, 0);
}
ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    struct stat st;
    enum where where = count > 0 && offset >= -1 ? where_is(fd, &st) : OUTSIDE;
    if (where == OUTSIDE)
        return syscall(SYS_pwritev2, fd, iov, count, offset, 0, flags);
    /* A write that syncs itself is traced, and may fail, as what it stands for: a write, then a sync. */
    ssize_t written = traced_write(where, fd, iov, count, offset, flags & ~(RWF_DSYNC | RWF_SYNC));
    if (written >= 0 && where == TRACKED && (flags & (RWF_DSYNC | RWF_SYNC)) && fdatasync(fd) != 0)
        return -1;
    return written;
}
ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    struct stat st;
    enum where where = count > 0 && offset >= 0 ? where_is(fd, &st) : OUTSIDE;
    return where == OUTSIDE ? syscall(SYS_pwritev, fd, iov, count, offset, 0) : traced_write(where, fd, iov, count, offset, 0);
}
ssize_t pwrite64(int, const void *, size_t, off64_t) __attribute__((alias("pwrite")));
ssize_t pwritev64(int, const struct iovec *, int, off64_t) __attribute__((alias("pwritev")));
ssize_t pwritev64v2(int, const struct iovec *, int, off64_t, int) __attribute__((alias("pwritev2")));

/* ---- size ----------------------------------------------------------------------------------------------------- */

int ftruncate(int fd, off_t size)
{
    struct stat st;
    if (where_is(fd, &st) != TRACKED)
        return syscall(SYS_ftruncate, fd, size);
    enter();
    int result = syscall(SYS_ftruncate, fd, size);
    if (result == 0)
        record(RESIZED, 0, st.st_ino, (uint64_t)size, NULL, 0, 0);
    leave();
    return result;
}
int truncate(const char *path, off_t size)
{
    char place[PATH_MAX];
    struct stat st;
    int saved = errno;
    const char *below = file_place(AT_FDCWD, path, 0, place);
    errno = saved;
    if (!below)
        return syscall(SYS_truncate, path, size);
    enter();
    int result = syscall(SYS_truncate, path, size);
    if (result == 0 && stat(path, &st) == 0) {
        record_paths(OPENED, 0, st.st_ino, below, NULL); /* the reader may not have met this inode yet */
        record(RESIZED, 0, st.st_ino, (uint64_t)size, NULL, 0, 0);
    }
    leave();
    return result;
}
int fallocate(int fd, int mode, off_t offset, off_t size)
{
    struct stat st;
    if (where_is(fd, &st) != TRACKED)
        return syscall(SYS_fallocate, fd, mode, offset, size);
    if (mode & ~FALLOC_FL_KEEP_SIZE)
        return refuse(EOPNOTSUPP); /* these change data in ways the trace cannot say */
    enter();
    fstat(fd, &st);
    int grows = !(mode & FALLOC_FL_KEEP_SIZE) && offset + size > st.st_size;
    int result = disk_is_full() ? refuse(ENOSPC) : (int)syscall(SYS_fallocate, fd, mode, offset, size);
    if (result == 0 && grows)
        record(RESIZED, 0, st.st_ino, (uint64_t)(offset + size), NULL, 0, 0);
    leave();
    return result;
}
int posix_fallocate(int fd, off_t offset, off_t size)
{
    int saved = errno;
    int error = fallocate(fd, 0, offset, size) == 0 ? 0 : errno;
    errno = saved;
    return error;
}
int ftruncate64(int, off64_t) __attribute__((alias("ftruncate")));
int truncate64(const char *, off64_t) __attribute__((alias("truncate")));
int fallocate64(int, int, off64_t, off64_t) __attribute__((alias("fallocate")));
int posix_fallocate64(int, off64_t, off64_t) __attribute__((alias("posix_fallocate")));

/* ---- names ---------------------------------------------------------------------------------------------------- */

int mkdirat(int dirfd, const char *path, mode_t mode)
{
    char place[PATH_MAX];
    struct stat st;
    int saved = errno;
    const char *below = entry_place(dirfd, path, place);
    errno = saved;
    if (!below)
        return syscall(SYS_mkdirat, dirfd, path, mode);
    enter();
    int result = syscall(SYS_faccessat, dirfd, path, F_OK) != 0 && disk_is_full() ? refuse(ENOSPC)
                                                                                 : (int)syscall(SYS_mkdirat, dirfd, path, mode);
    if (result == 0 && fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        record_paths(DIRECTORY_MADE, 0, st.st_ino, below, NULL);
    if (result == 0)
        errno = saved;
    leave();
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int dirfd, const char *path, int flags)
{
    char place[PATH_MAX];
    struct stat st;
    int saved = errno;
    const char *below = entry_place(dirfd, path, place);
    errno = saved;
    if (!below)
        return syscall(SYS_unlinkat, dirfd, path, flags);
    enter();
    int modelled = fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_modelled(&st);
    errno = saved;
    int result = syscall(SYS_unlinkat, dirfd, path, flags);
    if (result == 0 && modelled)
        record_paths(flags & AT_REMOVEDIR ? DIRECTORY_REMOVED : UNLINKED, 0, st.st_ino, below, NULL);
    leave();
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path)
{
    int result = unlink(path);
    return result != 0 && (errno == EISDIR || errno == EPERM) ? rmdir(path) : result;
}

int renameat2(int old_dirfd, const char *old, int new_dirfd, const char *new, unsigned flags)
{
    char old_place[PATH_MAX], new_place[PATH_MAX];
    struct stat moved, replaced;
    int saved = errno;
    const char *from = entry_place(old_dirfd, old, old_place), *to = entry_place(new_dirfd, new, new_place);
    errno = saved;
    if (!from && !to)
        return syscall(SYS_renameat2, old_dirfd, old, new_dirfd, new, flags);
    if (!from || !to)
        return refuse(EXDEV);
    if (flags & RENAME_WHITEOUT)
        return refuse(EINVAL);
    enter();
    int modelled = fstatat(old_dirfd, old, &moved, AT_SYMLINK_NOFOLLOW) == 0 && is_modelled(&moved);
    /* POSIX: two names of one file, and rename does nothing, successfully. */
    int same = modelled && fstatat(new_dirfd, new, &replaced, AT_SYMLINK_NOFOLLOW) == 0 && moved.st_ino == replaced.st_ino;
    errno = saved;
    int result = syscall(SYS_renameat2, old_dirfd, old, new_dirfd, new, flags);
    if (result == 0 && modelled && !same)
        record_paths(RENAMED, flags & RENAME_EXCHANGE ? RENAMED_EXCHANGE : 0, moved.st_ino, from, to);
    leave();
    return result;
}
int renameat(int old_dirfd, const char *old, int new_dirfd, const char *new)
{
    return renameat2(old_dirfd, old, new_dirfd, new, 0);
}
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }

int linkat(int old_dirfd, const char *old, int new_dirfd, const char *new, int flags)
{
    char old_place[PATH_MAX], new_place[PATH_MAX];
    struct stat st;
    int saved = errno;
    const char *to = entry_place(new_dirfd, new, new_place), *from = NULL;
    if (active && (flags & AT_EMPTY_PATH) && !*old)
        from = path_of_fd(old_dirfd, old_place) == 0 ? below_root(old_place) : NULL;
    else if (active)
        from = file_place(old_dirfd, old, flags & AT_SYMLINK_FOLLOW ? 0 : O_NOFOLLOW, old_place);
    errno = saved;
    if (!from && !to)
        return syscall(SYS_linkat, old_dirfd, old, new_dirfd, new, flags);
    if (!from || !to)
        return refuse(EXDEV);
    enter();
    int result = syscall(SYS_linkat, old_dirfd, old, new_dirfd, new, flags);
    if (result == 0 && fstatat(new_dirfd, new, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_modelled(&st))
        record_paths(LINKED, 0, st.st_ino, from, to);
    leave();
    return result;
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

/* ---- syncs ---------------------------------------------------------------------------------------------------- */

static int traced_sync(int fd, uint64_t ino, enum scope scope, long number)
{
    enter();
    uint64_t id = ((uint64_t)getpid() << 32) | ++syncs_begun;
    unsigned long n = number == SYS_sync ? 0 : ++syncs_counted; /* sync() cannot fail, so it is not counted */
    int fails = n >= fail_from && n <= fail_to && n > 0;
    record(SYNC_BEGAN, scope, id, ino, NULL, 0, 0);
    leave();
    /* Unlocked: syncs must be able to overlap with writes and with each other. */
    int result = fails ? refuse(EIO) : (int)syscall(number, fd);
    enter();
    if (result == 0)
        record(SYNC_ENDED, 0, id, 0, NULL, 0, 0);
    else
        record(SYNC_FAILED, 0, id, (uint64_t)errno, NULL, 0, 0);
    leave();
    return result;
}

int fsync(int fd)
{
    struct stat st;
    return where_is(fd, &st) == TRACKED ? traced_sync(fd, st.st_ino, SCOPE_FILE, SYS_fsync) : (int)syscall(SYS_fsync, fd);
}
int fdatasync(int fd)
{
    struct stat st;
    return where_is(fd, &st) == TRACKED ? traced_sync(fd, st.st_ino, SCOPE_FILE_DATA, SYS_fdatasync)
                                        : (int)syscall(SYS_fdatasync, fd);
}
int syncfs(int fd)
{
    struct stat st;
    return where_is(fd, &st) == TRACKED ? traced_sync(fd, st.st_ino, SCOPE_FILESYSTEM, SYS_syncfs)
                                        : (int)syscall(SYS_syncfs, fd);
}
void sync(void)
{
    if (active)
        traced_sync(-1, 0, SCOPE_FILESYSTEM, SYS_sync);
    else
        syscall(SYS_sync);
}

/* ---- what would change files behind our back ------------------------------------------------------------------ */

static int unseen(int fd)
{
    struct stat st;
    return where_is(fd, &st) != OUTSIDE;
}

ssize_t sendfile(int out, int in, off_t *offset, size_t size)
{
    return unseen(out) ? refuse(EINVAL) : syscall(SYS_sendfile, out, in, offset, size);
}
ssize_t sendfile64(int, int, off64_t *, size_t) __attribute__((alias("sendfile")));
ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t size, unsigned flags)
{
    return unseen(out) ? refuse(EINVAL) : syscall(SYS_copy_file_range, in, in_offset, out, out_offset, size, flags);
}
ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t size, unsigned flags)
{
    return unseen(out) ? refuse(EINVAL) : syscall(SYS_splice, in, in_offset, out, out_offset, size, flags);
}
void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE) && !(flags & MAP_ANONYMOUS) && unseen(fd)) {
        errno = ENODEV;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}
void *mmap64(void *, size_t, int, int, int, off64_t) __attribute__((alias("mmap")));
