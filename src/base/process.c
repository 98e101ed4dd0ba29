#include "base/process.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

#define HOST_MAX    64
#define PROGRAM_MAX 32

/* The fields of /proc/<pid>/stat that matter. start: clock ticks since boot. */
struct stat_line {
  int pid;
  char state;
  long threads;
  uint64_t start;
};

/* --- /proc --------------------------------------------------------------------------------- */

/* Reads a small file into buf, NUL-terminated. False with errno. */
static bool read_file(const char *path, char *buf, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  size_t n = 0;
  ssize_t got = 1;
  while (n < size - 1 && got != 0) {
    got = read(fd, buf + n, size - 1 - n);
    if (got < 0 && errno != EINTR)
      break;
    n += got > 0 ? (size_t)got : 0;
  }
  int saved = errno;
  close(fd);
  errno = saved;
  buf[n] = '\0';
  return got >= 0;
}

/* "pid (comm) S ppid ...": comm may hold blanks and parentheses, so what follows starts after the
 * last ')'. */
static bool parse_stat(const char *line, struct stat_line *out) {
  const char *p = strrchr(line, ')');
  if (sscanf(line, "%d (", &out->pid) != 1 || !p)
    return false;
  return sscanf(
             p + 1,
             " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %" SCNu64,
             &out->state, &out->threads, &out->start) == 3;
}

static bool read_stat(int pid, struct stat_line *out) {
  char path[40], line[2048];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  if (!read_file(path, line, sizeof line))
    return false;
  if (!parse_stat(line, out)) {
    errno = EPROTO;
    return false;
  }
  return true;
}

/* --- identity ------------------------------------------------------------------------------ */

static int self_once; /* guards self_text; the child of a fork writes it anew */
static char self_text[MSG_PROCESS_ID_MAX];

/* The number in "pid:[4026531836]", else "-". */
static void read_namespace(char out[24]) {
  char link[64];
  uint64_t number;
  ssize_t n = readlink("/proc/self/ns/pid", link, sizeof link - 1);
  link[n > 0 ? n : 0] = '\0';
  if (sscanf(link, "pid:[%" SCNu64 "]", &number) == 1)
    snprintf(out, 24, "%" PRIu64, number);
  else
    snprintf(out, 24, "-");
}

static void read_boot_id(char out[40]) {
  if (!read_file("/proc/sys/kernel/random/boot_id", out, 40))
    out[0] = '\0';
  out[strcspn(out, "\n:")] = '\0';
  if (!out[0])
    snprintf(out, 40, "-");
}

static void build_self(void) {
  char boot[40], ns[24];
  struct stat_line st = {0};
  int pid = msg_process_pid();
  read_boot_id(boot);
  read_namespace(ns);
  /* A /proc of another namespace shows us under another number: then it says nothing of our
   * pids. */
  if (!read_stat(pid, &st) || st.pid != pid)
    st.start = 0;
  snprintf(self_text, sizeof self_text, "%s:%s:%d:%" PRIu64, boot, ns, pid, st.start);
}

const char *msg_process_self(void) {
  msg_once_per_fork(&self_once, build_self);
  return self_text;
}

/* Bytes of "boot:namespace:" at the head of an identity; 0: malformed. */
static size_t machine_prefix(const char *identity) {
  const char *colon = strchr(identity, ':');
  colon = colon ? strchr(colon + 1, ':') : NULL;
  return colon ? (size_t)(colon - identity) + 1 : 0;
}

static bool parse_tail(const char *tail, int *pid, uint64_t *start) {
  char *end;
  if (!isdigit((unsigned char)tail[0]))
    return false;
  errno = 0;
  long number = strtol(tail, &end, 10);
  if (errno != 0 || number <= 0 || number > INT_MAX || *end != ':' ||
      !isdigit((unsigned char)end[1]))
    return false;
  *start = strtoull(end + 1, &end, 10);
  *pid = (int)number;
  return errno == 0 && *end == '\0';
}

enum msg_liveness msg_process_liveness(const char *identity) {
  const char *self = msg_process_self();
  size_t n = identity ? machine_prefix(identity) : 0;
  int pid;
  uint64_t start;
  if (n == 0 || strncmp(identity, self, n) != 0 || strncmp(identity, "-:", 2) == 0 ||
      strstr(identity, ":-:") || !parse_tail(identity + n, &pid, &start) || start == 0)
    return MSG_UNKNOWN;

  struct stat_line st;
  if (!read_stat(pid, &st)) {
    /* Under hidepid, /proc keeps silent about the processes of others; kill does not. */
    return kill(pid, 0) != 0 && errno == ESRCH ? MSG_DEAD : MSG_UNKNOWN;
  }
  if (st.start != start)
    return MSG_DEAD; /* the number was given to another process */
  /* A leader that ended before its threads looks like a zombie, with the others counted. */
  bool gone = st.state == 'X' || st.state == 'x' || (st.state == 'Z' && st.threads <= 1);
  return gone ? MSG_DEAD : MSG_ALIVE;
}

/* --- names --------------------------------------------------------------------------------- */

static int names_once;
static char host_name[HOST_MAX + 1];
static char program_name[PROGRAM_MAX + 1];

/* Only [a-z0-9-.]: what every store and a sender id can carry. */
static void fold_name(char *out, size_t max, const char *name) {
  size_t n = 0;
  for (; name && name[n] && n < max; n++) {
    char c = name[n];
    if (c >= 'A' && c <= 'Z')
      c = (char)(c - 'A' + 'a');
    bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    out[n] = plain ? c : '-';
  }
  out[n] = '\0';
  if (n == 0)
    snprintf(out, max, "unknown");
}

static void build_names(void) {
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) != 0)
    host[0] = '\0';
  fold_name(host_name, HOST_MAX, host);
#ifdef __APPLE__
  fold_name(program_name, PROGRAM_MAX, getprogname());
#else
  fold_name(program_name, PROGRAM_MAX, program_invocation_short_name);
#endif
}

const char *msg_process_host(void) {
  msg_once(&names_once, build_names);
  return host_name;
}

const char *msg_process_program(void) {
  msg_once(&names_once, build_names);
  return program_name;
}

int msg_process_pid(void) {
  return (int)getpid();
}

const char *msg_process_env(const char *name) {
  return getenv(name);
}

/* --- randomness ---------------------------------------------------------------------------- */

/* Where the kernel gives nothing (an old one, a tight seccomp filter): time, pid and address, mixed
 * (splitmix64). Enough to keep ids apart, and nothing here is a secret. */
static void weak_random(uint8_t *out, unsigned n) {
  struct timespec ts = {0};
  clock_gettime(CLOCK_REALTIME, &ts);
  uint64_t x = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
  x ^= (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)out;
  for (unsigned i = 0; i < n; i++) {
    uint64_t z = (x += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    out[i] = (uint8_t)(z >> 56 ^ z);
  }
}

void msg_process_random(void *out, unsigned n) {
  uint8_t *bytes = out;
  for (unsigned done = 0, part; done < n; done += part) {
    part = n - done < 256 ? n - done : 256; /* getentropy gives no more at once */
    if (getentropy(bytes + done, part) != 0)
      weak_random(bytes + done, part);
  }
}
