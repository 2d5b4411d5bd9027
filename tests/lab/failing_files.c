/* One kind of file call under one folder fails with one error: a full, read-only or broken filesystem without root.
 *
 * FAIL_PREFIX the folder, FAIL_CALL create|write|link|unlink, FAIL_ERRNO the number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(const char *call, const char *path) {
    const char *prefix = getenv("FAIL_PREFIX"), *wanted = getenv("FAIL_CALL"), *number = getenv("FAIL_ERRNO");
    if (!prefix || !wanted || !number || !path || strcmp(call, wanted) || strncmp(path, prefix, strlen(prefix)))
        return 0;
    errno = atoi(number);
    return 1;
}

#define OPEN(NAME)                                                      \
    int NAME(const char *path, int flags, ...) {                        \
        static int (*real)(const char *, int, ...);                     \
        va_list rest;                                                   \
        va_start(rest, flags);                                          \
        mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;     \
        va_end(rest);                                                   \
        if (!real) real = dlsym(RTLD_NEXT, #NAME);                      \
        if ((flags & O_CREAT) && fails("create", path)) return -1;      \
        return real(path, flags, mode);                                 \
    }
OPEN(open)
OPEN(open64)

ssize_t write(int fd, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    char link[64], path[PATH_MAX];
    if (!real) real = dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        if (fails("write", path)) return -1;
    }
    return real(fd, data, size);
}

int link(const char *from, const char *to) {
    static int (*real)(const char *, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "link");
    return fails("link", to) ? -1 : real(from, to);
}

int linkat(int one, const char *from, int other, const char *to, int flags) {
    static int (*real)(int, const char *, int, const char *, int);
    if (!real) real = dlsym(RTLD_NEXT, "linkat");
    return fails("link", to) ? -1 : real(one, from, other, to, flags);
}

int unlinkat(int fd, const char *path, int flags) {
    static int (*real)(int, const char *, int);
    if (!real) real = dlsym(RTLD_NEXT, "unlinkat");
    return fails("unlink", path) ? -1 : real(fd, path, flags);
}
