// What a kernel may use of a device: thread numbers, shared memory, barriers, shuffles, tensor-core
// products, asynchronous copies. Every kernel of this folder is written against this header alone.
//
// nvcc gets the instructions (device_nvcc.cuh). A build for another device names the header with
// its functions in PACELINE_DEVICE_HEADER, as the tests do for a device without a GPU.
//
// Rules for kernels: one argument, a plain struct; shared memory only through shared_memory();
// every thread of a block reaches every sync_block(), every lane of a warp every warp operation;
// no atomics on anything that is summed. a * b + c is never fused unless fma() says so (the build
// forbids contraction), so a host reference with the same operations has the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef PACELINE_DEVICE_HEADER
#include PACELINE_DEVICE_HEADER
#else
#include "model/kernels/cuda/device_nvcc.cuh"
#endif

// Both give, in namespace paceline::cuda:
//
//   PACE_KERNEL                        in front of `void kernel(Args args)`
//   PACE_DEVICE                        in front of a function that kernels call
//
//   int thread_index(), block_size()   within the block, one-dimensional
//   int block_x(), block_y(), grid_x() of the grid
//   int lane(), warp()                 thread_index() % 32, / 32
//   T* shared_memory<T>(bytes)         the block's shared memory, from a byte offset (16-aligned)
//   void sync_block(), sync_warp()
//   T shuffle(T, from), shuffle_xor(T, mask)    float, int, unsigned; all 32 lanes take part
//   unsigned ballot(bool)              one bit per lane
//
//   struct Words4 { uint32_t x, y, z, w; }      16 bytes, aligned
//   struct Words2 { uint32_t x, y; }   8 bytes, aligned
//   Words4 load_streamed(const Words4*)    read once: through L2, not kept in L1. L2 fetches
//                                      the whole 128 bytes around it, which the next step reads.
//                                      Also of Words2 and of uint32_t
//   void copy_async16(void* shared, const void* global)   both 16-aligned
//   void commit_copies()               closes a group of copies
//   void wait_copies<N>()              all but the last N groups have arrived (then sync)
//
//   void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
//       c += A B on the tensor cores, mma.m16n8k16 with bf16 inputs and f32 sums. With g = lane/4
//       and t = lane%4: a0 = A[g][2t,2t+1], a1 = A[g+8][2t,2t+1], a2 = A[g][2t+8,2t+9],
//       a3 = A[g+8][2t+8,2t+9]; b0 = B[2t,2t+1][g], b1 = B[2t+8,2t+9][g]; c0,c1 = C[g][2t,2t+1],
//       c2,c3 = C[g+8][2t,2t+1]. The lower half of a word is the first of its two.
//
//   Products of a warpgroup, 128 threads (compute capability 9.0 alone), beside what follows:
//   void wgmma_bf16<N>(float (&d)[N / 2], const uint32_t (&a)[4], const void* b, bool add)
//       d += A B, or d = 0 + A B without `add`: m64nNk16 with bf16 inputs and f32 sums; N is 64 or
//       128. Warp w of the group has the 16 rows of A from 16 w on: their words in `a` and their
//       sums in d[4 i ..] are those of mma_bf16() for columns 8 i .. 8 i + 7. B is in shared
//       memory: two chunks of 8 inputs, one after the other, each N rows of 16 bytes. The bits are
//       those of mma_bf16().
//   void wgmma_begin()                 before the first of a group whose registers were written
//   void wgmma_commit()                closes a group
//   void wgmma_wait<N>()               all but the last N groups have ended
//   void wgmma_hold(float (&d)[])      sums may be used after it: between wgmma_wait() and that
//   void publish_for_wgmma()           what this thread wrote to shared memory is seen by products
//                                      that follow a barrier
//
//   float bf16_to_float(uint16_t), half_to_float(uint16_t)
//   uint16_t float_to_bf16(float), float_to_half(float)    round to nearest even
//   uint32_t two_bf16(float low, float high)
//   uint32_t add_two_bf16(uint32_t, uint32_t)   half by half, each rounded to bf16
//   uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t from)
//       byte i is byte (from >> 4i) & 7 of the eight bytes of a (0 .. 3) and b (4 .. 7)
//   float fma(float, float, float), exp(float), rsqrt(float), maximum(float, float)
//   uint32_t bits_of(float), float float_of(uint32_t)
//
//   void wait_for_previous()           until the kernel before in the stream has ended and its
//                                      writes are seen (programmatic dependent launch); before it
//                                      a kernel may read only what no kernel of the batch writes
//   void let_next_start()              the next kernel may begin its part before that call, once
//                                      all blocks have called this or ended. Never before
//                                      wait_for_previous(): so a kernel begins only when all but
//                                      the one before it have ended, and at most two run at once.
//                                      Its own wait then covers all earlier kernels: the one before
//                                      has ended, and could not end without having waited itself
