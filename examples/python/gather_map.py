"""gather_map: dst[i,j,k] = src[i,j,idx[j,k]]: a statement that becomes a kernel.

    pip install kiln-jit numpy
    python gather_map.py
"""
import kiln
import numpy

random = numpy.random.default_rng(1)
src = random.standard_normal((16, 8, 256), "float32")
idx = random.integers(0, 256, (8, 50), "int32")
plain = numpy.take_along_axis(src, numpy.broadcast_to(idx, (16, 8, 50)), axis=2)

dst = kiln.map("dst[i,j,k] = src[i,j,idx[j,k]]", src=src, idx=idx)
numpy.testing.assert_array_equal(dst, plain)
print("gathered", dst.shape)

# The statement can go on behind the gather: there is no array between the two.
w = random.random(50, "float32")
total = kiln.map("total[i,j] += src[i,j,idx[j,k]] * w[k] * s", src=src, idx=idx, w=w, s=0.5)
numpy.testing.assert_allclose(total, (plain * w * 0.5).sum(axis=2), rtol=1e-5, atol=1e-5)
print("summed", total.shape)

# An index that is out of range reads 0, and is counted.
idx[3, 7] = 256
try:
    kiln.map("dst[i,j,k] = src[i,j,idx[j,k]]", src=src, idx=idx, out=dst)
except IndexError as error:
    print(error)
assert (dst[:, 3, 7] == 0).all()
