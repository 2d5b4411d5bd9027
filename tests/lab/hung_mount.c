/* A stand-in for a dead mount: calls on paths under HUNG_PREFIX do not return while the file HUNG_WHILE exists.
   With HUNG_MS, for a slow one: they return after so many milliseconds. LD_PRELOAD it. The kernel's own dead mounts need root and a file server; FUSE needs a device. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static void hang(const char *path) {
    const char *prefix = getenv("HUNG_PREFIX"), *flag = getenv("HUNG_WHILE");
    size_t length = prefix ? strlen(prefix) : 0;
    if (!path || !flag || !length || strncmp(path, prefix, length) || (path[length] && path[length] != '/')) return;
    if (getenv("HUNG_MS")) usleep(1000 * atoi(getenv("HUNG_MS")));
    else while (syscall(SYS_faccessat, AT_FDCWD, flag, F_OK) == 0) usleep(20000);
}

static void hang_handle(int handle) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length > 0) path[length] = 0, hang(path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define ON_PATH(type, name, parameters, arguments) type name parameters { hang(path); return NEXT(name) arguments; }
#define ON_HANDLE(type, name, parameters, arguments) type name parameters { hang_handle(handle); return NEXT(name) arguments; }
#define OPEN(name) int name(const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    hang(path); return NEXT(name)(path, flags, mode); }
#define OPENAT(name) int name(int at, const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    hang(path); return NEXT(name)(at, path, flags, mode); }

ON_PATH(int, statvfs, (const char *path, struct statvfs *found), (path, found))
ON_PATH(int, statvfs64, (const char *path, struct statvfs64 *found), (path, found))
ON_PATH(int, statfs, (const char *path, struct statfs *found), (path, found))
ON_PATH(int, statfs64, (const char *path, struct statfs64 *found), (path, found))
ON_PATH(int, stat, (const char *path, struct stat *found), (path, found))
ON_PATH(int, stat64, (const char *path, struct stat64 *found), (path, found))
ON_PATH(int, lstat, (const char *path, struct stat *found), (path, found))
ON_PATH(int, lstat64, (const char *path, struct stat64 *found), (path, found))
ON_PATH(int, fstatat, (int at, const char *path, struct stat *found, int flags), (at, path, found, flags))
ON_PATH(int, fstatat64, (int at, const char *path, struct stat64 *found, int flags), (at, path, found, flags))
ON_PATH(int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *found),
        (at, path, flags, mask, found))
ON_PATH(int, access, (const char *path, int mode), (path, mode))
ON_PATH(ssize_t, readlink, (const char *path, char *text, size_t size), (path, text, size))
ON_PATH(DIR *, opendir, (const char *path), (path))
ON_HANDLE(int, fstat, (int handle, struct stat *found), (handle, found))
ON_HANDLE(int, fstat64, (int handle, struct stat64 *found), (handle, found))
ON_HANDLE(ssize_t, pread, (int handle, void *data, size_t size, off_t at), (handle, data, size, at))
ON_HANDLE(ssize_t, pread64, (int handle, void *data, size_t size, off64_t at), (handle, data, size, at))
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
