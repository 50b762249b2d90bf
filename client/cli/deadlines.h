/* deadlines.h: how long the commands wait without --timeout; docs/deadlines.md has the table. */
#ifndef KILN_CLI_DEADLINES_H
#define KILN_CLI_DEADLINES_H

#define DEADLINE_CLI_MS 30000 /* as in libkiln */
/* The daemon of --check lets a launch take so many times longer. */
#define DEADLINE_CHECK_TIMES 20
#define DEADLINE_CHECK_CALL_MS (DEADLINE_CHECK_TIMES * DEADLINE_CLI_MS)
#define DEADLINE_CHECK_START_MS 30000 /* for the daemon of --check to start */
#define DEADLINE_CHECK_STOP_MS 10000  /* then it is killed */
#define DEADLINE_TOP_MS 5000          /* a silent daemon ends 'kiln top' */
#define DEADLINE_WARM_MS 600000       /* a kernel may wait behind many others */
#define DEADLINE_PACK_MS 3600000      /* a pack may be gigabytes */
#define DEADLINE_RAW_ANSWER_MS 10000  /* for the answer, after the launch's own deadline */
#define PAUSE_CHECK_LOOK_MS 20
#define PAUSE_WARM_TICK_MS 200
#define PAUSE_MONITOR_MS 20 /* between two looks of 'kiln monitor' at what came */
#define PAUSE_TOP_MS 1000   /* default of --interval, and its range */
#define PAUSE_TOP_LEAST_MS 100
#define PAUSE_TOP_MOST_MS 3600000

#endif
