/* Preloaded into a server, this makes its machine slow and unreliable: around the calls
 * by which it deals with clients and files, threads sleep for a moment now and then, and
 * some calls fail, or do only a part, in the ways that their manuals allow. What fails
 * here never costs a client its connection, and never a record of the log: so only long
 * bodies, which a client's own worker sends, go in parts, or not at once. For anybody else,
 * a client that takes no more is a slow one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static __thread unsigned state;

static int one_in(unsigned times)
{
    if (!state)
        state = (unsigned)(unsigned long)&state ^ (unsigned)getpid() ^ 2463534242u;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % times == 0;
}

/* Mostly so short that two threads pass each other, now and then long. */
static void dawdle(void)
{
    if (one_in(16))
        usleep(one_in(4) ? state % 4000 : state % 60);
}

static int is_acceptor(void)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    return !strcmp(name, "acceptor");
}

static int fails(int errors)
{
    errno = errors;
    return -1;
}

#define REAL(name) \
    static typeof(name) *real; \
    if (!real) \
        real = dlsym(RTLD_NEXT, #name)

#define SLOW(type, name, declared, given) \
    type name declared \
    { \
        REAL(name); \
        dawdle(); \
        type result = real given; \
        int error = errno; \
        dawdle(); \
        errno = error; \
        return result; \
    }

SLOW(int, epoll_wait, (int a, struct epoll_event *b, int c, int d), (a, b, c, d))
SLOW(int, epoll_ctl, (int a, int b, int c, struct epoll_event *d), (a, b, c, d))
SLOW(int, shutdown, (int a, int b), (a, b))
SLOW(int, close, (int a), (a))
SLOW(int, setsockopt, (int a, int b, int c, const void *d, socklen_t e), (a, b, c, d, e))
SLOW(int, fdatasync, (int a), (a))

ssize_t pwrite64(int file, const void *from, size_t length, off_t offset)
{
    REAL(pwrite64);
    dawdle();
    if (one_in(20))
        return fails(EINTR);
    return real(file, from, one_in(20) ? (length + 1) / 2 : length, offset);
}

/* A client that has come may be gone when it is accepted: so the acceptor, whose listeners
 * are the third and what follows, finds nobody now and then. */
int poll(struct pollfd *ends, nfds_t count, int time)
{
    REAL(poll);
    dawdle();
    if (one_in(20))
        return fails(EINTR);
    if (count > 2 && is_acceptor() && one_in(4)) {
        for (nfds_t i = 0; i < count; i++)
            ends[i].revents = 0;
        ends[2 + state / 4 % (count - 2)].revents = POLLIN;
        return 1;
    }
    int ready = real(ends, count, time), error = errno;
    dawdle();
    errno = error;
    return ready;
}

int accept4(int listener, struct sockaddr *peer, socklen_t *length, int flags)
{
    REAL(accept4);
    dawdle();
    if (one_in(30))
        return fails(one_in(3) ? EMFILE : one_in(2) ? ECONNABORTED : EINTR);
    int socket = real(listener, peer, length, flags), error = errno;
    dawdle();
    errno = error;
    return socket;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with)
{
    REAL(pthread_create);
    if (is_acceptor() && one_in(3))
        return EAGAIN;
    return real(thread, how, run, with);
}

ssize_t recv(int socket, void *to, size_t length, int flags)
{
    REAL(recv);
    dawdle();
    if (!(flags & MSG_DONTWAIT) && one_in(20))
        return fails(EINTR);
    ssize_t count = real(socket, to, one_in(10) ? (length + 1) / 2 : length, flags);
    int error = errno;
    dawdle();
    errno = error;
    return count;
}

SLOW(ssize_t, send, (int a, const void *b, size_t c, int d), (a, b, c, d))

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    REAL(sendmsg);
    struct msghdr part = *message;
    dawdle();
    if (one_in(10))
        return fails(one_in(2) ? EINTR : EAGAIN);
    if (one_in(4))
        part.msg_iovlen = 1;
    return real(socket, &part, flags);
}
