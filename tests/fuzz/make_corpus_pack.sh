#!/bin/sh
# make_corpus_pack.sh: writes the corpus of fuzz_pack: packs that are good, and packs that are wrong
# in one place.  Run it again after adding a line; the files are committed.
set -eu
mkdir -p "$(dirname "$0")/corpus/pack"
cd "$(dirname "$0")/corpus/pack"

python3 - <<'END'
import hashlib
import struct


def hash_of(data):
    return hashlib.blake2b(data, digest_size=32).digest()


def u64(number):
    return number.to_bytes(8, "little")


# A row as daemon/cache/row.c has it.
def row(number, key=None, texts=None, cut=0, version=1):
    key_text = b"kiln-key 1\ntarget cpu\ntoolchain nvrtc 13.0\nnumber %d\n" % number
    texts = texts or [b"k<%d>" % number, b"entry", key_text, b"source", b"", b"plan"]
    key = key or hash_of(key_text).hex().encode()
    parts = texts + [b"object %d" % number]
    head = b"KILNROW\0" + u64(version)
    rest = key + b"permute".ljust(24, b"\0") + b"cpu".ljust(16, b"\0") + u64(7) * 8
    rest += b"".join(u64(len(part)) for part in parts) + b"".join(parts)
    blob = head + hash_of(head + rest) + rest
    return key, blob[: len(blob) - cut]


# A winner of tuning as daemon/cache/pack_winners.c has it.
def winner(signature=b"permute<4>", choice=b"tile 64x32", micros=1.5, extra=b""):
    texts = [b"permute", b"NVIDIA H200", b"sm_90", signature, choice, b"0.1.0"]
    times = struct.pack("<2d", micros, 2.0) + u64(3) + u64(1700000000)
    blob = b"".join(text + b"\0" for text in texts) + times + extra
    return u64(len(blob) | 1 << 62) + blob


def rows(*made):
    return b"".join(u64(len(blob)) + blob for _, blob in made)


def sample(name, data):
    with open(name, "wb") as out:
        out.write(data)


good = sorted(row(number) for number in range(3))
sample("good", b"\2\3" + rows(*good))
sample("none", b"\2\0")
sample("one", b"\2\1" + rows(good[0]))
sample("order", b"\2\3" + rows(*reversed(good)))
sample("twice", b"\2\2" + rows(good[0], good[0]))
sample("fewer", b"\2\4" + rows(*good))
sample("more", b"\2\2" + rows(*good))
sample("key", b"\2\1" + rows(row(1, key=b"0" * 64)))
sample("last_key", b"\2\2" + rows(good[0], row(1, key=b"f" * 64)))
sample("version", b"\2\1" + rows(row(1, version=2)))
sample("cut_row", b"\2\1" + rows(row(1, cut=3)))
sample("flipped", b"\2\1" + rows(good[0])[:-1] + b"x")
sample("zero_text", b"\2\1" + rows(row(1, texts=[b"a\0b", b"", b"", b"", b"", b""])))
sample("long_length", b"\2\1" + u64(1 << 60) + b"x")
sample("longer_length", b"\2\1" + u64(2**64 - 1) + b"x")
sample("no_length", b"\2\1" + u64(0) + b"x")
sample("odd_end", b"\2\1" + rows(good[0]) + b"1234567")
sample("sealed_nothing", b"\1")
sample("sealed_short", b"\1" + b"\0" * 23)
sample("sealed_end", b"\1" + b"\0" * 24)
sample("sealed_many", b"\1" + u64(0) + u64(2**63) + u64(2**63))
sample("winner", b"\3\1\1" + rows(good[0]) + winner())
sample("winners", b"\3\3\3" + rows(*good) + winner() + winner(b"k<1>") + winner())
sample("winner_first", b"\3\1\1" + winner() + rows(good[0]))
sample("winner_alone", b"\3\0\1" + winner())
sample("winner_old", b"\2\1" + rows(good[0]) + winner())
sample("winner_more", b"\3\1\2" + rows(good[0]) + winner())
sample("winner_long", b"\3\1\1" + rows(good[0]) + winner(b"k" * 1024))
sample("winner_empty", b"\3\1\1" + rows(good[0]) + winner(b""))
sample("winner_control", b"\3\1\1" + rows(good[0]) + winner(choice=b"a\x1b[2J"))
sample("winner_time", b"\3\1\1" + rows(good[0]) + winner(micros=float("nan")))
sample("winner_extra", b"\3\1\1" + rows(good[0]) + winner(extra=b"x"))
sample("winner_pinned", b"\3\1\1" + rows(good[0]) + u64(3 << 62) + b"x")
sample("file_empty", b"\0")
sample("file_head", b"\0KILNPACK" + u64(1))
end = u64(0) + u64(3) + u64(9)
sample("file_unsealed", b"\0KILNPACK" + u64(1) + rows(*good) + end + b"\0" * 144)
sample("file_newer", b"\0KILNPACK" + u64(3) + b"\0" * 300)
sample("file_other", b"\0" + b"some other file, of a length that might do " * 8)
END
