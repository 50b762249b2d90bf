/*
 * tier_scene: what the tests of tiers share: a daemon that specializes lazily, and a client that
 * turns a cube.
 */
#ifndef KILN_TESTS_TIER_SCENE_H
#define KILN_TESTS_TIER_SCENE_H

#include "harness.h"

#define SIDE 16
#define CUBE (SIDE * SIDE * SIDE)
#define BATCH 48

/* A cube of f32 whose axes are turned: three times is once around. */
struct cube {
	kiln_client *client;
	kiln_call *call;
	kiln_buffer *buffers[2];
	int turns; /* so far, from the first buffer to the second and back */
	float start[CUBE];
};

/* Turns the axes of a cube of this side. */
struct permute cube_problem(int64_t side);
/* Starts a daemon that makes exact kernels lazily; lazy_finish() ends both. */
kiln_client *lazy_client(struct kilnd *daemon);
void lazy_finish(struct kilnd *daemon, kiln_client *client);
void cube_open(kiln_client *client, struct cube *cube);
void cube_close(struct cube *cube);
/* Both of that; cube_finish() ends them. */
kiln_client *lazy_with_cube(struct kilnd *daemon, struct cube *cube);
void cube_finish(struct kilnd *daemon, struct cube *cube);
/* Submits so many turns without waiting, and then waits for all. */
void cube_turn(struct cube *cube, int turns);
/* The buffer holds what so many turns make of the start: one more or less would be another. */
void assert_turned(const struct cube *cube);
/* Turns a cube of this side with kiln_run(), from the first buffer to the second; its status. */
int turn_once(kiln_client *client, kiln_buffer *const buffers[2], int64_t side);
/* The buffer holds what that makes of 0, 1, 2 ... */
void assert_turned_once(kiln_buffer *buffer, int side);
int64_t tier_counter(kiln_client *client, const char *name);

#endif
