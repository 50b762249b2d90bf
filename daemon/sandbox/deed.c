/* deed.c: words for a forbidden system call of a kernel.  A signal handler calls it. */
#include "sandbox.h"

#include <sys/syscall.h>

const char *sandbox_deed(int system_call)
{
	switch (system_call) {
#ifdef SYS_open
	case SYS_open:
	case SYS_creat:
#endif
	case SYS_openat:
		return "opens a file";
	case SYS_socket:
	case SYS_socketpair:
	case SYS_connect:
	case SYS_bind:
	case SYS_listen:
		return "uses a socket";
	case SYS_execve:
	case SYS_execveat:
		return "starts a program";
#ifdef SYS_fork
	case SYS_fork:
	case SYS_vfork:
#endif
	case SYS_clone:
#ifdef SYS_clone3
	case SYS_clone3:
#endif
		return "starts a process or thread";
	case SYS_kill:
	case SYS_tkill:
	case SYS_tgkill:
	case SYS_rt_sigqueueinfo:
		return "sends a signal";
	case SYS_ptrace:
	case SYS_process_vm_readv:
	case SYS_process_vm_writev:
		return "looks into another process";
	case SYS_read:
	case SYS_recvfrom:
	case SYS_recvmsg:
		return "reads a descriptor that is not its own";
	case SYS_write:
	case SYS_writev:
	case SYS_sendto:
	case SYS_sendmsg:
		return "writes to a descriptor that is not its own";
	default:
		return "makes a system call";
	}
}
