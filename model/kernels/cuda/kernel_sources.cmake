# The kernels and what belongs to them, in one place: built by nvcc for a GPU (paceline_cuda), and by the
# host's compiler for a device of the tests. Paths are relative to this folder. A .cu file is C++17 for nvcc; a .cpp file is compiled by the host's compiler in both.
set(PACELINE_KERNEL_SOURCES
    attention.cu
    exchange.cu
    features.cu
    gemm/gemm.cu
    gemm/gemm_batch.cu
    gemm/gemm_batch_blocks.cu
    gemm/gemm_batch_codes.cu
    gemm/gemm_batch_k_blocks.cu
    gemm/gemm_batch_plain.cu
    gemm/gemm_blas.cu
    gemm/gemm_tiled.cu
    gemm/gemm_tiled_blocks.cu
    gemm/gemm_tiled_codes.cu
    gemm/gemm_tiled_k_blocks.cu
    gemm/gemm_tiled_wgmma.cu
    random.cu
    rows.cu
    sampling/sample.cu
)
