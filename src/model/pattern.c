#include <regex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "model/topic.h"

/* libc expands repetitions, and x+ to xx*, before it matches, and relates each position to each
 * other: without limits 40 bytes of pattern take all memory. Positions after expanding, and open
 * groups. */
#define REGEX_POSITIONS_MAX 1000
#define REGEX_DEPTH_MAX     32

struct msg_pattern {
  enum msg_pattern_kind kind;
  regex_t regex; /* MSG_PATTERN_REGEX */
  char text[];
};

typedef int glob_fn(const char *pattern, const char *text);

static _Atomic(glob_fn *) glob_in_use;

void msg_pattern_set_glob(int (*glob)(const char *pattern, const char *text)) {
  atomic_store_explicit(&glob_in_use, glob, memory_order_release);
}

/* --- the size of a regular expression ------------------------------------------------------ */

struct sizer {
  const char *at;
  uint64_t sum[REGEX_DEPTH_MAX + 1]; /* positions of the open groups */
  int depth;
  uint64_t last; /* positions of the last atom, for the repetition that may follow */
  bool repeated; /* the last atom has its repetition */
};

enum size_result {
  SIZE_OK,
  SIZE_TOO_LARGE,
  SIZE_TOO_DEEP,
  SIZE_BACK_REFERENCE,
  SIZE_REPEATED_TWICE
};

/* "[...]", where a ']' may come first and "[:alpha:]" and its kin may stand inside. */
static void skip_bracket(struct sizer *z, const char *open) {
  const char *p = open + 1;
  p += *p == '^';
  p += *p == ']';
  while (*p && *p != ']') {
    if (*p == '[' && p[1] && strchr(":.=", p[1])) {
      char close[] = {p[1], ']', '\0'};
      const char *end = strstr(p + 2, close);
      p = end ? end + 2 : p + 1;
    } else {
      p++;
    }
  }
  z->at = *p ? p + 1 : p;
}

/* Copies that the interval at p asks for: n of {n}, n+1 of {n,}, m of {n,m}; 0: no interval. */
static uint64_t read_interval(const char *p, const char **end) {
  char *rest;
  if (p[1] < '0' || p[1] > '9')
    return 0;
  uint64_t copies = strtoull(p + 1, &rest, 10);
  if (*rest == ',' && rest[1] == '}') {
    copies = copies < UINT32_MAX ? copies + 1 : copies;
    rest++;
  } else if (*rest == ',' && rest[1] >= '0' && rest[1] <= '9') {
    copies = strtoull(rest + 1, &rest, 10);
  }
  if (*rest != '}')
    return 0;
  *end = rest + 1;
  return copies ? copies : 1;
}

static void add_atom(struct sizer *z, uint64_t positions) {
  z->last = positions;
  z->repeated = false;
  z->sum[z->depth] += positions;
}

/* The operator itself takes a place, as a choice or a loop. */
static enum size_result repeat(struct sizer *z, uint64_t copies) {
  if (z->repeated)
    return SIZE_REPEATED_TWICE;
  if (copies > REGEX_POSITIONS_MAX)
    copies = REGEX_POSITIONS_MAX + 1;
  uint64_t more = z->last * (copies - 1) + 1;
  z->sum[z->depth] += more;
  z->last += more;
  z->repeated = true;
  return SIZE_OK;
}

static enum size_result open_group(struct sizer *z) {
  if (++z->depth > REGEX_DEPTH_MAX)
    return SIZE_TOO_DEEP;
  z->sum[z->depth] = 1;
  z->repeated = false;
  return SIZE_OK;
}

static void close_group(struct sizer *z) {
  if (z->depth == 0)
    return; /* regcomp will have its word */
  z->depth--;
  add_atom(z, z->sum[z->depth + 1]);
}

static enum size_result size_step(struct sizer *z) {
  const char *here = z->at++;
  uint64_t copies;
  switch (*here) {
  case '\\':
    if (*z->at >= '1' && *z->at <= '9')
      return SIZE_BACK_REFERENCE;
    z->at += *z->at != '\0';
    break;
  case '[': skip_bracket(z, here); break;
  case '(': return open_group(z);
  case ')': close_group(z); return SIZE_OK;
  case '+': return repeat(z, 2);
  case '*':
  case '?': return repeat(z, 1);
  case '{':
    copies = read_interval(here, &z->at);
    if (copies > 0)
      return repeat(z, copies);
    break;
  default: break;
  }
  add_atom(z, 1);
  return SIZE_OK;
}

static enum size_result regex_size(const char *body) {
  struct sizer z = {.at = body};
  enum size_result r = SIZE_OK;
  while (r == SIZE_OK && *z.at) {
    r = size_step(&z);
    for (int i = 0; r == SIZE_OK && i <= z.depth; i++)
      if (z.sum[i] > REGEX_POSITIONS_MAX)
        r = SIZE_TOO_LARGE;
  }
  return r;
}

static int check_size(const char *body, const char *text, msg_err *err) {
  switch (regex_size(body)) {
  case SIZE_TOO_LARGE:
    return msg_err_set(err, MSG_INVALID,
                       "pattern '%s' expands to more than %d positions: repeat less with {n} and +",
                       msg_show(text).s, REGEX_POSITIONS_MAX);
  case SIZE_TOO_DEEP:
    return msg_err_set(err, MSG_INVALID,
                       "pattern '%s' nests more than %d groups: use fewer parentheses",
                       msg_show(text).s, REGEX_DEPTH_MAX);
  case SIZE_BACK_REFERENCE:
    return msg_err_set(err, MSG_INVALID,
                       "pattern '%s' holds a back-reference, which extended regular expressions "
                       "do not have: spell it out",
                       msg_show(text).s);
  case SIZE_REPEATED_TWICE:
    return msg_err_set(err, MSG_INVALID,
                       "pattern '%s' repeats a repetition: drop one of the two, or put the first "
                       "in parentheses",
                       msg_show(text).s);
  case SIZE_OK: break;
  }
  return MSG_OK;
}

/* --- compiling ----------------------------------------------------------------------------- */

static enum msg_pattern_kind kind_of(const char *text) {
  size_t n = strlen(text);
  if (n > 1 && text[0] == '/' && text[n - 1] == '/')
    return MSG_PATTERN_REGEX;
  return strpbrk(text, "*?[") ? MSG_PATTERN_GLOB : MSG_PATTERN_EXACT;
}

/* A '[' that is never closed matches nothing in SQLite: better said than waited for. */
static int check_glob(const char *text, msg_err *err) {
  for (const char *p = text; (p = strchr(p, '[')) != NULL; p++) {
    p++;
    p += *p == '^';
    p = *p ? strchr(p + 1, ']') : NULL; /* a ']' that comes first is a member */
    if (!p)
      return msg_err_set(err, MSG_INVALID,
                         "pattern '%s' has '[' without ']': close it, or write '[[]' for a "
                         "bracket itself",
                         msg_show(text).s);
  }
  return MSG_OK;
}

static int compile_regex(msg_pattern *p, msg_err *err) {
  char why[128];
  size_t n = strlen(p->text) - 2;
  if (n == 0)
    return msg_err_set(err, MSG_INVALID, "pattern '//' is empty: use '*' for every topic");
  char *body = msg_strndup(p->text + 1, n);
  if (!body)
    return msg_err_nomem(err);
  int rc = check_size(body, p->text, err);
  if (rc == MSG_OK) {
    int failed = regcomp(&p->regex, body, REG_EXTENDED | REG_NOSUB);
    if (failed == REG_ESPACE) {
      rc = msg_err_nomem(err);
    } else if (failed != 0) {
      regerror(failed, &p->regex, why, sizeof why);
      rc = msg_err_set(err, MSG_INVALID,
                       "pattern '%s' is no extended regular expression (%s): correct it, or drop "
                       "the slashes",
                       msg_show(p->text).s, why);
    }
  }
  msg_free(body);
  return rc;
}

int msg_pattern_new(const char *text, msg_pattern **out, msg_err *err) {
  int rc = msg_name_check("pattern", text, MSG_PATTERN_MAX, err);
  if (rc != MSG_OK)
    return rc;
  size_t n = strlen(text);
  msg_pattern *p = msg_zalloc(sizeof *p + n + 1);
  if (!p)
    return msg_err_nomem(err);
  memcpy(p->text, text, n + 1);
  p->kind = kind_of(text);
  switch (p->kind) {
  case MSG_PATTERN_EXACT: rc = msg_topic_check(text, err); break;
  case MSG_PATTERN_GLOB: rc = check_glob(text, err); break;
  case MSG_PATTERN_REGEX: rc = compile_regex(p, err); break;
  }
  if (rc != MSG_OK) {
    msg_free(p); /* not msg_pattern_free: a regex that failed must not be freed */
    return rc;
  }
  *out = p;
  return MSG_OK;
}

void msg_pattern_free(msg_pattern *p) {
  if (p && p->kind == MSG_PATTERN_REGEX)
    regfree(&p->regex);
  msg_free(p);
}

const char *msg_pattern_text(const msg_pattern *p) {
  return p->text;
}

enum msg_pattern_kind msg_pattern_kind_of(const msg_pattern *p) {
  return p->kind;
}

size_t msg_pattern_prefix(const msg_pattern *p) {
  switch (p->kind) {
  case MSG_PATTERN_EXACT: return strlen(p->text);
  case MSG_PATTERN_GLOB: return strcspn(p->text, "*?[");
  default: return 0;
  }
}

bool msg_pattern_match(const msg_pattern *p, const char *topic) {
  glob_fn *glob;
  switch (p->kind) {
  case MSG_PATTERN_EXACT: return strcmp(p->text, topic) == 0;
  case MSG_PATTERN_REGEX: return regexec(&p->regex, topic, 0, NULL, 0) == 0;
  case MSG_PATTERN_GLOB: break;
  }
  glob = atomic_load_explicit(&glob_in_use, memory_order_acquire);
  return glob && glob(p->text, topic) == 0;
}
