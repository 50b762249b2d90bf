/*
 * make_photo: draws examples/data/photo.ppm, the picture that the photo example works on: a lake
 * under mountains at dusk, with clouds, ripples and film grain, so that it has smooth and noisy
 * parts as a photograph has.  It computes in integers, so every machine gets the same bytes.
 *
 *   make_photo [WIDTH HEIGHT] > photo.ppm        401 267 unless given; odd sizes are the point
 * It knows nothing of Kiln.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ONE 256 /* 1.0 in the fixed point of this file */

static uint32_t hash(int32_t x, int32_t y, uint32_t seed)
{
	uint32_t h = (uint32_t)x * 0x8da6b343u ^ (uint32_t)y * 0xd8163841u ^ seed * 0xcb1ab31fu;
	h = (h ^ (h >> 15)) * 0x2c1b3c6du;
	h = (h ^ (h >> 12)) * 0x297a2d39u;
	return h ^ (h >> 15);
}

/* from a to b, t of ONE */
static int mix(int a, int b, int t)
{
	return a + (b - a) * t / ONE;
}

static int smooth(int t)
{
	return t * t * (3 * ONE - 2 * t) / (ONE * ONE);
}

/* Value noise, 0..255; x and y in units of 1/ONE, not negative. */
static int noise(int x, int y, uint32_t seed)
{
	int cx = x / ONE, cy = y / ONE;
	int tx = smooth(x % ONE), ty = smooth(y % ONE);
	int top = mix((int)(hash(cx, cy, seed) & 255), (int)(hash(cx + 1, cy, seed) & 255), tx);
	int low = mix((int)(hash(cx, cy + 1, seed) & 255), (int)(hash(cx + 1, cy + 1, seed) & 255), tx);
	return mix(top, low, ty);
}

/* Five octaves of it. */
static int cloud(int x, int y, uint32_t seed)
{
	int sum = 0;
	for (int octave = 0; octave < 5; octave++)
		sum += noise(x << octave, y << octave, seed + (uint32_t)octave) * 16 >> octave;
	return sum / 31;
}

static int clamp(int value)
{
	return value < 0 ? 0 : value > 255 ? 255 : value;
}

struct colour {
	int r, g, b;
};

static struct colour blend(struct colour a, struct colour b, int t)
{
	return (struct colour){mix(a.r, b.r, t), mix(a.g, b.g, t), mix(a.b, b.b, t)};
}

/* The world above the water; 0 <= u, v <= ONE * 8 across the width and down to the shore. */
static struct colour sky(int u, int v)
{
	struct colour high = {34, 58, 112}, low = {246, 176, 118}, white = {250, 226, 206};
	struct colour c = blend(high, low, v / 8);
	int dx = (u - 5 * ONE) / 4, dy = (v - 3 * ONE) / 4;
	int distance = dx * dx + dy * dy;
	if (distance < 24 * 24)
		return (struct colour){255, 244, 214};
	if (distance < 200 * 200)
		c = blend((struct colour){255, 214, 150}, c, distance * ONE / (200 * 200));
	int density = cloud(u / 2 + 700, v + 300, 11) - 118;
	if (density > 0)
		c = blend(c, white, density * 3 > ONE ? ONE : density * 3);
	return c;
}

static struct colour scene(int u, int v)
{
	static const struct colour ridge[3] = {{126, 118, 142}, {74, 78, 104}, {30, 42, 48}};
	struct colour c = sky(u, v);
	for (int i = 0; i < 3; i++) {
		int top =
			(4 + i) * ONE + ONE / 2 - cloud(u * (i + 2) / 4 + 900 * i, 40, 21 + (uint32_t)i) * 2;
		if (v > top) {
			int rock = cloud(u * 4 + 100, v * 4 + 100, 31 + (uint32_t)i) - 128;
			c = ridge[i];
			c = (struct colour){c.r + rock / 4, c.g + rock / 4, c.b + rock / 5};
		}
	}
	return c;
}

static struct colour pixel(int x, int y, int width, int height)
{
	int shore = height * 5 / 8;
	int u = x * 8 * ONE / width;
	if (y < shore)
		return scene(u, y * 8 * ONE / shore);
	int depth = y - shore;
	int ripple = noise(x * ONE / 24, depth * ONE / 2, 51) - 128;
	int v = (shore - depth * 5 / 4) * 8 * ONE / shore + ripple * depth / 40;
	int shift = u + ripple * depth / 60;
	v = v < 0 ? 0 : v > 8 * ONE ? 8 * ONE : v;
	shift = shift < 0 ? 0 : shift > 8 * ONE ? 8 * ONE : shift;
	return blend(scene(shift, v), (struct colour){16, 38, 60},
				 ONE / 4 + depth * ONE / (3 * height));
}

static int size_argument(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);
	if (*end != '\0' || value < 8 || value > 8192) {
		fprintf(stderr, "make_photo: size '%s' is not a number from 8 to 8192\n", text);
		exit(2);
	}
	return (int)value;
}

int main(int argc, char **argv)
{
	if (argc != 1 && argc != 3) {
		fprintf(stderr, "usage: make_photo [WIDTH HEIGHT] > photo.ppm\n");
		return 2;
	}
	int width = argc == 3 ? size_argument(argv[1]) : 401;
	int height = argc == 3 ? size_argument(argv[2]) : 267;
	printf("P6\n%d %d\n255\n", width, height);
	for (int y = 0; y < height; y++) {
		for (int x = 0; x < width; x++) {
			struct colour c = pixel(x, y, width, height);
			int grain = (int)(hash(x, y, 77) % 13) - 6;
			putchar(clamp(c.r + grain));
			putchar(clamp(c.g + grain));
			putchar(clamp(c.b + grain + (int)(hash(x, y, 78) % 5) - 2));
		}
	}
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
