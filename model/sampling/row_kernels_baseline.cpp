// The row kernels for the instruction set that every machine of the build has (see
// row_kernels.inc).
#define PACE_ROW_NAMESPACE row_baseline
#define PACE_ROW_NAME "baseline"
#include "model/sampling/row_kernels.inc"
