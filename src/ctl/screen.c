/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"
#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"
#define CLEAR_ALL "\033[2J"

struct screen {
    bool in_place;
    bool has_keys; /* standard input is a terminal, whose keys are read one by one */
    bool shown;
    bool dense;
    int signal_fd;
    sigset_t signals;
    struct termios terminal;
};

static void read_keys(struct screen *screen)
{
    struct termios keys;

    screen->has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen->terminal) == 0;
    if (!screen->has_keys)
        return;
    keys = screen->terminal;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &keys);
}

static int open_screen(struct screen *ret_screen, bool dense, struct error *err)
{
    sigset_t ends;

    *ret_screen = (struct screen){.dense = dense, .in_place = !dense && isatty(STDOUT_FILENO)};
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGINT);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGHUP);
    (void)sigaddset(&ends, SIGQUIT);
    (void)sigprocmask(SIG_BLOCK, &ends, &ret_screen->signals);
    ret_screen->signal_fd = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    if (ret_screen->signal_fd < 0)
        return error_set(err, -errno, "cannot watch for signals: %s", strerror(errno));

    if (ret_screen->in_place) {
        read_keys(ret_screen);
        (void)fputs(HIDE_CURSOR CLEAR_ALL, stdout);
    }
    return 0;
}

static void close_screen(struct screen *screen)
{
    struct signalfd_siginfo info;

    if (screen->in_place)
        (void)fputs(SHOW_CURSOR, stdout);
    (void)fflush(stdout);
    if (screen->has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &screen->terminal);
    /* Those that ended it are not to end the process before it has said what it has to say. */
    while (read(screen->signal_fd, &info, sizeof(info)) > 0)
        ;
    (void)close(screen->signal_fd);
    (void)sigprocmask(SIG_SETMASK, &screen->signals, NULL);
}

static size_t screen_height(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row < 2)
        return 24;
    return size.ws_row;
}

static void show_in_place(const char *text)
{
    size_t left = screen_height() - 1;
    const char *end;

    (void)fputs(HOME, stdout);
    for (; *text && left; left--, text = end + (*end == '\n')) {
        end = strchrnul(text, '\n');
        (void)fwrite(text, 1, (size_t)(end - text), stdout);
        (void)fputs(CLEAR_LINE "\n", stdout);
    }
    (void)fputs(CLEAR_BELOW, stdout);
}

static void show(struct screen *screen, const char *text)
{
    if (screen->in_place) {
        show_in_place(text);
    } else {
        if (screen->shown && !screen->dense)
            (void)fputs("\n", stdout);
        (void)fputs(text, stdout);
    }
    screen->shown = true;
    (void)fflush(stdout);
}

/* Whether a key asks for the end. */
static bool read_end_key(struct screen *screen)
{
    char keys[64];
    ssize_t len = read(STDIN_FILENO, keys, sizeof(keys));

    if (len <= 0)
        screen->has_keys = false;
    return len > 0 && (memchr(keys, 'q', (size_t)len) || memchr(keys, 'Q', (size_t)len));
}

/* Waits so long. False when the user or a signal wants an end. */
static bool wait_for(struct screen *screen, int64_t ns)
{
    int64_t deadline_ns = clock_now_ns() + ns, left_ns;

    while ((left_ns = deadline_ns - clock_now_ns()) > 0) {
        struct pollfd fds[] = {
            {.fd = screen->signal_fd, .events = POLLIN},
            {.fd = screen->has_keys ? STDIN_FILENO : -1, .events = POLLIN},
        };

        if (poll(fds, ARRAY_SIZE(fds), (int)MIN(left_ns / NS_PER_MS + 1, 1000000)) < 0 &&
            errno != EINTR)
            return false;
        if (fds[0].revents)
            return false;
        if (fds[1].revents && read_end_key(screen))
            return false;
    }
    return !ferror(stdout);
}

static int print(const struct picture *picture, struct strbuf *text, struct error *err)
{
    int r = picture->print(picture->data, text, err);

    return r == 0 && text->failed ? error_set(err, -ENOMEM, "cannot show it: out of memory") : r;
}

int screen_show_once(const struct picture *picture, struct error *err)
{
    struct strbuf text = STRBUF_INIT(picture->text_max);
    int r = print(picture, &text, err);

    if (r == 0)
        (void)fputs(strbuf_text(&text), stdout);
    strbuf_deinit(&text);
    if (r == 0 && fflush(stdout) != 0)
        return error_set(err, -errno, "cannot write: %s", strerror(errno));
    return r;
}

int screen_watch(const struct picture *picture, const struct watch *watch, struct error *err)
{
    struct screen screen;
    uint64_t shown = 0;
    int r = open_screen(&screen, watch->dense, err);

    if (r < 0)
        return r;
    do {
        struct strbuf text = STRBUF_INIT(picture->text_max);

        r = print(picture, &text, err);
        if (r == 0)
            show(&screen, strbuf_text(&text));
        strbuf_deinit(&text);
    } while (r == 0 && ++shown != watch->count && wait_for(&screen, watch->interval_ns));
    close_screen(&screen);
    return r;
}
