/*
 * graph_scene: what the tests of graphs share: a client with a graph of three transposes.
 */
#ifndef KILN_TESTS_GRAPH_SCENE_H
#define KILN_TESTS_GRAPH_SCENE_H

#include "lane_scene.h"

/* y is the transpose of x, z that of y, and w that of z: the graph's calls. */
struct chain {
	kiln_client *client;
	kiln_call *there, *back, *graph;
	kiln_buffer *x, *y, *z, *w;
};

/* Makes the graph of there, back, there. */
kiln_call *chain_make(struct chain *chain);
kiln_buffer *chain_buffer(kiln_client *client, const char *name);
/* Connects, and makes the calls, the buffers and the graph; chain_close() frees them. */
void chain_open(const struct kilnd *daemon, struct chain *chain);
void chain_close(struct chain *chain);
/* Element i is first + i; of the transpose, it is that of the matrix. */
void assert_matrix(kiln_buffer *buffer, float first);
void assert_matrix_transposed(kiln_buffer *buffer, float first);
/* The graph has run on what matrix_put() wrote to x. */
void assert_chain_ran(struct chain *chain, float first);
int chain_submit(struct chain *chain, kiln_ticket *ticket);
/* Submits the graph and waits. */
int chain_run(struct chain *chain);
int64_t chain_lane_launches(struct chain *chain);

#endif
