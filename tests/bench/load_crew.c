/* load_crew.c: the other programs: processes with many sessions each, which do as the board says.
 */
#include "load.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_US 2000

struct board {
	_Atomic int turn; /* rises with every order */
	_Atomic int order, done, failed;
	_Atomic uint64_t launches;
	char why[240];
};

struct member {
	struct board *board;
	struct seat *seats;
	int count;
};

/* All sessions have one under way at once. */
static bool launch_all(struct member *member)
{
	kiln_ticket tickets[256];
	bool good = true;
	for (int i = 0; good && i < member->count; i++)
		good = seat_submit(&member->seats[i], &tickets[i]);
	for (int i = 0; good && i < member->count; i++)
		good = !kiln_wait(member->seats[i].client, tickets[i], LOAD_WAIT_MS);
	member->board->launches += (uint64_t)member->count;
	return good;
}

static bool do_order(struct member *member, const struct runner_options *options, int turn)
{
	struct board *board = member->board;
	enum crew_order order = (enum crew_order)board->order;
	bool good = true;
	for (int i = 0; good && i < member->count; i++) {
		struct seat *seat = &member->seats[i];
		if (order == CREW_CONNECT)
			good = seat_open(seat, options->socket, options->device);
		else if (order == CREW_SETTLE)
			good = seat_settle(seat);
		else if (order == CREW_LEAVE)
			seat_close(seat);
	}
	if (good && order == CREW_LAUNCH)
		good = launch_all(member);
	if (good)
		board->done++;
	while (good && order == CREW_LAUNCH && board->turn == turn)
		good = launch_all(member);
	return good;
}

static _Noreturn void be_member(const struct runner_options *options, struct board *board,
								int count)
{
	struct member member = {board, calloc((size_t)count, sizeof(struct seat)), count};
	int turn = 0;
	bool good = member.seats != NULL;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (good) {
		while (board->turn == turn)
			usleep(LOOK_US);
		turn = board->turn;
		good = do_order(&member, options, turn);
		if (good && board->order == CREW_LEAVE)
			_exit(0);
	}
	snprintf(board->why, sizeof(board->why), "%s", kiln_errmsg());
	board->failed++;
	_exit(1);
}

bool crew_start(struct crew *crew, const struct runner_options *options,
				const struct load_scale *scale)
{
	int left = scale->sessions - 1;
	crew->board =
		mmap(NULL, sizeof(*crew->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (crew->board == MAP_FAILED) {
		perror("mmap");
		return false;
	}
	crew->processes = scale->processes;
	fflush(NULL);
	for (int p = 0; p < crew->processes; p++) {
		int count = left / (crew->processes - p);
		left -= count;
		crew->pids[p] = fork();
		if (crew->pids[p] == 0)
			be_member(options, crew->board, count);
	}
	return true;
}

bool crew_do(struct crew *crew, enum crew_order order)
{
	struct board *board = crew->board;
	double until = runner_now_us() + LOAD_WAIT_MS * 1e3;
	board->done = 0;
	board->order = (int)order;
	board->turn++;
	while (board->done < crew->processes && !board->failed && runner_now_us() < until)
		usleep(LOOK_US);
	if (board->done >= crew->processes)
		return true;
	runner_fail("the other programs", "order %d: %s", (int)order,
				board->failed ? board->why : "they are not done in time");
	return false;
}

uint64_t crew_launches(const struct crew *crew)
{
	return crew->board->launches;
}

void crew_end(struct crew *crew)
{
	for (int p = 0; p < crew->processes; p++) {
		if (crew->board->order != CREW_LEAVE)
			kill(crew->pids[p], SIGKILL);
		waitpid(crew->pids[p], NULL, 0);
	}
	munmap(crew->board, sizeof(*crew->board));
}
