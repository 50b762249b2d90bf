#!/bin/sh
# quick_cxx.sh: g++ that does not optimise, which takes half as long: for daemon.sh's daemon.  What
# the package's tests look at is the way to a kernel and back; unit.ops_*, torch.exact and
# torch.generic compare what is compiled as users have it.  It must not change anything else.
exec g++ "$@" -O0
