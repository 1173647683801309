#!/bin/bash
# Runs what is packed here. Needs bash, python3, glibc and, for all that needs a GPU, NVIDIA's driver.
#
#     ./run --minutes 8 --out FOLDER     the most telling steps first; --help says the rest
here=${BASH_SOURCE[0]%/*}
exec python3 -B "$here/tests/gpu" "$@"
