#include "model/eagle/eagle_backend.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/eagle/host_eagle_layer.hpp"

namespace paceline {
namespace {

std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

/// `of` in another order, where it has anything.
template <class T>
std::vector<T> sorted_by(const std::vector<std::size_t>& order, std::span<const T> of) {
    std::vector<T> sorted;
    if (of.empty()) return sorted;
    for (const std::size_t i : order) sorted.push_back(of[i]);
    return sorted;
}

template <class T>
std::span<T> part_of(std::span<T> all, std::size_t first, std::size_t count) {
    return all.empty() ? all : all.subspan(first, count);
}

}  // namespace

std::uint64_t eagle_kept_bytes(const EagleSpec& spec, int dim) {
    // Once as they were sent, once more while a pass puts them into their slots.
    return 2 * std::uint64_t{spec.states()} * std::uint64_t{kFeaturesKeptMax} * size_of(dim) *
           sizeof(float);
}

MemoryUse eagle_memory(const EagleSpec& spec, int dim, std::int32_t kv_slots) {
    MemoryUse use;
    use.weight_bytes = (spec.fuse.size() + spec.join.size()) * sizeof(float);
    use.workspace_bytes = size_of(dim) * static_cast<std::size_t>(kv_slots) * sizeof(float) +
                          eagle_kept_bytes(spec, dim);
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

EagleBackend::EagleBackend(std::unique_ptr<Backend> layer, const EagleSpec& spec)
    : layer_{std::move(layer)},
      on_host_{std::make_unique<HostEagleLayer>(*layer_, spec)},
      step_{*on_host_},
      own_{eagle_memory(spec, layer_->config().dim, layer_->kv_slots())},
      dim_{size_of(layer_->config().dim)},
      width_{spec.states() * dim_} {
    PACE_CHECK(check_eagle(spec, layer_->config().dim).ok(), "matrices of the layer's width");
    PACE_CHECK(layer_->first_layer() == 0, "an EAGLE draft's own layer is its first");
    const auto slots = static_cast<std::size_t>(layer_->kv_slots());
    given_.resize(slots);
    unput_at_.assign(slots, -1);
    written_.assign(slots, -1);
}

EagleBackend::EagleBackend(std::unique_ptr<Backend> layer, EagleLayer& steps, std::size_t states)
    : layer_{std::move(layer)},
      step_{steps},
      dim_{size_of(layer_->config().dim)},
      width_{states * dim_} {
    PACE_CHECK(layer_->first_layer() == 0, "an EAGLE draft's own layer is its first");
    const auto slots = static_cast<std::size_t>(layer_->kv_slots());
    given_.resize(slots);
    unput_at_.assign(slots, -1);
    written_.assign(slots, -1);
}

MemoryUse EagleBackend::memory_use() const {
    MemoryUse use = layer_->memory_use();
    use.weight_bytes += own_.weight_bytes;
    use.workspace_bytes += own_.workspace_bytes;
    return use;
}

// ---- Features

bool EagleBackend::given(KvSlot slot) const {
    PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
    return given_[static_cast<std::size_t>(slot)] != 0;
}

void EagleBackend::give(KvSlot slot, std::span<const float> states) {
    PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
    PACE_CHECK(states.size() == width(), "a feature of this draft's layers");
    given_[static_cast<std::size_t>(slot)] = 1;
    int& at = unput_at_[static_cast<std::size_t>(slot)];
    if (at < 0) {
        at = static_cast<int>(unput_.size());
        unput_.push_back(slot);
        unput_states_.resize(unput_.size() * width_);
    }
    std::copy(states.begin(), states.end(),
              std::span{unput_states_}.subspan(size_of(at) * width_).begin());
}

void EagleBackend::forget(KvSlot slot) {
    PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
    given_[static_cast<std::size_t>(slot)] = 0;
    int& at = unput_at_[static_cast<std::size_t>(slot)];
    if (at < 0) return;
    // The last one takes its place.
    const std::size_t last = unput_.size() - 1;
    std::copy_n(std::span{unput_states_}.subspan(last * width_).begin(), width_,
                std::span{unput_states_}.subspan(size_of(at) * width_).begin());
    unput_[size_of(at)] = unput_[last];
    unput_at_[static_cast<std::size_t>(unput_[last])] = at;
    at = -1;
    unput_.pop_back();
    unput_states_.resize(last * width_);
}

std::span<const float> EagleBackend::feature(KvSlot slot) {
    PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
    put_given();
    feature_.resize(dim_);
    step_.read(slot, feature_);
    return feature_;
}

/// What was given is put in its place by the job, not by the loop that gave it: there are products
/// and copies to do.
void EagleBackend::put_given() {
    if (unput_.empty()) return;
    step_.put(unput_, unput_states_);
    for (const KvSlot slot : unput_) unput_at_[static_cast<std::size_t>(slot)] = -1;
    unput_.clear();
    unput_states_.clear();
}

// ---- A call

/// A row runs after those rows of the call that it sees, and after the one before it is complete
/// if its feature is that row's output.
void EagleBackend::plan(std::span<const Row> rows) {
    steps_ = rows.empty() ? 0 : 1;
    step_of_.assign(rows.size(), 0);
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const Row& row = rows[r];
        PACE_CHECK(row.first == 0 && row.last == 2 * last_layer() && row.mask == nullptr &&
                       row.stack == nullptr && !row.given,
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

/// The rows of each step one after the other, with the features that they read and write.
void EagleBackend::order(std::span<const Row> rows) {
    in_order_.resize(rows.size());
    std::iota(in_order_.begin(), in_order_.end(), std::size_t{0});
    std::stable_sort(in_order_.begin(), in_order_.end(),
                     [this](std::size_t a, std::size_t b) { return step_of_[a] < step_of_[b]; });
    place_of_.resize(rows.size());
    rows_.clear();
    before_.clear();
    kept_.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Row& row = rows[in_order_[i]];
        place_of_[in_order_[i]] = i;
        rows_.push_back(row);
        before_.push_back(row.position > 0 ? row.key_slot(row.position - 1) : kNoFeature);
        kept_.push_back(given(row.slot) ? kNoFeature : row.slot);
    }
}

/// `out` and draws are in the order of the steps.
RunOutcome EagleBackend::run_steps(HiddenRows out,
                                   const StepDraws& draws,
                                   const CancelToken* cancel) {
    for (std::size_t first = 0; first < rows_.size();) {
        std::size_t count = 1;
        while (first + count < rows_.size() &&
               step_of_[in_order_[first + count]] == step_of_[in_order_[first]])
            ++count;
        const auto of = [&](auto all) { return part_of(all, first, count); };
        const EagleStep step{of(std::span<const Row>{rows_}), of(std::span<const KvSlot>{before_}),
                             of(std::span<const KvSlot>{kept_})};
        const HiddenRows states = out.empty() ? out : out.subspan(first * dim_, count * dim_);
        if (step_.run_step(step, states,
                           {draws.head, of(draws.jobs), of(draws.tokens), of(draws.best)},
                           cancel) == RunOutcome::Cancelled)
            return RunOutcome::Cancelled;
        first += count;
    }
    return RunOutcome::Done;
}

RunOutcome EagleBackend::run(std::span<const Row> rows,
                             HiddenRows hidden,
                             const StepDraws& draws,
                             const CancelToken* cancel) {
    PACE_CHECK(cancel == nullptr || cancel->rows() == nullptr, "rows of a draft get stale at once");
    put_given();
    plan(rows);
    order(rows);
    if (steps_ <= 1) return run_steps(hidden, draws, cancel);
    jobs_ = sorted_by(in_order_, draws.jobs);
    tokens_.assign(draws.tokens.size(), std::nullopt);
    best_.assign(draws.best.size(), {});
    const HiddenRows out = hidden.empty() ? hidden : layer_->rows_of(room_, rows.size());
    if (run_steps(out, {draws.head, jobs_, tokens_, best_}, cancel) == RunOutcome::Cancelled)
        return RunOutcome::Cancelled;
    if (!hidden.empty()) {
        std::vector<RowSource> outputs;
        for (const std::size_t place : place_of_) outputs.push_back({out, place});
        layer_->gather(outputs, hidden);
    }
    for (std::size_t r = 0; r < rows.size() && !jobs_.empty(); ++r) {
        if (draws.jobs[r].params == nullptr) continue;
        if (!tokens_.empty()) draws.tokens[r] = tokens_[place_of_[r]];
        if (!best_.empty()) draws.best[r] = std::move(best_[place_of_[r]]);
    }
    return RunOutcome::Done;
}

RunOutcome EagleBackend::run_layers(std::span<const Row> rows,
                                    HiddenRows hidden,
                                    const CancelToken* cancel) {
    PACE_CHECK(hidden.size() == rows.size() * dim_, "hidden is [rows, dim]");
    return run(rows, hidden, {}, cancel);
}

RunOutcome EagleBackend::run_and_draw(std::span<const Row> rows,
                                      HiddenRows hidden,
                                      const BehindRows& behind,
                                      std::span<std::optional<TokenId>> tokens,
                                      const CancelToken* cancel) {
    PACE_CHECK(behind.jobs.size() == rows.size() && tokens.size() == rows.size(),
               "a job and a token for each row");
    return run(rows, behind.hidden ? hidden : HiddenRows{}, {.jobs = behind.jobs, .tokens = tokens},
               cancel);
}

RunOutcome EagleBackend::run_and_draw_candidates(HeadId id,
                                                 std::span<const Row> rows,
                                                 HiddenRows hidden,
                                                 const BehindRows& behind,
                                                 std::span<std::vector<Candidate>> best,
                                                 const CancelToken* cancel) {
    PACE_CHECK(behind.jobs.size() == rows.size() && best.size() == rows.size(),
               "a job and a list for each row");
    return run(rows, behind.hidden ? hidden : HiddenRows{},
               {.head = id, .jobs = behind.jobs, .best = best}, cancel);
}

}  // namespace paceline
