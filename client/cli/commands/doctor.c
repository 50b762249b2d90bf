/*
 * doctor.c: 'kiln doctor': what is wrong on this host, and what to do about it.  It asks the daemon
 * if one answers, and looks at the host by itself; it changes nothing.
 */
#include "client/cli/daemon.h"

#include "client/cli/json.h"
#include "client/cli/member.h"
#include "client/cli/sink.h"
#include "client/cli/table.h"
#include "client/wire/plain.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FINDINGS_MOST 64
#define FREE_LEAST (256u << 20) /* bytes of a disk: some thousand kernels */
#define FILES_LEAST 256         /* descriptors of a process that lends buffers */

enum state { FINE, LOOK, WRONG };
static const char *const state_names[] = {"fine", "look", "wrong"};

struct finding {
	enum state state;
	const char *about;
	char words[500], remedy[200];
};

static struct {
	struct finding list[FINDINGS_MOST];
	int count;
	bool gpu; /* this host has a driver for one */
} found;

/* remedy: "": nothing is to be done. */
__attribute__((format(printf, 4, 5))) static void find(enum state state, const char *about,
													   const char *remedy, const char *format, ...)
{
	va_list list;
	if (found.count == FINDINGS_MOST)
		return;
	struct finding *finding = &found.list[found.count++];
	finding->state = state;
	finding->about = about;
	snprintf(finding->remedy, sizeof(finding->remedy), "%s", remedy);
	va_start(list, format);
	vsnprintf(finding->words, sizeof(finding->words), format, list);
	va_end(list);
	plain_clean(finding->words, sizeof(finding->words), PLAIN_LINE);
}

/* ---- The host ---- */

static void look_at_driver(void)
{
	static const char path[] = "/proc/driver/nvidia/version", device[] = "/dev/nvidia0";
	static const char memory[] = "/dev/nvidia-uvm";
	char line[256] = "";
	FILE *file = fopen(path, "re");
	if (file) {
		if (!fgets(line, sizeof(line), file))
			line[0] = 0;
		fclose(file);
		line[strcspn(line, "\n")] = 0;
	}
	found.gpu = line[0] != 0;
	if (!found.gpu)
		find(LOOK, "driver", "where there is a GPU, install NVIDIA's driver",
			 "no NVIDIA driver is loaded: only device cpu can be served");
	else if (access(device, F_OK) == 0 && access(device, R_OK | W_OK) != 0)
		find(WRONG, "driver", "give this user the device files' group",
			 "uid %u may not open %s: %s", (unsigned)getuid(), device, strerror(errno));
	else
		find(FINE, "driver", "", "%s", line);
	/* A program that may not load modules, such as a service, cannot make it. */
	if (found.gpu && access(memory, F_OK) != 0)
		find(LOOK, "driver", "nvidia-smi, or nvidia-modprobe -u, once after the start of the host",
			 "there is no %s: only a program that may load modules can use CUDA", memory);
}

/* The daemon of the packages' system service. */
static void look_at_system(const struct cli *cli)
{
	static const char path[] = "/run/kiln/kiln.sock";
	const char *named = getenv("KILN_SOCKET");
	if (access(path, F_OK) != 0)
		return;
	if (access(path, W_OK) != 0)
		find(LOOK, "socket", "adduser USER kiln, as root; then log in again",
			 "this user may not connect to the system's daemon at %s", path);
	else if (!cli->socket && (!named || !named[0]))
		find(LOOK, "socket", "export KILN_SOCKET=/run/kiln/kiln.sock",
			 "the system's daemon is at %s, and is not the one that is asked", path);
}

static void look_at_mps(void)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[512];
	snprintf(path, sizeof(path), "%s/control", directory ? directory : "/tmp/nvidia-mps");
	if (access(path, F_OK) == 0)
		find(LOOK, "MPS",
			 "a fault in one program of MPS ends them all; kilnd needs none to share a GPU",
			 "an MPS server may run here (%s)", path);
}

static void look_at_limits(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < FILES_LEAST)
		find(LOOK, "limits", "ulimit -n 1024",
			 "a process may have %llu descriptors here; each lent buffer takes one",
			 (unsigned long long)files.rlim_cur);
}

/* ---- The daemon ---- */

static void look_at_server(const kiln_reply *reply)
{
	const char *version = member_str(reply, "server.version");
	const char *program = member_str(reply, "server.program");
	find(FINE, "daemon", "", "kilnd %s, pid %" PRId64 ", answers at %s", version,
		 member_int(reply, "server.pid"), member_str(reply, "server.socket"));
	if (strcmp(version, KILN_VERSION_STRING) != 0)
		find(LOOK, "version", "restart kilnd after an upgrade",
			 "kiln is %s and kilnd %s: each has what the older one knows", KILN_VERSION_STRING,
			 version);
	if (strcmp(program, "current") != 0)
		find(LOOK, "version", "restart kilnd", "the file of kilnd that runs is %s: %s", program,
			 member_str(reply, "server.path"));
	if (member_int(reply, "server.draining"))
		find(LOOK, "daemon", "start it again when it has ended", "kilnd is shutting down");
}

static void look_at_compiler(const kiln_reply *reply, const char *member, const char *about,
							 bool needed, const char *remedy)
{
	const char *text = member_str(reply, "workers.%s", member);
	size_t length = strcspn(member, "_");
	if (!text[0])
		find(FINE, about, "", "has not been asked for yet");
	else if (!strncmp(text, member, length) && text[length] == ' ')
		find(FINE, about, "", "%s", text);
	else
		find(needed ? WRONG : LOOK, about, remedy, "%s", text);
}

/* A device that is not there has no process, and look_at_devices() has said why. */
static void look_at_executors(const kiln_reply *reply, const char *device, bool present)
{
	for (int i = 0; i < member_count(reply, "executors"); i++) {
		const char *state = member_str(reply, "executors[%d].state", i);
		if (strcmp(member_str(reply, "executors[%d].device", i), device) != 0 ||
			!strcmp(state, "ready") || (!present && !strcmp(state, "stopped")))
			continue;
		find(strcmp(state, "starting") != 0 ? WRONG : LOOK, "device", "kiln faults show",
			 "the process of %s is %s: %s", device, state,
			 member_str(reply, "executors[%d].reason", i));
	}
}

static void look_at_cache(const kiln_reply *reply)
{
	const char *directory = member_str(reply, "cache.directory");
	const char *trouble = member_str(reply, "cache.trouble");
	char room[FIGURE_MAX] = "";
	struct statvfs disk;
	if (trouble[0])
		find(WRONG, "cache", "kernels are kept in memory until it is mended", "%s", trouble);
	else if (statvfs(directory, &disk) != 0)
		find(LOOK, "cache", "", "%s cannot be looked at: %s", directory, strerror(errno));
	else if ((uint64_t)disk.f_bavail * disk.f_frsize < FREE_LEAST)
		find(WRONG, "cache", "kiln cache trim, or --cache-dir on another disk",
			 "%s has only %s left", directory,
			 figure_bytes((uint64_t)disk.f_bavail * disk.f_frsize, room));
	else
		find(FINE, "cache", "", "%" PRId64 " kernel%s in %s, %s left on its disk",
			 member_int(reply, "cache.rows"), member_int(reply, "cache.rows") == 1 ? "" : "s",
			 directory, figure_bytes((uint64_t)disk.f_bavail * disk.f_frsize, room));
	if (member_int(reply, "cache.quarantined") || member_int(reply, "cache.set_aside"))
		find(LOOK, "cache", "kiln cache verify",
			 "%" PRId64 " damaged rows and %" PRId64 " databases were put aside",
			 member_int(reply, "cache.quarantined"), member_int(reply, "cache.set_aside"));
}

static void look_at_safety(const kiln_reply *reply)
{
	const char *mode = member_str(reply, "sandbox.mode");
	const char *lacks = member_str(reply, "sandbox.lacks");
	if (lacks[0] || !strcmp(mode, "off"))
		find(LOOK, "sandbox", "docs/operations.md has what a kernel of another user could do",
			 "mode %s%s%s", mode, lacks[0] ? ", lacks " : "", lacks);
	else
		find(FINE, "sandbox", "", "mode %s, nothing is lacking", mode);
	for (int i = 0; i < member_count(reply, "identities"); i++)
		if (!member_int(reply, "identities[%d].holds", i))
			find(WRONG, "counters", "kiln bugreport, and send it", "they disagree: %s",
				 member_str(reply, "identities[%d].text", i));
	int64_t faults = member_int(reply, "counters.faults");
	if (faults)
		find(LOOK, "faults", "kiln faults ls",
			 "%" PRId64 " process%s of kilnd %s ended by a fault since it began", faults,
			 faults == 1 ? "" : "es", faults == 1 ? "has" : "have");
	if (!strcmp(member_str(reply, "remote.breaker"), "open"))
		find(LOOK, "remote", "kilnd goes on without it, and tries again",
			 "the cache of many hosts does not answer: %s", member_str(reply, "remote.reason"));
}

static void look_at_devices(kiln_client *client, const kiln_reply *info)
{
	kiln_reply *reply;
	bool gpu = false;
	if (kiln_request(client, "devices", NULL, 0, &reply)) {
		find(WRONG, "device", "", "%s", kiln_errmsg());
		return;
	}
	for (int i = 0; i < member_count(reply, "rows"); i++) {
		const char *name = member_str(reply, "rows[%d].name", i);
		bool present = !strcmp(member_str(reply, "rows[%d].state", i), "present");
		if (present)
			find(FINE, "device", "", "%s is %s, %s", name, member_str(reply, "rows[%d].model", i),
				 member_str(reply, "rows[%d].target", i));
		else
			find(found.gpu ? WRONG : LOOK, "device", "", "%s is %s: %s", name,
				 member_str(reply, "rows[%d].state", i), member_str(reply, "rows[%d].reason", i));
		look_at_executors(info, name, present);
		gpu = gpu || !strncmp(name, "cuda", 4);
	}
	if (found.gpu && !gpu)
		find(LOOK, "device", "kilnd --device auto", "this host has a GPU, and kilnd serves none");
	kiln_reply_free(reply);
}

/* Where a daemon is there, another one would not start; other refusals say what helps. */
static const char *remedy_of(int status)
{
	return status == KILN_ECONN ? "start one: kilnd, or systemctl --user start kilnd"
		   : status == KILN_ETIMEDOUT
			   ? "let it run if it is stopped (kill -CONT), else end it; then "
				 "start one"
			   : "";
}

static void look_at_daemon(const struct cli *cli)
{
	/* The daemon as it is: a device would be asked for its process. */
	const kiln_connect_options options = {.size = sizeof(options),
										  .socket = cli->socket,
										  .device = "none",
										  .timeout_ms = cli->timeout_ms,
										  .flags = cli->connect_flags};
	kiln_client *client;
	kiln_reply *reply;
	int status = kiln_connect(&options, &client);
	if (status) {
		find(WRONG, "daemon", remedy_of(status), "%s", kiln_errmsg());
		return;
	}
	if (kiln_request(client, "info", NULL, 0, &reply)) {
		find(WRONG, "daemon", "kiln bugreport", "%s", kiln_errmsg());
		kiln_close(client);
		return;
	}
	look_at_server(reply);
	look_at_devices(client, reply);
	look_at_compiler(reply, "nvrtc", "NVRTC", found.gpu,
					 "install the CUDA toolkit's NVRTC, or name its directory in KILN_CUDA_DIR");
	look_at_compiler(reply, "host", "C++", false, "install g++ or clang++ for device cpu");
	look_at_cache(reply);
	look_at_safety(reply);
	kiln_reply_free(reply);
	kiln_close(client);
}

/* ---- The command ---- */

static void print_findings(void)
{
	for (int i = 0; i < found.count; i++) {
		const struct finding *finding = &found.list[i];
		sink_style(SINK_GREEN + finding->state);
		printf("%-6s", state_names[finding->state]);
		sink_style(SINK_PLAIN);
		printf(" %-9s %s\n", finding->about, finding->words);
		if (finding->remedy[0])
			printf("%17sto do: %s\n", "", finding->remedy);
	}
}

static void write_findings(void)
{
	json_begin();
	json_list_begin("findings");
	for (int i = 0; i < found.count; i++) {
		json_item_begin();
		json_string("state", state_names[found.list[i].state]);
		json_string("about", found.list[i].about);
		json_string("words", found.list[i].words);
		json_string("remedy", found.list[i].remedy);
		json_item_end();
	}
	json_list_end();
	json_end();
}

static int cli_doctor(struct cli *cli)
{
	look_at_driver();
	look_at_mps();
	look_at_system(cli);
	look_at_limits();
	look_at_daemon(cli);
	if (cli->json)
		write_findings();
	else
		print_findings();
	for (int i = 0; i < found.count; i++)
		if (found.list[i].state == WRONG)
			return CLI_FAILED;
	return CLI_OK;
}

static const struct cli_example doctor_examples[] = {
	{"kiln doctor", "before the first call, or when something does not work"}, {0}};

const struct cli_command command_doctor = {"doctor", cli_doctor, "",
										   "what is wrong on this host, and what to do about it",
										   .examples = doctor_examples};
