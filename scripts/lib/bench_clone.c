/* The least that a launch can cost: makes the namespaces of a native sandbox, mounts the host's
 * programs, a /proc, a /dev and the working directory in a new root, and runs a command there. It
 * has none of sandpen's checks, records, limits or filters.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOT "/tmp"

static char working_directory[4096];
static uid_t uid;
static gid_t gid;

static void check(int result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);
	check(file, path);
	check(write(file, text, strlen(text)), path);
	close(file);
}

static void map_ids(void)
{
	char line[64];
	put("/proc/self/setgroups", "deny");
	snprintf(line, sizeof line, "%u %u 1", uid, uid);
	put("/proc/self/uid_map", line);
	snprintf(line, sizeof line, "%u %u 1", gid, gid);
	put("/proc/self/gid_map", line);
}

static void make_directories(const char *path)
{
	char copy[4096 + sizeof ROOT];
	snprintf(copy, sizeof copy, "%s", path);
	for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(copy, 0755);
		*slash = '/';
	}
	mkdir(copy, 0755);
}

static void bind(const char *source, unsigned long flags)
{
	char target[4096 + sizeof ROOT];
	snprintf(target, sizeof target, ROOT "%s", source);
	make_directories(target);
	check(mount(source, target, NULL, MS_BIND | MS_REC, NULL), source);
	if (flags)
		check(mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | flags, NULL), source);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		errx(2, "usage: bench_clone COMMAND...");
	uid = getuid();
	gid = getgid();
	if (!getcwd(working_directory, sizeof working_directory))
		err(1, "getcwd");
	unsigned long flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | SIGCHLD;
	int is_root = uid == 0;
	if (!is_root)
		flags |= CLONE_NEWUSER;
	long child = syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
	check(child, "clone");
	if (child) {
		int status;
		check(waitpid(child, &status, 0), "waitpid");
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	if (!is_root)
		map_ids();
	check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
	int here = open(working_directory, O_PATH | O_CLOEXEC);
	check(here, "working directory");
	check(mount("tmpfs", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"), "root");
	bind("/usr", MS_RDONLY);
	for (const char **link = (const char *[]){"bin", "lib", "lib64", NULL}; *link; link++) {
		char target[64], place[64];
		snprintf(target, sizeof target, "usr/%s", *link);
		snprintf(place, sizeof place, ROOT "/%s", *link);
		check(symlink(target, place), place);
	}
	bind("/dev", 0);
	check(mkdir(ROOT "/proc", 0555), "proc");
	check(mount("proc", ROOT "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "proc");
	char source[64], target[4096 + sizeof ROOT];
	snprintf(source, sizeof source, "/proc/self/fd/%d", here);
	snprintf(target, sizeof target, ROOT "%s", working_directory);
	make_directories(target);
	check(mount(source, target, NULL, MS_BIND | MS_REC, NULL), "working directory");
	check(chdir(ROOT), "new root");
	check(syscall(SYS_pivot_root, ".", "."), "pivot_root");
	check(umount2(".", MNT_DETACH), "old root");
	if (is_root) {
		check(unshare(CLONE_NEWUSER), "user namespace");
		map_ids();
	}
	check(chdir(working_directory), "working directory");
	execvp(argv[1], argv + 1);
	err(127, "%s", argv[1]);
}
