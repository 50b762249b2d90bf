/*
 * deadlines.h: every wait in the daemon and its children, but for those that options can set.
 * docs/deadlines.md says of each who waits for whom, and what follows when it passes.
 *
 *   DEADLINE_  ends, gives up or reports something when it passes
 *   PAUSE_     ends nothing: the daemon looks again, tries again, or has done it by then
 */
#ifndef KILN_DAEMON_DEADLINES_H
#define KILN_DAEMON_DEADLINES_H

/* ---- The broker and its clients ---- */

#define DEADLINE_HELLO_MS 10000          /* from a connection to its first message */
#define DEADLINE_CLOSER_MS 2000          /* of descriptors of a uid, before they are fewer again */
#define DEADLINE_CLOSER_SETTLE_US 200000 /* of those that wait, before a child is started */
#define PAUSE_CLOSER_SETTLE_US 200       /* between two looks whether they are closed */
#define PAUSE_CLOSER_TICK_US 5000  /* between two looks whether threads that close need help */
#define PAUSE_CLOSER_HELP_US 20000 /* a descriptor is being closed, before a second thread helps */
#define DEADLINE_SCRAPE_MS 2000 /* from a connection at --metrics to the last byte of its answer */
#define PAUSE_SCRAPE_MS 100     /* before their text is made anew */
#define PAUSE_DRAIN_LOOK_MS 10  /* of a daemon that ends, between two looks at what is left */
#define PAUSE_SERVER_ALONE_MS 500 /* without a session, before memory goes back to the system */
#define PAUSE_SERVER_LOOK_MS 5000 /* whether the socket is still there for others */
#define PAUSE_SERVER_ACCEPT_MS 20 /* while nobody new can be taken in, between two tries */
#define DEADLINE_DATABASE_MS 250  /* for somebody who has the database open with another program */
#define DEADLINE_STORE_MS 2000    /* the disk of the cache answers whoever waits for it */
#define DEADLINE_STORE_END_US 2000000 /* it answers a daemon that ends, when all else is done */
#define PAUSE_STORE_LOOK_MS 5000 /* whether its files are there, and a disk that failed works */
#define PAUSE_DATABASE_AGAIN_US \
	1000000                        /* between two tries to have a database, while there is none */
#define PAUSE_STORE_TEND_MS 5000   /* uses of kernels are written so long after the first of them */
#define PAUSE_FAULT_LOOK_MS 10     /* a test's slow disk, or store, looks whether it still is */
#define PAUSE_OUTPUT_MS 50         /* stderr is full: until more of what children say is read */
#define DEADLINE_OUTPUT_US 1000000 /* stderr takes nothing: what children say is dropped */
#define DEADLINE_LOG_END_MS 1000   /* stderr takes the last lines of a daemon that ends */
#define PAUSE_FAULT_ALIKE_US 600000000 /* after so long without it a fault has a new report */
#define PAUSE_FAULT_REPORT_US 30000000 /* between two reports, once there were many at once */
#define PAUSE_SUSPICION_US 3600000000  /* a sound database is trusted again */
#define PAUSE_UPKEEP_US 1000 /* of one piece of upkeep of the cache; then others have it */

/* ---- Children ---- */

/* A child that works gives a sign of life every eighth of liveness_timeout_ms (options.h), within
 * these. */
#define PAUSE_BEAT_LEAST_MS 10
#define PAUSE_BEAT_MOST_MS 1000
#define DEADLINE_CHILD_END_MS 10000 /* from SIGKILL to its end: the system may hold it */

/* ---- Compiler workers ---- */

#define DEADLINE_WORKER_START_MS 60000 /* from its start to its first message */
#define DEADLINE_COMPILER_ASK_US \
	20000000                        /* a host compiler says who it is, and tries an empty unit */
#define PAUSE_COMPILER_LOOK_US 2000 /* between two looks whether it has */
#define DEADLINE_WORKER_DISMISS_MS 1000 /* to clean up after itself */
#define DEADLINE_WORKER_SEND_MS 30000   /* the broker takes an answer */
#define PAUSE_WORKER_START_FIRST_MS 100 /* before one is started again: so, twice that, ... */
#define PAUSE_WORKER_START_LAST_MS 5000
#define PAUSE_MEMORY_LOOK_MS 200 /* jobs wait for memory, which other programs may give back */
#define PAUSE_JOB_AGAIN_MS 1     /* a job that another job's first step asks for begins */
#define PAUSE_TIER_LOOK_MS 1     /* the answer to a call comes before its exact kernel is begun */

/* ---- Device processes, as the broker sees them ---- */

#define DEADLINE_EXECUTOR_START_MS 30000u
#define DEADLINE_DEVICES_MS 2000 /* `devices` waits so long for those that are being looked for */
#define DEADLINE_WRAPPED_END_MS 60000    /* of what watches one: it writes its report at the end */
#define DEADLINE_FAULT_END_MS 5000       /* it has said that it cannot go on, and ends */
#define DEADLINE_PLACE_MS 30000          /* of bringing a buffer into one */
#define DEADLINE_QUIET_MS 30000          /* of what waits until nothing runs: loads, frees */
#define DEADLINE_EXECUTOR_IDLE_MS 300000 /* of another uid's, without a session of that uid */
#define DEADLINE_WATCHED_TIMES 20   /* all of them are so much longer where kernels are watched */
#define PAUSE_EXECUTOR_LOOK_MS 5000 /* while lanes are open: whether it still answers */
#define PAUSE_EXECUTOR_CLOCK_MS 20  /* between two looks at the deadlines of calls */
#define PAUSE_EXECUTOR_START_FIRST_MS 50
#define PAUSE_EXECUTOR_START_LAST_MS 5000
#define PAUSE_EXECUTOR_FORGIVEN_US 10000000 /* ready for so long: its next end counts as a first */
#define PAUSE_DEVICE_ABSENT_US 5000000      /* a device that was not there is looked for again */
#define PAUSE_DEVICE_LOST_FIRST_MS 500      /* one that was there: so long after, twice that, ... */
#define PAUSE_DEVICE_LOST_LAST_MS 60000

/* ---- Inside a device process ---- */

#define DEADLINE_LAST_WORDS_MS 1000 /* it says why it ends */
#define DEADLINE_HOLD_US 50000 /* nothing new is launched; a next hold may take twice as long */
#define DEADLINE_POOL_FREE_US 1000000   /* of memory of another process's pool, until it is freed */
#define DEADLINE_PLACE_FIND_US 10000000 /* addr2line, which finds the line of a fault */
#define DEADLINE_TEST_DELAY_MS 60000    /* the most that a test may delay a launch */
#define DEADLINE_BROKEN_US \
	3000000                     /* a launcher has found the device broken; the main thread acts */
#define DEADLINE_REST_US 100000 /* of the other launchers then, to tell of good ends */
#define DEADLINE_BIND_US 100000 /* of the message that binds what an entry of a lane names */
#define PAUSE_STOP_SPIN_US 50   /* a launcher and the main thread wait for each other by looking */
#define PAUSE_STOP_LOOK_US 100000 /* then whether another launcher is broken */
#define PAUSE_LAST_WORDS_US 1000
#define PAUSE_TURN_US 300        /* of what stalls the device, while somebody waits to launch */
#define PAUSE_PROGRESS_US 200000 /* the broker is told that lanes get on */
#define PAUSE_TRACE_MS 1         /* for a trace, ended calls are read from the device processes */
#define PAUSE_LANES_MS 10        /* a monitor's requests read ended calls of lanes no oftener */
#define PAUSE_LANES_LEFT_MS 2000 /* without a request, they are read from the next one on */
#define PAUSE_TRACE_LAST_MS 20   /* after trace.end, for the last of them */
#define PAUSE_ACCOUNT_MS 250     /* the time that work takes is counted while it goes on */
#define PAUSE_SOCKET_LOOK_US 20  /* while lanes are looked at */
#define PAUSE_ACTIVE_US 10000    /* between two looks how many lanes launch */
#define PAUSE_OVERRUN_US 1000    /* between two looks whether entries of lanes are overdue */
#define PAUSE_WAKER_SPIN_US 200  /* its thread looks for more, before it sleeps */
#define PAUSE_NAP_LEAST_US 20    /* between two looks at what nobody tells of: an eighth of the */
#define PAUSE_NAP_MOST_US 500    /* time since the last end, within these */
#define PAUSE_NAP_PATIENT_US 2000000 /* after so long such naps, of ready words, may be longer */
#define PAUSE_NAP_LONG_US 10000
#define PAUSE_CUDA_SPIN_US 200 /* since the last end, before the first such nap */
#define PAUSE_CUDA_ASK_US 100  /* no sign of an end: the driver is asked, for a fault has none */
#define PAUSE_POOL_LOOK_NS 20000

/* ---- The second tier ---- */

#define DEADLINE_REMOTE_CONNECT_MS 1000
#define DEADLINE_REMOTE_GRACE_US 1000 /* past --remote-deadline, for what has come meanwhile */
#define DEADLINE_REMOTE_WRITE_US 5000000
#define DEADLINE_REMOTE_LOOK_US \
	1000000 /* of a look for a winner of tuning, which nobody waits for */
#define DEADLINE_REMOTE_FINISH_US 1000000 /* of what is to be written when the daemon ends */
#define DEADLINE_REMOTE_CLAIM_MS 1000     /* of a host that is gone; the living renew theirs */
/* Another host compiles: twice what such compiles take here, from LEAST to --compile-timeout. */
#define DEADLINE_REMOTE_OTHER_LEAST_US 1000000
#define DEADLINE_REMOTE_OTHER_UNKNOWN_US 10000000 /* none was ever timed here */
#define PAUSE_REMOTE_POLL_LEAST_US 4000           /* between two looks whether it has */
#define PAUSE_REMOTE_POLL_MOST_US 50000
#define PAUSE_REMOTE_LOOK_US 600000000 /* before the winner of a class is looked for again */
#define PAUSE_REMOTE_TRY_LEAST_MS 100  /* before a Redis that was away is tried again */
#define PAUSE_REMOTE_TRY_MOST_MS 10000

#endif
