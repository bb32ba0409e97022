/* Records every change of files below some folders, as the C library makes it, for bench.soak_power.

   Preloaded into the run, its JVM and its Python workers. Each call is carried out first and then
   written down, in one write to a log that is opened for appending: so the log's order agrees with every
   order that one thread can know of from another. A record: magic, kind, length of two names, inode
   numbers, offset, length of the data; then names and data. HOLDFAST_RECORD_LOG names the log,
   HOLDFAST_RECORD_ROOTS the folders, separated by ':'.                                              */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct head { uint32_t magic, kind, first, second; uint64_t inode, other, offset, size; };
enum { CREATE = 1, WRITE, TRUNCATE, RENAME, LINK, UNLINK, MKDIR, RMDIR, SYNC, MAPPED, SYNCALL, SYMLINK };

static int log_fd = -1;
static char roots[8][PATH_MAX];
static int root_count;

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void)
{
    const char *log = getenv("HOLDFAST_RECORD_LOG"), *named = getenv("HOLDFAST_RECORD_ROOTS");
    if (!log || !named) return;
    int fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) { /* out of the way of programs that count on low numbers */
        int high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 900);
        if (high >= 0) { syscall(SYS_close, fd); fd = high; }
    }
    log_fd = fd;
    char copy[8 * PATH_MAX]; snprintf(copy, sizeof copy, "%s", named);
    for (char *save, *part = strtok_r(copy, ":", &save); part && root_count < 8; part = strtok_r(NULL, ":", &save))
        snprintf(roots[root_count++], PATH_MAX, "%s", part);
}

static int log_handle(void)
{   /* somebody may have closed all handles, as Python's subprocess does after a fork */
    if (log_fd >= 0 && syscall(SYS_fcntl, log_fd, F_GETFD) >= 0) {
        char link[64], path[PATH_MAX]; snprintf(link, sizeof link, "/proc/self/fd/%d", log_fd);
        ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
        const char *want = getenv("HOLDFAST_RECORD_LOG");
        if (n > 0 && want) { path[n] = 0; if (!strcmp(path, want)) return log_fd; }
    }
    begin(); return log_fd;
}

static int watched(const char *path)
{
    for (int i = 0; i < root_count; i++) {
        size_t n = strlen(roots[i]);
        if (!strncmp(path, roots[i], n) && (path[n] == '/' || !path[n])) return 1;
    }
    return 0;
}

static int full(int dir, const char *path, char *out)
{   /* absolute, without resolving links: nothing below the folders is one */
    char at[PATH_MAX];
    if (!path) return 0;
    if (path[0] == '/') snprintf(out, PATH_MAX, "%s", path);
    else {
        if (dir == AT_FDCWD) { if (syscall(SYS_getcwd, at, sizeof at) < 0) return 0; }
        else {
            char link[64]; snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
            ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, at, sizeof at - 1);
            if (n <= 0) return 0;
            at[n] = 0;
        }
        if (snprintf(out, PATH_MAX, "%s/%s", at, path) >= PATH_MAX) return 0;
    }
    /* a/./b, a//b, trailing slashes */
    char *to = out; const char *from = out;
    while (*from) {
        if (from[0] == '/' && from[1] == '/') { from++; continue; }
        if (from[0] == '/' && from[1] == '.' && (from[2] == '/' || !from[2])) { from += 2; continue; }
        *to++ = *from++;
    }
    *to = 0;
    if (to > out + 1 && to[-1] == '/') to[-1] = 0;
    return watched(out);
}

static int of_handle(int fd, char *out, struct stat *st)
{
    char link[64];
    if (fd < 0 || root_count == 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
    if (n <= 0) return 0;
    out[n] = 0;
    if (out[0] != '/' || !watched(out)) return 0;
    return fstat(fd, st) == 0;
}

static void note(uint32_t kind, const char *first, const char *second, uint64_t inode, uint64_t other,
                 uint64_t offset, const void *data, uint64_t size)
{
    int saved = errno, fd = log_handle();
    if (fd < 0) { errno = saved; return; }
    struct head head = { 0x48464c31, kind, first ? strlen(first) : 0, second ? strlen(second) : 0, inode, other, offset,
                         data ? size : 0 };
    struct iovec parts[4] = { { &head, sizeof head }, { (void *) first, head.first }, { (void *) second, head.second },
                              { (void *) data, head.size } };
    ssize_t all = sizeof head + head.first + head.second + head.size;
    if (syscall(SYS_writev, fd, parts, 4) != all) { fprintf(stderr, "recorder: the log is incomplete\n"); _exit(97); }
    errno = saved;
}

static void wrote(int fd, off_t offset, const void *data, ssize_t size)
{
    char path[PATH_MAX]; struct stat st;
    if (size <= 0 || !of_handle(fd, path, &st) || !S_ISREG(st.st_mode)) return;
    if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - size;
    note(WRITE, path, NULL, st.st_ino, 0, offset, data, size);
}

static void copied(int fd, off_t offset, ssize_t size)
{   /* data that went from file to file inside the kernel: read back from where it is now */
    char path[PATH_MAX], link[64]; struct stat st;
    if (size <= 0 || !of_handle(fd, path, &st) || !S_ISREG(st.st_mode)) return;
    if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int in = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    char *data = malloc(size);
    ssize_t got = in >= 0 ? pread(in, data, size, offset) : -1;
    if (in >= 0) syscall(SYS_close, in);
    note(WRITE, path, NULL, st.st_ino, 0, offset, data, got > 0 ? got : 0);
    free(data);
}

static void opened(int fd, int dir, const char *name, int flags)
{
    char path[PATH_MAX]; struct stat st;
    if (fd < 0 || !(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE || !full(dir, name, path)) return;
    int saved = errno;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode)) {
        if (flags & O_CREAT) note(CREATE, path, NULL, st.st_ino, 0, 0, NULL, 0);
        if (flags & O_TRUNC) note(TRUNCATE, path, NULL, st.st_ino, 0, 0, NULL, 0);
    }
    errno = saved;
}

#define OPEN(name) int name(const char *path, int flags, ...) { \
    static int (*real)(const char *, int, ...); if (!real) real = dlsym(RTLD_NEXT, #name); \
    mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
    int fd = real(path, flags, mode); opened(fd, AT_FDCWD, path, flags); return fd; }
OPEN(open)
OPEN(open64)
#define OPENAT(name) int name(int dir, const char *path, int flags, ...) { \
    static int (*real)(int, const char *, int, ...); if (!real) real = dlsym(RTLD_NEXT, #name); \
    mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
    int fd = real(dir, path, flags, mode); opened(fd, dir, path, flags); return fd; }
OPENAT(openat)
OPENAT(openat64)
#define CREAT(name) int name(const char *path, mode_t mode) { \
    static int (*real)(const char *, mode_t); if (!real) real = dlsym(RTLD_NEXT, #name); \
    int fd = real(path, mode); opened(fd, AT_FDCWD, path, O_CREAT | O_TRUNC); return fd; }
CREAT(creat)
CREAT(creat64)
#define FOPEN(name) FILE *name(const char *path, const char *mode) { \
    static FILE *(*real)(const char *, const char *); if (!real) real = dlsym(RTLD_NEXT, #name); \
    FILE *file = real(path, mode); char at[PATH_MAX]; \
    if (file && mode[0] != 'r' && full(AT_FDCWD, path, at)) { fprintf(stderr, "recorder: stdio writes %s\n", at); _exit(98); } \
    return file; }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int fd, const void *data, size_t size)
{ REAL(write); ssize_t n = real(fd, data, size); int e = errno; wrote(fd, -1, data, n); errno = e; return n; }
#define PWRITE(name) ssize_t name(int fd, const void *data, size_t size, off_t at) \
{ static ssize_t (*real)(int, const void *, size_t, off_t); if (!real) real = dlsym(RTLD_NEXT, #name); \
  ssize_t n = real(fd, data, size, at); int e = errno; wrote(fd, at, data, n); errno = e; return n; }
PWRITE(pwrite)
PWRITE(pwrite64)

static void wrote_parts(int fd, off_t at, const struct iovec *parts, int count, ssize_t n)
{
    char path[PATH_MAX]; struct stat st;
    if (n <= 0 || !of_handle(fd, path, &st) || !S_ISREG(st.st_mode)) return;
    char *all = malloc(n); ssize_t have = 0;
    for (int i = 0; i < count && have < n; i++) {
        ssize_t take = parts[i].iov_len < (size_t) (n - have) ? (ssize_t) parts[i].iov_len : n - have;
        memcpy(all + have, parts[i].iov_base, take); have += take;
    }
    wrote(fd, at, all, n); free(all);
}
ssize_t writev(int fd, const struct iovec *parts, int count)
{ REAL(writev); ssize_t n = real(fd, parts, count); int e = errno; wrote_parts(fd, -1, parts, count, n); errno = e; return n; }
#define PWRITEV(name) ssize_t name(int fd, const struct iovec *parts, int count, off_t at) \
{ static ssize_t (*real)(int, const struct iovec *, int, off_t); if (!real) real = dlsym(RTLD_NEXT, #name); \
  ssize_t n = real(fd, parts, count, at); int e = errno; wrote_parts(fd, at, parts, count, n); errno = e; return n; }
PWRITEV(pwritev)
PWRITEV(pwritev64)
#define SENDFILE(name) ssize_t name(int out, int in, off_t *at, size_t size) \
{ static ssize_t (*real)(int, int, off_t *, size_t); if (!real) real = dlsym(RTLD_NEXT, #name); \
  ssize_t n = real(out, in, at, size); int e = errno; copied(out, -1, n); errno = e; return n; }
SENDFILE(sendfile)
SENDFILE(sendfile64)
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags)
{ REAL(copy_file_range); ssize_t n = real(in, from, out, to, size, flags); int e = errno;
  copied(out, to ? *to - n : -1, n); errno = e; return n; }

static void truncated(const char *path, uint64_t inode, off_t size) { note(TRUNCATE, path, NULL, inode, 0, size, NULL, 0); }
#define FTRUNCATE(name) int name(int fd, off_t size) \
{ static int (*real)(int, off_t); if (!real) real = dlsym(RTLD_NEXT, #name); int r = real(fd, size), e = errno; \
  char path[PATH_MAX]; struct stat st; if (!r && of_handle(fd, path, &st)) truncated(path, st.st_ino, size); errno = e; return r; }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)
#define TRUNC(name) int name(const char *file, off_t size) \
{ static int (*real)(const char *, off_t); if (!real) real = dlsym(RTLD_NEXT, #name); int r = real(file, size), e = errno; \
  char path[PATH_MAX]; struct stat st; if (!r && full(AT_FDCWD, file, path) && !stat(path, &st)) truncated(path, st.st_ino, size); \
  errno = e; return r; }
TRUNC(truncate)
TRUNC(truncate64)
#define FALLOCATE(name) int name(int fd, int mode, off_t at, off_t size) \
{ static int (*real)(int, int, off_t, off_t); if (!real) real = dlsym(RTLD_NEXT, #name); int r = real(fd, mode, at, size), e = errno; \
  char path[PATH_MAX]; struct stat st; if (!r && of_handle(fd, path, &st)) truncated(path, st.st_ino, st.st_size); errno = e; return r; }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)
#define POSIX_FALLOCATE(name) int name(int fd, off_t at, off_t size) \
{ static int (*real)(int, off_t, off_t); if (!real) real = dlsym(RTLD_NEXT, #name); int r = real(fd, at, size), e = errno; \
  char path[PATH_MAX]; struct stat st; if (!r && of_handle(fd, path, &st)) truncated(path, st.st_ino, st.st_size); errno = e; return r; }
POSIX_FALLOCATE(posix_fallocate)
POSIX_FALLOCATE(posix_fallocate64)

static void synced(int fd)
{
    char path[PATH_MAX]; struct stat st; int e = errno;
    if (of_handle(fd, path, &st)) note(SYNC, path, NULL, st.st_ino, S_ISDIR(st.st_mode), 0, NULL, 0);
    errno = e;
}
int fsync(int fd) { REAL(fsync); int r = real(fd); if (!r) synced(fd); return r; }
int fdatasync(int fd) { REAL(fdatasync); int r = real(fd); if (!r) synced(fd); return r; }
/* sync_file_range makes no promise; syncfs and sync would, and nobody below calls them: counted as none. */

static uint64_t inode_of(const char *path)
{ struct stat st; return lstat(path, &st) ? 0 : st.st_ino; }
static void renamed(int r, int from_dir, const char *from, int to_dir, const char *to)
{
    char a[PATH_MAX], b[PATH_MAX]; int e = errno;
    if (!r) { int one = full(from_dir, from, a), other = full(to_dir, to, b);
              if (one || other) note(RENAME, a, b, inode_of(b), 0, 0, NULL, 0); }
    errno = e;
}
int rename(const char *from, const char *to)
{ REAL(rename); int r = real(from, to); renamed(r, AT_FDCWD, from, AT_FDCWD, to); return r; }
int renameat(int d, const char *from, int g, const char *to)
{ REAL(renameat); int r = real(d, from, g, to); renamed(r, d, from, g, to); return r; }
int renameat2(int d, const char *from, int g, const char *to, unsigned flags)
{ REAL(renameat2); int r = real(d, from, g, to, flags); renamed(r, d, from, g, to); return r; }
static void linked(int r, int from_dir, const char *from, int to_dir, const char *to)
{
    char a[PATH_MAX], b[PATH_MAX]; int e = errno;
    if (!r) { full(from_dir, from, a); if (full(to_dir, to, b)) note(LINK, a, b, inode_of(b), 0, 0, NULL, 0); }
    errno = e;
}
int link(const char *from, const char *to) { REAL(link); int r = real(from, to); linked(r, AT_FDCWD, from, AT_FDCWD, to); return r; }
int linkat(int d, const char *from, int g, const char *to, int flags)
{ REAL(linkat); int r = real(d, from, g, to, flags); linked(r, d, from, g, to); return r; }
static void gone(int r, int dir, const char *name, uint32_t kind)
{ char path[PATH_MAX]; int e = errno; if (!r && full(dir, name, path)) note(kind, path, NULL, 0, 0, 0, NULL, 0); errno = e; }
int unlink(const char *path) { REAL(unlink); int r = real(path); gone(r, AT_FDCWD, path, UNLINK); return r; }
int unlinkat(int dir, const char *path, int flags)
{ REAL(unlinkat); int r = real(dir, path, flags); gone(r, dir, path, flags & AT_REMOVEDIR ? RMDIR : UNLINK); return r; }
int remove(const char *path)
{ struct stat st; int is_dir = !lstat(path, &st) && S_ISDIR(st.st_mode);
  REAL(remove); int r = real(path); gone(r, AT_FDCWD, path, is_dir ? RMDIR : UNLINK); return r; }
int rmdir(const char *path) { REAL(rmdir); int r = real(path); gone(r, AT_FDCWD, path, RMDIR); return r; }
static void made(int r, int dir, const char *name)
{ char path[PATH_MAX]; int e = errno; if (!r && full(dir, name, path)) note(MKDIR, path, NULL, inode_of(path), 0, 0, NULL, 0); errno = e; }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); int r = real(path, mode); made(r, AT_FDCWD, path); return r; }
int mkdirat(int dir, const char *path, mode_t mode) { REAL(mkdirat); int r = real(dir, path, mode); made(r, dir, path); return r; }

#define MMAP(name) void *name(void *at, size_t size, int prot, int flags, int fd, off_t offset) \
{ static void *(*real)(void *, size_t, int, int, int, off_t); if (!real) real = dlsym(RTLD_NEXT, #name); \
  void *r = real(at, size, prot, flags, fd, offset); char path[PATH_MAX]; struct stat st; int e = errno; \
  if (r != MAP_FAILED && fd >= 0 && (flags & MAP_SHARED) && (prot & PROT_WRITE) && of_handle(fd, path, &st)) \
      note(MAPPED, path, NULL, st.st_ino, 0, 0, NULL, 0); \
  errno = e; return r; }
MMAP(mmap)
MMAP(mmap64)
