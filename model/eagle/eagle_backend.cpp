#include "model/eagle/eagle_backend.hpp"

#include <algorithm>
#include <fmt/core.h>

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

std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

}  // namespace

MemoryUse eagle_memory(const EagleSpec& spec, int dim, std::int32_t kv_slots) {
    MemoryUse use;
    use.weight_bytes = (spec.fuse.size() + spec.join.size()) * sizeof(float);
    const std::size_t kept = spec.states() * static_cast<std::size_t>(kFeaturesKeptMax);
    use.workspace_bytes =
        size_of(dim) * (static_cast<std::size_t>(kv_slots) + kept) * sizeof(float);
    return use;
}

Status check_eagle(const EagleSpec& spec, int dim) {
    const std::size_t square = size_of(dim) * size_of(dim);
    if (spec.fuse.size() != 2 * square) {
        return Error{Errc::BadArgument, fmt::format("an EAGLE draft's matrix over embedding and "
                                                    "feature has {} numbers, must have {}",
                                                    spec.fuse.size(), 2 * square)};
    }
    const std::size_t joined = spec.layers.empty() ? 0 : spec.layers.size() * square;
    if (spec.join.size() == joined) return {};
    return Error{Errc::BadArgument,
                 fmt::format("an EAGLE draft's matrix over the states of {} layers has {} numbers, "
                             "must have {}",
                             spec.layers.size(), spec.join.size(), joined)};
}

EagleBackend::EagleBackend(std::unique_ptr<Backend> layer, EagleSpec spec)
    : layer_{std::move(layer)}, spec_{std::move(spec)}, dim_{size_of(layer_->config().dim)} {
    PACE_CHECK(check_eagle(spec_, layer_->config().dim).ok(), "matrices of the layer's width");
    PACE_CHECK(layer_->first_layer() == 0, "an EAGLE draft's own layer is its first");
    PACE_CHECK(layer_->memory_place() == MemoryPlace::Host, "an EAGLE draft on the host");
    spec_.fuse = transposed(spec_.fuse, dim_);
    if (!spec_.join.empty()) spec_.join = transposed(spec_.join, dim_);
    const auto slots = static_cast<std::size_t>(layer_->kv_slots());
    features_.resize(slots * dim_);
    given_.resize(slots);
    written_.assign(slots, -1);
}

MemoryUse EagleBackend::memory_use() const {
    MemoryUse use = layer_->memory_use();
    const MemoryUse own = eagle_memory(spec_, layer_->config().dim, layer_->kv_slots());
    use.weight_bytes += own.weight_bytes;
    use.workspace_bytes += own.workspace_bytes;
    return use;
}

// ---- Features

std::span<float> EagleBackend::place(KvSlot slot) {
    PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
    return std::span{features_}.subspan(static_cast<std::size_t>(slot) * dim_, dim_);
}

bool EagleBackend::given(KvSlot slot) const {
    PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
    return given_[static_cast<std::size_t>(slot)] != 0;
}

void EagleBackend::give(KvSlot slot, std::span<const float> states) {
    PACE_CHECK(states.size() == width(), "a feature of this draft's layers");
    const std::span<float> to = place(slot);
    given_[static_cast<std::size_t>(slot)] = 1;
    if (spec_.join.empty()) {
        std::copy(states.begin(), states.end(), to.begin());
    } else {
        unjoined_.emplace_back(slot, std::vector<float>(states.begin(), states.end()));
    }
}

void EagleBackend::forget(KvSlot slot) {
    (void)place(slot);
    given_[static_cast<std::size_t>(slot)] = 0;
    std::erase_if(unjoined_, [slot](const auto& one) { return one.first == slot; });
}

std::span<const float> EagleBackend::feature(KvSlot slot) {
    join_given();
    return place(slot);
}

/// The products of what was given are the job's work, not the loop's that gave it.
void EagleBackend::join_given() {
    for (const auto& [slot, states] : unjoined_) {
        const std::span<float> to = place(slot);
        std::fill(to.begin(), to.end(), 0.0F);
        add_product(spec_.join, states, to);
    }
    unjoined_.clear();
}

// ---- A call

/// A row runs after those rows of the call that it sees, and after the one before it is complete
/// if its feature is that row's output.
void EagleBackend::plan(std::span<const Row> rows) {
    steps_ = rows.empty() ? 0 : 1;
    step_of_.assign(rows.size(), 0);
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const Row& row = rows[r];
        PACE_CHECK(row.first == 0 && row.last == 2 * last_layer() && row.mask == nullptr,
                   "rows that run the whole layer");
        PACE_CHECK(row.slot >= 0 && row.slot < kv_slots(), "a slot that exists");
        if (row.position > 0) {
            const KvSlot before = row.key_slot(row.position - 1);
            const int writer = written_[static_cast<std::size_t>(before)];
            if (writer >= 0)
                step_of_[r] = step_of_[static_cast<std::size_t>(writer)] + (given(before) ? 0 : 1);
        }
        written_[static_cast<std::size_t>(row.slot)] = static_cast<int>(r);
        steps_ = std::max(steps_, step_of_[r] + 1);
    }
    for (const Row& row : rows) written_[static_cast<std::size_t>(row.slot)] = -1;
}

void EagleBackend::fuse(std::span<const Row> rows,
                        std::span<const float> embedded,
                        std::span<float> out) {
    std::fill(out.begin(), out.end(), 0.0F);
    const std::span<const float> matrix{spec_.fuse};
    // Some inputs of all rows, then the next ones: the matrix is read once a call.
    for (std::size_t at = 0; at < dim_; at += kInputsAtOnce) {
        const std::size_t count = std::min(kInputsAtOnce, dim_ - at);
        const std::span<const float> part = matrix.subspan(at * dim_, count * dim_);
        for (std::size_t r = 0; r < rows.size(); ++r)
            add_product(part, embedded.subspan(r * dim_ + at, count), out.subspan(r * dim_, dim_));
    }
    for (std::size_t at = 0; at < dim_; at += kInputsAtOnce) {
        const std::size_t count = std::min(kInputsAtOnce, dim_ - at);
        const std::span<const float> part = matrix.subspan((dim_ + at) * dim_, count * dim_);
        for (std::size_t r = 0; r < rows.size(); ++r) {
            if (rows[r].position == 0) continue;
            const std::span<float> before = place(rows[r].key_slot(rows[r].position - 1));
            add_product(part, before.subspan(at, count), out.subspan(r * dim_, dim_));
        }
    }
}

RunOutcome EagleBackend::run_step(std::span<const Row> rows,
                                  int step,
                                  std::span<float> hidden,
                                  const CancelToken* cancel) {
    chosen_.clear();
    chosen_at_.clear();
    for (std::size_t r = 0; r < rows.size(); ++r) {
        if (step_of_[r] != step) continue;
        chosen_.push_back(rows[r]);
        chosen_.back().given = false;
        chosen_.back().last = 0;
        chosen_at_.push_back(r);
    }
    const std::size_t floats = chosen_.size() * dim_;
    embedded_.resize(floats);
    fused_.resize(floats);
    if (layer_->run_layers(chosen_, embedded_, cancel) == RunOutcome::Cancelled)
        return RunOutcome::Cancelled;
    fuse(chosen_, embedded_, fused_);
    for (Row& row : chosen_) {
        row.given = true;
        row.last = 2 * last_layer();
    }
    if (layer_->run_layers(chosen_, fused_, cancel) == RunOutcome::Cancelled)
        return RunOutcome::Cancelled;
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
        const std::span<const float> output = std::span{fused_}.subspan(i * dim_, dim_);
        std::copy(output.begin(), output.end(), hidden.subspan(chosen_at_[i] * dim_).begin());
        if (given(chosen_[i].slot)) continue;
        std::copy(output.begin(), output.end(), place(chosen_[i].slot).begin());
    }
    return RunOutcome::Done;
}

RunOutcome EagleBackend::run_layers(std::span<const Row> rows,
                                    HiddenRows hidden,
                                    const CancelToken* cancel) {
    const std::span<float> states = hidden.host();
    PACE_CHECK(states.size() == rows.size() * dim_, "hidden is [rows, dim]");
    PACE_CHECK(cancel == nullptr || cancel->rows() == nullptr, "rows of a draft get stale at once");
    join_given();
    plan(rows);
    for (int step = 0; step < steps_; ++step) {
        if (run_step(rows, step, states, cancel) == RunOutcome::Cancelled)
            return RunOutcome::Cancelled;
    }
    return RunOutcome::Done;
}

}  // namespace paceline
