/*
 * abi: what a kernel compiled for the cpu device and the executor that runs it agree on.
 * Read twice: by the shim (C++, no system header) and by daemon/exec/cpu*.c (C11), so there is
 * nothing here but structures and lists of plain built-in types.
 *
 * A change of anything below raises KILN_CPU_ABI; an executor refuses objects of another number.
 */
#pragma once

#define KILN_CPU_ABI 3u

/* The C library's functions a kernel may call: f32 name, f64 name. */
#define KILN_CPU_MATH_1(X) \
	X(expf, exp)           \
	X(exp2f, exp2)         \
	X(expm1f, expm1)       \
	X(logf, log)           \
	X(log2f, log2)         \
	X(log10f, log10)       \
	X(log1pf, log1p)       \
	X(sqrtf, sqrt)         \
	X(cbrtf, cbrt)         \
	X(sinf, sin)           \
	X(cosf, cos)           \
	X(tanf, tan)           \
	X(asinf, asin)         \
	X(acosf, acos)         \
	X(atanf, atan)         \
	X(sinhf, sinh)         \
	X(coshf, cosh)         \
	X(tanhf, tanh)         \
	X(asinhf, asinh)       \
	X(acoshf, acosh)       \
	X(atanhf, atanh)       \
	X(erff, erf)           \
	X(erfcf, erfc)         \
	X(tgammaf, tgamma)     \
	X(lgammaf, lgamma)     \
	X(floorf, floor)       \
	X(ceilf, ceil)         \
	X(truncf, trunc)       \
	X(roundf, round)       \
	X(rintf, rint)
#define KILN_CPU_MATH_2(X)   \
	X(powf, pow)             \
	X(atan2f, atan2)         \
	X(fmodf, fmod)           \
	X(remainderf, remainder) \
	X(hypotf, hypot)         \
	X(nextafterf, nextafter)

/* Collectives: name in the enumeration, name in sentences. */
#define KILN_CPU_BARRIERS(X)             \
	X(SYNC, "__syncthreads")             \
	X(SYNC_COUNT, "__syncthreads_count") \
	X(SYNC_AND, "__syncthreads_and")     \
	X(SYNC_OR, "__syncthreads_or")
#define KILN_CPU_COLLECTIVES(X)        \
	X(WARP_SYNC, "__syncwarp")         \
	X(SHFL, "__shfl_sync")             \
	X(SHFL_UP, "__shfl_up_sync")       \
	X(SHFL_DOWN, "__shfl_down_sync")   \
	X(SHFL_XOR, "__shfl_xor_sync")     \
	X(BALLOT, "__ballot_sync")         \
	X(ANY, "__any_sync")               \
	X(ALL, "__all_sync")               \
	X(MATCH_ANY, "__match_any_sync")   \
	X(REDUCE_ADD, "__reduce_add_sync") \
	X(REDUCE_MIN, "__reduce_min_sync") \
	X(REDUCE_MAX, "__reduce_max_sync") \
	X(REDUCE_AND, "__reduce_and_sync") \
	X(REDUCE_OR, "__reduce_or_sync")   \
	X(REDUCE_XOR, "__reduce_xor_sync") \
	X(CONVERGE, "__activemask")

#define KILN_CPU_ENUM(name, text) KILN_CPU_##name,
enum kiln_cpu_barrier { KILN_CPU_BARRIERS(KILN_CPU_ENUM) KILN_CPU_BARRIER_COUNT };
enum kiln_cpu_collective { KILN_CPU_COLLECTIVES(KILN_CPU_ENUM) KILN_CPU_COLLECTIVE_COUNT };
#undef KILN_CPU_ENUM

struct kiln_cpu_dim {
	unsigned int x, y, z;
};

struct kiln_cpu_runtime;

/* Memory that a checked kernel may touch. */
struct kiln_cpu_range {
	unsigned long begin, bytes;
};

/* One worker of the executor is doing this now; the runtime keeps it right across switches. */
struct kiln_cpu_state {
	struct kiln_cpu_dim thread, block, block_size, grid;
	void *shared; /* dynamic shared memory of the block */
	const struct kiln_cpu_runtime *runtime;
	/* A checked kernel has the ranges that accesses are looked for in first, which of them had the
	 * last one, and how many there were. */
	const struct kiln_cpu_range *ranges;
	unsigned int range_count, range_last;
	unsigned long accesses;
};

/* A warp collective as one lane calls it. */
struct kiln_cpu_call {
	enum kiln_cpu_collective kind;
	unsigned int mask;
	unsigned long long value;
	int operand, width; /* shuffles: source lane, delta or lane mask; width of a segment */
	int is_signed;      /* reductions */
	const char *file;
	int line;
};

/* An action of a checked kernel that may be wrong. */
enum kiln_cpu_doubt { KILN_CPU_READS, KILN_CPU_WRITES, KILN_CPU_MISALIGNED, KILN_CPU_INDEX };
struct kiln_cpu_access {
	enum kiln_cpu_doubt doubt;
	unsigned long address; /* INDEX: the index */
	unsigned long bytes;   /* READS, WRITES; MISALIGNED: what the address must be a multiple of */
	const char *type;      /* MISALIGNED, INDEX: of the object or the array, as the compiler says */
	const char *file;      /* MISALIGNED, INDEX: where, if nothing better is known */
	int line;
	const void *after; /* the instruction that follows the call */
};

/* A variable of static storage, with a zone behind it that nobody may touch: as compilers describe
 * them to AddressSanitizer. */
struct kiln_cpu_variable {
	unsigned long address, bytes, bytes_with_zone;
	const char *name, *unit;
	unsigned long has_constructor;
	const void *place;
	unsigned long indicator;
};
struct kiln_cpu_variables {
	const struct kiln_cpu_variable *first;
	unsigned long count;
};

/* The executor's services for kernels. */
struct kiln_cpu_runtime {
	int (*barrier)(struct kiln_cpu_state *state, enum kiln_cpu_barrier kind, int predicate,
				   const char *file, int line);
	unsigned long long (*collective)(struct kiln_cpu_state *state,
									 const struct kiln_cpu_call *call);
	/* Lets the other threads of the block run. */
	void (*yield)(struct kiln_cpu_state *state);
	/* Ends the launch with a sentence; does not return. */
	void (*fail)(struct kiln_cpu_state *state, const char *what, const char *file, int line);
	unsigned long long (*clock)(void); /* nanoseconds */
	/* printf of the C library, but for %n, which ends the launch. */
	int (*print)(struct kiln_cpu_state *state, const char *format, __builtin_va_list values);
	/* Checks an access of a checked kernel; ends the launch, as fail does, if it is not allowed. */
	void (*check)(struct kiln_cpu_state *state, const struct kiln_cpu_access *access);
	float (*fmaf)(float x, float y, float z);
	double (*fma)(double x, double y, double z);
	float (*ldexpf)(float x, int exponent);
	double (*ldexp)(double x, int exponent);
#define KILN_CPU_MATH_MEMBER(single, real) \
	float (*single)(float x);              \
	double (*real)(double x);
	KILN_CPU_MATH_1(KILN_CPU_MATH_MEMBER)
#undef KILN_CPU_MATH_MEMBER
#define KILN_CPU_MATH_MEMBER(single, real) \
	float (*single)(float x, float y);     \
	double (*real)(double x, double y);
	KILN_CPU_MATH_2(KILN_CPU_MATH_MEMBER)
#undef KILN_CPU_MATH_MEMBER
};

/* An object describes itself by this symbol, kiln_cpu_module. */
struct kiln_cpu_module {
	unsigned int abi;
	unsigned int arg_count;
	const unsigned int *arg_bytes;
	const char *name; /* the instantiation */
	/* Names the state of the calling worker thread; before the entry is first called on it. */
	void (*attach)(struct kiln_cpu_state *state);
	const struct kiln_cpu_variables *variables; /* 0: the kernel is not checked */
};

/* The symbol kiln_cpu_entry: runs the kernel for one thread.  args as in cuLaunchKernel. */
typedef void kiln_cpu_entry_function(void **args);
