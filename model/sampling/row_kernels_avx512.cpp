// The row kernels for AVX-512 F, DQ, BW and VL (see row_kernels.inc).
#define PACE_ROW_NAMESPACE row_avx512
#define PACE_ROW_NAME "AVX-512"
#include "model/sampling/row_kernels.inc"
