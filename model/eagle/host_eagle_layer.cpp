#include "model/eagle/host_eagle_layer.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

constexpr std::size_t kInputsAtOnce = 32;  // of F: their part of it stays in the first caches

/// [outputs, inputs] as [inputs, outputs]: then the inner loop below runs over outputs, whose sums
/// are independent of each other.
std::vector<float> transposed(const std::vector<float>& matrix, std::size_t outputs) {
    const std::size_t inputs = matrix.size() / outputs;
    std::vector<float> turned(matrix.size());
    for (std::size_t o = 0; o < outputs; ++o) {
        for (std::size_t i = 0; i < inputs; ++i) turned[i * outputs + o] = matrix[o * inputs + i];
    }
    return turned;
}

/// out[o] += sum over i of matrix[i, o] x[i], in the order of i.
void add_product(std::span<const float> matrix, std::span<const float> x, std::span<float> out) {
    const std::size_t outputs = out.size();
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float* row = matrix.data() + i * outputs;
        const float factor = x[i];
        for (std::size_t o = 0; o < outputs; ++o) out[o] += row[o] * factor;
    }
}

}  // namespace

HostEagleLayer::HostEagleLayer(Backend& layer, EagleSpec spec)
    : layer_{layer}, spec_{std::move(spec)}, dim_{static_cast<std::size_t>(layer.config().dim)} {
    PACE_CHECK(layer_.memory_place() == MemoryPlace::Host, "a layer on the host");
    spec_.fuse = transposed(spec_.fuse, dim_);
    if (!spec_.join.empty()) spec_.join = transposed(spec_.join, dim_);
    features_.resize(static_cast<std::size_t>(layer_.kv_slots()) * dim_);
}

std::span<float> HostEagleLayer::place(KvSlot slot) {
    PACE_CHECK(slot >= 0 && slot < layer_.kv_slots(), "a slot that exists");
    return std::span{features_}.subspan(static_cast<std::size_t>(slot) * dim_, dim_);
}

void HostEagleLayer::put(std::span<const KvSlot> slots, std::span<const float> states) {
    const std::size_t width = spec_.states() * dim_;
    PACE_CHECK(states.size() == slots.size() * width, "states of each slot");
    for (std::size_t i = 0; i < slots.size(); ++i) {
        const std::span<const float> of_one = states.subspan(i * width, width);
        const std::span<float> to = place(slots[i]);
        if (spec_.join.empty()) {
            std::copy(of_one.begin(), of_one.end(), to.begin());
        } else {
            std::fill(to.begin(), to.end(), 0.0F);
            add_product(spec_.join, of_one, to);
        }
    }
}

void HostEagleLayer::read(KvSlot slot, std::span<float> to) {
    const std::span<float> from = place(slot);
    std::copy(from.begin(), from.end(), to.begin());
}

void HostEagleLayer::fuse(std::span<const KvSlot> before, std::span<float> out) {
    std::fill(out.begin(), out.end(), 0.0F);
    const std::span<const float> matrix{spec_.fuse};
    const std::span<const float> embedded{embedded_};
    // Some inputs of all rows, then the next ones: the matrix is read once a call.
    for (std::size_t at = 0; at < dim_; at += kInputsAtOnce) {
        const std::size_t count = std::min(kInputsAtOnce, dim_ - at);
        const std::span<const float> part = matrix.subspan(at * dim_, count * dim_);
        for (std::size_t r = 0; r < before.size(); ++r)
            add_product(part, embedded.subspan(r * dim_ + at, count), out.subspan(r * dim_, dim_));
    }
    for (std::size_t at = 0; at < dim_; at += kInputsAtOnce) {
        const std::size_t count = std::min(kInputsAtOnce, dim_ - at);
        const std::span<const float> part = matrix.subspan((dim_ + at) * dim_, count * dim_);
        for (std::size_t r = 0; r < before.size(); ++r) {
            if (before[r] == kNoFeature) continue;
            add_product(part, place(before[r]).subspan(at, count), out.subspan(r * dim_, dim_));
        }
    }
}

RunOutcome HostEagleLayer::run_step(const EagleStep& step,
                                    HiddenRows out,
                                    const StepDraws& draws,
                                    const CancelToken* cancel) {
    PACE_CHECK(draws.jobs.empty(), "a host draws from logits");
    PACE_CHECK(out.size() == step.rows.size() * dim_, "a place for each output");
    rows_.assign(step.rows.begin(), step.rows.end());
    for (Row& row : rows_) row.last = 0;
    embedded_.resize(out.size());
    if (layer_.run_layers(rows_, embedded_, cancel) == RunOutcome::Cancelled)
        return RunOutcome::Cancelled;
    const std::span<float> states = out.host();
    fuse(step.before, states);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
        rows_[r].given = true;
        rows_[r].last = step.rows[r].last;
    }
    if (layer_.run_layers(rows_, states, cancel) == RunOutcome::Cancelled)
        return RunOutcome::Cancelled;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
        if (step.kept[r] == kNoFeature) continue;
        const std::span<float> output = states.subspan(r * dim_, dim_);
        std::copy(output.begin(), output.end(), place(step.kept[r]).begin());
    }
    return RunOutcome::Done;
}

}  // namespace paceline
