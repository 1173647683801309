// The device API of device.cuh for nvcc, compute capability 8.0 and up. Included by it alone.
//
// Assembly that has an effect on memory or on the order of things is volatile and says so, that the
// compiler moves neither it nor what lies around it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_fp16.h>

#define PACE_KERNEL __global__
#define PACE_DEVICE __device__ __forceinline__

#include "model/kernels/cuda/wgmma_nvcc.cuh"

namespace paceline::cuda {

constexpr unsigned kWholeWarp = 0xFFFFFFFFU;

__device__ __forceinline__ int thread_index() {
    return static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ int block_size() {
    return static_cast<int>(blockDim.x);
}
__device__ __forceinline__ int block_x() {
    return static_cast<int>(blockIdx.x);
}
__device__ __forceinline__ int block_y() {
    return static_cast<int>(blockIdx.y);
}
__device__ __forceinline__ int grid_x() {
    return static_cast<int>(gridDim.x);
}
__device__ __forceinline__ int lane() {
    return thread_index() % 32;
}
__device__ __forceinline__ int warp() {
    return thread_index() / 32;
}

template <class T>
__device__ __forceinline__ T* shared_memory(std::size_t offset_bytes) {
    static_assert(alignof(T) <= 16);
    extern __shared__ __align__(16) unsigned char paceline_shared_memory[];
    return reinterpret_cast<T*>(paceline_shared_memory + offset_bytes);
}

__device__ __forceinline__ void sync_block() {
    __syncthreads();
}
__device__ __forceinline__ void sync_warp() {
    __syncwarp(kWholeWarp);
}

template <class T>
__device__ __forceinline__ T shuffle(T value, int from) {
    return __shfl_sync(kWholeWarp, value, from);
}

template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
    return __shfl_xor_sync(kWholeWarp, value, mask);
}

__device__ __forceinline__ unsigned ballot(bool mine) {
    return __ballot_sync(kWholeWarp, mine);
}

struct alignas(16) Words4 {
    std::uint32_t x, y, z, w;
};
struct alignas(8) Words2 {
    std::uint32_t x, y;
};

// Through the read-only path: what it reads must not be written while the kernel runs, not even
// before wait_for_previous() returns. Weights are such.
__device__ __forceinline__ Words4 load_streamed(const Words4* from) {
    Words4 words;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(__cvta_generic_to_global(from)));
    return words;
}

__device__ __forceinline__ Words2 load_streamed(const Words2* from) {
    Words2 words;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words.x), "=r"(words.y)
                 : "l"(__cvta_generic_to_global(from)));
    return words;
}
__device__ __forceinline__ std::uint32_t load_streamed(const std::uint32_t* from) {
    std::uint32_t word;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];"
                 : "=r"(word)
                 : "l"(__cvta_generic_to_global(from)));
    return word;
}

__device__ __forceinline__ void copy_async16(void* shared, const void* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                   "l"(__cvta_generic_to_global(global))
                 : "memory");
}

__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N>
__device__ __forceinline__ void wait_copies() {
    static_assert(N >= 0, "so many groups may stay open");
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ void mma_bf16(float (&c)[4],
                                         const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Code for other devices has these functions too and is never asked for them: has_wgmma()
// (gemm.hpp).
template <int kWidth>
__device__ __forceinline__ void wgmma_bf16(float (&d)[kWidth / 2],
                                           const std::uint32_t (&a)[4],
                                           const void* b,
                                           bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const wgmma::Source source{0, {a[0], a[1], a[2], a[3]}};
    wgmma::multiply<kWidth, wgmma::Rows::Registers>(d, source, wgmma::descriptor_of(b, kWidth),
                                                    add ? 1 : 0);
#else
    __trap();
#endif
}
__device__ __forceinline__ void wgmma_begin() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    wgmma::begin_products();
#endif
}
__device__ __forceinline__ void wgmma_commit() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int N>
__device__ __forceinline__ void wgmma_wait() {
    static_assert(N >= 0, "so many groups may stay open");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}
template <int kCount>
__device__ __forceinline__ void wgmma_hold(float (&d)[kCount]) {
    wgmma::hold(d);
}
__device__ __forceinline__ void publish_for_wgmma() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    wgmma::publish_shared();
#endif
}

__device__ __forceinline__ std::uint32_t bits_of(float value) {
    return __float_as_uint(value);
}
__device__ __forceinline__ float float_of(std::uint32_t bits) {
    return __uint_as_float(bits);
}

__device__ __forceinline__ std::uint32_t permute_bytes(std::uint32_t a,
                                                       std::uint32_t b,
                                                       std::uint32_t from) {
    return __byte_perm(a, b, from);
}

__device__ __forceinline__ float bf16_to_float(std::uint16_t bits) {
    return float_of(static_cast<std::uint32_t>(bits) << 16U);
}

__device__ __forceinline__ std::uint32_t two_bf16(float low, float high) {
    std::uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// 8.0 has no addition of bf16 pairs: a * 1 + b, which is rounded once as well.
__device__ __forceinline__ std::uint32_t add_two_bf16(std::uint32_t a, std::uint32_t b) {
    constexpr std::uint32_t kTwoOnes = 0x3F803F80U;
    std::uint32_t sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(kTwoOnes), "r"(b));
    return sum;
}

__device__ __forceinline__ std::uint16_t float_to_bf16(float value) {
    std::uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ float half_to_float(std::uint16_t bits) {
    return __half2float(__ushort_as_half(bits));
}

__device__ __forceinline__ std::uint16_t float_to_half(float value) {
    return __half_as_ushort(__float2half_rn(value));
}

__device__ __forceinline__ float fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}
__device__ __forceinline__ float exp(float x) {
    return expf(x);
}
// Two rounded operations, as on a host; the instruction of that name has other bits.
__device__ __forceinline__ float rsqrt(float x) {
    return __fdiv_rn(1.0F, __fsqrt_rn(x));
}
__device__ __forceinline__ float maximum(float a, float b) {
    return fmaxf(a, b);
}

// Before 9.0 a kernel begins when the one before has ended, and there is nothing to wait for.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace paceline::cuda
