// CudaRank: what a backend has on one of its devices: the device's part of the weights, its KV
// heads, its tables and workspace, and the stream that its kernels go to. A backend on one device
// has one.
//
// Everything is allocated while the device is the calling thread's. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "model/backend.hpp"
#include "model/cuda/cuda_part.hpp"
#include "model/cuda/cuda_weights.hpp"
#include "model/cuda/rotation_table.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "model/kernels/cuda/sampling/sample.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

/// Keys and values of some layers, in pages (model/kernels/cuda/attention.hpp).
struct CudaCache {
    cuda::DeviceMemory memory;
    cuda::CacheType type = cuda::CacheType::BF16;
    int layers = 0;
    int kv_heads = 0;
    int head_dim = 0;
    std::int32_t slots = 0;

    static std::uint64_t bytes_of(
        KvType type, int layers, int kv_heads, int head_dim, std::int32_t slots);
    /// Zeroed. False if there is not so much memory.
    static bool make(KvType type,
                     int layers,
                     int kv_heads,
                     int head_dim,
                     std::int32_t slots,
                     cuda::Stream& stream,
                     CudaCache& to);
};

/// What rows need between two kernels on a device.
struct CudaWorkspace {
    // Of a batch's rows, up to rows_max.
    float* hidden = nullptr;   // [rows][dim]: whole on the first device, own columns on all
    float* kept = nullptr;     // [kKeptBatches * rows][dim]: what make_rows() gives
    void* input = nullptr;     // [rows][padded dim]: of q k v, gate up, heads
    float* squares = nullptr;  // [rows][tiles]
    float* factors = nullptr;  // [rows]: what norms are, made of the squares
    float* qkv = nullptr;      // [rows][own q + k + v]
    void* mixed = nullptr;     // [rows][padded q]: of attention's out
    void* gated = nullptr;     // [rows][padded ffn]: of down
    float* gates = nullptr;    // [rows][own ffn]; if a layer has gate and up as two products
    float* partials = nullptr;
    std::byte* blas = nullptr;  // exact = off alone: what cuBLAS works in, and its products
    float* products = nullptr;  // [rows][gate + up, or dim]
    // Of an EAGLE draft (cuda_eagle.hpp).
    float* features = nullptr;      // [slots][dim]: whole on all devices
    float* states = nullptr;        // [rows][states * dim]: that are joined; or nullptr
    void* fused = nullptr;          // [rows][padded]: of F, of J
    std::int32_t* steps = nullptr;  // tables
    // Of a head's rows, up to head_rows().
    void* turned = nullptr;  // [rows][padded dim]: after the head's transform
    float* block = nullptr;  // [rows][dim]: T n, if a head has a residual block; own columns
    std::int32_t* head_rows = nullptr;  // how many, which of `hidden`; the first: after the draws
    // On the first device alone.
    float* logits = nullptr;         // [rows][vocab]
    cuda::DrawRow* draws = nullptr;  // [rows], with their scratch and what was drawn
    std::byte* draw_scratch = nullptr;
    std::int32_t* tokens = nullptr;
    cuda::CandidateList* lists = nullptr;
};

struct CudaRank {
    CudaRank(int index, const CudaPart& of_group) : device{index}, part{of_group} {}

    int device;
    CudaPart part;
    cuda::DeviceInfo info;
    MemoryUse use;              // of this device; what is pinned counts to the first
    bool through_host = false;  // the devices of its group do not reach each other
    std::unique_ptr<CudaWeights> weights;
    CudaCache cache;
    CudaCache adapter_cache;
    cuda::Stream stream;
    cuda::Stream urgent;
    cuda::Event done{cuda::EventUse::Order};  // what is in the stream: others wait for it
    cuda::DeviceMemory memory;
    CudaWorkspace at;
    RotationTable angles;

    /// The number of the device in its group.
    [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(part.rank); }
};

}  // namespace paceline
