#include "support/child.h"

#include <sys/wait.h>
#include <unistd.h>

int child_run(int (*f)(void *arg), void *arg) {
  int status = 0;
  pid_t pid = fork();
  if (pid < 0)
    return -1;
  if (pid == 0)
    _exit(f(arg));
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
    return -1;
  return WEXITSTATUS(status);
}
