# Host logic of this folder that knows no CUDA: what the device is told to do is decided here.
# Paths are relative to this folder.
set(PACELINE_CUDA_HOST_SOURCES
    attention_plan.cpp
    gemm/gemm_records.cpp
)
