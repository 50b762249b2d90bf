/*
 * order.cuh: numbers as unsigned keys of the same order, and keys with places as entries, which are
 * never equal.  NaN is greater than every number and equal to NaN; -0 is equal to 0.
 *
 * The first of a row has the least entry: the key is turned over where the greatest comes first,
 * and of equal keys the least place comes first.
 */
#pragma once
#include "common/element.cuh"
#include "common/types.cuh"

template <int BYTES>
struct order_word {
	typedef u32 type;
};
template <>
struct order_word<8> {
	typedef u64 type;
};

/* Bits of infinity, and how the bits are held; INTEGER: they are a number by themselves. */
template <typename T>
struct order_of;
template <>
struct order_of<f16> {
	static constexpr bool integer = false;
	static constexpr u32 infinity = 0x7c00;
};
template <>
struct order_of<bf16> {
	static constexpr bool integer = false;
	static constexpr u32 infinity = 0x7f80;
};
template <>
struct order_of<f32> {
	static constexpr bool integer = false;
	static constexpr u32 infinity = 0x7f800000;
};
template <>
struct order_of<f64> {
	static constexpr bool integer = false;
	static constexpr u64 infinity = 0x7ff0000000000000;
};
template <>
struct order_of<i32> {
	static constexpr bool integer = true;
};
template <>
struct order_of<i64> {
	static constexpr bool integer = true;
};
template <>
struct order_of<i16> {
	static constexpr bool integer = true;
};
template <>
struct order_of<i8> {
	static constexpr bool integer = true;
};
template <>
struct order_of<u8> {
	static constexpr bool integer = true;
};
template <>
struct order_of<bool> {
	static constexpr bool integer = true;
};
/* Are the bits in order as they are?  Those of bools are, when they are 0 or 1. */
template <typename T>
constexpr bool order_unsigned = false;
template <>
constexpr bool order_unsigned<u8> = true;
template <>
constexpr bool order_unsigned<bool> = true;
template <typename T>
constexpr bool order_truth = false;
template <>
constexpr bool order_truth<bool> = true;

template <typename T>
struct Order {
	typedef typename order_word<sizeof(T)>::type Key;
	static constexpr int bits = 8 * sizeof(T);
	static constexpr Key sign = static_cast<Key>(1) << (bits - 1);
	static constexpr Key all = sign | (sign - 1);

	static DEVICE Key load(const T *from)
	{
		u32 words[vec_words<sizeof(T)>];
		vec_load<sizeof(T)>(from, words);
		return static_cast<Key>(vec_element<sizeof(T)>(words, 0));
	}

	/* The key of an element's bits. */
	static DEVICE Key key(Key value, bool greatest)
	{
		Key out = order_truth<T> ? value != 0 : order_unsigned<T> ? value : value ^ sign;
#if defined(__CUDA_ARCH__)
		/* A sum with 0 is 0 for -0, and one and the same NaN for all. */
		if constexpr (sizeof(T) == 4 && !order_of<T>::integer) {
			asm("add.rn.f32 %0, %1, 0f00000000;" : "=r"(value) : "r"(value));
			return value ^ (static_cast<Key>(static_cast<i32>(value) >> 31) | sign) ^
				   (greatest ? all : 0);
		}
#endif
		if constexpr (!order_of<T>::integer) {
			const Key rest = value & (sign - 1);
			out = value & sign ? value ^ all : out;
			out = rest == 0 ? sign : rest > order_of<T>::infinity ? all : out;
		}
		return greatest ? out ^ all : out;
	}

	/* The bits of an element with this key; for a key that no element has, of one that no element
	 * lies between. */
	static DEVICE Key value(Key key, bool greatest)
	{
		const Key out = greatest ? key ^ all : key;
		if constexpr (order_unsigned<T>)
			return out;
		else if constexpr (order_of<T>::integer)
			return out ^ sign;
		else
			return out & sign ? out ^ sign : out ^ all;
	}
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
DEVICE u32 order_canonical(u32 pair, f16)
{
	u32 out;
	asm("add.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(0));
	return out;
}
DEVICE u32 order_canonical(u32 pair, bf16)
{
	u32 out;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(pair), "r"(0x3f803f80), "r"(0));
	return out;
}
#endif

/* The keys of two elements of 16 bits that lie in one word. */
template <typename T>
DEVICE u32 order_pair(u32 pair, bool greatest)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	u32 spread;
	pair = order_canonical(pair, T{});
	/* Each half's sign in all of its bits. */
	asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(spread) : "r"(pair));
	return pair ^ (spread | 0x80008000u) ^ (greatest ? 0xffffffffu : 0);
#else
	return Order<T>::key(pair & 0xffff, greatest) | Order<T>::key(pair >> 16, greatest) << 16;
#endif
}

/* The elements of two such keys. */
template <typename T>
DEVICE u32 order_pair_value(u32 keys, bool greatest)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	u32 spread;
	keys ^= greatest ? 0xffffffffu : 0;
	asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(spread) : "r"(keys));
	return keys ^ ~(spread & 0x7fff7fffu);
#else
	return Order<T>::value(keys & 0xffff, greatest) | Order<T>::value(keys >> 16, greatest) << 16;
#endif
}

/* Is each of two keys that of one element, and neither of 0 nor of NaN? */
template <typename T>
DEVICE bool order_unique(u32 keys, bool greatest)
{
	const u32 zero = Order<T>::key(0, greatest);
	const u32 nan = Order<T>::key(Order<T>::sign - 1, greatest);

	return (keys & 0xffff) != zero && (keys & 0xffff) != nan && keys >> 16 != zero &&
		   keys >> 16 != nan;
}

/* Keys of up to 32 bits, and below them the place, its first bit next to the key's last. */
template <typename Word>
struct Entry {
	Word word;

	template <typename T>
	static DEVICE Entry of(typename Order<T>::Key key, u32 place, int place_bits)
	{
		constexpr int left = 8 * sizeof(Word) - Order<T>::bits;
		return {static_cast<Word>(key) << left | static_cast<Word>(place) << (left - place_bits)};
	}
	static DEVICE Entry last()
	{
		return {~static_cast<Word>(0)};
	}
	template <typename T>
	DEVICE typename Order<T>::Key key() const
	{
		return static_cast<typename Order<T>::Key>(word >> (8 * sizeof(Word) - Order<T>::bits));
	}
	template <typename T>
	DEVICE u32 place(int place_bits) const
	{
		constexpr int left = 8 * sizeof(Word) - Order<T>::bits;
		const Word below = static_cast<Word>(word << Order<T>::bits) >> Order<T>::bits;
		return static_cast<u32>(below >> (left - place_bits));
	}
	DEVICE bool before(const Entry &other) const
	{
		return word < other.word;
	}
	/* Bytes are counted from the first. */
	DEVICE u32 byte(int number) const
	{
		return static_cast<u32>(word >> (8 * sizeof(Word) - 8 - 8 * number)) & 255;
	}
	DEVICE bool begins_as(const Entry &other, int bytes) const
	{
		return bytes == 0 || (word ^ other.word) >> (8 * sizeof(Word) - 8 * bytes) == 0;
	}
	/* Replaces a byte, and fills all behind it with ones. */
	DEVICE void end_with(int number, u32 byte)
	{
		const Word one = static_cast<Word>(1) << (8 * sizeof(Word) - 8 - 8 * number);
		word = (word & ~(255 * one | (one - 1))) | byte * one | (one - 1);
	}
};

/* Keys of 64 bits have their places beside them. */
struct EntryWide {
	u64 first, second;

	template <typename T>
	static DEVICE EntryWide of(u64 key, u32 place, int place_bits)
	{
		return {key, static_cast<u64>(place) << (64 - place_bits)};
	}
	static DEVICE EntryWide last()
	{
		return {~static_cast<u64>(0), ~static_cast<u64>(0)};
	}
	template <typename T>
	DEVICE u64 key() const
	{
		return first;
	}
	template <typename T>
	DEVICE u32 place(int place_bits) const
	{
		return static_cast<u32>(second >> (64 - place_bits));
	}
	DEVICE bool before(const EntryWide &other) const
	{
		return first < other.first || (first == other.first && second < other.second);
	}
	DEVICE u32 byte(int number) const
	{
		return static_cast<u32>((number < 8 ? first : second) >> (56 - 8 * (number & 7))) & 255;
	}
	DEVICE bool begins_as(const EntryWide &other, int bytes) const
	{
		const Entry<u64> a = {first}, b = {second};
		return bytes <= 8 ? a.begins_as({other.first}, bytes)
						  : first == other.first && b.begins_as({other.second}, bytes - 8);
	}
	DEVICE void end_with(int number, u32 byte)
	{
		Entry<u64> part = {number < 8 ? first : second};
		part.end_with(number & 7, byte);
		(number < 8 ? first : second) = part.word;
		if (number < 8)
			second = ~static_cast<u64>(0);
	}
};
