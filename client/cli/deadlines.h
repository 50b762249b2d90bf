/* deadlines.h: how long the commands wait where --timeout has not said; docs/deadlines.md has
 * the table. */
#ifndef KILN_CLI_DEADLINES_H
#define KILN_CLI_DEADLINES_H

#define DEADLINE_CLI_MS 30000 /* the library's, too */
/* How many times as long as it is told the daemon of --check lets a launch take. */
#define DEADLINE_CHECK_TIMES 20
#define DEADLINE_CHECK_CALL_MS (DEADLINE_CHECK_TIMES * DEADLINE_CLI_MS)
#define DEADLINE_CHECK_START_MS 30000 /* of the daemon that --check starts */
#define DEADLINE_CHECK_STOP_MS 10000  /* then it is killed */
#define DEADLINE_TOP_MS 5000          /* nobody watches a daemon that is silent for longer */
#define DEADLINE_WARM_MS 600000       /* a kernel may wait for many others */
#define DEADLINE_PACK_MS 3600000      /* a pack may be gigabytes */
#define DEADLINE_RAW_ANSWER_MS 10000  /* after the launch's own, for the answer */
#define PAUSE_CHECK_LOOK_MS 20
#define PAUSE_WARM_TICK_MS 200
#define PAUSE_TOP_MS 1000 /* without --interval, and what that may be */
#define PAUSE_TOP_LEAST_MS 100
#define PAUSE_TOP_MOST_MS 3600000

#endif
