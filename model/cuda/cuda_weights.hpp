// CudaWeights: the weights of one segment in device memory, or a device's part of them (CudaPart).
//
// plan() decides types and places without touching a device, so that memory is accounted before it
// is allocated; load() copies each matrix through two pinned buffers: the host's threads fill one
// while the other is being copied. Matrices that a kernel can read as stored are not packed.
//
// Owns the device memory. Immutable after load().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/cuda/cuda_options.hpp"
#include "model/cuda/cuda_part.hpp"
#include "model/cuda/weight_uploader.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "model/kernels/cuda/sampling/sample.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// What one attention sub-layer needs.
struct CudaAttention {
    // q, k and v as one product. Where their types differ, neighbours of equal type share a
    // product; columns of the results follow one another in this order.
    std::vector<cuda::DeviceMatrix> qkv;
    cuda::DeviceMatrix out;
    const float* norm = nullptr;  // [dim]
    const float* bias = nullptr;  // [q + k + v]; nullptr: none
    const float* q_norm = nullptr;
    const float* k_norm = nullptr;
    int all_heads = 0;  // of all devices
    int all_kv_heads = 0;
    int heads = 0;       // of this device; 0: it has nothing of q, k, v and attention
    int first_head = 0;  // of all devices', that is this one's first
    int kv_heads = 0;
    int first_kv_head = 0;
    int head_dim = 0;
};

struct CudaLayer {
    CudaAttention attention;
    // Gate and up side by side, one product. Where their types differ, gate_up is gate alone (not
    // paired) and `up` has values.
    cuda::DeviceMatrix gate_up, down;
    cuda::DeviceMatrix up;
    const float* ffn_norm = nullptr;
};

/// A head beside the final one (HeadSpec), or an adapter's.
struct CudaHead {
    HeadId id = HeadId::Final;
    int outputs = 0;  // of all devices: those of `output` begin with the output share.first
    CudaShare share;
    bool turns = false;
    bool norm_first = true;
    HeadBlock block = HeadBlock::Linear;
    cuda::DeviceMatrix transform;
    cuda::DeviceMatrix output;
    const float* norm = nullptr;  // of the output
    std::vector<TokenId> tokens;  // ascending; empty: the whole vocabulary
    cuda::TokenList list;         // the same on the first device, which draws
};

class CudaWeights {
public:
    CudaWeights(const CudaWeights&) = delete;
    CudaWeights& operator=(const CudaWeights&) = delete;
    /// Types, shapes and places. `file` and `options` must outlive load(). Stays where it is:
    /// what was planned points into it.
    static std::unique_ptr<CudaWeights> plan(const ModelFile& file,
                                             const CudaOptions& options,
                                             const CudaPart& part = {});
    /// Of the model's hidden states and of an MLP's inner ones: those that this device makes.
    [[nodiscard]] const CudaShare& columns() const { return columns_; }
    [[nodiscard]] const CudaShare& inner() const { return inner_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

    /// Takes the memory and fills it. Errors: OutOfMemory; BadFile when a norm, a bias, a weight or
    /// a scale of a block is not finite. Throws DeviceError.
    Status load(const ModelFile& file, const CudaOptions& options, cuda::Stream& stream);

    [[nodiscard]] const CudaLayer& layer(int index) const {
        return layers_[static_cast<std::size_t>(index - first_layer_)];
    }
    /// Whether a layer has gate and up as two products.
    [[nodiscard]] bool splits_gates() const { return splits_gates_; }
    [[nodiscard]] const cuda::DeviceMatrix& embedding() const { return embedding_; }
    [[nodiscard]] int first_token() const { return first_token_; }  // of the embedding
    /// Beside the target's own and the adapter's.
    [[nodiscard]] std::size_t heads() const { return heads_.size(); }
    /// One that the segment has.
    [[nodiscard]] const CudaHead& head(HeadId id) const;
    [[nodiscard]] bool has_adapter() const { return has_adapter_; }
    [[nodiscard]] const CudaAttention& adapter() const { return adapter_; }
    /// Of an EAGLE draft: this device's outputs of F, and of J where features join states.
    [[nodiscard]] const cuda::DeviceMatrix& fuse() const { return fuse_; }
    [[nodiscard]] const cuda::DeviceMatrix& join() const { return join_; }

private:
    struct Staging;
    CudaWeights() = default;
    /// A matrix or a vector and where it goes.
    struct Item {
        std::unique_ptr<WeightUploader> feed;  // nothing: `values` or `words`
        std::vector<cuda::DeviceMatrix*> matrices;
        std::vector<float> values;
        std::vector<const float**> vectors;
        std::vector<std::int32_t> words;
        const std::int32_t** list = nullptr;
        std::uint64_t offset = 0;
    };
    Item& add(WeightUploader feed, cuda::DeviceMatrix& to);
    void add(std::vector<float> values, const float*& to);
    void add(std::vector<std::int32_t> words, const std::int32_t*& to);
    /// Its numbers; what is wrong with them goes to wrong_.
    std::vector<float> vector_of(const ModelFile& file, const TensorView& tensor);
    void add_vector(const ModelFile& file, const TensorView& tensor, const float*& to);
    [[nodiscard]] cuda::WeightType type_of(const TensorView& tensor,
                                           Dtype dtype,
                                           MatrixUse use) const;
    void plan_qkv(const std::vector<TensorView>& tensors,
                  const std::vector<cuda::WeightType>& types,
                  CudaAttention& to);
    [[nodiscard]] CudaShare share_of_qkv(std::size_t which, const CudaAttention& of) const;
    void share_heads(int heads, int kv_heads, int head_dim, CudaAttention& to) const;
    void add_outputs(cuda::WeightType type, const TensorView& tensor, cuda::DeviceMatrix& to);
    void plan_attention(const ModelFile& file,
                        const LayerTensors& from,
                        CudaAttention& to,
                        Dtype dtype);
    void plan_layer(const ModelFile& file, int index, const CudaOptions& options);
    void plan_vocabulary(const ModelFile& file, const CudaOptions& options);
    void plan_head(const ModelFile& file, const HeadSpec& spec, CudaHead& head);
    void plan_list(int vocab_size, CudaHead& head);
    void plan_adapter(const ModelFile& file, const AdapterSpec& spec);
    void plan_eagle(const ModelFile& file, const EagleSpec& spec);
    [[nodiscard]] cuda::WeightType trained_type() const;
    void copy(const Item& item,
              Staging& staging,
              cuda::Stream& stream,
              const std::function<void(std::uint64_t)>& done);

    cuda::DeviceMemory memory_;
    std::vector<Item> items_;
    std::uint64_t bytes_ = 0;
    std::string wrong_;  // what is not finite; load() reports it
    CudaPart part_;
    CudaShare columns_;
    CudaShare inner_;
    int first_token_ = 0;
    int first_layer_ = 0;
    std::vector<CudaLayer> layers_;
    bool floats_ = false;  // float32 matrices stay so
    bool splits_gates_ = false;
    bool has_embedding_ = false;
    bool has_adapter_ = false;
    cuda::DeviceMatrix embedding_;
    Item* head_item_ = nullptr;  // of the whole head, while planning
    cuda::WeightType head_type_ = cuda::WeightType::BF16;
    CudaHead final_;
    std::vector<CudaHead> heads_;
    CudaAttention adapter_;
    CudaHead adapter_head_;
    cuda::DeviceMatrix fuse_, join_;
};

}  // namespace paceline
