/*
 * reduce_input.cuh: elements of any type as reductions take them, and results as they are written:
 * f16 and bf16 as f32, f32 and f64 as they are, small integers and bools (0 or 1) as i32, i64 as
 * it is.
 */
#pragma once
#include "common/element.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* Taken: what an element becomes.  Sum: what elements are added up in; integers wrap. */
template <typename T>
struct reduce_type {
	typedef int Taken;
	typedef u64 Sum;
	static constexpr bool integer = true;
	static constexpr bool small = sizeof(T) < 4; /* sixteen of them do not overflow an int */
};
template <>
struct reduce_type<i64> {
	typedef i64 Taken;
	typedef u64 Sum;
	static constexpr bool integer = true, small = false;
};
template <typename T>
struct reduce_float {
	typedef typename element<T>::compute Taken, Sum;
	static constexpr bool integer = false, small = false;
};
template <>
struct reduce_type<f16> : reduce_float<f16> {
};
template <>
struct reduce_type<bf16> : reduce_float<bf16> {
};
template <>
struct reduce_type<f32> : reduce_float<f32> {
};
template <>
struct reduce_type<f64> : reduce_float<f64> {
};

/* One type. */
template <typename A, typename B>
constexpr bool reduce_same = false;
template <typename A>
constexpr bool reduce_same<A, A> = true;

/* Element i out of words, as Taken. */
template <typename T, typename Taken>
DEVICE Taken reduce_element(const u32 *words, int i)
{
	if constexpr (!reduce_type<T>::integer) {
		return element_at<T, Taken>(words, i);
	} else if constexpr (sizeof(T) == 8) {
		return static_cast<Taken>(static_cast<u64>(words[2 * i + 1]) << 32 | words[2 * i]);
	} else if constexpr (sizeof(T) == 4) {
		return static_cast<Taken>(static_cast<int>(words[i]));
	} else {
		constexpr int per = 4 / static_cast<int>(sizeof(T));
		const u32 bits = words[i / per] >> (i % per * 8 * static_cast<int>(sizeof(T)));
		if constexpr (reduce_same<T, bool>)
			return static_cast<Taken>((bits & 0xff) != 0);
		else
			return static_cast<Taken>(static_cast<T>(bits));
	}
}

/* A result as an element of O, into words. */
template <typename O, typename Result>
DEVICE void reduce_put(Result value, u32 *words)
{
	if constexpr (reduce_same<O, f16> || reduce_same<O, bf16> || reduce_same<O, f32> ||
				  reduce_same<O, f64>) {
		const Result in[1] = {value};
		element_pack<O, 1>(in, words);
	} else if constexpr (sizeof(O) == 8) {
		words[0] = static_cast<u32>(static_cast<u64>(value));
		words[1] = static_cast<u32>(static_cast<u64>(value) >> 32);
	} else if constexpr (reduce_same<O, bool>) {
		words[0] = value != 0;
	} else {
		words[0] = static_cast<u32>(value);
	}
}

template <typename O, typename Result>
DEVICE void reduce_store(O *to, Result value)
{
	u32 words[vec_words<sizeof(O)>];

	reduce_put<O>(value, words);
	vec_store<sizeof(O)>(to, words);
}

/* ---- Vectors of elements; kernels ask these how they come ---- */

/* V elements of T, aligned to their bytes. */
template <typename T, int V>
struct ReduceVector {
	static constexpr int words = vec_words<V *static_cast<int>(sizeof(T))>;

	DEVICE int count(int bytes) const
	{
		return bytes / static_cast<int>(sizeof(T));
	}
	DEVICE int length() const
	{
		return V;
	}
	DEVICE int bytes() const
	{
		return sizeof(T);
	}
	DEVICE void load(const u8 *from, u32 (&word)[words]) const
	{
		vec_load<V *static_cast<int>(sizeof(T))>(from, word);
	}
	/* One element. */
	DEVICE typename reduce_type<T>::Taken at(const u8 *from) const
	{
		u32 word[vec_words<sizeof(T)>];
		vec_load<sizeof(T)>(from, word);
		return reduce_element<T, typename reduce_type<T>::Taken>(word, 0);
	}
	/* Takes all elements; the first has the number `index`. */
	template <class R, typename Number>
	DEVICE void take(typename R::Value &value, const u32 (&word)[words], Number index,
					 typename R::Real real) const
	{
		typename R::Taken in[V];
#pragma unroll
		for (int v = 0; v < V; v++)
			in[v] = reduce_element<T, typename R::Taken>(word, v);
		R::take(value, in, index, real);
	}
	DEVICE typename reduce_type<T>::Taken element(const u32 (&word)[words], int v) const
	{
		return reduce_element<T, typename reduce_type<T>::Taken>(word, v);
	}
	/* Takes those whose numbers are 0 to count - 1. */
	template <class R, typename Number>
	DEVICE void take_part(typename R::Value &value, const u32 (&word)[words], Number index,
						  Number count, typename R::Real real) const
	{
#pragma unroll
		for (int v = 0; v < V; v++) {
			const typename R::Taken in[1] = {reduce_element<T, typename R::Taken>(word, v)};
			if (index + v >= 0 && index + v < count)
				R::take(value, in, index + v, real);
		}
	}
};

/* The types by their numbers in kiln.h. */
#define REDUCE_F16 1
#define REDUCE_BF16 2
#define REDUCE_I8 5
#define REDUCE_U8 6
#define REDUCE_I16 7
#define REDUCE_I32 9
#define REDUCE_BOOL 13

/* Elements of a type that the launch says: one, or 16 bytes of them.  Of Taken float these are f16,
 * bf16 and f32, of i64 the integers and bools. */
template <typename Taken>
struct ReduceAny {
	static constexpr int words = 4;
	u32 type, size, wide;

	/* Elements in so many bytes. */
	DEVICE int count(int bytes) const
	{
		return bytes >> (size == 8 ? 3 : size == 4 ? 2 : size == 2 ? 1 : 0);
	}
	DEVICE int length() const
	{
		return wide ? count(16) : 1;
	}
	DEVICE int bytes() const
	{
		return static_cast<int>(size);
	}
	DEVICE void load(const u8 *from, u32 (&word)[words]) const
	{
		if (wide)
			vec_load<16>(from, word);
		else
			load_one(from, word);
	}
	DEVICE void load_one(const u8 *from, u32 (&word)[words]) const
	{
		if (size == 8)
			vec_load<8>(from, word);
		else if (size == 4)
			vec_load<4>(from, word);
		else if (size == 2)
			vec_load<2>(from, word);
		else
			vec_load<1>(from, word);
	}
	/* The one element of words. */
	DEVICE Taken element(const u32 (&word)[words]) const
	{
		if constexpr (sizeof(Taken) == 4) {
			return type == REDUCE_F16    ? reduce_element<f16, Taken>(word, 0)
				   : type == REDUCE_BF16 ? reduce_element<bf16, Taken>(word, 0)
										 : reduce_element<f32, Taken>(word, 0);
		} else if constexpr (reduce_same<Taken, double>) {
			return reduce_element<f64, Taken>(word, 0);
		} else {
			return type == REDUCE_I8     ? reduce_element<i8, Taken>(word, 0)
				   : type == REDUCE_U8   ? reduce_element<u8, Taken>(word, 0)
				   : type == REDUCE_BOOL ? reduce_element<bool, Taken>(word, 0)
				   : type == REDUCE_I16  ? reduce_element<i16, Taken>(word, 0)
				   : type == REDUCE_I32  ? reduce_element<i32, Taken>(word, 0)
										 : reduce_element<i64, Taken>(word, 0);
		}
	}
	DEVICE Taken at(const u8 *from) const
	{
		u32 word[words];
		load_one(from, word);
		return element(word);
	}
	template <class R, typename T, typename Number>
	static DEVICE void take_as(typename R::Value &value, const u32 (&word)[words], Number index,
							   typename R::Real real)
	{
		ReduceVector<T, 16 / static_cast<int>(sizeof(T))>().template take<R>(value, word, index,
																			 real);
	}
	template <class R, typename Number>
	DEVICE void take(typename R::Value &value, const u32 (&word)[words], Number index,
					 typename R::Real real) const
	{
		if (!wide) {
			const Taken one[1] = {element(word)};
			R::take(value, one, index, real);
		} else if constexpr (sizeof(Taken) == 4) {
			if (type == REDUCE_F16)
				take_as<R, f16>(value, word, index, real);
			else if (type == REDUCE_BF16)
				take_as<R, bf16>(value, word, index, real);
			else
				take_as<R, f32>(value, word, index, real);
		} else if constexpr (reduce_same<Taken, double>) {
			take_as<R, f64>(value, word, index, real);
		} else { /* smaller ones come one by one */
			if (type == REDUCE_I32)
				take_as<R, i32>(value, word, index, real);
			else
				take_as<R, i64>(value, word, index, real);
		}
	}
	DEVICE Taken element(const u32 (&word)[words], int) const
	{
		return element(word);
	}
	/* Element i of words, in the first ones. */
	DEVICE void pick(const u32 (&word)[words], int i, u32 (&one)[words]) const
	{
		const u32 at = static_cast<u32>(i) * size, first = at / 4;
		const u32 low = first == 0   ? word[0]
						: first == 1 ? word[1]
						: first == 2 ? word[2]
									 : word[3];

		one[0] = low >> at % 4 * 8;
		one[1] = first == 0 ? word[1] : word[3];
	}
	/* Takes those whose numbers are 0 to count - 1. */
	template <class R, typename Number>
	DEVICE void take_part(typename R::Value &value, const u32 (&word)[words], Number index,
						  Number count, typename R::Real real) const
	{
		if (!wide) {
			take<R>(value, word, index, real);
			return;
		}
#pragma unroll 1
		for (int i = 0; i < length(); i++) {
			u32 one[words];
			if (index + i < 0 || index + i >= count)
				continue;
			pick(word, i, one);
			const Taken in[1] = {element(one)};
			R::take(value, in, index + i, real);
		}
	}
};

/* ---- Results; y is as the operand has it ---- */

template <typename O>
struct ReduceResult {
	template <typename Result>
	DEVICE void store(u8 *y, i64 at, Result value) const
	{
		reduce_store(reinterpret_cast<O *>(y) + at, value);
	}
};

/* Results of a type that the launch says; integers and bools have `size` bytes. */
struct ReduceAnyResult {
	u32 type, size;

	template <typename Result>
	DEVICE void store(u8 *y, i64 at, Result value) const
	{
		u8 *const to = y + at * size;
		if constexpr (reduce_same<Result, float>) {
			if (type == REDUCE_F16)
				reduce_store(reinterpret_cast<f16 *>(to), value);
			else if (type == REDUCE_BF16)
				reduce_store(reinterpret_cast<bf16 *>(to), value);
			else
				reduce_store(reinterpret_cast<f32 *>(to), value);
		} else if constexpr (reduce_same<Result, double>) {
			reduce_store(reinterpret_cast<f64 *>(to), value);
		} else if (size == 8) {
			reduce_store(reinterpret_cast<i64 *>(to), value);
		} else if (size == 4) {
			reduce_store(reinterpret_cast<i32 *>(to), value);
		} else if (size == 2) {
			reduce_store(reinterpret_cast<i16 *>(to), value);
		} else {
			reduce_store(reinterpret_cast<u8 *>(to), value);
		}
	}
};
