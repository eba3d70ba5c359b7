/* Opens and makes device nodes on request, one line each, and says with which error: 0 when it could.

   open r|w|rw PATH      mknod c|b MAJOR MINOR PATH (removed again)      pid */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int try_open(const char *how, const char *path)
{
	int flags = !strcmp(how, "rw") ? O_RDWR : !strcmp(how, "w") ? O_WRONLY : O_RDONLY;
	int node = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (node < 0)
		return errno;
	close(node);
	return 0;
}

static int try_mknod(char kind, unsigned major, unsigned minor, const char *path)
{
	if (mknod(path, (kind == 'b' ? S_IFBLK : S_IFCHR) | 0600, makedev(major, minor)) < 0)
		return errno;
	unlink(path);
	return 0;
}

int main(void)
{
	char line[4096], how[8], path[4000], kind;
	unsigned major, minor;

	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "open %7s %3999s", how, path) == 2)
			printf("%d\n", try_open(how, path));
		else if (sscanf(line, "mknod %c %u %u %3999s", &kind, &major, &minor, path) == 4)
			printf("%d\n", try_mknod(kind, major, minor, path));
		else
			printf("%d\n", (int)getpid());
		fflush(stdout);
	}
	return 0;
}
