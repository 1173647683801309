// The row kernels for AVX2 (see row_kernels.inc).
#define PACE_ROW_NAMESPACE row_avx2
#define PACE_ROW_NAME "AVX2"
#include "model/sampling/row_kernels.inc"
