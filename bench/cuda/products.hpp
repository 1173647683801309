// A layer's products as benches time them: matrices enough that none is still in a cache, rows, and
// all that a product and what is fused after it read and write.
//
// Owns device memory; one thread. Throws as device_work.hpp does.
#pragma once

#include <cstdint>
#include <vector>

#include "model/cuda/weight_uploader.hpp"
#include "model/kernels/cuda/gemm/gemm_choice.hpp"

#include "bench/cuda/device_work.hpp"
#include "bench/cuda/rungs.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {

/// A kind of product with equal matrices of synthetic weights.
class Product {
public:
    Product(const Bench& bench, const char* name, WeightUploader feed, cuda::FinishKind kind);

    [[nodiscard]] const char* name() const { return name_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }  // of one matrix
    [[nodiscard]] cuda::FinishKind kind() const { return kind_; }
    [[nodiscard]] const cuda::DeviceMatrix& at(int i) const {
        return matrices_[static_cast<std::size_t>(i) % matrices_.size()];
    }
    /// Multiplications and additions of so many rows.
    [[nodiscard]] double operations(int rows) const;

private:
    const char* name_;
    cuda::FinishKind kind_;
    std::size_t bytes_;
    cuda::DeviceMemory memory_;
    std::vector<cuda::DeviceMatrix> matrices_;
};

/// The four products of a layer, in the order in which a row meets them.
[[nodiscard]] std::vector<Product> layer_products(const Bench& bench);
[[nodiscard]] Product head_product(const Bench& bench);

/// Rows on the device and what products of them need beside weights, as in CudaForward.
class ProductDesk {
public:
    /// For calls of up to `rows_max` rows of products with up to `outputs_max` floats a row.
    ProductDesk(const Bench& bench, int rows_max, int outputs_max);

    void set_rows(int rows);
    [[nodiscard]] int rows() const { return rows_; }
    [[nodiscard]] int processors() const { return processors_; }
    [[nodiscard]] bool wgmma() const { return wgmma_; }
    [[nodiscard]] cuda::Stream& stream() { return stream_; }
    [[nodiscard]] const std::int32_t* count() const { return count_.as<std::int32_t>(); }
    [[nodiscard]] float* out() const { return out_.as<float>(); }
    [[nodiscard]] std::byte* next() const { return next_.data(); }

    /// With the norm in front and what follows, as in a layer. `i`: which of the matrices.
    [[nodiscard]] cuda::GemmArgs args(const Product& product, int i) const;
    /// Of one product, launched as the backend launches it.
    [[nodiscard]] double seconds(const Product& product);
    /// Of one, spread as `choice` says.
    [[nodiscard]] double seconds(const Product& product, const cuda::GemmChoice& choice);
    /// A checksum of all that the product leaves behind, and how many of its results are NaN.
    /// Product, rows and choice of the rung are the caller's to fill in.
    [[nodiscard]] Rung result(const Product& product, const cuda::GemmChoice& choice);

private:
    [[nodiscard]] cuda::GemmArgs with_factors(cuda::GemmArgs call) const;

    const Bench& bench_;
    const ModelConfig& config_;
    int rows_max_;
    int rows_ = 1;
    int processors_;
    bool wgmma_;
    cuda::Stream stream_;
    cuda::DeviceMemory input_, next_, hidden_, out_, squares_, next_squares_, factors_, places_;
    cuda::DeviceMemory norm_, count_;
};

}  // namespace paceline::bench
