#include "bench/cuda/attention_bench.hpp"

#include <algorithm>
#include <numeric>

#include "model/cuda/batch_tables.hpp"
#include "model/kernels/cuda/attention_plan.hpp"
#include "model/kv_layout.hpp"

namespace paceline::bench {
namespace {

using cuda::padded_inputs;

std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

}  // namespace

AttentionBench::AttentionBench(const Bench& bench, ProductDesk& desk, int context)
    : config_{bench.file.config()}, desk_{desk}, context_{context} {
    constexpr int kPage = kKvPageSlots;
    const int slots = (context + cuda::kBatchRows + kPage - 1) / kPage * kPage;
    const cuda::CacheType type = cache_type(*parse_kv_type(bench.settings.kv));
    const std::size_t words_each = cuda::cache_element_bytes(type) / 2;
    const std::size_t one = size_of(slots) * size_of(2 * config_.kv_dim()) * 2 * words_each;
    layers_ = static_cast<int>(
        std::clamp<std::size_t>(bench.settings.spread_bytes / one, 1, size_of(config_.layers)));
    // Finite as floats and halves as well.
    cache_ = random_bf16(slots * layers_, 2 * config_.kv_dim() * static_cast<int>(words_each));
    const int width = config_.q_dim() + 2 * config_.kv_dim();
    qkv_ = random_bf16(desk.rows(), 2 * width);
    names_.resize(size_of(slots));
    std::iota(names_.begin(), names_.end(), 0);
    slot_of_ = on_device(std::vector<std::int32_t>{names_.begin() + context, names_.end()});
    // Turned by 45 degrees, again and again: queries keep their length.
    angles_ =
        on_device(std::vector<float>(size_of(slots) * size_of(config_.head_dim), 0.70710678f));
    const int out_stride = padded_inputs(config_.q_dim());
    out_ = take(size_of(desk.rows()) * size_of(out_stride) * 2);

    rotate_.qkv = qkv_.as<float>();
    rotate_.qkv_stride = width;
    rotate_.heads = config_.heads;
    rotate_.kv_heads = config_.kv_heads;
    rotate_.head_dim = config_.head_dim;
    rotate_.pairs = config_.rope.dims / 2;
    rotate_.cosines = rotate_.sines = angles_.as<float>();
    rotate_.positions = slot_of_.as<std::int32_t>();  // a slot has the number of its position
    rotate_.slots = slot_of_.as<std::int32_t>();
    rotate_.rows = desk.count();
    rotate_.cache = cache_.data();
    rotate_.type = type;
    rotate_.layers = layers_;

    attend_.rows = desk.count();
    attend_.q = qkv_.as<float>();
    attend_.q_stride = width;
    attend_.heads = config_.heads;
    attend_.kv_heads = config_.kv_heads;
    attend_.head_dim = config_.head_dim;
    attend_.cache = cache_.data();
    attend_.type = type;
    attend_.layers = layers_;
    attend_.out = out_.data();
    attend_.out_stride = out_stride;
    kernel_ = cuda::attention_mma_takes(type, config_.head_dim) ? cuda::AttentionKernel::Mma
                                                                : cuda::AttentionKernel::Plain;
}

AttentionBench::Planned AttentionBench::planned() const {
    std::vector<Row> rows;
    for (int r = 0; r < desk_.rows(); ++r) {
        Row row;
        row.position = context_ + r;
        row.slot = context_ + r;
        row.prefix_slots = names_.data();
        row.prefix_count = row.position + 1;
        rows.push_back(row);
    }
    const int unit_rows = cuda::attention_unit_rows(desk_.rows(), config_.heads / config_.kv_heads);
    cuda::AttentionPlan plan;
    plan.build(rows, unit_rows);
    Planned planned;
    planned.words = on_device(std::vector<std::int32_t>{plan.words().begin(), plan.words().end()});
    planned.partials = take(size_of(std::max(1, plan.header().partials)) * size_of(config_.heads) *
                            size_of(cuda::attention_partial_floats(config_.head_dim)) * 4);
    planned.how = {kernel_, unit_rows, 4 * desk_.processors(), plan.header().merges == 0};
    return planned;
}

void AttentionBench::rotate(int i) const {
    cuda::RotateArgs args = rotate_;
    args.layer = i % layers_;
    cuda::launch_rotate(desk_.stream(), args, desk_.rows());
}

void AttentionBench::attend(const Planned& planned, int i) const {
    cuda::AttentionArgs args = attend_;
    args.plan = planned.words.as<std::int32_t>();
    args.partials = planned.partials.as<float>();
    args.layer = i % layers_;
    cuda::launch_attention(desk_.stream(), args, planned.how);
}

}  // namespace paceline::bench
