/* Preloaded into crun: pretends that the limit of locked memory was raised. Without CAP_SYS_RESOURCE the kernel refuses that, and crun
   then gives up, though since Linux 5.11 eBPF programs count against no such limit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/resource.h>

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limits)
{
	int (*real)(int, const struct rlimit *) = (int (*)(int, const struct rlimit *))dlsym(RTLD_NEXT, "setrlimit");

	return resource == RLIMIT_MEMLOCK ? 0 : real(resource, limits);
}
