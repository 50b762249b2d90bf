/* fault.c: decides whether a fault gets a report.  Two faults are the same if kind, device, uid and
 * the words of their sentences are, whatever the numbers in them. */
#include "fault.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

/* A report or a count that the store's thread writes. */
struct writing {
	char directory[PATH_MAX], id[FAULT_ID_MAX], error[KERNEL_ERROR_MAX];
	char *text; /* NULL: it writes the count alone */
	uint64_t times;
	int64_t when;
	int status;
	struct fault_recent *recent; /* whose report it is; in use for this one while the id is */
};

/* ---- Writing ---- */

static void write_work(struct cache *cache, void *arg)
{
	struct writing *writing = arg;
	(void)cache;
	if (writing->text)
		writing->status =
			fault_file_write(writing->directory, writing->id, writing->text, writing->error);
	else
		writing->status = fault_file_count(writing->directory, writing->id, writing->times,
										   writing->when, writing->error);
}

static void count_again(struct broker *broker, struct fault_recent *recent);

static void write_done(struct broker *broker, void *arg)
{
	struct writing *writing = arg;
	struct fault_recent *recent = writing->recent;
	struct counters *counters = &broker->counters;
	if (writing->text) {
		broker->faults.writing--;
		*(writing->status == KILN_OK ? &counters->fault_reports : &counters->fault_failures) += 1;
	}
	if (writing->status != KILN_OK)
		util_log(UTIL_WARN, "%s", writing->error);
	/* The fault may have happened again meanwhile. */
	if (recent && !strcmp(recent->id, writing->id)) {
		recent->telling = false;
		if (writing->status == KILN_OK && recent->times > writing->times)
			count_again(broker, recent);
	}
	free(writing->text);
	free(writing);
}

/* Takes over text, also when it fails. */
static bool start_writing(struct broker *broker, const char *id, char *text, uint64_t times,
						  struct fault_recent *recent)
{
	struct writing *writing = calloc(1, sizeof(*writing));
	if (!writing) {
		free(text);
		return false;
	}
	fault_directory(broker->options.cache_dir, writing->directory);
	memcpy(writing->id, id, sizeof(writing->id));
	writing->text = text;
	writing->times = times;
	writing->when = util_wall_s();
	writing->recent = recent;
	if (store_run(broker, write_work, write_done, writing) == KILN_OK)
		return true;
	free(text);
	free(writing);
	return false;
}

static void count_again(struct broker *broker, struct fault_recent *recent)
{
	recent->telling = start_writing(broker, recent->id, NULL, recent->times, recent);
}

/* ---- Recognizing faults ---- */

static uint64_t fault_hash_of(const struct fault *fault)
{
	const char *device = fault->handle ? handle_device(fault->handle)->info.name : "";
	unsigned char digest[32];
	struct util_hash hash;
	uint64_t number;
	util_hash_begin(&hash);
	util_hash_add(&hash, &fault->kind, sizeof(fault->kind));
	util_hash_add(&hash, &fault->uid, sizeof(fault->uid));
	util_hash_add(&hash, device, strlen(device) + 1);
	for (const char *at = fault->sentence; *at; at++)
		if (!isdigit((unsigned char)*at))
			util_hash_add(&hash, at, 1);
	if (fault->job)
		util_hash_add(&hash, fault->job->instantiation, strlen(fault->job->instantiation));
	util_hash_end(&hash, digest);
	memcpy(&number, digest, sizeof(number));
	return number | 1;
}

/* Returns the place of a fault that is known, or else a place for a new one: the one unused for
 * longest. */
static struct fault_recent *fault_find(struct faults *faults, uint64_t alike, uint64_t now)
{
	struct fault_recent *oldest = &faults->recent[0];
	for (int i = 0; i < FAULT_RECENT; i++) {
		struct fault_recent *recent = &faults->recent[i];
		if (recent->alike == alike && now - recent->last_us < PAUSE_FAULT_ALIKE_US)
			return recent;
		if (recent->last_us < oldest->last_us)
			oldest = recent;
	}
	oldest->alike = 0;
	return oldest;
}

/* Bounds the reports of a storm of different faults. */
static bool may_write(struct faults *faults, uint64_t now)
{
	uint64_t refills = (now - faults->refilled_us) / PAUSE_FAULT_REPORT_US;
	if (refills) {
		faults->spent -= refills < faults->spent ? refills : faults->spent;
		faults->refilled_us = now;
	}
	if (faults->spent >= FAULT_BURST)
		return false;
	faults->spent++;
	return true;
}

/* Makes the next id.  Ids sort by time, also within one second and across daemons. */
static void name(struct faults *faults, int64_t when, char id[FAULT_ID_MAX])
{
	time_t time = (time_t)when;
	struct tm parts = {0};
	uint32_t part = util_wall_part();
	char date[32];
	if (when == faults->named_s && part <= faults->named_part && faults->named_part < 0xffff)
		part = faults->named_part + 1;
	faults->named_s = when;
	faults->named_part = part;
	if (!gmtime_r(&time, &parts) || !strftime(date, sizeof(date), "%Y%m%d-%H%M%S", &parts) ||
		strlen(date) != 15)
		snprintf(date, sizeof(date), "00000000-000000");
	snprintf(id, FAULT_ID_MAX, "%.15s-%04x", date, part & 0xffff);
}

/* Writes the text of a new fault now, for the state of things is that of the fault. */
static bool fault_begin(struct broker *broker, const struct fault *fault,
						struct fault_recent *recent, uint64_t alike)
{
	struct faults *faults = &broker->faults;
	int64_t when = util_wall_s();
	struct util_text text = {0};
	*recent = (struct fault_recent){.alike = alike, .times = 1, .last_us = util_now_us()};
	name(faults, when, recent->id);
	fault_write_text(broker, fault, recent->id, when, &text);
	if (text.failed || !start_writing(broker, recent->id, text.text, 1, recent)) {
		if (text.failed)
			util_text_free(&text);
		*recent = (struct fault_recent){0};
		return false;
	}
	recent->telling = true;
	faults->writing++;
	return true;
}

void fault_report(struct broker *broker, const struct fault *fault, char *text, size_t size)
{
	struct faults *faults = &broker->faults;
	struct counters *counters = &broker->counters;
	uint64_t now = util_now_us(), alike = fault_hash_of(fault);
	struct fault_recent *recent = fault_find(faults, alike, now);
	counters->faults++;
	if (recent->alike) {
		counters->fault_repeats++;
		recent->times++;
		recent->last_us = now;
		if (!recent->telling)
			count_again(broker, recent);
	} else if (!broker->store || !may_write(faults, now) ||
			   !fault_begin(broker, fault, recent, alike)) {
		counters->fault_dropped++;
		return;
	}
	/* `kiln run --check` prints the sentence when its daemon and the reports are gone. */
	if (broker->options.memcheck)
		return;
	util_append(text, size, strlen(text), "; %s: kiln faults show %s",
				fault->uid == getuid() ? "report" : "a report for the daemon's user", recent->id);
}

void fault_now(struct broker *broker, struct util_text *text)
{
	int64_t when = util_wall_s();
	char id[FAULT_ID_MAX];
	name(&broker->faults, when, id);
	fault_write_text(broker, NULL, id, when, text);
}
