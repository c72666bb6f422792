/* Preloaded, it has close() fail as that of a full disk of another machine does: of files that were written to in the
   folder that the variable FULL names. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int close(int fd) {
    char link[64], path[4096];
    const char *full = getenv("FULL");
    struct stat about;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = full ? readlink(link, path, sizeof path) : -1;
    int fails = length > 0 && !strncmp(path, full, strlen(full)) && !fstat(fd, &about) && S_ISREG(about.st_mode)
        && about.st_size > 0;
    if (syscall(SYS_close, fd)) return -1;
    if (fails) errno = ENOSPC;
    return fails ? -1 : 0;
}
