/* executor_misdeed: does wrong what a test asks for, in place of the step that the test names. */
#include "executor.h"
#include "executor_lane.h"

#include <stdio.h>
#include <string.h>

int exec_misdeed_arm(struct launcher *launcher, struct exec_request *request)
{
	struct exec *executor = launcher->executor;
	const char *at = wire_get_str(request->message, request->root, "at");
	executor->misdeed = (enum misdeed)wire_get_int(request->root, "what", MISDEED_NONE);
	snprintf(executor->misdeed_at, sizeof(executor->misdeed_at), "%s", at ? at : "");
	return KILN_OK;
}

/* Writes nonsense into the cells of all entries that do not fly: a status that does not exist,
 * and a text without an end. */
static void spoil_cells(const struct exec_lane *lane)
{
	for (uint32_t i = 0; i < LANE_ENTRIES; i++) {
		struct lane_cell *cell = &lane->memory->cells[i];
		if (lane->slots[i].state == SLOT_FLYING)
			continue;
		cell->status = INT32_MIN;
		cell->micros = UINT64_MAX;
		memset(cell->error, '%', sizeof(cell->error));
		atomic_store(&lane->memory->gates[i].done, UINT32_MAX);
		atomic_store(&cell->done, UINT64_MAX);
	}
}

bool exec_misdeed_done(struct launcher *launcher, const char *step, uint64_t id)
{
	struct exec *executor = launcher->executor;
	enum misdeed misdeed = executor->misdeed;
	if (strcmp(executor->misdeed_at, step) != 0)
		return false;
	executor->misdeed = MISDEED_NONE;
	for (const struct exec_lane *lane = launcher->lanes; lane && misdeed == MISDEED_CELLS;
		 lane = lane->next)
		spoil_cells(lane);
	return misdeed == MISDEED_CELLS || misdeed_do(misdeed, executor->sock, "reply", id);
}
